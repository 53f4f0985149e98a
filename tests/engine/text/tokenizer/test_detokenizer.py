"""Streamed text, joined, is the decoded text; every chunk is whole characters."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.tokenizer.detokenizer import Detokenizer
from engine.text.tokenizer.tokenizer import Tokenizer
from tests.engine.text.tokenizer.vocabularies import (
    byte_level_metadata,
    metaspace_json,
    random_text,
    sentencepiece_metadata,
)


@pytest.fixture(scope="module")
def tokenizers_of(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    folder: Path = tmp_path_factory.mktemp("metaspace")
    (folder / "tokenizer.json").write_text(metaspace_json(), encoding="utf-8")
    return {
        "byte-level": Tokenizer.from_gguf(byte_level_metadata()),
        "sentencepiece": Tokenizer.from_gguf(sentencepiece_metadata()),
        "no prefix": Tokenizer.from_gguf(sentencepiece_metadata(prefix=False)),
        "metaspace": Tokenizer.from_folder(folder),
    }


KINDS = ["byte-level", "sentencepiece", "no prefix", "metaspace"]


def stream(tokenizer: Tokenizer, ids: list[int], *, skip_special: bool = True) -> list[str]:
    detokenizer = Detokenizer(tokenizer, skip_special=skip_special)
    return [*map(detokenizer.add, ids), detokenizer.finish()]


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), skip_special=st.booleans())
def test_random_ids(
    tokenizers_of: dict[str, Tokenizer], kind: str, data: st.DataObject, skip_special: bool
) -> None:
    tokenizer = tokenizers_of[kind]
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size), max_size=20))
    assert "".join(stream(tokenizer, ids, skip_special=skip_special)) == tokenizer.decode(
        ids, skip_special=skip_special
    )


@pytest.mark.parametrize("kind", KINDS)
@given(text=st.text(max_size=30), cut=st.integers(0, 100))
def test_random_text_cut_anywhere(
    tokenizers_of: dict[str, Tokenizer], kind: str, text: str, cut: int
) -> None:
    tokenizer = tokenizers_of[kind]
    ids = tokenizer.encode(text)[:cut]
    assert "".join(stream(tokenizer, ids)) == tokenizer.decode(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_no_chunk_has_half_a_character(tokenizers_of: dict[str, Tokenizer], kind: str) -> None:
    tokenizer, draw = tokenizers_of[kind], random.Random(7)
    for _ in range(500):
        text = random_text(draw).replace("\ufffd", "")
        chunks = stream(tokenizer, tokenizer.encode(text))
        assert not any("\ufffd" in chunk for chunk in chunks)
        assert chunks[-1] == ""


def test_unfinished_character_is_released_at_the_end(tokenizers_of: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers_of["byte-level"]
    ids = tokenizer.encode("a𒀀")[:-1]
    chunks = stream(tokenizer, ids)
    assert "".join(chunks[:-1]) == "a"
    assert chunks[-1] == "\ufffd"


def test_text_after_a_prompt_keeps_its_space_and_completes_its_character(
    tokenizers_of: dict[str, Tokenizer],
) -> None:
    tokenizer = tokenizers_of["sentencepiece"]
    ids = tokenizer.encode("the fox")
    assert "".join(stream(tokenizer, ids)) == "the fox"
    after = Detokenizer(tokenizer, prompt_ids=tokenizer.encode("see"))
    assert "".join(map(after.add, ids)) == " the fox"
    silent = [min(tokenizer.silent_ids)]
    after = Detokenizer(tokenizer, prompt_ids=silent)
    assert "".join(map(after.add, ids)) == " the fox"  # there is a prompt, though none of it is shown
    for kind in KINDS:
        tokenizer = tokenizers_of[kind]
        prompt, rest = (lambda ids: (ids[:-2], ids[-2:]))(tokenizer.encode("a𒀀"))
        detokenizer = Detokenizer(tokenizer, prompt_ids=prompt)
        assert "".join(map(detokenizer.add, rest)) + detokenizer.finish() == "𒀀"
