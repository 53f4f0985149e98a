"""Markdown of one block -> a QTextDocument in the transcript's style. Nothing is loaded from the network."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from unicodedata import bidirectional

from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import (
    QFont,
    QFontMetricsF,
    QImage,
    QTextCursor,
    QTextDocument,
    QTextListFormat,
    QTextTable,
)

from desktop.blocks import Kind, mark_spans
from desktop.views.transcript.rendering.document_writer import BOXED, DONE, NO_BREAK, QUOTES, DocumentWriter
from desktop.views.transcript.rendering.image_loader import ImageKey
from desktop.views.transcript.rendering.inline_objects import InlineObject, put_inlays
from desktop.views.transcript.style import Style

__all__ = [
    "BOXED",
    "DONE",
    "NO_BREAK",
    "QUOTES",
    "SafeDocument",
    "append_rows",
    "from_right",
    "prepare",
    "set_markdown",
]

_CELL_END = re.compile(r"(?<!\\)\|")


class SafeDocument(QTextDocument):
    """A document without undo that answers every request for an unknown resource with an empty picture."""

    def __init__(self) -> None:
        super().__init__()
        self.setUndoRedoEnabled(False)
        self.setDocumentMargin(0)
        self._indent, self._deepest = self.indentWidth(), 0
        self._empty = QImage(1, 1, QImage.Format.Format_ARGB32)
        self._empty.fill(0)

    def renew(self, font: QFont) -> None:
        """Begin an empty document in `font`. Qt would lay out the old text once more for another font."""
        self.clear()
        self._deepest = 0
        if font != self.defaultFont():
            self.setDefaultFont(font)

    def set_indent(self, pixels: float) -> None:
        """Indent each list by so much, or by less where that leaves too little room: see `set_width`."""
        self._indent, self._deepest = pixels, 0
        block = self.begin()
        while block.isValid():
            lists = block.textList()
            depth = lists.format().indent() if lists is not None else block.blockFormat().indent()
            self._deepest = max(self._deepest, depth)
            block = block.next()
        self.setIndentWidth(pixels)

    def set_width(self, width: float) -> None:
        """Lay out for `width` pixels, of which lists within lists leave at least half to their text. Qt would
        lay out everything again for an unchanged width.
        """
        indent = min(self._indent, width / 2 / self._deepest) if self._deepest else self._indent
        if self._deepest and indent != self.indentWidth():
            self.setIndentWidth(indent)
        if width != self.textWidth():
            self.setTextWidth(width)

    def loadResource(self, kind: int, name: QUrl | str) -> object:
        """Read no file and no address, whatever a message names."""
        return self._empty


def set_markdown(
    document: SafeDocument, source: str, style: Style, kind: Kind = Kind.PROSE,
    inlay: InlineObject | None = None, references: Mapping[str, Any] | None = None, alert: str = "",
    spoken: Callable[[str], str] | None = None, growing: bool = False,
) -> set[ImageKey]:  # fmt: skip
    """Show `source`, the body of one block of this `kind`, in `document`.

    Formulas and local pictures come from `inlay`; returns those that are still being made. Without it,
    formulas are shown as LaTeX, or in the words of `spoken`, and all pictures as links. Links may name one of
    the `references` of the message. An `alert` begins with its title. While a text is `growing`, marks that
    are open at its end are closed there. The layout of a table is off until its width is known, because each
    pass over the cells takes a part of a frame.
    """
    from desktop.blocks.parser import parse, parse_table  # slow to import

    source, spans = mark_spans(source)
    table = kind is Kind.TABLE
    if table:
        source = _mirrored(source)
    document.renew(style.text_font)
    if table:
        document.setLayoutEnabled(False)
    cursor = QTextCursor(document)
    cursor.beginEditBlock()
    writer = DocumentWriter(document, style, kind)
    if alert:
        writer.write_title(alert)
    if table:
        writer.write_table(parse_table(source, references, growing))
        writer.finish()
    else:
        writer.write(parse(source, references, growing))
    if kind in (Kind.LIST, Kind.QUOTE):
        _order_numbers(document)
    if not table:
        numbers = _number_width(document, style) if kind is Kind.LIST else 0.0
        document.set_indent(max(style.px(1.35), numbers))
    pending = put_inlays(document, spans, style, inlay, spoken) if spans else set()
    cursor.endEditBlock()
    return pending


def prepare() -> None:
    """Import the Markdown parser and parse a first word: about 30 ms, once."""
    from desktop.blocks.parser import parse

    parse("*a*")


def append_rows(
    table: QTextTable,
    document: QTextDocument,
    source: str,
    style: Style,
    references: Mapping[str, Any] | None = None,
) -> list[list[str]]:
    """Add the rows of `source`, a table with the same head, to `table` of `document`.

    Returns their texts, row by row; nothing when the head has other columns, and then nothing is done.
    """
    from desktop.blocks.parser import parse_table

    rows = parse_table(_mirrored(source), references)
    if len(rows[0]) != table.columns() or len(rows) < 2:
        return []
    first = table.rows()
    cursor = QTextCursor(document)
    cursor.beginEditBlock()
    table.appendRows(len(rows) - 1)
    writer = DocumentWriter(document, style, Kind.TABLE)
    writer.line_after(table, first - 1)
    writer.fill_rows(table, first, rows[1:])
    cursor.endEditBlock()
    return [["".join(part.content for part in cell.children) for cell in row] for row in rows[1:]]


def _order_numbers(document: QTextDocument) -> None:
    """Put the sign of a number after it in lists that are written from right to left: Qt puts it before."""
    block = document.begin()
    while block.isValid():
        found = block.textList()
        if (
            found is not None
            and block.textDirection() == Qt.LayoutDirection.RightToLeft
            and found.itemNumber(block) == 0
        ):
            shape = found.format()
            shape.setNumberPrefix(shape.numberSuffix())
            shape.setNumberSuffix("")
            found.setFormat(shape)
        block = block.next()


def _number_width(document: QTextDocument, style: Style) -> float:
    """The width of the widest number of a list and of Qt's space after it; 0 without numbers."""
    metrics, widest = QFontMetricsF(style.text_font), 0.0
    block = document.begin()
    while block.isValid():
        found = block.textList()
        if found is not None and found.format().style() == QTextListFormat.Style.ListDecimal:
            widest = max(widest, metrics.horizontalAdvance(found.itemText(block) + "  "))
        block = block.next()
    return widest


def from_right(source: str) -> bool:
    """Whether a table is written from right to left: most of its head is."""
    found = [
        next((bidirectional(letter) for letter in cell if bidirectional(letter) in ("L", "R", "AL")), "")
        for cell in _cells(source.strip("\n").split("\n", 1)[0])
    ]
    return 2 * sum(side in ("R", "AL") for side in found) > sum(bool(side) for side in found)


def _mirrored(source: str) -> str:
    """Reverse the columns of a table that is written from right to left, because Qt always puts the first
    column at the left.
    """
    if not from_right(source):
        return source
    rows = [_cells(line) for line in source.strip("\n").split("\n")]
    wide = len(rows[0])
    return (
        "\n".join("|" + "|".join([*[" "] * (wide - len(row)), *row[wide - 1 :: -1]]) + "|" for row in rows)
        + "\n"
    )


def _cells(line: str) -> list[str]:
    found = _CELL_END.split(line.strip().removeprefix("|"))
    return found[:-1] if len(found) > 1 and not found[-1].strip() else found
