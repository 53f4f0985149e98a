"""Spans inside a block that CommonMark does not know, LaTeX math and footnote references, and pictures, which
are not left to Qt.

Math in dollars follows Pandoc's rule (its manual, "tex_math_dollars"): no space after the opening dollar, no
space before the closing one and no digit after it, so that prices stay text. A Latin letter or digit before
the opening dollar forbids math too, and so does an amount with words after it: Chinese, Japanese and Arabic
have no space before a formula.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

__all__ = ["Span", "SpanKind", "mark_spans", "math_at"]

LONGEST = 1000
"""Characters of the longest formula inside a line of text."""


class SpanKind(StrEnum):
    """The kinds of span. `DISPLAY` is display math in the middle of text."""

    MATH = "math"
    DISPLAY = "display"
    FOOTNOTE = "footnote"
    IMAGE = "image"


class Span(NamedTuple):
    """`content` is the LaTeX, the label of the footnote or the address of the picture; `words` describes a
    picture.
    """

    kind: SpanKind
    source: str
    content: str
    words: str = ""


_LATIN = "0-9A-Za-z_\u00aa-\u024f"
_WORDS = r"\s+ [^\W\d_]{3,}+ [.,;:]? \s+ [^\W\d_]{2}"
_PRICE = rf"\d[\d.,]*+ (?: [^$\\^_=+<>\n]{{0,80}}? [\u0590-\u08ff\u3001-\uffef] | {_WORDS} )"
"""An amount, and words instead of mathematics."""
_SPAN = re.compile(
    rf"""
    (?P<code> (?<!`) (?P<ticks> `+ ) (?!`) .{{1,4096}}? (?<!`) (?P=ticks) (?!`) )
    | (?P<target> \]\( (?: \\. | [^()\s\\] | \( [^()\s]* \) ){{1,2000}} \) )
    | \\\( (?P<round> .{{1,{LONGEST}}}? ) \\\)
    | \\\[ (?P<square> .{{1,{LONGEST}}}? ) \\\]
    | (?P<escape> \\. )
    | (?<! [{_LATIN}$] ) \$\$ (?! \$ ) (?P<double> (?: \\. | [^$\\] ){{1,{LONGEST}}}? ) \$\$ (?! \$ )
    | (?<! [{_LATIN}$] ) \$ (?! [\s$] | {_PRICE} )
        (?P<single> (?: \\. | [^$\\\n`] | \n (?! [ \t]*\n ) ){{1,{LONGEST}}}? ) (?<! \s ) \$ (?! [\d$] )
    | \[\^ (?P<label> [^\]\s^]{{1,80}} ) \] (?! : )
    | ! \[ (?P<words> [^\[\]]{{0,400}} ) \] \( [ \t]*
        (?: < (?P<angled> [^<>\n]{{1,2000}} ) >
        | (?P<address> (?: \\. | [^()\s\\] | \( [^()\s]* \) ){{1,2000}} ) )
        (?: \s+ (?: "[^"\n]*" | '[^'\n]*' ) )? [ \t]* \)
    """,
    re.VERBOSE | re.DOTALL,
)  # fmt: skip
_PRIVATE = range(0xE000, 0xF8FF)


def mark_spans(text: str) -> tuple[str, dict[str, Span]]:
    """`text` with each span replaced by a private-use character found nowhere else in it, and the spans by
    these characters.
    """
    if not any(sign in text for sign in ("$", "\\(", "\\[", "[^", "![")):
        return text, {}
    used = set(text)
    free = (chr(code) for code in _PRIVATE if chr(code) not in used)
    found: dict[str, Span] = {}

    def replaced(match: re.Match[str]) -> str:
        span = _span(match)
        mark = next(free, "") if span is not None else ""
        if span is None or not mark:
            return match[0]
        found[mark] = span
        return mark

    return _SPAN.sub(replaced, text), found


def math_at(text: str, place: int) -> Span | None:
    """The formula that begins at this place, or None."""
    match = _SPAN.match(text, place)
    span = _span(match) if match is not None else None
    return span if span is not None and span.kind in (SpanKind.MATH, SpanKind.DISPLAY) else None


def _span(match: re.Match[str]) -> Span | None:
    parts = match.groupdict()
    for name, kind in (
        ("round", SpanKind.MATH),
        ("single", SpanKind.MATH),
        ("square", SpanKind.DISPLAY),
        ("double", SpanKind.DISPLAY),
    ):
        if parts[name] is not None:
            content = parts[name].strip()
            return Span(kind, match[0], content) if content else None
    if parts["label"] is not None:
        return Span(SpanKind.FOOTNOTE, match[0], parts["label"])
    address = parts["angled"] or parts["address"]
    if address:
        return Span(
            SpanKind.IMAGE, match[0], re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", address), parts["words"].strip()
        )
    return None
