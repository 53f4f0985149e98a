"""Checks a file's tokenizer definition before it goes to the library, which panics or aborts on bad input.

The checks cover ids, texts, scores, merges, and every step of normaliser and pre-tokeniser by kind, depth and
number. A table of character replacements is checked in full. A regular expression that is not one of ours
goes through `definition_trial`.

Sources: the library's `tokenizers/src` (models, normalizers, pre_tokenizers), and its crate `spm_precompiled`
for the table.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.text.tokenizer.charsmap import Charsmap
from engine.text.tokenizer.pretokenizers import PRETOKENIZERS
from engine.words import _

MOST_IDS = 1 << 21
_MOST_STEPS, _MOST_DEPTH = 64, 8
"""Of normaliser and pre-tokeniser; the most elaborate known has 9 steps, 2 deep."""
_MOST_TEXT = 4096
"""Characters of a token, pattern or replacement; the longest known are 512 (token) and 1,200 (pattern)."""
_MOST_GROWTH = 1 << 10
"""The largest factor by which replacements may lengthen a text."""
_NORMALIZERS = frozenset({
    "BertNormalizer", "ByteLevel", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled", "Prepend",
    "Replace", "Sequence", "Strip", "StripAccents",
})  # fmt: skip
_PRETOKENIZERS = frozenset({
    "BertPreTokenizer", "ByteLevel", "CharDelimiterSplit", "Digits", "Metaspace", "Punctuation", "Sequence",
    "Split", "UnicodeScripts", "Whitespace", "WhitespaceSplit",
})  # fmt: skip
_OWN_EXPRESSIONS = frozenset(pattern for rule in PRETOKENIZERS.values() for pattern in rule.patterns) | {
    " {2,}",
    r"\A | \z",
    "(?<=<0)(?=x[0-9A-F]{2}>)",
    r"[^\n]+|[\n]+",
}
"""Expressions known to be fast on any text: those in our table of rules, and those that we write."""


def check_definition(definition: Mapping[str, Any]) -> None:
    """Raise `BadCheckpoint` or `UnsupportedModel` for a bad definition; call this before using it."""
    _check_model(definition["model"])
    for entry in definition["added_tokens"]:
        _check_text(entry["content"], _("a token"))
    doubtful_steps(definition)


def doubtful_steps(definition: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The steps of normaliser and pre-tokeniser that need a trial.

    Raises `BadCheckpoint` or `UnsupportedModel` for steps that are not allowed at all.
    """
    steps = [
        *_steps(definition.get("normalizer"), _NORMALIZERS),
        *_steps(definition.get("pre_tokenizer"), _PRETOKENIZERS),
    ]
    if math.prod(map(_growth, steps)) > _MOST_GROWTH:
        raise BadCheckpoint(_("The tokenizer replaces text by much longer text; download the model again."))
    return [step for step in steps if _is_doubtful(step)]


@contextmanager
def expected_form() -> Iterator[None]:
    """Convert errors from reading data of an unexpected form to `BadCheckpoint`."""
    try:
        yield
    except (TypeError, AttributeError, LookupError, ValueError, ArithmeticError, RecursionError) as error:
        kind = type(error).__name__
        raise BadCheckpoint(
            _("The tokenizer's files have an unknown format ({kind}); download the model again.", kind=kind)
        ) from error


def _check_model(model: Mapping[str, Any]) -> None:
    vocab = model["vocab"]
    if len(vocab) > MOST_IDS:
        raise BadCheckpoint(
            _(
                "The tokenizer has {vocab} tokens, but at most {most_ids} are allowed; download "
                "the model again.",
                vocab=len(vocab),
                most_ids=MOST_IDS,
            )
        )
    if isinstance(vocab, dict):
        for text, number in vocab.items():
            if type(number) is not int or not 0 <= number < MOST_IDS:
                raise BadCheckpoint(
                    _(
                        "The tokenizer's token {text!r} has the id {number}, but ids go from 0 to "
                        "{most_ids}; download the model again.",
                        text=text[:40],
                        number=str(number)[:40],
                        most_ids=MOST_IDS - 1,
                    )
                )
        _check_texts(vocab)
    else:
        for entry in vocab:
            if not (
                isinstance(entry, (list, tuple))
                and len(entry) == 2
                and isinstance(entry[0], str)
                and _is_score(entry[1])
            ):
                raise BadCheckpoint(
                    _(
                        "The tokenizer has the token {entry!r}, but a text and its score were "
                        "expected; download the model again.",
                        entry=str(entry)[:40],
                    )
                )
        _check_texts(entry[0] for entry in vocab)
        unknown = model.get("unk_id")
        if unknown is not None and not (type(unknown) is int and 0 <= unknown < len(vocab)):
            raise BadCheckpoint(
                _(
                    "The tokenizer's unknown token is {unknown} of {vocab}; download the model again.",
                    unknown=str(unknown)[:40],
                    vocab=len(vocab),
                )
            )
    for name in ("unk_token", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name) is not None:
            _check_text(model[name], _("a token"))


