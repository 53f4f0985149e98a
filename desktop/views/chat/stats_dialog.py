"""Speed, time to the first token and accepted draft tokens of a chat's replies, as three plots below each
other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFocusEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPainterPath,
    QPaintEvent,
    QPalette,
    QPen,
)
from PySide6.QtWidgets import QDialog, QPushButton, QVBoxLayout, QWidget

from desktop.items.chats.reply_stats import ReplyStats
from desktop.views.layout.bidi import isolated
from desktop.views.layout.fill import fill
from desktop.views.layout.spacing import dialog_margins
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.text_label import text_label
from engine.lazy_dataclass import dataclass
from engine.units import percent_text, rate_text, seconds_text
from engine.words import N_, _, dotted, ngettext, translate

__all__ = ["StatsDialog", "StatsPlot", "nice_top"]


@dataclass(frozen=True)
class _Curve:
    title: str
    value: Callable[[ReplyStats], float | None]
    words: Callable[[float], str]
    top: float | None = None


_CURVES = (
    _Curve(N_("Tokens per second"), lambda reply: reply.speed or None, rate_text),
    _Curve(
        N_("Time to the first token"), lambda reply: reply.first or None, partial(seconds_text, spec=".2f")
    ),
    _Curve(N_("Accepted drafts"), lambda reply: reply.kept, percent_text, 1.0),
)


def nice_top(value: float) -> float:
    """A round number that is at least `value`: 1, 2, 2.5 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 1.0
    while power > value:
        power /= 10
    while power * 10 < value:
        power *= 10
    return next(power * step for step in (1, 2, 2.5, 5, 10) if power * step >= value)


