"""One block of a message: its kind, its exact Markdown source and the text that is shown for it."""

from __future__ import annotations

import re
from enum import StrEnum

from desktop.blocks.lines import (
    alert,
    cells,
    closes_fence,
    dedent,
    delimiter,
    display_math,
    fence,
    footnote,
    is_rule,
    list_marker,
)
from engine.lazy_dataclass import dataclass

__all__ = ["Block", "Kind"]

_QUOTE = re.compile(r"^ {0,3}> ?", re.MULTILINE)
_DETAILS = re.compile(r"(?:\s*</?details(?:\s[^<>]*)?>)+\s*", re.IGNORECASE)
_NOT_A_BLOCK_START = "\u200b"


class Kind(StrEnum):
    """The kinds of block. `THINKING` is the opening tag of a thought, whose blocks follow with `thought` set;
    `MARKUP` is source that shows nothing: blank lines, addresses of links, the closing tag of a thought, the
    first characters of a marker that is still arriving.
    """

    PROSE = "prose"
    HEADING = "heading"
    CODE = "code"
    TABLE = "table"
    LIST = "list"
    QUOTE = "quote"
    RULE = "rule"
    MATH = "math"
    FOOTNOTE = "footnote"
    THINKING = "thinking"
    MARKUP = "markup"


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a message. The sources of all its blocks, joined, are the message.

    `indent` counts the columns that an enclosing list takes from every line, `depth` the list items around
    the block. `joined` means that the block continues the one before it, which was cut for size: there is
    no space between them. Then `head` is the head of the table, or the first line of the code or of the
    alert. An open block (`closed` false) may still change; a closed one never does.
    """

    kind: Kind
    source: str
    closed: bool = True
    language: str = ""
    indent: int = 0
    thought: bool = False
    joined: bool = False
    head: str = ""
    depth: int = 0

    @property
    def body(self) -> str:
        """What is shown: code without fences, a quote without its marks, a table with a complete head, math
        as LaTeX, a footnote without its marker, else Markdown.
        """
        if self.kind is Kind.CODE:
            return self._code()
        text = dedent(self.source, self.indent)
        if self.kind is Kind.QUOTE:
            inner = _QUOTE.sub("", text)
            return inner.partition("\n")[2] if self.alert and not self.joined else inner
        if self.kind is Kind.MATH:
            return _math(text)
        if self.kind is Kind.FOOTNOTE:
            found = footnote(text.split("\n", 1)[0])
            return text[found[1] :].strip() if found is not None and not self.joined else text
        if self.kind is Kind.TABLE:
            return _table(self.head + text)
        if self.kind in (Kind.THINKING, Kind.MARKUP, Kind.RULE):
            return ""
        if self.kind is Kind.PROSE and "etails" in text and _DETAILS.fullmatch(text):
            return ""
        if self.joined and self.kind is Kind.PROSE and _starts_block(text):
            return _NOT_A_BLOCK_START + text
        return text

    @property
    def label(self) -> str:
        """The label of a footnote; empty for other blocks."""
        found = footnote(self.source) if self.kind is Kind.FOOTNOTE and not self.joined else None
        return found[0] if found is not None else ""

    @property
    def alert(self) -> str:
        """The kind of alert that a quote is, as in `lines.alert`; empty for other blocks."""
        return (
            alert(self.head or dedent(self.source, self.indent).split("\n", 1)[0])
            if self.kind is Kind.QUOTE
            else ""
        )

    def _code(self) -> str:
        whole = self.head + self.source
        first_end = whole.find("\n") + 1
        opening = fence(whole[: first_end or len(whole)])
        if first_end == 0 or opening is None:
            return "" if opening is not None else dedent(self.source, self.indent).removesuffix("\n")
        text = whole[first_end:]
        last_start = text.rstrip("\r\n").rfind("\n") + 1
        last = text[last_start:].strip()
        half_arrived = not self.closed and last != "" and last == opening[1][0] * len(last)
        if half_arrived or (text and closes_fence(text[last_start:], opening[1])):
            text = text[:last_start]
        text = dedent(text, self.indent)
        return text.removesuffix("\n")


def _math(text: str) -> str:
    """LaTeX without `$$` or brackets; an environment as it is.

    A full stop after the formula becomes its end.
    """
    opening = display_math(text.split("\n", 1)[0])
    finish = opening[1] if opening is not None else ""
    stripped = text.strip()
    if not finish or finish.startswith("\\end"):
        return stripped
    inner, closing, after = stripped[2:].partition(finish)
    if not closing:  # perhaps the first half of what closes it has arrived
        inner = inner.removesuffix(finish[0])
    return inner.strip() + after.strip()


def _starts_block(text: str) -> bool:
    line = text.split("\n", 1)[0]
    return (
        line.lstrip()[:1] in ("#", ">", "|")
        or list_marker(line) is not None
        or is_rule(line)
        or fence(line) is not None
    )


def _table(text: str) -> str:
    """The table with as many columns in the row of dashes as in its head, which GitHub's grammar requires."""
    lines = text.rstrip("\r\n").split("\n")
    columns = len(cells(lines[0]))
    given = cells(lines[1]) if len(lines) > 1 and delimiter(lines[1]) else []
    skip = 1 if len(lines) > 1 and set(lines[1].strip()) <= set("|-: \t") else 0
    dashes = (given + ["---"] * columns)[:columns]
    rows = ["| " + " | ".join(cells(lines[0])) + " |", "| " + " | ".join(dashes) + " |"]
    rows += ["| " + " | ".join(cells(line)) + " |" for line in lines[1 + skip :] if line.strip()]
    return "\n".join(rows) + "\n"
