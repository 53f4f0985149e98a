"""Markdown as plain words, for titles and for the text around what a search has found.

Only marks that are certainly marks are taken away: pairs, and those at the beginning of a line. What is left
may stand in the middle of code or of a formula, where an asterisk is an asterisk.
"""

from __future__ import annotations

import re

__all__ = ["plain_words"]

_INLINE = re.compile(
    r"""
    (?<! [`\\] ) (?P<ticks> `{1,3} ) (?! ` ) [ ]? (?P<code> [^\n]*? [^`\n] ) [ ]? (?P=ticks) (?! ` )
    | !? \[ (?P<link> [^\[\]\n]{1,300} ) \] \( (?: [^()\s] | \( [^()\s]* \) ){1,2000} (?: [ ] "[^"\n]*" )? \)
    | (?<! [A-Za-z0-9_*~\\] ) (?P<marks> \*{1,3} | ~~ ) (?! [\s*~] )
        (?P<words> [^\n]*? [^\s*~\\] ) (?P=marks) (?! [A-Za-z0-9_*~] )
    """,
    re.VERBOSE,
)
_LINE = re.compile(r"^[ \t]{0,3}(?:(?:#{1,6}|>)[ \t]+(?=\S)|(?:`{3,}|~{3,})[^`\n]*$)", re.MULTILINE)
"""The beginning of a heading or a quote, and the line that opens or closes a block of code."""
_COLUMNS = re.compile(r"^[ \t]*\|?(?:[ \t]*:?-{2,}:?[ \t]*\|)+[-: \t]*$", re.MULTILINE)
"""The line under the head of a table."""
_CELL_END = re.compile(r"(?<!\\)\|")
_DEEPEST = 3
"""Marks within marks."""


def plain_words(source: str) -> str:
    """`source` without its marks, with dots between the cells of tables; line ends stay."""
    if not any(sign in source for sign in "*`[#>~|"):
        return source
    if "|" in source:
        source = "\n".join(map(_row, _COLUMNS.sub("", source).split("\n")))
    return _inline(_LINE.sub("", source), _DEEPEST)


def _row(line: str) -> str:
    """A line without the signs of a row of a table; without spaces beside them it may be `|x| + |y|`."""
    row = line.strip()
    if not (row.startswith(("| ", "|\t")) and row.endswith((" |", "\t|"))):
        return line
    cells = [cell.strip() for cell in _CELL_END.split(row)[1:-1]]
    return " · ".join(filter(None, cells)) if len(cells) > 1 else line


def _inline(text: str, deepest: int) -> str:
    def words(found: re.Match[str]) -> str:
        if found["code"] is not None:
            return found["code"]
        inner = found["link"] or found["words"]
        return _inline(inner, deepest - 1) if deepest else inner

    return _INLINE.sub(words, text)
