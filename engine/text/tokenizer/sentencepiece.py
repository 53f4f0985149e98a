"""SentencePiece vocabularies, merged by score (BPE) or split by likelihood (unigram), as a tokenizer.json.

Source: https://github.com/google/sentencepiece (doc/api, normalisation rules) and the GGUF specification,
section "Tokenizer".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.lazy_dataclass import dataclass
from engine.text.tokenizer.definition import (
    NORMAL,
    SPACE,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    added_token,
    own_names,
    tokenizer_json,
    unreachable,
)

_BYTE_NAME = "(?<=<0)(?=x[0-9A-F]{2}>)"
"""Where text that looks like a byte token's name is split, so that it cannot become that token."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """The contents of a vocabulary: text, score and type of each token, and how text is normalised for it.

    `prefix_space` puts a space before a text; with `prefix_once`, only at its very beginning and not after
    every control token. `merge_spaces` collapses runs of spaces and strips those at both ends.
    """

    texts: Sequence[str]
    scores: Sequence[float]
    types: Sequence[int]
    unigram: bool = False
    byte_fallback: bool = True
    prefix_space: bool = True
    prefix_once: bool = False
    merge_spaces: bool = False
    escape_spaces: bool = True


def sentencepiece_json(pieces: Pieces) -> dict[str, Any]:
    """The definition. User-defined tokens are found before splitting; control tokens are hidden later."""
    space = SPACE if pieces.escape_spaces else " "
    texts = [
        text.replace(SPACE, " ") if kind == USER_DEFINED else text
        for text, kind in zip(pieces.texts, pieces.types, strict=True)
    ]
    names = own_names(texts)
    added = [
        added_token(i, names[i])
        for i, kind in enumerate(pieces.types)
        if kind == USER_DEFINED and names[i] == texts[i]
    ]
    model = _unigram(names, pieces) if pieces.unigram else _bpe(names, pieces)
    steps: list[dict[str, Any]] = []
    if pieces.merge_spaces:
        # U+0020 only, unlike "Strip"
        steps += [_replace({"Regex": " {2,}"}, " "), _replace({"Regex": r"\A | \z"}, "")]
    if pieces.prefix_space and not pieces.prefix_once:
        steps.append({"type": "Prepend", "prepend": space})
    before = None
    if pieces.prefix_space and pieces.prefix_once:
        before = {"type": "Metaspace", "replacement": space, "prepend_scheme": "first", "split": False}
    elif pieces.escape_spaces:
        steps.append(_replace({"String": " "}, SPACE))
    if pieces.unigram and pieces.byte_fallback:
        split = {"type": "Split", "pattern": {"Regex": _BYTE_NAME}, "behavior": "Isolated", "invert": False}
        before = {"type": "Sequence", "pretokenizers": [split, before]} if before else split
    back = [_replace({"String": SPACE}, " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
    if pieces.prefix_space:
        back.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    normalizer = {"type": "Sequence", "normalizers": steps}
    return tokenizer_json(
        model,
        added,
        normalizer=normalizer,
        pre_tokenizer=before,
        decoder={"type": "Sequence", "decoders": back},
    )


def _replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def score_order(texts: Sequence[str], types: Sequence[int], scores: Sequence[float]) -> list[str]:
    """The pieces that text can consist of, by descending score.

    Control, unknown, unused and byte tokens never come from text.
    """
    ids = {text: i for i, text in enumerate(texts) if types[i] == NORMAL}
    return sorted(ids, key=lambda text: (-scores[ids[text]], ids[text]))


def _bpe(names: Sequence[str], pieces: Pieces) -> dict[str, Any]:
    unknown = next((names[i] for i, kind in enumerate(pieces.types) if kind == UNKNOWN), None)
    return {
        "type": "BPE",
        "unk_token": unknown,
        "fuse_unk": True,
        "byte_fallback": pieces.byte_fallback,
        "vocab": {name: i for i, name in enumerate(names)},
        "order": score_order(names, pieces.types, pieces.scores),
    }


def _unigram(names: Sequence[str], pieces: Pieces) -> dict[str, Any]:
    """A unigram model that splits text only into normal pieces.

    Control tokens are hidden later, unused ones get other names, and `_BYTE_NAME` excludes byte tokens.
    """
    lowest = min(
        (score for score, kind in zip(pieces.scores, pieces.types, strict=True) if kind == NORMAL),
        default=0.0,
    )
    vocab: list[list[Any]] = []
    for i, kind in enumerate(pieces.types):
        if kind == NORMAL:
            vocab.append([names[i], pieces.scores[i]])
        else:
            vocab.append([unreachable(i) if kind == UNUSED else names[i], lowest])
    unknown = next((i for i, kind in enumerate(pieces.types) if kind == UNKNOWN), None)
    return {"type": "Unigram", "unk_id": unknown, "byte_fallback": pieces.byte_fallback, "vocab": vocab}
