"""PLaMo 2's tokenizer: of all splits of a text into tokens the one with the highest sum of scores.

A character that no token begins with costs 1,000 and is written as the tokens of its bytes. Scores count in
steps of 0.0001; of equal splits the one with the longer token first is taken. Source: the authors'
`tokenization_plamo.py`, as llama.cpp reads it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from engine.errors import BadCheckpoint
from engine.text.tokenizer.definition import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    added_token,
    own_names,
    tokenizer_json,
)
from engine.text.tokenizer.own_kinds.base import OwnKind
from engine.words import _

KIND = "LeastCost"
_STEP, _UNKNOWN_COST, _WORST = 1e4, 10_000_000, -20_000_000
_LONGEST_RUN = 1 << 16
_TYPES = {"UNKNOWN": UNKNOWN, "CONTROL": CONTROL, "BYTE": BYTE}
_BYTE_ORDER_MARK = "\ufeff"


def least_cost_json(
    texts: Sequence[str], scores: Sequence[float], types: Sequence[int], runs: str = ""
) -> dict[str, Any]:
    """The definition; what matches the pattern `runs` is split apart from what is around it, see
    `runs_apart`. Raises `BadCheckpoint` if a byte has no token of its own.
    """
    names = own_names(texts)
    at = {name: i for i, name in enumerate(names)}
    parts = [at.get(f"<0x{byte:02X}>") for byte in range(256)]
    if any(i is None or types[i] != BYTE for i in parts):
        raise BadCheckpoint(
            _("The tokenizer lacks a token for some bytes, which it needs; download the model again.")
        )
    pieces = {
        text: (i, score)
        for i, (text, kind) in enumerate(zip(texts, types, strict=True))
        if kind not in (BYTE, CONTROL, UNKNOWN) and names[i] == text
        if (score := _rounded(scores[i])) > _WORST
    }
    added = [
        added_token(i, text) for i, text in enumerate(texts) if types[i] == USER_DEFINED and names[i] == text
    ]
    decoder = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}
    model = {"type": KIND, "vocab": at, "pieces": pieces, "bytes": parts, "runs": runs}
    return tokenizer_json(model, added, decoder=decoder)


def runs_apart(repeated: object, spaces: object) -> str:
    """The pattern of runs of one character, other than line feeds, and of spaces that are at least so long;
    None: of any length. Raises `TypeError` and `ValueError` for other values.
    """
    if any(type(least) not in (int, type(None)) for least in (repeated, spaces)):
        raise TypeError("a run's length must be a whole number")
    patterns = []
    if isinstance(repeated, int):
        patterns.append(rf"(.)\1{{{_run(repeated) - 1},}}")
    if isinstance(spaces, int):
        patterns.append(f" {{{_run(spaces)},}}")
    return "|".join(patterns)


def _run(least: int) -> int:
    if not 1 <= least <= _LONGEST_RUN:
        raise ValueError("a run has an impossible length")
    return least


def listed_tokens(data: bytes) -> tuple[list[str], list[float], list[int]]:
    """The texts, scores and types in the original tokenizer.jsonl, whose lines are [text, score, type, ...];
    tokens are control tokens by their names, too. Raises `TypeError` and `ValueError` for other lines.
    """
    texts, scores, types = list[str](), list[float](), list[int]()
    for row in map(json.loads, filter(str.strip, data.decode("utf-8").split("\n"))):
        text, score, kind = (*row, "NORMAL")[:3] if len(row) == 2 else row[:3]
        if not isinstance(text, str):
            raise TypeError("a token must be a text")
        named = text.startswith("<|plamo:") and text.endswith("|>")
        texts.append(text)
        scores.append(float(score))
        types.append(_TYPES.get(kind, CONTROL if named else NORMAL))
    return texts, scores, types


def _rounded(score: float) -> int:
    """In steps, halves away from zero."""
    return int(math.copysign(math.floor(abs(score) * _STEP + 0.5), score)) if math.isfinite(score) else _WORST


class LeastCost(OwnKind):
    """Encodes with a definition of this kind. The control tokens, which no text may spell, are added ones."""

    def __init__(self, definition: Mapping[str, Any]) -> None:
        super().__init__(definition)
        model, hidden = definition["model"], set(self._added.values())
        self._pieces: dict[str, tuple[int, int]] = {
            text: piece for text, piece in model["pieces"].items() if piece[0] not in hidden
        }
        self._bytes: list[int] = model["bytes"]
        self._runs = re.compile(model["runs"]) if model["runs"] else None
        lengths: dict[str, set[int]] = {}
        for text in self._pieces:
            lengths.setdefault(text[:2], set()).add(len(text))
        self._lengths = {first: sorted(sizes, reverse=True) for first, sizes in lengths.items()}
        """The lengths of the tokens that begin with these two characters, longest first; of those of one
        character alone by it.
        """

    def _append(self, ids: list[int], text: str) -> None:
        text, at = text.removeprefix(_BYTE_ORDER_MARK), 0
        for run in self._runs.finditer(text) if self._runs else ():
            self._append_part(ids, text[at : run.start()])
            self._append_part(ids, run[0])
            at = run.end()
        self._append_part(ids, text[at:])

    def _append_part(self, ids: list[int], text: str) -> None:
        costs, chosen, count = [0] * (len(text) + 1), [(1, -1)] * len(text), len(text)
        for at in range(count - 1, -1, -1):
            best = None
            for length in (*self._lengths.get(text[at : at + 2], ()), *self._lengths.get(text[at], ())):
                piece = self._pieces.get(text[at : at + length])
                if piece is not None and at + length <= count:
                    cost = costs[at + length] - piece[1]
                    if best is None or cost < best:
                        best, chosen[at] = cost, (length, piece[0])
            unknown = costs[at + 1] + _UNKNOWN_COST
            if best is None or unknown < best:
                best, chosen[at] = unknown, (1, -1)
            costs[at] = best
        at = 0
        while at < count:
            length, found = chosen[at]
            ids.extend([found] if found >= 0 else (self._bytes[byte] for byte in text[at].encode()))
            at += length
