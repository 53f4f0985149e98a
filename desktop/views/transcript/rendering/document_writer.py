"""Writes the tokens of a parsed block of Markdown into a QTextDocument, in the transcript's style."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtGui import (
    QBrush,
    QColor,
    QFont,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
    QTextLength,
    QTextList,
    QTextListFormat,
    QTextTable,
)

from desktop.blocks import Kind
from desktop.views.transcript.rendering.document_formats import (
    QUOTE_ROOM,
    TextFormats,
    cell_format,
    list_depth,
    quote_depth,
    table_format,
)
from desktop.views.transcript.style import Style

if TYPE_CHECKING:
    from markdown_it.token import Token

    from desktop.blocks.parser import Cell

__all__ = [
    "BOXED", "BULLET_STRETCH", "DONE", "LINE_BREAK", "NO_BREAK", "QUOTES", "DocumentWriter",
]  # fmt: skip

DONE = QTextFormat.Property.UserProperty.value + 3
"""The property of a list item that is done."""
BOXED = QTextFormat.Property.UserProperty.value + 4
"""Of a block: it begins with an invisible sign, over which the row draws a box."""
QUOTES = QTextFormat.Property.UserProperty.value + 5
"""Of a paragraph in quotes: for each quote that it is indented for, from the outermost, the number of lists
around it.
"""
NO_BREAK = "\u2011"
"""The non-breaking hyphen."""
LINE_BREAK = "\u2028"
"""A line break inside a paragraph."""
_LINE_HEIGHT, _CODE_HEIGHT, _HEADING_HEIGHT = 132.0, 122.0, 116.0
_LONGEST_JOINED = 18
"""Words of a table up to this length are not broken at their hyphens."""
_HYPHENED = re.compile(r"(?<!\S)[^\s-]+(?:-[^\s-]+)+(?!\S)")
_BREAKS = re.compile(r"\s*\n\s*")
_TASK = re.compile(r"\[([ xX])\](?:\s+|$)")
_PROPORTIONAL = QTextBlockFormat.LineHeightTypes.ProportionalHeight.value
_QUOTE_LEVEL = QTextFormat.Property.BlockQuoteLevel.value
_SIDES = {
    "left": Qt.AlignmentFlag.AlignLeft,
    "right": Qt.AlignmentFlag.AlignRight,
    "center": Qt.AlignmentFlag.AlignHCenter,
}
_BULLETS = (
    QTextListFormat.Style.ListDisc,
    QTextListFormat.Style.ListCircle,
    QTextListFormat.Style.ListSquare,
)
BULLET_STRETCH = 220
"""Between a bullet and its text Qt leaves a blank, here this wide in percent: they would almost touch."""
_NAMES = {
    "em": "italic", "i": "italic", "strong": "bold", "b": "bold", "summary": "bold", "s": "struck",
    "del": "struck", "u": "underlined", "ins": "underlined", "code": "code", "kbd": "code", "mark": "marked",
    "sub": "sub", "sup": "sup",
}  # fmt: skip
"""The style of each element."""


class DocumentWriter:
    """Writes at the end of `document`, which is empty at first; `kind` is that of the block."""

    def __init__(self, document: QTextDocument, style: Style, kind: Kind) -> None:
        self._style, self._kind, self._formats = style, kind, TextFormats(style)
        self._cursor = QTextCursor(document)
        self._fresh = True
        self._quotes: list[int] = []
        self._lists: list[QTextListFormat] = []
        self._made: list[QTextList | None] = []
        self._item = False
        self._base = QTextCharFormat()

    def write_title(self, name: str) -> None:
        """Write the title of an alert."""
        self._begin()
        shape = QTextCharFormat()
        shape.setFontWeight(QFont.Weight.DemiBold)
        shape.setForeground(QBrush(self._style.alert_colour(name)))
        self._cursor.insertText(name.capitalize(), shape)
        close = QTextBlockFormat()
        close.setBottomMargin(self._style.px(0.2))
        self._cursor.mergeBlockFormat(close)

    def write(self, tokens: Sequence[Token]) -> None:
        """Write all tokens."""
        place = 0
        while place < len(tokens):
            token = tokens[place]
            if token.type == "table_open":
                from desktop.blocks.parser import table_rows

                end = next(at for at in range(place, len(tokens)) if tokens[at].type == "table_close")
                self.write_table(table_rows(tokens[place : end + 1]))
                place = end
            else:
                self._block(token, tokens[place + 1] if place + 1 < len(tokens) else None)
            place += 1
        self.finish()

    def finish(self) -> None:
        """Take away the margin below the last paragraph."""
        if self._fresh:
            self._cursor.setBlockFormat(self._format())
        last = QTextBlockFormat()
        last.setBottomMargin(0)
        self._cursor.mergeBlockFormat(last)

    def _block(self, token: Token, following: Token | None) -> None:
        kind = token.type
        if kind in ("bullet_list_open", "ordered_list_open"):
            self._lists.append(self._list_format(token))
            self._made.append(None)
        elif kind in ("bullet_list_close", "ordered_list_close"):
            self._lists.pop()
            self._made.pop()
        elif kind == "list_item_open":
            self._item = True
            if following is not None and following.type == "list_item_close":
                self._begin()  # an empty item
        elif kind == "blockquote_open":
            self._quotes.append(list_depth(len(self._lists)))
        elif kind == "blockquote_close":
            self._quotes.pop()
        elif kind == "paragraph_open" and following is not None and (following.children or self._item):
            self._begin()
        elif kind == "heading_open":
            self._begin(int(token.tag[1]))
        elif kind in ("fence", "code_block"):
            self._code(token.content)
        elif kind == "hr":
            self._begin()
            rule, whole = QTextBlockFormat(), QTextLength(QTextLength.Type.PercentageLength, 100)
            rule.setProperty(QTextFormat.Property.BlockTrailingHorizontalRulerWidth.value, whole)
            self._cursor.mergeBlockFormat(rule)
        elif kind == "inline":
            self._words(token.children or ())
            self._base = QTextCharFormat()

    def _list_format(self, token: Token) -> QTextListFormat:
        made = QTextListFormat()
        made.setIndent(list_depth(len(self._lists) + 1))
        if token.type == "ordered_list_open":
            made.setStyle(QTextListFormat.Style.ListDecimal)
            made.setStart(int(token.attrs.get("start", 1)))
            made.setNumberSuffix(token.markup)
        else:
            made.setStyle(_BULLETS[min(len(self._lists), len(_BULLETS) - 1)])
        return made

    def _format(self, level: int = 0) -> QTextBlockFormat:
        """The format of a paragraph, or a heading of this level, where the cursor is."""
        style, made = self._style, QTextBlockFormat()
        made.setLineHeight(_HEADING_HEIGHT if level else _LINE_HEIGHT, _PROPORTIONAL)
        made.setBottomMargin(
            style.px(0.22) if self._item else style.px(0.6) if self._kind in (Kind.LIST, Kind.QUOTE) else 0
        )
        if level:
            made.setHeadingLevel(level)
        if self._quotes:
            made.setProperty(_QUOTE_LEVEL, len(self._quotes))
            indented = self._quotes[: quote_depth(len(self._quotes))]
            made.setProperty(QUOTES, indented)
            made.setLeftMargin(style.px(QUOTE_ROOM) * len(indented))
        if self._lists and not self._item:
            made.setIndent(list_depth(len(self._lists)))
        return made

    def _begin(self, level: int = 0) -> None:
        """Begin a paragraph; the first of a list item gets its bullet or number."""
        made, mark = self._format(level), QTextCharFormat()
        if self._item and self._lists[-1].style() != QTextListFormat.Style.ListDecimal:
            mark.setFontStretch(BULLET_STRETCH)
        if self._fresh:
            self._cursor.setBlockFormat(made)
            self._cursor.setBlockCharFormat(mark)
        else:
            self._cursor.insertBlock(made, mark)
        self._fresh = False
        if self._item:
            self._item = False
            known = self._made[-1]
            if known is None:
                self._made[-1] = self._cursor.createList(self._lists[-1])
            else:
                known.add(self._cursor.block())
        if level:
            self._base = QTextCharFormat()
            self._base.setFontPointSize(
                self._style.text_font.pointSizeF() * self._style.heading_sizes[min(level, 6) - 1]
            )
            self._base.setFontWeight(QFont.Weight.DemiBold)

    def _code(self, code: str) -> None:
        self._begin()
        shape = QTextBlockFormat()
        shape.setLineHeight(_CODE_HEIGHT, _PROPORTIONAL)
        shape.setBackground(QBrush(self._style.colours.code))
        shape.setProperty(QTextFormat.Property.BlockCodeFence.value, "`")
        self._cursor.mergeBlockFormat(shape)
        self._cursor.insertText(
            code.removesuffix("\n").replace("\n", LINE_BREAK), self._formats.of(("code",), "", self._base)
        )

    def _words(self, children: Iterable[Token]) -> None:
        """Write the text of a paragraph, each part in the styles of the elements around it."""
        open_styles: list[str] = []
        addresses: list[str] = []
        at_start = True
        for token in children:
            kind = token.type
            if kind in ("em_open", "strong_open", "s_open", "html_open"):
                open_styles.append(_NAMES[token.tag])
                continue
            if kind in ("em_close", "strong_close", "s_close", "html_close"):
                open_styles.reverse()
                open_styles.remove(_NAMES[token.tag])
                open_styles.reverse()
                continue
            if kind == "link_open":
                addresses.append(str(token.attrs.get("href", "")))
                continue
            if kind == "link_close":
                addresses.pop()
                continue
            address = (
                str(token.attrs.get("src", "")) if kind == "image" else addresses[-1] if addresses else ""
            )
            if kind in ("softbreak", "hardbreak"):
                text = " " if kind == "softbreak" else LINE_BREAK
            else:
                text = (token.content or "picture") if kind == "image" else token.content
            styles = tuple(sorted({*open_styles, "code"} if kind == "code_inline" else set(open_styles)))
            if at_start and kind == "text":
                text = self._task(text)
            at_start = False
            self._insert(text, self._formats.of(styles, address, self._base))

    def _insert(self, text: str, shape: QTextCharFormat) -> None:
        if self._kind is Kind.TABLE and "-" in text and text.isascii():
            text = _HYPHENED.sub(
                lambda word: word[0].replace("-", NO_BREAK) if len(word[0]) <= _LONGEST_JOINED else word[0],
                text,
            )
        self._cursor.insertText(_BREAKS.sub(" ", text) if "\n" in text else text, shape)

    def _task(self, text: str) -> str:
        """Draw the box of a task; returns the rest of the text.

        Qt would cross the box of a done item, so it draws an empty one and the row puts a tick into it. There
        is no room for a box beside a number: there the row draws it over a sign before the text, which is
        what is copied.
        """
        found = _TASK.match(text)
        here = self._cursor.currentList()
        if found is None or here is None:
            return text
        made, done = QTextBlockFormat(), found[1] != " "
        if here.format().style() == QTextListFormat.Style.ListDecimal:
            unseen = QTextCharFormat(self._base)
            unseen.setForeground(QBrush(QColor(0, 0, 0, 0)))
            self._cursor.insertText("\u2611 " if done else "\u2610 ", unseen)
            made.setProperty(BOXED, True)
        else:
            made.setMarker(QTextBlockFormat.MarkerType.Unchecked)
        made.setProperty(DONE, done)
        self._cursor.mergeBlockFormat(made)
        return text[found.end() :]

    def write_table(self, rows: Sequence[Sequence[Cell]]) -> None:
        """Write a table: thin lines between rows, padding in the cells, a bold head."""
        if not self._fresh:
            self._cursor.insertBlock(QTextBlockFormat(), QTextCharFormat())
        table = self._cursor.insertTable(
            len(rows), len(rows[0]), table_format(self._style, len(self._quotes), len(self._lists))
        )
        self._item = False
        self.fill_rows(table, 0, rows)
        self._cursor.movePosition(QTextCursor.MoveOperation.End)
        self._fresh = True

    def fill_rows(self, table: QTextTable, first: int, rows: Sequence[Sequence[Cell]]) -> None:
        """Write `rows` of cells into the rows of `table` from `first` on."""
        usual, bold = QTextBlockFormat(), QTextCharFormat()
        usual.setLineHeight(_LINE_HEIGHT, _PROPORTIONAL)
        bold.setFontWeight(QFont.Weight.Bold)
        aligned = {"": usual}
        for name, side in _SIDES.items():
            aligned[name] = QTextBlockFormat(usual)
            aligned[name].setAlignment(side)
        rooms = {
            (head, line): cell_format(self._style, head, line)
            for head in (False, True)
            for line in (False, True)
        }
        cursor, last = self._cursor, table.rows() - 1
        cursor.setPosition(table.cellAt(first, 0).firstCursorPosition().position())
        for number, row in enumerate(rows, start=first):
            room = rooms[number == 0, number < last]
            for column, cell in enumerate(row):
                table.cellAt(number, column).setFormat(room)
                cursor.setBlockFormat(aligned[cell.side])
                self._base = bold if number == 0 else QTextCharFormat()
                self._words(cell.children)
                cursor.movePosition(QTextCursor.MoveOperation.NextBlock)
        self._base = QTextCharFormat()

    def line_after(self, table: QTextTable, row: int) -> None:
        """Draw the line between a row that was the last one and the row after it."""
        room = cell_format(self._style, head=row == 0, line=True)
        for column in range(table.columns()):
            table.cellAt(row, column).setFormat(room)
