"""Rows of code: a head with the language and buttons, the code in the system's fixed font, coloured when it
is complete.
"""

from __future__ import annotations

from collections.abc import Iterator

from PySide6.QtCore import QPointF, QRect, QRectF, Qt
from PySide6.QtGui import (
    QBrush,
    QPainter,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextLayout,
    QTextOption,
)

from desktop.services.system.debounce import debounce
from desktop.views.transcript.rendering.code_highlight import Span
from desktop.views.transcript.row_widgets.box import paint_box
from desktop.views.transcript.row_widgets.code_buttons import CodeButtons
from desktop.views.transcript.row_widgets.context import RowContext
from desktop.views.transcript.row_widgets.text import SidewaysRow, inset, paint_thought_bar
from desktop.views.transcript.rows import Row
from desktop.views.transcript.style import Style
from engine.words import _

__all__ = ["CodeRow"]

_AT_ONCE = 60
_LINE_HEIGHT = 122.0
_SHOWN_MS = 1400
_BESIDE_BUTTONS = 0.19
"""Free space in lines of text at the right of the buttons."""
_MOST_SPANS = 400
"""A line with more coloured parts stays plain: its layout would take long."""
_ENDLESS = 1_000_000
"""Wider than any line of code, in pixels; with a fixed width Qt lays out only the lines that have changed."""


