"""The least number of tokens of a text, by its bytes: never more than there are."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from engine.text.tokenizer.aside import text_factor
from engine.text.tokenizer.definition import tokenizer_json
from engine.text.tokenizer.tokenizer import Tokenizer
from tests.tiny import tiny_tokenizer, write_tokenizer
from tests.wordpiece import library_tokenizer, write_wordpiece

PIECES = (
    "the quick ",
    "    ",
    "\n\n\n",
    "\u212a",
    "\u1f82",
    "e\u0301",
    "漢",
    "🙂",
    "\u1100\u1161\u11a8",
    "<|im_end|>",
    "\0",
)


def test_a_bound_from_below(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    tokenizer = Tokenizer.from_folder(tmp_path)
    draw = random.Random(1)
    for _ in range(300):
        text = "".join(draw.choices(PIECES, k=draw.randrange(1, 60)))
        for ids in (tokenizer.encode(text), tokenizer.encode(text, special=True)):
            assert 0 < tokenizer.least_tokens(text) <= len(ids)
    assert tokenizer.least_tokens("x" * 10_000) > 100


def bpe(**changes: Any) -> dict[str, Any]:
    return {**tiny_tokenizer(), **changes}


REPLACE = {"type": "Replace", "pattern": {"String": "  "}, "content": " "}


@pytest.mark.parametrize(
    ("definition", "factor"),
    [
        (bpe(), 1),
        (bpe(normalizer={"type": "NFC"}), 4),
        (bpe(normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Strip"}]}), 0),
        (bpe(normalizer={"type": "NFKC"}), 0),
        (bpe(normalizer=REPLACE), 0),
        (bpe(normalizer={**REPLACE, "content": "▁▁"}), 1),
        (bpe(normalizer={**REPLACE, "content": "__"}), 1),
        (bpe(pre_tokenizer={"type": "Whitespace"}), 0),
        (bpe(pre_tokenizer={"type": "Split", "pattern": {"String": " "}, "behavior": "Removed"}), 0),
        (bpe(added_tokens=[{"id": 0, "content": "<|x|>", "lstrip": True}]), 0),
        (bpe(model={"type": "Unigram", "vocab": [["a", 0.0]]}), 0),
        (bpe(model={"type": "BPE", "vocab": {"a": 0}, "merges": []}), 0),
        (tokenizer_json({"type": "BPE", "vocab": {"a": 0}, "byte_fallback": True, "merges": []}), 0),
        (
            tokenizer_json({
                "type": "BPE", "vocab": {f"<0x{byte:02X}>": byte for byte in range(256)},
                "byte_fallback": True, "merges": [],
            }),
            1,
        ),
    ],
)  # fmt: skip
def test_what_bounds_a_text(definition: dict[str, Any], factor: int) -> None:
    assert text_factor(definition) == factor


def test_word_pieces_have_no_bound(tmp_path: Path) -> None:
    """A word of a hundred letters may be one unknown token."""
    tokenizer = Tokenizer.from_folder(write_wordpiece(tmp_path, library_tokenizer(lowercase=True)))
    assert tokenizer.least_tokens("x" * 10_000) == 0
