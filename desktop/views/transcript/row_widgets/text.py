"""Rows of text: Markdown of a reply, plain text of the user in a bubble, and the base of rows that scroll
sideways.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from PySide6.QtCore import QPointF, QRect, QRectF, Qt, Slot
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontMetrics,
    QFontMetricsF,
    QPainter,
    QPen,
    QPolygonF,
    QResizeEvent,
    QTextBlockFormat,
    QTextCursor,
    QTextLine,
    QTextOption,
    QWheelEvent,
)
from PySide6.QtWidgets import QScrollBar

from desktop.blocks import Kind
from desktop.views.transcript.rendering.append_text import grow
from desktop.views.transcript.rendering.document_formats import QUOTE_ROOM
from desktop.views.transcript.rendering.document_writer import BULLET_STRETCH
from desktop.views.transcript.rendering.footnotes import note_style, number_note
from desktop.views.transcript.rendering.image_loader import ImageKey
from desktop.views.transcript.rendering.inline_objects import InlineObject, fit_pictures
from desktop.views.transcript.rendering.markdown import BOXED, DONE, QUOTES, set_markdown
from desktop.views.transcript.row_widgets.base import DocumentRow
from desktop.views.transcript.row_widgets.box import paint_box
from desktop.views.transcript.row_widgets.context import RowContext
from desktop.views.transcript.rows import Row
from desktop.views.transcript.style import Style

__all__ = ["BubbleRow", "PictureRow", "SidewaysRow", "TextRow", "inset", "paint_thought_bar"]

_BUBBLE_SHARE = 0.86
_DEEPEST = 6
"""List items around a block after which it is not indented further."""
_TASK_SIGN = re.compile(r"\[[xX]\]|\d[.)]\s+\[ \]")
"""An item that is done, or a numbered one: the row draws into both."""
_PICTURED = ("$", "\\(", "\\[", "![")


def inset(row: Row | None, style: Style | None) -> int:
    """Indentation in pixels of a block that belongs to a thought or to list items."""
    if row is None or style is None or row.block is None:
        return 0
    return (style.px(0.85) if row.block.thought else 0) + min(row.block.depth, _DEEPEST) * style.px(1.35)


class PictureRow(DocumentRow):
    """A row with formulas or pictures in its text, which may arrive later than the text.

    When one arrives, the row is outdated: it must be shown and measured again.
    """

    pending: Collection[ImageKey] = ()

    def __init__(self, context: RowContext) -> None:
        super().__init__(context)
        self._pictures = context.pictures
        self._pictures.arrived.connect(self._arrived)

    def paint_growth(self) -> None:
        """Paint only from `grown_at` on when the row gets higher."""
        self.setAttribute(Qt.WidgetAttribute.WA_StaticContents)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            self.update()

    def inlay(self, row: Row) -> InlineObject | None:
        """The source of the pictures of `row`, in the colour of its text."""
        if self.row_style is None:
            return None
        colours = self.row_style.colours
        return InlineObject(
            self._pictures, colours.muted if self.muted() else colours.text, self.devicePixelRatioF()
        )

    def release(self) -> None:
        super().release()
        self.pending = ()

    @Slot(object)
    def _arrived(self, keys: set[ImageKey]) -> None:
        if self.row is not None and not keys.isdisjoint(self.pending):
            self.row.revision += 1
            self.signals.outdated.emit(self.row)


class TextRow(PictureRow):
    """Prose, a heading, a list, a quote or a footnote."""

    def __init__(self, context: RowContext) -> None:
        super().__init__(context)
        self.paint_growth()
        self._shown: tuple[str, object] = "", None
        self._alert = ""

    def show_row(self, row: Row, style: Style, fresh: bool) -> None:
        kind = row.block.kind if row.block is not None else Kind.PROSE
        note = row.block.label if row.block is not None else ""
        self._alert = row.block.alert if row.block is not None else ""
        place = (kind, self._left(), self.gap, self.muted(), row.growing)
        (before, there), self._shown = self._shown, (row.text, place)
        if (
            not fresh
            and place == there
            and not note
            and self.plain()
            and not any(sign in before for sign in _PICTURED)
        ):
            self.grown_at = grow(self.document, before, row.text)
            if self.grown_at >= 0:
                return
        title = self._alert if row.block is not None and not row.block.joined else ""
        shown = note_style(style) if note else style
        self.pending = set_markdown(
            self.document, row.text, shown, kind, self.inlay(row), row.references, title, growing=row.growing
        )
        if note:
            number_note(self.document, note, style)

    def _bar(self) -> bool:
        return self.row is not None and self.row.block is not None and self.row.block.kind is Kind.QUOTE

    def _left(self) -> int:
        return inset(self.row, self.row_style) + (
            self.row_style.px(0.9) if self._bar() and self.row_style else 0
        )

    def muted(self) -> bool:
        return super().muted() or (self._bar() and not self._alert)

    def _rightward(self) -> bool:
        """Whether the text runs from right to left."""
        return self.document.begin().textDirection() == Qt.LayoutDirection.RightToLeft

    def origin(self) -> QPointF:
        return QPointF(inset(self.row, self.row_style) if self._rightward() else self._left(), self.gap)

    def fit(self, width: int) -> int:
        if (
            self.row_style is not None
            and self.row is not None
            and any(sign in self.row.text for sign in _PICTURED)
        ):
            fit_pictures(self.document, self.row_style, width - self._left())
        return super().fit(width - self._left())

    def paint_document(self, painter: QPainter, exposed: QRect) -> None:
        super().paint_document(painter, exposed)
        if self.row is not None and _TASK_SIGN.search(self.row.text):
            paint_ticks(self, painter)

    def paint_ground(self, painter: QPainter, exposed: QRect) -> None:
        style = self.row_style
        if style is None:
            return
        paint_thought_bar(self, painter)
        if self._bar():
            x = self.width() - 3 if self._rightward() else inset(self.row, style)
            painter.fillRect(QRect(x, self.gap, 3, self.height() - self.gap), style.alert_colour(self._alert))
        if ">" in (self.row.text if self.row is not None else ""):
            self._paint_quotes(painter, style)

    def _paint_quotes(self, painter: QPainter, style: Style) -> None:
        """Paint a bar beside each quote within the text, along all its paragraphs."""
        origin, layout, room = self.origin(), self.document.documentLayout(), style.px(QUOTE_ROOM)
        bars: dict[tuple[int, int], QRectF] = {}
        block = self.document.begin()
        while block.isValid():
            found = block.blockFormat().property(QUOTES)
            quotes = [int(depth) for depth in found] if isinstance(found, list) else []
            area = layout.blockBoundingRect(block)
            bars = {bar: place for bar, place in bars.items() if bar in set(enumerate(quotes))}
            for bar in enumerate(quotes):
                left = bar[0] * room + bar[1] * self.document.indentWidth()
                x = (
                    self.document.textWidth() - left - 3
                    if block.textDirection() == Qt.LayoutDirection.RightToLeft
                    else left
                )
                top = bars[bar].bottom() if bar in bars else area.top()
                bars[bar] = QRectF(x, top, 3, area.bottom() - top)
                painter.fillRect(bars[bar].translated(origin), style.colours.line)
            block = block.next()


def paint_ticks(widget: DocumentRow, painter: QPainter) -> None:
    """Paint a tick into the box of every list item that is done, where Qt puts the boxes."""
    style, document = widget.row_style, widget.document
    if style is None:
        return
    metrics = QFontMetricsF(style.text_font)
    side, around = metrics.lineSpacing() / 3, int(metrics.lineSpacing() / 6)
    pen = QPen(
        style.colours.link,
        max(1.6, side / 4),
        Qt.PenStyle.SolidLine,
        Qt.PenCapStyle.RoundCap,
        Qt.PenJoinStyle.RoundJoin,
    )
    marks = QFont(style.text_font)
    marks.setStretch(BULLET_STRETCH)
    space = QFontMetrics(marks).horizontalAdvance(" ")
    block = document.begin()
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(pen)
    painter.translate(widget.origin())
    while block.isValid():
        shape, line = block.blockFormat(), block.layout().lineAt(0)
        if shape.property(DONE) or shape.property(BOXED):
            top = (
                document.documentLayout().blockBoundingRect(block).top()
                + line.y()
                + (metrics.height() - side) / 2
            )
            place = block.layout().position().x()
            if shape.property(BOXED):
                left = place + sum(_x(line, at) for at in (0, 1)) / 2 - side / 2 + around
            elif block.textDirection() == Qt.LayoutDirection.RightToLeft:
                left = place + line.x() + line.width() + space
            else:
                left = place + line.x() - space - side
            box = QRectF(left - around, top, side, side).adjusted(
                -around / 2, -around / 2, around / 2, around / 2
            )
            if shape.property(BOXED):
                _paint_box(painter, box, style.colours.muted if widget.muted() else style.colours.text)
            if shape.property(DONE):
                points = ((0.02, 0.52), (0.38, 0.88), (1.0, 0.08))
                painter.drawPolyline(
                    QPolygonF(
                        [
                            QPointF(box.left() + x * box.width(), box.top() + y * box.height())
                            for x, y in points
                        ]
                    )
                )
        block = block.next()
    painter.restore()


def _x(line: QTextLine, position: int) -> float:
    """The x coordinate of a position; Qt's type hint misses that this is a pair."""
    found: Any = line.cursorToX(position)
    return float(found[0])


