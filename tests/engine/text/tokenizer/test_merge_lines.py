"""Merges as GGUF files have them: lines of two pieces with a space between."""

from __future__ import annotations

import json

import pytest

from engine.text.tokenizer.definition import tokenizer_json
from engine.text.tokenizer.library import build


@pytest.mark.parametrize(
    ("lines", "merges"),
    [
        (["a b", "ab x"], [["a", "b"], ["ab", "x"]]),
        (["  x", "a b"], [[" ", "x"], ["a", "b"]]),  # the first piece is a space
        (["ab", "", " ", "a b c", "a nothing", "a b"], [["a", "b"]]),
    ],
)
@pytest.mark.parametrize("more", [[], [""]], ids=["", "an empty token"])
def test_lines_of_known_pieces_count(lines: list[str], merges: list[list[str]], more: list[str]) -> None:
    pieces = ["a", "b", "x", " ", "ab", "abx", " x", *more]
    vocab = {piece: number for number, piece in enumerate(pieces)}
    made = build(tokenizer_json({"type": "BPE", "vocab": vocab, "lines": lines}))
    assert json.loads(made.to_str())["model"]["merges"] == merges
