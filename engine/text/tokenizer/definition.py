"""A tokenizer.json as a dict, and the library's tokenizer made from one.

Beside what the library reads, a BPE "model" here may hold "order" in place of "merges": its pieces, the first
to be made first. The merges that follow from it are worked out only when a tokenizer is built, for they take
the most time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from engine.errors import BadCheckpoint

SPACE = "▁"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
_BPE = (
    "dropout",
    "unk_token",
    "continuing_subword_prefix",
    "end_of_word_suffix",
    "fuse_unk",
    "byte_fallback",
    "ignore_merges",
)


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


def build(definition: Mapping[str, Any]) -> Any:
    """The library's tokenizer. Raises `BadCheckpoint` when the parts do not fit together.

    The model is handed over as Python objects: as JSON a quarter of a million tokens take several times as
    long.
    """
    from engine.text.tokenizer.definition_check import doubtful_steps
    from engine.text.tokenizer.definition_trial import try_definition

    doubtful = doubtful_steps(definition)
    if doubtful:
        try_definition(definition, doubtful)
    from tokenizers import AddedToken, Tokenizer

    # Tokens are decoded by ourselves, and what is added at the ends of a text is a fact of its own.
    shell = tokenizer_json({"type": "BPE", "vocab": {}, "merges": []})
    shell |= {name: definition.get(name) for name in ("normalizer", "pre_tokenizer")}
    try:
        tokenizer = Tokenizer.from_str(json.dumps(shell))
        tokenizer.model = _model(definition["model"])
        # All at once: each call builds the search for them anew.
        tokenizer.add_tokens(
            [AddedToken(entry["content"], **_flags(entry)) for entry in definition["added_tokens"]]
        )
        return tokenizer
    except BaseException as error:
        if not is_from_library(error):
            raise
        raise BadCheckpoint(
            f"The tokenizer cannot be built ({error}); the model's files are broken or incomplete."
        ) from error


def is_from_library(error: BaseException) -> bool:
    """Whether the library raised it, which knows only `Exception` and, where it panics, one that is none."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _flags(entry: Mapping[str, Any]) -> dict[str, bool]:
    return {
        name: bool(entry.get(name)) for name in ("single_word", "lstrip", "rstrip", "normalized", "special")
    }


def _model(model: Mapping[str, Any]) -> Any:
    from tokenizers import models

    if model.get("type", "BPE") == "Unigram":
        vocab = [(str(text), float(score)) for text, score in model["vocab"]]
        return models.Unigram(vocab, model.get("unk_id"), bool(model.get("byte_fallback")))
    merges = joined_merges(model["order"]) if "order" in model else list(model.get("merges") or ())
    prefix = model.get("continuing_subword_prefix") or ""
    # the library cuts so many bytes off without looking
    if not all(right.startswith(prefix) for _, right in merges):
        raise ValueError("merges lack the prefix of parts of words")
    options = {name: model[name] for name in _BPE if model.get(name) is not None}
    return models.BPE(model["vocab"], merges, **options)
