"""Rows of display math: the formula in the middle of the column, scrolled sideways when it is wider. A word
stands for it until it is drawn, its LaTeX if it cannot be.
"""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRect, Qt
from PySide6.QtGui import QBrush, QTextBlockFormat, QTextCharFormat, QTextCursor, QTextOption

from desktop.blocks import Span, SpanKind
from desktop.blocks.unfinished import may_be_formula
from desktop.views.transcript.rendering.inline_objects import put_inlays
from desktop.views.transcript.row_widgets.context import RowContext
from desktop.views.transcript.row_widgets.text import SidewaysRow, inset
from desktop.views.transcript.rows import Row
from desktop.views.transcript.style import Style
from engine.words import _

__all__ = ["MathRow"]

_MARK = "\ue000"


class MathRow(SidewaysRow):
    """One formula on a line of its own."""

    def __init__(self, context: RowContext) -> None:
        super().__init__(context)
        self._drawn, self._waits, self._shift = False, False, 0

    def show_row(self, row: Row, style: Style, fresh: bool) -> None:
        self.document.renew(style.text_font)
        option = QTextOption()
        option.setTextDirection(Qt.LayoutDirection.LeftToRight)
        option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.document.setDefaultTextOption(option)
        closed = row.block is None or row.block.closed
        source = row.source.strip() if closed else row.text
        self.pending = set()
        self._drawn = self._waits = False
        if not closed and may_be_formula(row.text):
            self._show_waiting(style)
            return
        if not closed or not row.text:
            self._show_source(source, style)
            return
        self.document.setPlainText(_MARK)
        span = Span(SpanKind.DISPLAY, source, row.text)
        self.pending = put_inlays(self.document, {_MARK: span}, style, self.inlay(row))
        self._drawn = self.document.characterCount() == 2
        if self.pending:
            self._show_waiting(style)
        elif not self._drawn:
            self._show_source(source, style)

    def _show_waiting(self, style: Style) -> None:
        """One word instead of commands that grow, jump and vanish."""
        self._waits = True
        self.document.renew(style.text_font)
        shape = QTextCharFormat()
        shape.setForeground(QBrush(style.colours.muted))
        QTextCursor(self.document).insertText(_("Formula…"), shape)

    def _show_source(self, source: str, style: Style) -> None:
        self.document.renew(style.code_font)
        self.document.setPlainText(source)
        cursor = QTextCursor(self.document)
        cursor.select(QTextCursor.SelectionType.Document)
        shape = QTextBlockFormat()
        shape.setLineHeight(122.0, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        cursor.mergeBlockFormat(shape)

    def fit(self, width: int) -> int:
        left = inset(self.row, self.row_style)
        room = width - left
        if not self._drawn and not self._waits:
            self.document.setTextWidth(room)
            self.place_bar(0, room, QRect())
            return self.gap + round(self.document.size().height())
        self.document.setTextWidth(-1)
        wide, high = round(self.document.idealWidth()), round(self.document.size().height())
        bar = self.bar.sizeHint().height() if wide > room else 0
        self.place_bar(wide, room, QRect(left, self.gap, room, high + bar))
        self._shift = max(0, (room - wide) // 2)
        return self.gap + high + bar

    def origin(self) -> QPointF:
        shift = self._shift if self._drawn or self._waits else 0
        return QPointF(inset(self.row, self.row_style) + shift - self.bar.value(), self.gap)

    def selected_text(self) -> str:
        selected = super().selected_text()
        return self.row.source.strip() if selected and self._waits and self.row is not None else selected

    def line_at(self, height: int) -> int:
        return -1  # its lines vanish when it is drawn
