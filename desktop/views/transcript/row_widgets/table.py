"""Rows that are tables: wide ones scroll sideways, and while they are written new lines are appended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from PySide6.QtCore import QPointF, QRect
from PySide6.QtGui import QFontMetricsF, QTextBlockFormat, QTextCursor, QTextTable

from desktop.blocks import Kind
from desktop.views.transcript.rendering.document_formats import CELL_TOP
from desktop.views.transcript.rendering.markdown import (
    NO_BREAK,
    SafeDocument,
    append_rows,
    from_right,
    set_markdown,
)
from desktop.views.transcript.row_widgets.context import RowContext
from desktop.views.transcript.row_widgets.text import SidewaysRow, inset
from desktop.views.transcript.rows import Row
from desktop.views.transcript.style import Style

__all__ = ["TableRow"]

_WHOLE_LINES = 240
"""A table with this many characters grows by whole lines."""
_ANEW = ("$", "\\", "![", "[^", NO_BREAK)
"""A table with one of these is set again for each line: pictures, notes, and hyphens that look
like our own.
"""


class TableRow(SidewaysRow):
    """A table; its columns wrap before it gets much wider than the column of text.

    While it is written, whole lines are appended to the document, which Qt lays out once, and its width is
    found again only when a cell is wider than all above it. Every other change sets the document again.
    """

    def __init__(self, context: RowContext) -> None:
        super().__init__(context)
        self.paint_growth()
        self._shown = ""
        self._references: Mapping[str, Any] | None = None
        self._place = (0, 0, False)
        self._open = False
        self._columns, self._room = 1, -1
        self._rightward, self._beside = False, 0
        self._widest: list[float] = []

    def show_row(self, row: Row, style: Style, fresh: bool) -> None:
        text, place = row.text, (self.gap, inset(row, style), self.muted())
        still, self._place = place == self._place and self.plain(), place
        growing = row.block is not None and not row.block.closed
        if (
            growing
            and len(text) > _WHOLE_LINES
            and row.block is not None
            and not row.block.source.endswith("\n")
        ):
            text = text[: text.rstrip("\n").rfind("\n") + 1]
            if text == self._shown and not fresh and row.references == self._references:
                if still:
                    self.grown_at = self.document.characterCount() - 1  # nothing looks different
                return
        was, self._open = self._open, row.growing and text is row.text
        if fresh or was or self._open or row.references != self._references or not self._append(text, style):
            self._set(text, style)
        if not still:
            self.grown_at = -1
        self._shown, self._references = text, row.references

    def _set(self, text: str, style: Style) -> None:
        row = self.row
        inlay, references = (self.inlay(row), row.references) if row is not None else (None, None)
        self.pending = set_markdown(
            self.document, text, style, Kind.TABLE, inlay, references, growing=self._open
        )
        cursor = QTextCursor(self.document)
        cursor.movePosition(QTextCursor.MoveOperation.End)
        if not cursor.block().text() and cursor.currentTable() is None:
            after = QTextBlockFormat()
            after.setLineHeight(1, QTextBlockFormat.LineHeightTypes.FixedHeight.value)
            cursor.setBlockFormat(after)
        self._columns = max(1, text.split("\n", 1)[0].count("|") - 1)
        self._room, self._widest, self._rightward = -1, [], from_right(text)

    def _append(self, text: str, style: Style) -> bool:
        """Append the lines that `text` has more than what is shown; False when something else has changed."""
        shown = self._shown
        if (
            not shown.endswith("\n")
            or shown.count("\n") < 3
            or not text.startswith(shown)
            or any(sign in text for sign in _ANEW)
        ):
            return False
        new = text[len(shown) :]
        if not new:
            return True
        table = _table(self.document)
        head = "\n".join(shown.split("\n", 2)[:2])
        if table is None:
            return False
        last = table.cellAt(table.rows() - 1, 0).firstPosition()
        made = append_rows(table, self.document, f"{head}\n{new}", style, self._references)
        if not made:
            return False
        if self._wider(made, style):
            self._room = -1
        else:
            self.grown_at = last
        return True

    def _wider(self, made: list[list[str]], style: Style) -> bool:
        """Whether a cell of the new lines is wider than all cells were when the width was found."""
        if not self._widest:
            table = _table(self.document)
            self._widest = _widths(_texts(table), style) if table is not None else []
            return True
        new = _widths(made, style)
        grown = any(width > known for width, known in zip(new, self._widest, strict=True))
        self._widest = [max(pair) for pair in zip(new, self._widest, strict=True)]
        return grown

    def fit(self, width: int) -> int:
        if self.row_style is None:
            return 0
        left = inset(self.row, self.row_style)
        room = width - left
        if room == self._room:
            self.update_growth(self.row_style.px(CELL_TOP))
        else:
            self._room = room
            self.document.setLayoutEnabled(True)
            self.document.setTextWidth(max(room, self._columns * self.row_style.px(7.0)))
        wide = round(self.document.idealWidth())
        high = round(self.document.size().height())
        bar = self.bar.sizeHint().height() if wide > room else 0
        at_end = self._rightward and self.bar.value() == self.bar.maximum()
        self.place_bar(wide, room, QRect(left, self.gap, room, high + bar))
        self._beside = max(0, room - wide) if self._rightward else 0
        if at_end:  # there it begins
            self.bar.setValue(self.bar.maximum())
        return self.gap + high + bar

    def mark(self, query: str, present: int) -> None:
        super().mark(query.replace("-", NO_BREAK) if self._joined() else query, present)

    def selected_text(self) -> str:
        found = super().selected_text()
        return found.replace(NO_BREAK, "-") if self._joined() else found

    def _joined(self) -> bool:
        """Whether hyphens are shown as non-breaking ones."""
        return NO_BREAK not in self._shown

    def origin(self) -> QPointF:
        return QPointF(inset(self.row, self.row_style) + self._beside - self.bar.value(), self.gap)


def _table(document: SafeDocument) -> QTextTable | None:
    """The one table of a document."""
    found = [frame for frame in document.rootFrame().childFrames() if isinstance(frame, QTextTable)]
    return found[0] if len(found) == 1 else None


def _texts(table: QTextTable) -> list[list[str]]:
    """The text of every cell, row by row."""
    columns = range(table.columns())
    return [
        [table.cellAt(row, column).firstCursorPosition().block().text() for column in columns]
        for row in range(table.rows())
    ]


def _widths(rows: list[list[str]], style: Style) -> list[float]:
    """The approximate width of each column's text in pixels."""
    metrics = QFontMetricsF(style.text_font)
    return [max(metrics.horizontalAdvance(text) for text in column) for column in zip(*rows, strict=True)]
