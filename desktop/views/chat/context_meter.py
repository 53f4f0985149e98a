"""The context as a small bar, with details in a popup: what fills it, what is cached, what the next message
costs.
"""

from __future__ import annotations

from PySide6.QtCore import QPoint, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QGuiApplication, QKeyEvent, QPainter, QPainterPath, QPaintEvent, QPalette
from PySide6.QtWidgets import QAbstractButton, QFrame, QGridLayout, QLabel, QWidget

from desktop.services.session.context_meter import Measured, cost_words
from engine.units import number_text
from engine.words import _, paragraph

__all__ = ["PALE", "ContextBar", "ContextPopup", "lines"]

PALE = 0.68
"""Opacity of the part that is not cached: it differs from the cached and from the free part."""


def _count(tokens: int, exact: bool) -> str:
    return number_text(tokens) if exact else _("about {count:,}", count=tokens)


def lines(now: Measured) -> list[tuple[str, str]]:
    """(title, text) of all known figures."""
    if now.trouble:
        return [("", now.trouble)]
    if not now.length and now.exact:
        return [("", _("Load a model to see how much of its context is used."))]
    draft_exact = now.exact and not now.about
    found = [
        (
            _("Context"),
            _("{length:,} tokens", length=now.length) if now.length else _("length not stated by the server"),
        ),
        (_("System prompt"), _count(now.system, now.exact)),
        *([(_("Tools"), _count(now.tools, now.exact))] if now.tools else []),
        (_("Messages"), _count(now.messages, now.exact)),
        (_("Draft"), _count(now.draft, draft_exact)),
        *([(_("Free"), _count(max(0, now.length - now.used), now.exact))] if now.length else []),
        (_("Cached"), number_text(min(now.cached, now.used))) if now.exact else (_("Tokens"), _("estimated")),
        (
            _("Read by the next message"),
            cost_words(now.next_read, now.rate, exact=True) if now.next_read else _("nothing"),
        ),
    ]
    if now.dropped:
        found.append(
            (
                _("Left out"),
                _("the oldest message")
                if now.dropped == 1
                else _("the {dropped:,} oldest messages", dropped=now.dropped),
            )
        )
    return found


class ContextBar(QAbstractButton):
    """Filled as far as the context is; the cached part is solid, the rest paler, the draft set off by a gap.
    Opens `popup`.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._now = Measured()
        self.popup: ContextPopup | None = None
        self.setObjectName("contextBar")
        self.setMinimumHeight(24)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.clicked.connect(self._toggle)
        self.show_measured(self._now)

    def show_measured(self, now: Measured) -> None:
        """Show other figures."""
        self._now = now
        words = [f"{title}: {text}" if title else text for title, text in lines(now)]
        share = _("Context {used} % full.", used=100 * now.used // now.length) if now.length else ""
        self.setAccessibleName(paragraph(share, "; ".join(words)))
        self.setToolTip("\n".join(words))
        if self.popup is not None:
            self.popup.show_measured(now)
        self.update()

    def sizeHint(self) -> QSize:
        line = self.fontMetrics().height()
        return QSize(5 * line, line + 4)

    def minimumSizeHint(self) -> QSize:
        """Shorter in a narrow window."""
        line = self.fontMetrics().height()
        return QSize(2 * line, line + 4)

    def _toggle(self) -> None:
        if self.popup is None:
            self.popup = ContextPopup(self)
            self.popup.show_measured(self._now)
        window = self.window().rect()
        self.popup.fit(window.width() - 12)
        own = self.popup.size()
        at = self.mapTo(self.window(), QPoint(self.width() - own.width(), -own.height() - 6))
        left = max(6, min(at.x(), window.width() - own.width() - 6))
        self.popup.move(self.window().mapToGlobal(QPoint(left, at.y())))
        self.popup.show()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, palette = QPainter(self), self.palette()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        high = max(6.0, round(self.height() * 0.34))
        frame = QRectF(3, (self.height() - high) / 2, self.width() - 6, high)
        shape = QPainterPath()
        shape.addRoundedRect(frame, high / 2, high / 2)
        # its own is coloured as what it stands on
        painter.fillPath(shape, QGuiApplication.palette().color(QPalette.ColorRole.Base))
        now = self._now
        full = now.used >= now.length if now.length else False
        strong = palette.color(QPalette.ColorRole.BrightText if full else QPalette.ColorRole.Highlight)
        pale = QColor(strong)
        pale.setAlphaF(PALE)
        painter.setClipPath(shape)
        if now.length:
            self._fill(painter, frame, 0, min(now.cached, now.used), strong)
            self._fill(painter, frame, min(now.cached, now.used), now.used, pale)
        painter.setClipping(False)
        painter.setPen(palette.color(QPalette.ColorRole.Dark))
        painter.drawPath(shape)
        if self.hasFocus():
            painter.setPen(palette.color(QPalette.ColorRole.Highlight))
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 5, 5)
        painter.end()

    def _fill(self, painter: QPainter, frame: QRectF, first: int, behind: int, colour: QColor) -> None:
        left, right = (frame.width() * min(1.0, tokens / self._now.length) for tokens in (first, behind))
        if self.layoutDirection() == Qt.LayoutDirection.RightToLeft:
            left, right = frame.width() - right, frame.width() - left
        painter.fillRect(QRectF(frame.left() + left, frame.top(), right - left, frame.height()), colour)


class ContextPopup(QFrame):
    """The figures below each other. Esc or a click elsewhere closes it."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent, Qt.WindowType.Popup | Qt.WindowType.FramelessWindowHint)
        self.setObjectName("contextPopup")
        self.setAccessibleName(_("Context"))
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(16, 12, 16, 12)
        self._grid.setHorizontalSpacing(24)
        self._grid.setVerticalSpacing(5)
        self._labels: list[tuple[QLabel, QLabel]] = []
        self._room = 0

    def show_measured(self, now: Measured) -> None:
        """Show other figures."""
        rows = lines(now)
        while len(self._labels) < len(rows):
            pair = QLabel(), QLabel()
            pair[0].setProperty("tone", "muted")
            for column, label in enumerate(pair):
                label.setTextFormat(Qt.TextFormat.PlainText)
                self._grid.addWidget(label, len(self._labels), column)
            pair[1].setAlignment(Qt.AlignmentFlag.AlignTrailing | Qt.AlignmentFlag.AlignVCenter)
            self._labels.append(pair)
        for place, pair in enumerate(self._labels):
            title, words = rows[place] if place < len(rows) else ("", "")
            pair[0].setText(title)
            pair[1].setText(words)
            for label in pair:
                label.setVisible(place < len(rows))
        self.setAccessibleDescription("; ".join(f"{title}: {words}" for title, words in rows))
        if self.isVisible():
            self.fit(self._room)

    def fit(self, room: int) -> None:
        """As wide as its figures, at most `room` pixels; then the texts wrap."""
        self._room = room
        for pair in self._labels:
            for label in pair:
                label.setWordWrap(False)
        if self.sizeHint().width() > room:
            for pair in self._labels:
                for label in pair:
                    label.setWordWrap(True)
            self._grid.activate()
            self.resize(room, self.heightForWidth(room))
        else:
            self.adjustSize()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Escape, Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space):
            self.close()
        else:
            super().keyPressEvent(event)
