"""Builds the `tokenizers` library's tokenizer, or our own of the same face, from a definition that is checked
and tried.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from engine.errors import BadCheckpoint
from engine.text.tokenizer.definition import joined_merges, known_merges, tokenizer_json
from engine.text.tokenizer.definition_check import doubtful_steps
from engine.text.tokenizer.definition_trial import try_definition
from engine.text.tokenizer.own_kinds import least_cost, longest_match
from engine.words import _

_OWN = {longest_match.KIND: longest_match.LongestMatch, least_cost.KIND: least_cost.LeastCost}
_BPE = (
    "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback",
    "ignore_merges",
)  # fmt: skip


def build(definition: Mapping[str, Any]) -> Any:
    """The tokenizer. Raises `BadCheckpoint` if the parts do not fit together.

    The model is passed as Python objects: JSON takes several times as long for 250,000 tokens.
    """
    own = _OWN.get(definition["model"].get("type"))
    if own is not None:
        return own(definition)
    doubtful = doubtful_steps(definition)
    if doubtful:
        try_definition(definition, doubtful)
    from tokenizers import AddedToken, Tokenizer

    # Decoding and post-processing are done elsewhere.
    shell = tokenizer_json({"type": "BPE", "vocab": {}, "merges": []})
    shell |= {name: definition.get(name) for name in ("normalizer", "pre_tokenizer")}
    try:
        tokenizer = Tokenizer.from_str(json.dumps(shell))
        tokenizer.model = _model(definition["model"])
        # In one call, because each call rebuilds the search.
        tokenizer.add_tokens(
            [AddedToken(entry["content"], **_flags(entry)) for entry in definition["added_tokens"]]
        )
        return tokenizer
    except BaseException as error:
        if not is_from_library(error):
            raise
        raise BadCheckpoint(
            _(
                "The tokenizer cannot be built ({error}); the model's files are broken or incomplete.",
                error=error,
            )
        ) from error


def is_from_library(error: BaseException) -> bool:
    """Whether the library raised it: an `Exception`, or a `PanicException`, which does not derive from it."""
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
    if model.get("type") == "WordPiece":
        names = ("unk_token", "max_input_chars_per_word", "continuing_subword_prefix")
        return models.WordPiece(model["vocab"], **{name: model[name] for name in names if model.get(name)})
    options = {name: model[name] for name in _BPE if model.get(name) is not None}
    if "lines" in model:
        return _with_lines(models.BPE, model["vocab"], model["lines"], options)
    merges = joined_merges(model["order"]) if "order" in model else list(model.get("merges") or ())
    prefix = model.get("continuing_subword_prefix") or ""
    # the library strips the length of the prefix without checking
    if prefix and not all(right.startswith(prefix) for _unused, right in merges):
        raise ValueError("merges lack the prefix of parts of words")
    return models.BPE(model["vocab"], merges, **options)


def _with_lines(bpe: Any, vocab: Mapping[str, int], lines: Sequence[str], options: Mapping[str, Any]) -> Any:
    """BPE with the known merges of lines. Nearly always all are: the library, which looks, is asked first,
    unless it knows an empty token, which the first piece of a line that begins with a space would be.
    """
    try:
        if "" not in vocab:
            return bpe(vocab, [tuple(line.split(" ", 1)) for line in lines], **options)
    except BaseException as error:
        if not is_from_library(error):
            raise
    return bpe(vocab, known_merges(lines, vocab), **options)
