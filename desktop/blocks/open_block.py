"""The block of Markdown that is still growing: how large it may get, and which lines belong to it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field

from desktop.blocks.block import Kind
from desktop.blocks.lines import (
    alert,
    cells,
    display_math,
    fence,
    footnote,
    indentation,
    is_rule,
    list_marker,
)
from engine.lazy_dataclass import dataclass

__all__ = [
    "CELLS", "CODE_LIMIT", "CODE_LINES", "COLUMNS", "DOLLARS", "LIMIT", "LINES", "MATH_LIMIT", "OpenBlock",
    "alert_line", "depth_at", "first_number", "interrupts_prose", "kind_at", "with_item",
]  # fmt: skip

LIMIT = 2048
"""Characters after which a block of text is closed at the next good place, so that the layout of one document
stays short.
"""

LINES = 128
"""Lines after which a block of text is closed as well."""

DOLLARS = 200
"""Dollar signs after which it is closed too: each formula is a picture."""

CODE_LIMIT, CODE_LINES = 16_384, 256
"""Characters and lines after which a block of code continues in another one."""

COLUMNS, CELLS = 50, 120
"""Columns of the widest table (a wider one is text), and cells after which a table continues in another."""

MATH_LIMIT = 4096
"""Characters after which an unclosed formula is taken as text."""

_HEADING = re.compile(r" {0,3}#{1,6}(?:\s|$)")
_QUOTE = re.compile(r" {0,3}>")


@dataclass
class OpenBlock:
    """The block that is still growing."""

    kind: Kind
    lines: list[str] = field(default_factory=list)
    size: int = 0
    fence: str = ""
    language: str = ""
    indent: int = 0
    joined: bool = False
    depth: int = 0
    head: str = ""
    columns: int = 1
    sure: bool = True
    blank: bool = False
    dollars: int = 0

    @property
    def full(self) -> bool:
        """Whether the block must be closed at the next good place."""
        return self.size >= LIMIT or len(self.lines) >= LINES or self.dollars >= DOLLARS

    def text_at(self, line: str) -> int:
        """The columns at which `line` stands, which goes on with this block in another: an item's text stays
        in its list.
        """
        return max(2, self.indent, indentation(line)) if self.kind is Kind.LIST else self.indent

    def add(self, line: str) -> None:
        self.lines.append(line)
        self.size += len(line)
        self.dollars += line.count("$")


def kind_at(line: str, indent: int, math: bool = True) -> Kind:
    """The kind of block that `line` would start in a container of `indent` columns; `math` says whether
    formulas count.
    """
    text = line[min(indent, indentation(line)) :]
    if fence(text) is not None:
        return Kind.CODE
    if math and display_math(text) is not None:
        return Kind.MATH
    if footnote(text) is not None:
        return Kind.FOOTNOTE
    if _HEADING.match(text):
        return Kind.HEADING
    if is_rule(text):
        return Kind.RULE
    if _QUOTE.match(text):
        return Kind.QUOTE
    marker = list_marker(text)
    if marker is not None and marker[0] <= 3:
        return Kind.LIST
    if text.lstrip().startswith("|") and len(cells(text)) > 1:
        return Kind.TABLE
    return Kind.PROSE


def with_item(items: Sequence[int], line: str) -> list[int]:
    """The columns at which the text of each list item around `line` begins, its own included; `items` are
    those around the line above.
    """
    marker = list_marker(line)
    if marker is None:
        return list(items)
    return [*(column for column in items if column <= marker[0]), marker[0] + len(marker[1]) + 2]


def depth_at(items: Sequence[int], indent: int) -> int:
    """How many of the list `items` are around a block at column `indent`, which may be one too small, as
    models often have it.
    """
    return max(sum(column <= indent + 1 for column in items), 1) if indent >= 2 else 0


def first_number(block: OpenBlock) -> str:
    """The number of the first item of a list, "" for a bullet."""
    marker = list_marker(block.lines[0])
    return marker[1] if marker is not None else ""


def interrupts_prose(line: str) -> bool:
    """Whether a list that begins with `line` ends a paragraph above it (CommonMark 0.31, section 5.3)."""
    marker = list_marker(line)
    return marker is not None and marker[2] and marker[1] in ("", "1")


def alert_line(block: OpenBlock) -> str:
    """The first line of a quote, if it says what kind of alert the quote is."""
    first = block.head or block.lines[0]
    return first if alert(first) else ""
