"""The starter model's tokenizer and template: ids recorded from llama.cpp, and facts of the file.

`tests/golden/starter_tokens.json` was written by llama-cpp-python 0.3.36 (`Llama.tokenize` of the same file):
a list of [text, ids as plain text, ids with control tokens]. Texts with characters for whose bytes the
vocabulary has no token (some control characters, planes 4 to 11: they get lost in llama.cpp too) are left
out.

`tests/golden/starter_pretokenizers.json` is the same for every cutting rule: a file with the starter's
vocabulary and that `tokenizer.ggml.pre`, made with the gguf package without weights.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.core import Message
from engine.text.template.encoding import encode_chat
from engine.text.template.template import ChatTemplate
from engine.text.tokenizer.detokenizer import Detokenizer
from engine.text.tokenizer.pretokenizers import PRETOKENIZERS
from engine.text.tokenizer.tokenizer import Tokenizer
from tests.engine.text.template.test_template import by_transformers

GOLDEN = Path(__file__).parents[3] / "golden"
pytestmark = pytest.mark.real_model


@pytest.fixture(scope="module")
def metadata(starter_path: Path) -> dict[str, Any]:
    from gguf import GGUFReader

    return {key: field.contents() for key, field in GGUFReader(starter_path).fields.items()}


@pytest.fixture(scope="module")
def tokenizer(metadata: dict[str, Any]) -> Tokenizer:
    return Tokenizer.from_gguf(metadata)


def test_facts(tokenizer: Tokenizer) -> None:
    assert (tokenizer.vocab_size, tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.add_bos) == (
        49152,
        1,
        2,
        False,
    )
    assert tokenizer.special_ids == frozenset(range(17))
    assert tokenizer.stop_token_ids == (2,)


def test_ids_are_those_of_llama_cpp(tokenizer: Tokenizer) -> None:
    cases = json.loads((GOLDEN / "starter_tokens.json").read_text(encoding="utf-8"))
    assert len(cases) >= 200
    for text, plain, special in cases:
        assert tokenizer.encode(text) == plain
        assert tokenizer.encode(text, special=True) == special
        assert tokenizer.decode(plain) == text
        detokenizer = Detokenizer(tokenizer, skip_special=False)
        assert "".join(map(detokenizer.add, special)) + detokenizer.finish() == text


@pytest.mark.slow
def test_cutting_rules_are_those_of_llama_cpp(metadata: dict[str, Any]) -> None:
    golden = json.loads((GOLDEN / "starter_pretokenizers.json").read_text(encoding="utf-8"))
    assert set(golden["rules"]) == set(PRETOKENIZERS)
    silent = {key: value for key, value in metadata.items() if key != "tokenizer.ggml.add_bos_token"}
    for rule, expected in golden["rules"].items():
        tokenizer = Tokenizer.from_gguf({**silent, "tokenizer.ggml.pre": rule})
        assert tokenizer.add_bos == expected["add_bos"]
        assert [tokenizer.encode(text) for text in golden["texts"]] == expected["ids"]


def test_chat(metadata: dict[str, Any], tokenizer: Tokenizer) -> None:
    template = ChatTemplate.from_gguf(metadata, tokenizer)
    messages = (
        Message("user", "What is <|im_end|>?"),
        Message("assistant", "A token."),
        Message("user", "Thanks"),
    )
    text, ids = encode_chat(tokenizer, template, messages)
    assert text == by_transformers(template.source, messages, prompt=True, go_on=False)
    assert [i for i in ids if i in tokenizer.special_ids] == [1, 2] * 4 + [1]
    assert tokenizer.decode(ids, skip_special=False) == text
    assert not template.is_fallback