def _paint_box(painter: QPainter, box: QRectF, ink: QColor) -> None:
    """Paint a box as Qt does beside list items without numbers."""
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing, on=False)
    painter.setPen(QPen(ink, 0))
    painter.drawRect(box)
    painter.restore()


def paint_thought_bar(widget: DocumentRow, painter: QPainter) -> None:
    """Paint the thin line that holds the rows of a thought together, through the gaps between them."""
    row = widget.row
    if widget.row_style is not None and row is not None and row.block is not None and row.block.thought:
        painter.fillRect(QRect(0, 0, 2, widget.height()), widget.row_style.colours.line)


class BubbleRow(DocumentRow):
    """The user's text, as written, in a tinted bubble at the far side; a long text is several rows that look
    like one.
    """

    def show_row(self, row: Row, style: Style, fresh: bool) -> None:
        self.document.renew(style.text_font)
        option = QTextOption()
        option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.document.setDefaultTextOption(option)
        self.document.setPlainText(row.text)
        cursor = QTextCursor(self.document)
        cursor.select(QTextCursor.SelectionType.Document)
        shape = QTextBlockFormat()
        shape.setLineHeight(128.0, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        cursor.mergeBlockFormat(shape)

    def _padding(self) -> tuple[int, int, int]:
        """Left and right, top, bottom."""
        if self.row_style is None or self.row is None:
            return 0, 0, 0
        return (
            self.row_style.px(0.75),
            self.row_style.px(0.5) if self.row.first else 0,
            self.row_style.px(0.45) if self.row.last else 0,
        )

    def fit(self, width: int) -> int:
        side, top, bottom = self._padding()
        widest = round(width * _BUBBLE_SHARE) - 2 * side
        self.document.set_width(widest)
        if self.row is not None and self.row.first and self.row.last:
            self.document.setTextWidth(min(widest, round(self.document.idealWidth() + 1)))
        return self.gap + top + round(self.document.size().height()) + bottom

    def _bubble(self) -> QRectF:
        wide = self.document.textWidth() + 2 * self._padding()[0]
        return QRectF(
            0 if self.isRightToLeft() else self.width() - wide, self.gap, wide, self.height() - self.gap
        )

    def origin(self) -> QPointF:
        side, top, _ = self._padding()
        return self._bubble().topLeft() + QPointF(side, top)

    def area(self) -> QRectF:
        return self._bubble()

    def box(self) -> QRectF:
        return self._bubble()

    def paint_ground(self, painter: QPainter, exposed: QRect) -> None:
        if self.row_style is None or self.row is None:
            return
        radius = self.row_style.px(0.7)
        shape = self._bubble().adjusted(
            0, 0 if self.row.first else -2 * radius, 0, 0 if self.row.last else 2 * radius
        )
        colours = self.row_style.colours
        paint_box(painter, shape, radius, colours.bubble, colours.outline)


class SidewaysRow(PictureRow):
    """A row whose document may be wider than the column and then scrolls sideways."""

    def __init__(self, context: RowContext) -> None:
        super().__init__(context)
        self.bar = QScrollBar(Qt.Orientation.Horizontal, self)
        self.bar.setRange(0, 0)
        self.bar.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        # its value counts from the left, in right-to-left layouts too
        self.bar.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
        self.bar.setCursor(Qt.CursorShape.ArrowCursor)
        self.bar.setSingleStep(24)
        self.bar.valueChanged.connect(self.update)
        self.bar.hide()

    def release(self) -> None:
        super().release()
        self.bar.setRange(0, 0)

    def place_bar(self, wide: int, room: int, area: QRect) -> None:
        """Show the scroll bar at the bottom of `area` when `wide` pixels do not fit into `room`."""
        over = max(0, wide - room)
        self.bar.setRange(0, over)
        self.bar.setPageStep(room)
        self.bar.setVisible(over > 0)
        if over:
            high = self.bar.sizeHint().height()
            self.bar.setGeometry(area.left(), area.bottom() - high + 1, area.width(), high)

    def area(self) -> QRectF:
        left = inset(self.row, self.row_style)
        return QRectF(
            left,
            self.gap,
            self.width() - left,
            self.height() - self.gap - (self.bar.height() if self.bar.isVisible() else 0),
        )

    def paint_ground(self, painter: QPainter, exposed: QRect) -> None:
        paint_thought_bar(self, painter)

    def wheelEvent(self, event: QWheelEvent) -> None:
        delta = event.pixelDelta() if not event.pixelDelta().isNull() else event.angleDelta()
        shift = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
        along = delta.x() or (delta.y() if shift else 0)
        if along and (shift or abs(delta.x()) >= abs(delta.y())) and self.bar.maximum():
            self.bar.setValue(self.bar.value() - along)
            event.accept()
        else:
            event.ignore()
