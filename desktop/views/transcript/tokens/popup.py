"""The popup of a token: its figures, and its alternatives with bars, from which the reply can continue."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFont, QFontMetrics, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPalette, QPen
from PySide6.QtWidgets import (
    QAbstractButton,
    QApplication,
    QFrame,
    QLabel,
    QSizePolicy,
    QStyle,
    QVBoxLayout,
    QWidget,
)

from desktop.items.text.token_words import percent, visible
from desktop.store.conversations.token_trace import UNKNOWN
from desktop.views.layout.bidi import isolated
from desktop.views.layout.fill import fill
from desktop.views.transcript.style import Style
from desktop.views.widgets.keys import claims
from desktop.views.widgets.scroll_area import VerticalScrollArea
from engine.core import Alternative, TokenInfo
from engine.words import _

__all__ = ["AlternativeButton", "TokenPopup"]

_SHOWN = 8
"""Alternatives visible without scrolling."""


class AlternativeButton(QAbstractButton):
    """One alternative: its text, two bars (the model's probability, and the sampler's) and the final
    percentage.
    """

    def __init__(
        self, other: Alternative, written: bool, why_not: str, style: Style, parent: QWidget, action: str
    ) -> None:
        super().__init__(parent)
        self.other, self._style = other, style
        self._written = written
        self._font = QFont(style.code_font)
        self._font.setBold(written)
        self.setEnabled(not written and not why_not)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus if self.isEnabled() else Qt.FocusPolicy.NoFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor if self.isEnabled() else Qt.CursorShape.ArrowCursor)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        dropped = other.probability == 0
        final = (
            _("dropped by the sampler")
            if dropped
            else _("final {percent}", percent=percent(other.probability))
        )
        figures = _("model {percent}, {final}", percent=percent(other.raw_probability), final=final)
        action = _("used here") if written else why_not or action
        self.setAccessibleName(f"“{visible(other.text)}”: {figures}; {action}")
        self.setToolTip(
            _("Token {id}: {figures}", id=other.id, figures=figures)
            + ("" if written or why_not else f"\n{action}")
        )

    def sizeHint(self) -> QSize:
        return QSize(self._style.px(12), max(24, round(self._style.em * 1.55)))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        palette, area = self.palette(), self.rect()
        painter.setPen(Qt.PenStyle.NoPen)
        if self.isEnabled() and (self.underMouse() or self.hasFocus()):
            painter.setBrush(palette.color(QPalette.ColorRole.Midlight))
            painter.drawRoundedRect(QRectF(area).adjusted(0.5, 0.5, -0.5, -0.5), 5, 5)
        if self.hasFocus():
            painter.setPen(QPen(palette.color(QPalette.ColorRole.Highlight), 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(QRectF(area).adjusted(1, 1, -1, -1), 5, 5)
        dropped = self.other.probability == 0
        ink = (
            self._style.colours.muted
            if dropped
            else palette.color(QPalette.ColorGroup.Active, QPalette.ColorRole.WindowText)
        )
        text, bars, figure = self.places()
        painter.setPen(ink)
        painter.setFont(self._font)
        words = ("✓ " if self._written else "") + visible(self.other.text)
        words = QFontMetrics(self._font).elidedText(words, Qt.TextElideMode.ElideMiddle, text.width())
        painter.drawText(text, int(Qt.AlignmentFlag.AlignVCenter), isolated(words))
        self._bars(painter, bars)
        painter.setPen(ink)
        painter.setFont(self._style.small_font)
        trailing = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight  # the painter mirrors it
        painter.drawText(
            figure, int(trailing), _("dropped") if dropped else isolated(percent(self.other.probability))
        )
        painter.end()

    def places(self) -> tuple[QRect, QRect, QRect]:
        """The places of the text, the bars and the figure, side by side in the direction of the layout."""
        inner = self.rect().adjusted(8, 0, -8, 0)
        small = QFontMetrics(self._style.small_font)
        last = max(small.horizontalAdvance("100.0 %"), small.horizontalAdvance(_("dropped")))
        first = round((inner.width() - last - 8) * 0.42)
        between = inner.width() - first - last - 16
        lefts = ((inner.left(), first), (inner.left() + first + 8, between), (inner.right() + 1 - last, last))
        found = [QRect(left, inner.top(), width, inner.height()) for left, width in lefts]
        text, bars, figure = (QStyle.visualRect(self.layoutDirection(), inner, place) for place in found)
        return text, bars, figure

    def _bars(self, painter: QPainter, room: QRect) -> None:
        colours = self._style.colours
        high = max(3, room.height() // 7)
        painter.setPen(Qt.PenStyle.NoPen)
        bars = ((self.other.raw_probability, colours.muted, -high), (self.other.probability, colours.link, 1))
        for share, colour, above in bars:
            place = QRectF(room.left(), room.center().y() + above, room.width(), high)
            painter.setBrush(colours.line)
            painter.drawRect(place)
            painter.setBrush(colour)
            long = max(1.0, place.width() * share) if share else 0.0
            left = place.right() - long if self.isRightToLeft() else place.left()
            painter.drawRect(QRectF(left, place.top(), long, high))


class TokenPopup(QFrame):
    """A small frame beside a token; it takes the keyboard only when asked to.

    Signals:
        chosen(object): the `Alternative` to continue with.
        closed(): Esc was pressed in it.
    """

    chosen = Signal(object)
    closed = Signal()

    def __init__(self, parent: QWidget, action: str = "") -> None:
        """`action`: what choosing an alternative does, if it does not write a new version."""
        super().__init__(parent)
        self._action = action or _("Continue from here in a new version")
        self.setObjectName("tokenPopup")
        self.setAccessibleName(_("Token"))
        self.title, self.figures, self.note = QLabel(), QLabel(), QLabel()
        self.key = QLabel(_("Upper bar: model. Lower bar: after sampling."))
        for label in (self.title, self.figures, self.key, self.note):
            label.setTextFormat(Qt.TextFormat.PlainText)
            label.setWordWrap(label is not self.title)
        for label in (self.figures, self.key):
            label.setProperty("tone", "muted")
        self._list = VerticalScrollArea()
        self._list.setAccessibleName(_("Alternatives"))
        self.buttons: list[AlternativeButton] = []
        fill(
            QVBoxLayout(self),
            self.title,
            self.figures,
            self._list,
            self.key,
            self.note,
            margins=(10, 9, 10, 9),
            spacing=5,
        )
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.hide()

    def show_token(self, token: TokenInfo, why_not: str, stops: frozenset[int], style: Style) -> None:
        """Show a token; `why_not` is the reason why no alternative can be chosen, `stops` are the ids that
        end a reply.
        """
        known = token.id != UNKNOWN
        heading = QFont(style.code_font)
        heading.setBold(True)
        self.title.setFont(heading)
        self.title.setText(visible(token.text) if known else _("Text without tokens"))
        for label in (self.figures, self.key, self.note):
            label.setFont(style.small_font)
        self.figures.setText(
            _figures(token)
            if known
            else (_("This text was typed or edited, or was written before tokens were saved."))
        )
        self.figures.show()
        self._show_alternatives(token, why_not, stops, style)
        if not known:
            note = ""
        elif not token.alternatives:
            note = _("No alternatives were saved. The Output settings determine how many are.")
        else:
            note = why_not or self._action
        self.note.setText(note)
        self.note.setVisible(bool(note))
        self.setAccessibleDescription(f"{self.title.text()}: {self.figures.text()}. {note}")

    def _show_alternatives(self, token: TokenInfo, why_not: str, stops: frozenset[int], style: Style) -> None:
        body = QWidget()
        body.setObjectName("tokenPopupBody")
        lines = QVBoxLayout(body)
        lines.setContentsMargins(0, 0, 0, 0)
        lines.setSpacing(0)
        self.buttons = []
        for other in token.alternatives:
            reason = why_not or (_("ends the reply") if other.id in stops else "")
            button = AlternativeButton(other, other.id == token.id, reason, style, body, self._action)
            button.clicked.connect(self._clicked)
            lines.addWidget(button)
            self.buttons.append(button)
        lines.addStretch(1)
        old = self._list.takeWidget()
        if old is not None:
            old.deleteLater()
        self._list.setWidget(body)
        shown = min(_SHOWN, len(self.buttons))
        self._list.setVisible(shown > 0)
        self.key.setVisible(shown > 0)
        self._list.setFixedHeight(shown * round(style.em * 1.55))

    def place(self, token: QRect, room: QRect, style: Style) -> None:
        """Place the popup below the token, or above it where there is more room; both in the parent's
        coordinates.
        """
        width = min(style.px(19), room.width() - 12)
        self.setFixedWidth(width)
        layout = self.layout()
        assert layout is not None
        layout.invalidate()
        layout.activate()
        high = layout.totalHeightForWidth(width)
        high = high if high > 0 else self.sizeHint().height()
        if high > room.height() - 8:  # the list scrolls
            too_high = high - room.height() + 8
            self._list.setFixedHeight(max(style.px(1.55), self._list.height() - too_high))
            high = room.height() - 8
            for label in (self.key, self.note, self.figures):  # one alternative, and still too high
                if layout.totalHeightForWidth(width) > high:
                    label.hide()
        left = max(room.left() + 6, min(token.left() - 10, room.right() - width - 6))
        below = token.bottom() + 3
        above = token.top() - high - 3
        top = below if below + high <= room.bottom() or above < room.top() else above
        self.setGeometry(left, max(room.top() + 2, min(top, room.bottom() - high - 2)), width, high)
        self.show()
        self.raise_()

    def take_focus(self) -> None:
        """Focus the first alternative that can be chosen."""
        first = next((button for button in self.buttons if button.isEnabled()), None)
        (first or self).setFocus(Qt.FocusReason.TabFocusReason)

    def busy(self) -> bool:
        """Whether the pointer or the keyboard is in the popup."""
        focus = QApplication.focusWidget()
        return self.isVisible() and (
            self.underMouse() or focus is self or (focus is not None and self.isAncestorOf(focus))
        )

    def keyPressEvent(self, event: QKeyEvent) -> None:
        enabled = [button for button in self.buttons if button.isEnabled()]
        focused = next((button for button in enabled if button.hasFocus()), None)
        if event.key() == Qt.Key.Key_Escape:
            self.closed.emit()
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and focused is not None:
            focused.click()
        elif event.key() in (Qt.Key.Key_Down, Qt.Key.Key_Up) and focused is not None:
            step = 1 if event.key() == Qt.Key.Key_Down else -1
            following = enabled[(enabled.index(focused) + step) % len(enabled)]
            following.setFocus(Qt.FocusReason.TabFocusReason)
            self._list.ensureWidgetVisible(following, 0, 0)

    def event(self, event: QEvent) -> bool:
        """Let Esc close the popup, whatever else the window does with it."""
        return claims(event, Qt.Key.Key_Escape) or super().event(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Keep clicks between the alternatives from the text below."""

    def _clicked(self) -> None:
        button = self.sender()
        if isinstance(button, AlternativeButton):
            self.chosen.emit(button.other)


def _figures(token: TokenInfo) -> str:
    """For example "model 45.2 % · final 61.0 % · entropy 1.23 nats", and below it "id 262 · drafted · after
    1.42 s".
    """
    shares = _(
        "model {percent} · final {percent_2} · entropy {entropy:.2f} nats",
        percent=percent(token.raw_probability),
        percent_2=percent(token.probability),
        entropy=token.entropy,
    )
    parts = [_("id {id}", id=token.id)]
    parts += ["drafted"] * token.drafted + ["healed"] * token.healed
    if token.seconds:
        parts.append(_("after {seconds:.2f} s", seconds=token.seconds))
    return f"{shares}\n{' · '.join(parts)}"
