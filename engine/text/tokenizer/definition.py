"""A tokenizer.json as a dict, with helpers that make its parts.

A BPE "model" may hold "order" instead of "merges": its pieces, most preferred first. The merges follow from
that order and are computed only when a tokenizer is built, because they take most of the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

SPACE = "▁"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def tokenizer_json(
    model: dict[str, Any], added_tokens: Sequence[Mapping[str, Any]] = (), **parts: Any
) -> dict[str, Any]:
    """A definition of these parts ("normalizer", "pre_tokenizer", "decoder"), which may be left out."""
    base = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "normalizer": None,
        "pre_tokenizer": None,
        "decoder": None,
    }
    return {**base, "added_tokens": list(added_tokens), "post_processor": None, "model": model, **parts}


def added_token(id: int, text: str, special: bool = False) -> dict[str, Any]:
    """An entry of "added_tokens": found in any text before it is cut."""
    return {
        "id": id,
        "content": text,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": special,
    }


def unreachable(id: int) -> str:
    """A name for a token that no text may spell."""
    return f"\U0010fffd{id}\U0010fffd"


def own_names(texts: Sequence[str]) -> list[str]:
    """The texts with one of their own for each id: of repeated and empty ones only the first keeps its
    text.
    """
    first: dict[str, int] = {}
    for i, text in enumerate(texts):
        first.setdefault(text, i)
    return [text if text and first[text] == i else unreachable(i) for i, text in enumerate(texts)]


def byte_level_parts(pre_tokenizer: Mapping[str, Any], nfc: bool) -> dict[str, Any]:
    """Normaliser, pre-tokeniser and decoder of byte-level BPE."""
    decoder = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "normalizer": {"type": "NFC"} if nfc else None,
        "pre_tokenizer": dict(pre_tokenizer),
        "decoder": decoder,
    }


def joined_merges(order: Iterable[str]) -> list[tuple[str, str]]:
    """The merges that make pieces in this order of preference: every cut of a piece into two others, the
    first piece first.

    With pieces by falling score this is what SentencePiece does, and with pieces by rank what tiktoken does.
    """
    pieces = list(order)
    # the pieces themselves: half a million texts of their own take 60 MB
    piece = dict(zip(pieces, pieces, strict=True)).get
    merges = []
    for text in pieces:
        for cut in range(1, len(text)):
            left = piece(text[:cut])
            if left is not None:
                right = piece(text[cut:])
                if right is not None:
                    merges.append((left, right))
    return merges