def _is_score(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _check_texts(texts: Iterable[str]) -> None:
    for text in texts:
        if len(text) > _MOST_TEXT or not text.isprintable():  # rare
            _check_text(text, _("a token"))


def _check_text(text: object, what: str) -> None:
    if not isinstance(text, str):
        raise BadCheckpoint(
            _(
                "The tokenizer has {what} that is not text but {text!r}; download the model again.",
                what=what,
                text=str(text)[:40],
            )
        )
    if len(text) > _MOST_TEXT:
        raise BadCheckpoint(
            _(
                "The tokenizer has {what} of {text} characters, but at most {most_text} are "
                "allowed; download it again.",
                what=what,
                text=len(text),
                most_text=_MOST_TEXT,
            )
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadCheckpoint(
            _("The tokenizer has {what} that is not valid Unicode; download the model again.", what=what)
        ) from None


def _steps(part: Any, kinds: frozenset[str]) -> Iterator[dict[str, Any]]:
    """The steps of a normaliser or pre-tokeniser, with sequences flattened; each step is checked."""
    waiting, count = [(part, 0)], 0
    while waiting:
        step, depth = waiting.pop()
        if step is None:
            continue
        count += 1
        if count > _MOST_STEPS or depth > _MOST_DEPTH:
            raise BadCheckpoint(
                _("The tokenizer changes text in more steps than any known one; download the model again.")
            )
        if not isinstance(step, dict) or not isinstance(step.get("type"), str):
            raise BadCheckpoint(_("The tokenizer has a step without a kind; download the model again."))
        if step["type"] not in kinds:
            raise UnsupportedModel(
                _("The tokenizer changes text by {step!r}, which is not supported.", step=step["type"][:40])
            )
        if step["type"] == "Sequence":
            inner = step.get("normalizers", step.get("pretokenizers"))
            if not isinstance(inner, list):
                raise BadCheckpoint(
                    _("The tokenizer has a sequence without steps; download the model again.")
                )
            waiting += [(one, depth + 1) for one in inner]
            continue
        _check_step(step)
        yield step


def _check_step(step: Mapping[str, Any]) -> None:
    if step["type"] == "Precompiled":
        _check_table(step.get("precompiled_charsmap"))
        return
    for name, value in step.items():
        if name == "pattern":
            kind, text = (
                next(iter(value.items())) if isinstance(value, dict) and len(value) == 1 else ("", None)
            )
            if kind not in ("String", "Regex"):
                raise BadCheckpoint(
                    _("The tokenizer cuts text at a pattern of an unknown kind; download the model again.")
                )
            _check_text(text, _("a pattern"))
        elif isinstance(value, str):
            _check_text(value, _("a step's text"))
        elif value is not None and not isinstance(value, (bool, int)):
            raise BadCheckpoint(
                _(
                    "The tokenizer's step {step} has a {name!r} in an unknown format; download the "
                    "model again.",
                    step=step["type"],
                    name=name[:40],
                )
            )


def _growth(step: Mapping[str, Any]) -> int:
    """The largest factor by which a replacement may lengthen a text."""
    if step["type"] != "Replace" or "pattern" not in step:
        return 1
    pattern = step["pattern"].get("String")
    return max(1, math.ceil(len(str(step.get("content", ""))) / (len(pattern) if pattern else 1)))


def _is_doubtful(step: Mapping[str, Any]) -> bool:
    pattern = step.get("pattern")
    if pattern is None:
        return False
    grows = step["type"] == "Replace" and len(str(step.get("content", ""))) > 1
    return (
        grows
        or ("Regex" in pattern and pattern["Regex"] not in _OWN_EXPRESSIONS)
        or pattern.get("String") == ""
    )


def _check_table(table: object) -> None:
    """Check a table in the library's form, base64 of `Charsmap` data; the library does not check offsets."""
    try:
        data = b"" if table is None else base64.b64decode(str(table), validate=True)
    except (binascii.Error, ValueError):
        raise BadCheckpoint(
            _("The tokenizer's table of character replacements is not base64; download the model again.")
        ) from None
    Charsmap(data).check()
