"""Rules about single tokens, written as text: the token bias, and the tokens that contain given texts."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from weakref import WeakKeyDictionary

from engine.errors import BadSetting
from engine.text.tokenizer.healing import TokenPrefixes
from engine.text.tokenizer.tokenizer import Tokenizer
from engine.words import _

NEVER_WORDS = ("ban", "never", "-inf")
"""Words for minus infinity in a bias: the token is never sampled."""

_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'"}
_QUOTED = re.compile(r"""(["'])(.+)\1""", re.DOTALL)


def parse_bias(lines: Sequence[str], tokenizer: Tokenizer) -> tuple[tuple[int, float], ...]:
    """(id, amount added to its score) for each line "token = number"; the last line for a token counts.

    A token is given by its id in digits or by its text. The text may be in single or double quotes, to keep
    blanks at its ends or to mean digits; \\n and \\t are a line break and a tab there. If an unquoted text is
    not a token, it is tried with a leading space. The number may be one of `NEVER_WORDS`, minus infinity.
    Empty lines are skipped. Raises `BadSetting` for an invalid line, an id that does not exist, and a text
    that is not one token.
    """
    bias: dict[int, float] = {}
    for line in filter(str.strip, lines):
        what, number = bias_parts(line)
        bias[_token(what, tokenizer)] = number
    return tuple(bias.items())


def bias_parts(line: str) -> tuple[str, float]:
    """The token and the number of a bias line: the part of `parse_bias` that needs no tokenizer.

    Raises `BadSetting` for an invalid line.
    """
    what, equals, number = line.rpartition("=")
    if not equals or not what.strip():
        raise BadSetting(
            _(
                "The token bias {line!r} cannot be read; write a token's text or id, an equals "
                "sign and a number.",
                line=line.strip(),
            )
        )
    return what.strip(), _number(number.strip(), line.strip())


def ids_containing(tokenizer: Tokenizer, texts: Sequence[str]) -> frozenset[int]:
    """All control tokens, and all tokens whose bytes contain one of `texts`; cached for each tokenizer.

    The escapes \\n and \\t in `texts` are a line break and a tab.
    """
    known = _containing.setdefault(tokenizer, {})
    key = tuple(sorted({_unescaped(text) for text in texts if text}))
    found = known.get(key)
    if found is None:
        needles = [text.encode("utf-8", "replace") for text in key]
        ids = (
            id
            for data, id in TokenPrefixes(tokenizer).all_bytes()
            if any(needle in data for needle in needles)
        )
        found = known[key] = tokenizer.special_ids.union(ids)
    return found


_containing: WeakKeyDictionary[Tokenizer, dict[tuple[str, ...], frozenset[int]]] = WeakKeyDictionary()


def _unescaped(text: str) -> str:
    """`text` with its escapes resolved; a backslash before any other character stays."""
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[0]), text)


def _number(word: str, line: str) -> float:
    if word.lower() in NEVER_WORDS:
        return -math.inf
    try:
        number = float(word)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise BadSetting(
            _(
                "The token bias {line!r} ends in {word!r}, but a number was expected, such as -5, or never.",
                line=line,
                word=word,
            )
        )
    return number


def _token(what: str, tokenizer: Tokenizer) -> int:
    """The id of the token that a bias line names."""
    if what.isascii() and what.isdigit():
        id = int(what)
        if id >= tokenizer.vocab_size:
            raise BadSetting(
                _(
                    "The token bias names token {id}, but ids go from 0 to {vocab_size}; choose another.",
                    id=id,
                    vocab_size=tokenizer.vocab_size - 1,
                )
            )
        return id
    quoted = _QUOTED.fullmatch(what)
    text = _unescaped(quoted[2]) if quoted else what
    found = _exactly(text, tokenizer)
    if found is None and not quoted:
        found = _exactly(" " + text, tokenizer)
    if found is None:
        raise BadSetting(
            _(
                "The token bias names {text!r}, {what_it_is}; choose a text that is one token.",
                text=text,
                what_it_is=_what_it_is(text, tokenizer),
            )
        )
    return found


def _exactly(text: str, tokenizer: Tokenizer) -> int | None:
    """The token that is exactly `text`; of several, the one that encoding `text` gives."""
    data = text.encode("utf-8", "replace")
    ids = tuple(
        id for id in sorted(tokenizer.special_ids) if tokenizer.token_bytes(id) == data
    ) or TokenPrefixes(tokenizer).exactly(data)
    if len(ids) < 2:
        return ids[0] if ids else None
    read = tokenizer.encode(text)
    return next((id for id in ids if id in read), ids[0])


def _what_it_is(text: str, tokenizer: Tokenizer) -> str:
    count = len(tokenizer.encode(text))
    return (
        _("which is {count} tokens", count=count)
        if count > 1
        else _("which is not a token without a space in front")
    )
