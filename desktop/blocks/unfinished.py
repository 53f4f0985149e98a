"""The last line of a reply that is still written: shown as it will most likely look when it is complete.

Bold text is bold before its closing asterisks arrive, a link is one before its address is known, and the
first characters of marks, links, pictures, footnotes and short formulas are withheld until they can be drawn.
So no asterisk appears only to vanish, and the lines do not move when a mark closes.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

__all__ = ["UNFINISHED_ADDRESS", "may_be_formula", "may_be_open", "settled", "withholds"]

UNFINISHED_ADDRESS = "#"
"""Where a link leads whose address has not arrived: nowhere."""
_LONGEST_CODE = 300
"""Characters after a backtick without its pair that are still taken for code."""
_MOST_TURNS = 3
"""How often what may not be shown yet is looked for again, before what has just been left out."""
_MARKS = re.compile(r"`+")
_STEP = re.compile(r"\\.|`+", re.DOTALL)
# Possessive, since a reply is searched again with each of its tokens: no text may take more than one try.
_WORDS = r"(?: [^\[\]\n] | \[ [^\[\]\n]*+ \] ){0,400}"
_TARGET = r"(?: < [^<>\n]*+ >? | (?: [^()\s<] | \( [^()\s]*+ \)?+ ){0,2000} )"
_TITLE = r"(?: [ ] (?: \" [^\"\n]* \"? | ' [^'\n]* '? )? )?"
_LINK = re.compile(rf"(?<!!)\[(?P<words>{_WORDS})\]\( {_TARGET} {_TITLE} $", re.VERBOSE)
_PICTURE = re.compile(rf"!\[ [^\[\]]{{0,400}} (?: \] (?: \( [ ]? {_TARGET} {_TITLE} )? )? $", re.VERBOSE)
_LONGEST_LINK = 3000
_LATIN = r"0-9A-Za-z_\u00aa-\u024f"
_PROSE = r"[^$\n]*? (?<! [\\A-Za-z{] ) [A-Za-z]{4,}+ [\s.,;:]"
"""Words in the middle: a price or a variable of a shell, not a formula."""
_HELD = (
    (re.compile(r"\\$|(?<!\S)!$"), 1),
    (re.compile(r"(?<![*_~])[*_~]+$"), 1000),
    (re.compile(r"</?[A-Za-z]{0,8}$"), 10),
    (re.compile(r"(?<![\w\]!])\[(?![\s\d^]|[xX]\])[^\[\]\n]{0,40}\]?$"), 42),
    (re.compile(r"\[\^[^\]\s^]{0,80}$"), 82),
    (_PICTURE, _LONGEST_LINK),
    (re.compile(r"\\\((?:(?!\\[()]).){0,400}$", re.DOTALL), 402),
    (re.compile(r"\\\[(?:(?!\\[\[\]]).){0,400}$", re.DOTALL), 402),
    (re.compile(rf"(?<![{_LATIN}$]) \$ {{1,2}} (?! [\s\d$] | {_PROSE} ) [^$\n]{{0,120}} $", re.VERBOSE), 122),
)  # fmt: skip
"""What may stand at the end without being shown yet, and how many characters it has at most."""
_LONGEST_FORMULA = 1500
_ARGUMENT = re.compile(r"\\[A-Za-z]++\*?\{[^{}\\\n]*+\}?")
_SENTENCE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{4,}+[,.;:]?[ ]+[A-Za-z]|\n[ \t]*\n")
"""Words in a row, or an empty line: neither is in a formula, except in the argument of a command."""


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
    for _ in range(_MOST_TURNS):
        before = len(shown)
        for pattern, longest in _HELD:
            held = pattern.search(masked, max(0, len(masked) - longest))
            if held is not None:
                shown, masked = shown[: held.start()].rstrip(), masked[: held.start()].rstrip()
        link = _LINK.search(masked, max(0, len(masked) - _LONGEST_LINK))
        if link is not None:
            return f"{shown[: link.end('words')]}]({UNFINISHED_ADDRESS})"
        if len(shown) == before:
            break
    return shown


def may_be_formula(latex: str) -> bool:
    """Whether the beginning of display math is still one, and not text after a sign that only looks so."""
    return len(latex) <= _LONGEST_FORMULA and _SENTENCE.search(_ARGUMENT.sub("", latex)) is None


def withholds(text: str) -> bool:
    """Whether a part of `text` is not shown while it grows, or otherwise than it is written."""
    return not settled(text).startswith(text.rstrip(" "))


def _steps(text: str) -> Iterator[tuple[re.Match[str], int]]:
    """Each escaped character and each row of backticks outside code: where it is, and where the code ends
    that it begins, or 0 for none.
    """
    ends = defaultdict[int, list[int]](list)  # of all rows of so many backticks, in order
    for row in _MARKS.finditer(text):
        ends[row.end() - row.start()].append(row.end())
    place = 0
    while found := _STEP.search(text, place):
        place, end = found.end(), 0
        if found[0][0] == "`":
            same = ends[len(found[0])]
            after = bisect_left(same, place + 1)
            end = same[after] if after < len(same) else 0
        yield found, end
        place = max(place, end)


def _open_code(text: str) -> tuple[int, int] | None:
    """Where the backticks begin and end that have no pair; None when all have one."""
    for found, end in _steps(text):
        if not end and found[0][0] == "`" and len(text) - found.end() <= _LONGEST_CODE:
            return found.span()
    return None


def _masked(text: str) -> str:
    """`text` with dots instead of code and of escaped characters, so that no mark is found in them."""
    made, place = [], 0
    for found, end in _steps(text):
        made.append(text[place : found.start()])
        place = max(found.end(), end)
        formula = found[0] in (r"\(", r"\[", r"\)", r"\]")
        made.append(found[0] if formula else "." * (place - found.start()))
    return "".join([*made, text[place:]])