class StatsPlot(QWidget):
    """The plots of `show_figures`. The mouse or the arrow keys choose a reply; Enter or a double click opens
    it.

    Signals:
        chosen(int message): show this reply.
        described(str): the values of the reply under the mouse or the cursor; "" for none.
    """

    chosen = Signal(int)
    described = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._replies: tuple[ReplyStats, ...] = ()
        self._at = -1
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.show_figures(())

    def show_figures(self, replies: Sequence[ReplyStats]) -> None:
        """Show other replies; the chosen one stays chosen if it is among them."""
        before = self._replies[self._at].message if 0 <= self._at < len(self._replies) else 0
        self._replies = tuple(replies)
        self._at = next((place for place, reply in enumerate(self._replies) if reply.message == before), -1)
        self._describe()
        self.update()

    def words(self, place: int) -> str:
        """The values of one reply."""
        reply = self._replies[place]
        parts = [
            f"{translate(curve.title)}: {curve.words(value)}"
            for curve in _CURVES
            if (value := curve.value(reply)) is not None
        ]
        return dotted(_("Reply {place} of {replies}", place=place + 1, replies=len(self._replies)), *parts)

    def sizeHint(self) -> QSize:
        line = self.fontMetrics().height()
        return QSize(34 * line, 24 * line)

    def minimumSizeHint(self) -> QSize:
        return QSize(200, 14 * self.fontMetrics().height())

    def _describe(self) -> None:
        words = self.words(self._at) if self._at >= 0 else ""
        count = len(self._replies)
        self.setAccessibleName(
            ngettext("Statistics of {n} reply", "Statistics of {n} replies", count)
            if count
            else _("No statistics yet")
        )
        self.setAccessibleDescription(words)
        self.described.emit(words)

    def _choose(self, place: int) -> None:
        if place != self._at:
            self._at = place
            self._describe()
            self.update()

    # -- places

    def _areas(self) -> list[QRectF]:
        """The area of each curve, below its title."""
        line, edge = self.fontMetrics().height(), 10
        head = 1.5 * line + 4
        high = (self.height() - 2 * edge) / len(_CURVES)
        left = self._axis_width() + edge
        wide, tall = self.width() - left - edge, max(10.0, high - head - 0.8 * line)
        return [QRectF(left, edge + at * high + head, wide, tall) for at in range(len(_CURVES))]

    def _axis_width(self) -> float:
        tops = [curve.words(self._top(curve)) for curve in _CURVES]
        return max(self.fontMetrics().horizontalAdvance(words) for words in tops) + 10.0

    def _top(self, curve: _Curve) -> float:
        values = [value for reply in self._replies if (value := curve.value(reply)) is not None]
        return curve.top or nice_top(max(values, default=0.0))

    def _x(self, area: QRectF, place: int) -> float:
        step = area.width() / max(1, len(self._replies))
        return area.left() + (place + 0.5) * step

    def _place_at(self, x: float) -> int:
        area = self._areas()[0]
        step = area.width() / max(1, len(self._replies))
        return min(max(int((x - area.left()) / step), 0), len(self._replies) - 1) if self._replies else -1

    # -- painted

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        muted = self.palette().color(QPalette.ColorRole.PlaceholderText)
        if not self._replies:
            painter.setPen(muted)
            text = _("Statistics appear after the first reply in this chat.")
            flags = int(Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap)
            painter.drawText(self.rect().adjusted(12, 12, -12, -12), flags, isolated(text))
        else:
            for curve, area in zip(_CURVES, self._areas(), strict=True):
                self._paint_curve(painter, curve, area, muted)
        if self.hasFocus():
            painter.setPen(QPen(self.palette().color(QPalette.ColorRole.Highlight), 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(1, 1, -1, -1), 6, 6)
        painter.end()

    def _paint_curve(self, painter: QPainter, curve: _Curve, area: QRectF, muted: QColor) -> None:
        palette, line, top = self.palette(), self.fontMetrics().height(), self._top(curve)
        painter.setPen(palette.color(QPalette.ColorRole.WindowText))
        title = QRectF(10, area.top() - 1.5 * line - 4, self.width() - 20, line)
        words = painter.fontMetrics().elidedText(
            translate(curve.title), Qt.TextElideMode.ElideRight, int(title.width())
        )  # whole in what is said of the selected reply
        painter.drawText(title, int(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter), words)
        painter.setPen(QPen(palette.color(QPalette.ColorRole.Mid), 1))
        empty = all(curve.value(reply) is None for reply in self._replies)
        for y in (area.top(), area.bottom()) if empty else (area.top(), area.center().y(), area.bottom()):
            painter.drawLine(QPointF(area.left(), y), QPointF(area.right(), y))
        painter.setPen(muted)
        side = int(
            Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignAbsolute | Qt.AlignmentFlag.AlignVCenter
        )
        painter.drawText(
            QRectF(0, area.top() - line / 2, area.left() - 6, line), side, isolated(curve.words(top))
        )
        painter.drawText(QRectF(0, area.bottom() - line / 2, area.left() - 6, line), side, "0")
        points = [
            (place, QPointF(self._x(area, place), area.bottom() - area.height() * min(1.0, value / top)))
            for place, reply in enumerate(self._replies)
            if (value := curve.value(reply)) is not None
        ]
        if not points:
            painter.drawText(
                area,
                int(Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap),
                _("No drafted tokens") if curve.top else _("Unknown"),
            )
            return
        if self._at >= 0:
            painter.setPen(QPen(muted, 1, Qt.PenStyle.DashLine))
            x = self._x(area, self._at)
            painter.drawLine(QPointF(x, area.top()), QPointF(x, area.bottom()))
        accent = palette.color(QPalette.ColorRole.Highlight)
        path = QPainterPath(points[0][1])
        for _unused, point in points[1:]:
            path.lineTo(point)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(
            QPen(accent, 2, Qt.PenStyle.SolidLine, Qt.PenCapStyle.RoundCap, Qt.PenJoinStyle.RoundJoin)
        )
        painter.drawPath(path)
        painter.setPen(QPen(palette.color(QPalette.ColorRole.Window), 1.5))
        painter.setBrush(accent)
        small = area.width() / len(self._replies) < 9
        for place, point in points:
            if place == self._at or not small or len(points) == 1:
                radius = 5.5 if place == self._at else 3.5
                painter.drawEllipse(point, radius, radius)

    # -- chosen

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._choose(self._place_at(event.position().x()))

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        place = self._place_at(event.position().x())
        if place >= 0:
            self.chosen.emit(self._replies[place].message)

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        if not self.hasFocus():
            self._choose(-1)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        if self._at < 0 and self._replies:
            self._choose(len(self._replies) - 1)
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        last = len(self._replies) - 1
        steps = {
            Qt.Key.Key_Left: self._at - 1,
            Qt.Key.Key_Right: self._at + 1,
            Qt.Key.Key_Home: 0,
            Qt.Key.Key_End: last,
        }
        key = Qt.Key(event.key())
        if key in steps and last >= 0:
            self._choose(min(max(steps[key], 0), last))
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self._at >= 0:
            self.chosen.emit(self._replies[self._at].message)
        else:
            super().keyPressEvent(event)


class StatsDialog(QDialog):
    """The plots in a window beside the chat; `chosen(message)` as in the plot."""

    chosen = Signal(int)

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("figuresDialog")
        self.setWindowTitle(_("Chat statistics"))
        self.plot = StatsPlot()
        self.words = text_label(tone="muted", wraps=True, plain=True)
        self.words.setMinimumHeight(2 * self.words.fontMetrics().lineSpacing())
        self.words.setAlignment(Qt.AlignmentFlag.AlignLeading | Qt.AlignmentFlag.AlignTop)
        self.plot.described.connect(self._describe)
        self.plot.chosen.connect(self.chosen)
        close = QPushButton(_("Close"))
        close.clicked.connect(self.close)
        row = fill(FlowLayout(), (self.words, 1), close)
        row.setAlignment(close, Qt.AlignmentFlag.AlignTop)
        layout = fill(QVBoxLayout(self), (self.plot, 1), row)
        dialog_margins(layout)
        size = self.plot.sizeHint()
        self.resize(
            min(size.width() + 36, parent.width() - 24), min(size.height() + 90, parent.height() - 24)
        )
        self._describe("")

    def _describe(self, words: str) -> None:
        self.words.setText(
            words
            or (
                _(
                    "Point at a reply to see its statistics. Double-click it or press Enter to show it in "
                    "the chat."
                )
            )
        )
