"""A tokenizer.json as a dict, with helpers that build its parts.

A BPE "model" may hold "order" instead of "merges": its pieces, most preferred first. The merges follow from
the order and are computed only when a tokenizer is built, because they take most of the time. Or it holds
"lines", as in GGUF files: each has two pieces with a space between, and counts as `known_merges` says.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

SPACE = "▁"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def tokenizer_json(
    model: dict[str, Any], added_tokens: Sequence[Mapping[str, Any]] = (), **parts: Any
) -> dict[str, Any]:
    """A definition with these parts ("normalizer", "pre_tokenizer", "decoder"), all optional."""
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
    """An entry of "added_tokens", which is found in any text before pre-tokenisation."""
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
    """A name for token `id` that no text may spell."""
    return f"\U0010fffd{id}\U0010fffd"


def own_names(texts: Sequence[str]) -> list[str]:
    """A unique name for each id: its text, or for empty texts and repetitions an unreachable name."""
    if len(different := set(texts)) == len(texts) and "" not in different:  # nearly all vocabularies
        return list(texts)
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
    """The merges that make pieces in this order of preference: every split of a piece into two others.

    With pieces by descending score this is SentencePiece's method, with pieces by rank tiktoken's.
    """
    pieces = list(order)
    # share the strings of `pieces`: half a million copies take 60 MB
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


def known_merges(lines: Iterable[str], vocab: Container[str]) -> list[tuple[str, str]]:
    """The merges of those lines whose two pieces and their result are in the vocabulary."""
    return [
        (left, right)
        for line in lines
        if (space := line.find(" ", 1)) > 0  # the first piece may be a space
        and (left := line[:space]) in vocab
        and (right := line[space + 1 :]) in vocab
        and left + right in vocab
    ]
