"""The ids that end a turn, read without the rest of the tokenizer: the same as with it, and the same
refusals.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.errors import BadCheckpoint, EngineError, UnsupportedModel
from engine.text.tokenizer.gguf import facts_from_gguf, roles_from_gguf
from engine.weights.gguf.file import GgufFile
from tests.tiny import write_gguf

KINDS: tuple[dict[str, Any], ...] = (
    {"tokenizer.ggml.model": "gpt2"}, {"tokenizer.ggml.model": "llama"}, {"tokenizer.ggml.model": "t5"},
    {"tokenizer.ggml.model": "gemma4"}, {"tokenizer.ggml.pre": "gemma4"},
)  # fmt: skip


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = GgufFile(write_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf"))
    known = {key: file.metadata[key] for key in file.metadata}
    known["tokenizer.ggml.scores"] = [-float(i) for i in range(len(known["tokenizer.ggml.tokens"]))]
    return known


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "more", [{}, {"tokenizer.ggml.eot_token_id": 5, "tokenizer.ggml.fim_pad_token_id": 0xFFFFFFFF}]
)
def test_the_same_ids(metadata: dict[str, Any], kind: dict[str, Any], more: dict[str, Any]) -> None:
    one = {**metadata, **kind, **more}
    special, found = roles_from_gguf(one)
    facts = facts_from_gguf(one)
    assert (special, found) == (facts.special, facts.stop_ids)
    assert 2 in found
    assert (5 in found) == bool(more)


@pytest.mark.parametrize("kind", KINDS)
def test_an_end_beyond_the_vocabulary_counts_as_none(metadata: dict[str, Any], kind: dict[str, Any]) -> None:
    key = "tokenizer.ggml.eos_token_id"
    without = {name: value for name, value in {**metadata, **kind}.items() if name != key}
    beyond = {**without, key: 99_999}
    facts = facts_from_gguf(beyond)
    assert roles_from_gguf(beyond) == (facts.special, facts.stop_ids) == roles_from_gguf(without)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"tokenizer.ggml.model": "wordpiece"}, UnsupportedModel),
        ({"tokenizer.ggml.pre": "unheard-of"}, UnsupportedModel),
        ({"tokenizer.ggml.tokens": []}, BadCheckpoint), ({"tokenizer.ggml.token_type": [1]}, BadCheckpoint),
    ],
)  # fmt: skip
def test_the_same_refusals(metadata: dict[str, Any], change: dict[str, Any], kind: type[EngineError]) -> None:
    with pytest.raises(kind) as whole:
        facts_from_gguf({**metadata, **change})
    with pytest.raises(kind) as ids:
        roles_from_gguf({**metadata, **change})
    assert str(ids.value) == str(whole.value)


def test_a_token_that_is_not_utf_8_keeps_its_id(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")
    whole, _ = roles_from_gguf(GgufFile(path).metadata)
    content = path.read_bytes()
    place = content.index(b"<|im_end|>")
    path.write_bytes(content[: place + 2] + b"\xff" + content[place + 3 :])
    damaged, _ = roles_from_gguf(GgufFile(path).metadata)
    assert {text for text in whole.values() if text not in damaged.values()} == {"<|im_end|>"}
    assert damaged == {id: text.replace("<|im_end|>", "<|\ufffdm_end|>") for id, text in whole.items()}