class CodeRow(SidewaysRow):
    """One block of code with a head of buttons."""

    def __init__(self, context: RowContext) -> None:
        super().__init__(context)
        self._colours = context.colours
        self._shown = ""
        self._measured, self._widest = 0, 0.0
        self._set_wrap(False)
        self.buttons = CodeButtons(self)
        self.wrap, self.save, self.button = self.buttons.all
        self.wrap.clicked.connect(self._toggle_wrap)
        self.save.clicked.connect(self._save)
        self.button.clicked.connect(self._copy)
        for button in self.buttons.all:
            self.watch(button)
        self._back = debounce(self, self._show_copy, _SHOWN_MS)

    def release(self) -> None:
        super().release()
        self._colours.runner.cancel(self)
        self._back.stop()
        self._show_copy()

    def _set_wrap(self, wrapped: bool) -> None:
        option = QTextOption()
        option.setWrapMode(
            QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere if wrapped else QTextOption.WrapMode.NoWrap
        )
        option.setTabStopDistance(32)
        option.setTextDirection(Qt.LayoutDirection.LeftToRight)  # for code in any script
        self.document.setDefaultTextOption(option)
        self._wrapped, self._measured, self._widest = wrapped, 0, 0.0

    def _toggle_wrap(self, wrapped: bool) -> None:
        if self.row is not None:
            self.row.wrapped = wrapped
            self.signals.wrap_changed.emit(self.row)

    def _save(self) -> None:
        if self.row is not None:
            self.signals.code_saved.emit(self.row)

    def _copy(self) -> None:
        if self.row is not None:
            self.signals.code_copied.emit(self.row)
        self.button.set_face("check", _("Copied"))
        self._back.start()

    def _show_copy(self) -> None:
        self.button.set_face("copy", _("Copy code"))

    def show_row(self, row: Row, style: Style, fresh: bool) -> None:
        code = row.text
        grown = not fresh and code.startswith(self._shown) and self._shown != ""
        if grown:
            self._append(code[len(self._shown) :])
        elif fresh or code != self._shown:
            self._set(code, style)
        self._shown = code
        if row.block is not None and row.block.closed:
            self._colour(row.block.language, code)
        self.wrap.setChecked(row.wrapped)
        self.buttons.set_style(style)

    def _append(self, text: str) -> None:
        if text:
            cursor = QTextCursor(self.document)
            cursor.movePosition(QTextCursor.MoveOperation.End)
            cursor.insertText(text)

    def _set(self, code: str, style: Style) -> None:
        self._measured, self._widest = 0, 0.0
        self.document.renew(style.code_font)
        shape = QTextBlockFormat()
        shape.setLineHeight(_LINE_HEIGHT, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        cursor = QTextCursor(self.document)
        cursor.beginEditBlock()  # laid out once, at the end
        cursor.setBlockFormat(shape)
        cursor.insertText(code)
        cursor.endEditBlock()

    def _colour(self, language: str, code: str) -> None:
        spans = self._colours.get(language, code)
        if spans is None:
            self._colours.find(self, language, code, lambda: self._found(language, code))
        elif len(spans) <= _AT_ONCE:
            for _unused in self._apply(spans):
                pass
        else:
            self._colours.runner.run(self, self._apply(spans))

    def _found(self, language: str, code: str) -> None:
        if self.row is not None and self._shown == code:
            self._colour(language, code)

    def _apply(self, spans: tuple[tuple[Span, ...], ...]) -> Iterator[None]:
        if self.row_style is None:
            return
        shapes: dict[str, QTextCharFormat] = {}
        for style in ("keyword", "string", "number", "name", "comment", "added", "removed"):
            shapes[style] = QTextCharFormat()
            shapes[style].setForeground(QBrush(getattr(self.row_style.colours, style)))
        block = self.document.begin()
        for number, line in enumerate(spans):
            if not block.isValid():
                return
            if 0 < len(line) <= _MOST_SPANS:
                block.layout().setFormats(
                    [_range(start, length, shapes[style]) for start, length, style in line]
                )
                self.document.markContentsDirty(block.position(), block.length())
            block = block.next()
            if number % 8 == 7:
                yield
        self.update()

    def _metrics(self) -> tuple[int, int, int]:
        """Left edge of the box, height of its head, and padding."""
        if self.row_style is None:
            return 0, 0, 0
        first = self.row is None or self.row.first
        return (
            inset(self.row, self.row_style),
            self.row_style.px(1.75) if first else 0,
            self.row_style.px(0.75),
        )

    def fit(self, width: int) -> int:
        left, head, padding = self._metrics()
        room = width - left - 2 * padding
        wrapped = self.row is not None and self.row.wrapped
        if wrapped != self._wrapped:
            self._set_wrap(wrapped)
        self.document.set_width(room if wrapped else _ENDLESS)
        high = round(self.document.size().height())
        wide = room if wrapped else self._text_width()
        last = self.row is None or self.row.last
        below = (padding if last or wide > room else 0) + (round(padding * 0.4) if wide > room else 0)
        whole = self.gap + head + high + below
        self.place_bar(wide, room, QRect(left + padding, self.gap, room, whole - self.gap - 2))
        return whole

    def placed(self) -> None:
        """Keep the buttons in sight: a block may be much higher than the screen, and is several rows then."""
        row, style, bottom = self.row, self.row_style, self.height() - self.buttons.height() - 2
        if row is None or style is None:
            return
        above = -self.y() + 2  # of the row, beyond the top of the screen
        top = self.gap + 2 if row.first else 2
        shown = row.first or top < min(above, bottom)
        if not shown:
            self.yield_focus(self.buttons)
        self.buttons.place(
            self.width() - style.px(_BESIDE_BUTTONS), max(top, min(above, bottom)), over=top < above
        )
        self.buttons.setVisible(shown)

    def _text_width(self) -> int:
        """The width of the longest line in pixels.

        Lines are measured once, except the last one, which may grow.
        """
        block = self.document.findBlockByNumber(max(0, self._measured - 1))
        while block.isValid():
            line = block.layout().lineAt(0)
            self._widest = max(self._widest, line.naturalTextWidth() if line.isValid() else 0.0)
            block = block.next()
        self._measured = self.document.blockCount()
        return round(self._widest) + 1

    def origin(self) -> QPointF:
        left, head, padding = self._metrics()
        return QPointF(left + padding - self.bar.value(), self.gap + head)

    def area(self) -> QRectF:
        left, head, padding = self._metrics()
        return QRectF(
            left + padding * 0.5,
            self.gap + head,
            self.width() - left - padding,
            self.height() - self.gap - head,
        )

    def box(self) -> QRectF:
        left = self._metrics()[0]
        return QRectF(left, self.gap, self.width() - left, self.height() - self.gap)

    def paint_ground(self, painter: QPainter, exposed: QRect) -> None:
        style, row = self.row_style, self.row
        if style is None or row is None:
            return
        paint_thought_bar(self, painter)
        left, head, padding = self._metrics()
        radius = style.px(0.45)
        box = self.box().adjusted(0, 0 if row.first else -2 * radius, 0, 0 if row.last else 2 * radius)
        paint_box(painter, box, radius, style.colours.code, style.colours.outline)
        if not row.first:
            return
        painter.setFont(style.small_font)
        painter.setPen(style.colours.muted)
        painter.setLayoutDirection(Qt.LayoutDirection.LeftToRight)  # as the code and the buttons
        label = QRectF(left + padding, self.gap + 2, self.width() - left - 2 * padding - 3 * head, head)
        language = row.block.language if row.block is not None and row.block.language else "text"
        shown = painter.fontMetrics().elidedText(language, Qt.TextElideMode.ElideRight, round(label.width()))
        painter.drawText(label, int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft), shown)


def _range(start: int, length: int, shape: QTextCharFormat) -> QTextLayout.FormatRange:
    made = QTextLayout.FormatRange()
    made.start, made.length, made.format = start, length, shape
    return made
