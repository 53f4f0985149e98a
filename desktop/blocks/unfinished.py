"""The last line of a reply that is still written: shown as it will most likely look when it is complete.

Bold text is bold before its closing asterisks arrive, a link is one before its address is known, and the
first characters of marks, links, pictures, footnotes and short formulas are withheld until they can be drawn.
So no asterisk appears only to vanish, and the lines do not move when a mark closes.
"""

from __future__ import annotations

import re

__all__ = ["UNFINISHED_ADDRESS", "may_be_open", "settled", "withholds"]

UNFINISHED_ADDRESS = "#"
"""Where a link leads whose address has not arrived: nowhere."""
_LONGEST_CODE = 300
"""Characters after a backtick without its pair that are still taken for code."""
_STEP = re.compile(r"\\.|`+", re.DOTALL)
_WORDS = r"(?: [^\[\]\n] | \[ [^\[\]\n]* \] ){0,400}"
_TARGET = r"(?: < [^<>\n]* >? | (?: [^()\s<] | \( [^()\s]* \)? ){0,2000} )"
_TITLE = r"(?: [ ] (?: \" [^\"\n]* \"? | ' [^'\n]* '? )? )?"
_LINK = re.compile(rf"(?<!!)\[(?P<words>{_WORDS})\]\( {_TARGET} {_TITLE} $", re.VERBOSE)
_LATIN = r"0-9A-Za-z_\u00aa-\u024f"
_PROSE = r"[^$\n]*? (?<! [\\A-Za-z{] ) [A-Za-z]{4,} [\s.,;:]"
"""Words in the middle: a price or a variable of a shell, not a formula."""
_HELD = (
    re.compile(r"\\$|(?<!\S)!$"),
    re.compile(r"[*_~]+$"),
    re.compile(r"</?[A-Za-z]{0,8}$"),
    re.compile(r"(?<![\w\]!])\[(?![\s\d^]|[xX]\])[^\[\]\n]{0,40}\]?$"),
    re.compile(r"\[\^[^\]\s^]{0,80}$"),
    re.compile(rf"!\[ [^\[\]]{{0,400}} (?: \] (?: \( [ ]? {_TARGET} {_TITLE} )? )? $", re.VERBOSE),
    re.compile(r"\\\((?:(?!\\\)).){0,400}$", re.DOTALL),
    re.compile(r"\\\[(?:(?!\\\]).){0,400}$", re.DOTALL),
    re.compile(rf"(?<![{_LATIN}$]) \$ {{1,2}} (?! [\s\d$] | {_PROSE} ) [^$\n]{{0,120}} $", re.VERBOSE),
)  # fmt: skip
"""What may stand at the end without being shown yet."""


def may_be_open(text: str) -> bool:
    """Whether `text` has a character that may open something."""
    return any(sign in text for sign in "*_~`<[$\\")


def settled(text: str) -> str:
    """The source of the last paragraph as it is shown while it grows: code and a link at its end are closed,
    what cannot be drawn yet is left out. Emphasis is closed by the parser.
    """
    shown, code = text, _open_code(text)
    if code is not None:
        marks, tail = text[code[0] : code[1]], text[code[1] :].rstrip("` ")
        shown = text[: code[0]].rstrip() if not tail.strip() else f"{text[: code[1]]}{tail}{marks}"
    masked = _masked(shown)
    while True:
        before = len(shown)
        for pattern in _HELD:
            found = pattern.search(masked)
            if found is not None:
                shown, masked = shown[: found.start()].rstrip(), masked[: found.start()].rstrip()
        link = _LINK.search(masked)
        if link is not None:
            return f"{shown[: link.end('words')]}]({UNFINISHED_ADDRESS})"
        if len(shown) == before:
            return shown


def withholds(text: str) -> bool:
    """Whether a part of `text` is not shown while it grows, or otherwise than it is written."""
    return not settled(text).startswith(text.rstrip(" "))


def _open_code(text: str) -> tuple[int, int] | None:
    """Where the backticks begin and end that have no pair; None when all have one."""
    place = 0
    while found := _STEP.search(text, place):
        place = found.end()
        marks = found[0]
        if marks[0] == "\\":
            continue
        pair = re.compile(rf"(?<!`){marks}(?!`)").search(text, place)
        if pair is not None:
            place = pair.end()
        elif len(text) - place <= _LONGEST_CODE:
            return found.span()
    return None


def _masked(text: str) -> str:
    """`text` with dots instead of code and of escaped characters, so that no mark is found in them."""
    made, place = [], 0
    while found := _STEP.search(text, place):
        made.append(text[place : found.start()])
        place, marks = found.end(), found[0]
        if marks in (r"\(", r"\[", r"\)", r"\]"):
            made.append(marks)
            continue
        if marks[0] == "`":
            pair = re.compile(rf"(?<!`){marks}(?!`)").search(text, place)
            place = pair.end() if pair is not None else place
        made.append("." * (place - found.start()))
    return "".join([*made, text[place:]])
