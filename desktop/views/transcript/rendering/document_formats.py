"""The formats of text, tables and cells in a message's documents, in the transcript's style."""

from __future__ import annotations

from PySide6.QtGui import (
    QBrush,
    QFont,
    QTextCharFormat,
    QTextFrameFormat,
    QTextTableCellFormat,
    QTextTableFormat,
)

from desktop.blocks import UNFINISHED_ADDRESS
from desktop.views.transcript.style import Style

__all__ = [
    "CELL_TOP", "QUOTE_ROOM", "TextFormats", "cell_format", "list_depth", "quote_depth", "table_format",
]  # fmt: skip

CELL_TOP = 0.4
"""Room above the text of a table's cell in lines of text."""
QUOTE_ROOM = 0.9
"""Indentation of a quote in lines of text."""
_DEEPEST_LIST, _DEEPEST_QUOTE = 12, 6
"""Lists within lists, and quotes within quotes, after which nothing is indented further: text would have no
room left, and Qt shows none then.
"""


def list_depth(lists: int) -> int:
    """How far text within so many `lists` is indented, in lists."""
    return min(lists, _DEEPEST_LIST)


def quote_depth(quotes: int) -> int:
    """How far text within so many `quotes` is indented, in quotes."""
    return min(quotes, _DEEPEST_QUOTE)


class TextFormats:
    """The formats of text in a style; those of plain paragraphs are made once."""

    def __init__(self, style: Style) -> None:
        self._style = style
        self._made: dict[tuple[tuple[str, ...], str], QTextCharFormat] = {}

    def of(self, styles: tuple[str, ...], address: str, base: QTextCharFormat) -> QTextCharFormat:
        """The format of text in these styles over `base`, as a link to `address` if there is one."""
        if not styles and not address:
            return base
        if not base.isEmpty():
            return self._format(styles, address, base)
        key = (styles, address)
        if key not in self._made:
            self._made[key] = self._format(styles, address, base)
        return self._made[key]

    def _format(self, styles: tuple[str, ...], address: str, base: QTextCharFormat) -> QTextCharFormat:
        style, made = self._style, QTextCharFormat(base)
        if "bold" in styles:
            made.setFontWeight(QFont.Weight.Bold)
        if "italic" in styles:
            made.setFontItalic(True)
        if "struck" in styles:
            made.setFontStrikeOut(True)
        if "underlined" in styles:
            made.setFontUnderline(True)
        if "marked" in styles:
            made.setBackground(QBrush(style.colours.notice))
        if "sub" in styles:
            made.setVerticalAlignment(QTextCharFormat.VerticalAlignment.AlignSubScript)
        if "sup" in styles:
            made.setVerticalAlignment(QTextCharFormat.VerticalAlignment.AlignSuperScript)
        if "code" in styles:
            size = made.fontPointSize() or style.text_font.pointSizeF()
            made.setFontFamilies(style.code_font.families() or [style.code_font.family()])
            made.setFontFixedPitch(True)
            made.setFontPointSize(size * 0.93)
            made.setBackground(QBrush(style.colours.code))
        if address:
            made.setForeground(QBrush(style.colours.link))
            made.setAnchor(address != UNFINISHED_ADDRESS)
            made.setAnchorHref(address if address != UNFINISHED_ADDRESS else "")
        return made


def table_format(style: Style, quotes: int, depth: int) -> QTextTableFormat:
    """The format of a table within this many quotes and lists."""
    shape = QTextTableFormat()
    shape.setBorder(0)
    shape.setBorderCollapse(True)
    shape.setCellSpacing(0)
    shape.setCellPadding(0)
    shape.setMargin(0)
    if quotes or depth:
        shape.setLeftMargin(style.px(QUOTE_ROOM) * quote_depth(quotes) + style.px(1.35) * list_depth(depth))
        shape.setBottomMargin(style.px(0.6))
    return shape


def cell_format(style: Style, head: bool, line: bool) -> QTextTableCellFormat:
    """The format of a cell, in the head or with a `line` below."""
    room = QTextTableCellFormat()
    room.setLeftPadding(style.px(0.6))
    room.setRightPadding(style.px(0.6))
    room.setTopPadding(style.px(CELL_TOP))
    room.setBottomPadding(style.px(0.32))
    if head:
        room.setBackground(QBrush(style.colours.code))
    if line:
        room.setBottomBorder(1)
        room.setBottomBorderStyle(QTextFrameFormat.BorderStyle.BorderStyle_Solid)
        room.setBottomBorderBrush(QBrush(style.colours.line))
    return room
