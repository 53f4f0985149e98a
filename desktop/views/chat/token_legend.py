"""The bar above the conversation while tokens are coloured: the mode, and what the colours mean."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QPalette, QResizeEvent
from PySide6.QtWidgets import QButtonGroup, QFrame, QSizePolicy, QToolButton, QWidget

from desktop.views.layout.bidi import isolated
from desktop.views.layout.fill import fill
from desktop.views.transcript.tokens.colours import ENTROPY, MOST_ENTROPY, PROBABILITY, tint
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.text_label import text_label
from engine.units import percent_text
from engine.words import N_, _, translate

__all__ = ["TokenLegend"]

_MODES = (("off", N_("Off")), (PROBABILITY, N_("Probability")), (ENTROPY, N_("Entropy")))
_MEANINGS = {
    PROBABILITY: N_("The stronger the colour, the less likely the model considered this token."),
    ENTROPY: N_("The stronger the colour, the less certain the model was about the next token."),
}


def _ends(mode: str) -> tuple[str, str]:
    """The words at the ends of the scale."""
    return (
        (percent_text(1), percent_text(0))
        if mode == PROBABILITY
        else ("0", _("{most:.0f}+ nats", most=MOST_ENTROPY))
    )


_GAP, _AROUND = 4, 32
"""Between two parts of the bar, and around them and the scale."""


class _Scale(QWidget):
    """All colours from the weakest to the strongest, with a word at each end."""

    def __init__(self) -> None:
        super().__init__()
        self.mode = PROBABILITY
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)

    def sizeHint(self) -> QSize:
        return QSize(self.fontMetrics().averageCharWidth() * 30, self.fontMetrics().height() + 4)

    def minimumSizeHint(self) -> QSize:
        return QSize(self.fontMetrics().averageCharWidth() * 18, self.fontMetrics().height() + 4)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        ground = self.palette().color(QPalette.ColorRole.Window)
        low, high = _ends(self.mode)
        metrics = self.fontMetrics()
        left, right = metrics.horizontalAdvance(low) + 6, metrics.horizontalAdvance(high) + 6
        room = QRectF(left, 3, max(12, self.width() - left - right), self.height() - 6)
        steps = 32
        for step in range(steps):
            part = QRectF(
                room.left() + room.width() * step / steps, room.top(), room.width() / steps + 1, room.height()
            )
            painter.fillRect(part, tint(self.mode, ground.lightnessF() < 0.5, ground, step / (steps - 1)))
        painter.setPen(self.palette().color(QPalette.ColorRole.Mid))
        painter.drawRect(room)
        painter.setPen(self.palette().color(QPalette.ColorRole.WindowText))
        # colours never run from right to left
        middle = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignAbsolute
        painter.drawText(
            QRectF(0, 0, left, self.height()), int(middle | Qt.AlignmentFlag.AlignLeft), isolated(low)
        )
        end = QRectF(self.width() - right, 0, right, self.height())
        painter.drawText(end, int(middle | Qt.AlignmentFlag.AlignRight), isolated(high))
        painter.end()


class TokenLegend(QFrame):
    """`chosen(mode)`: the user wants "off", "probability" or "entropy"."""

    chosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("tokenLegend")
        self.setAccessibleName(_("Token colours"))
        self._title = text_label(_("Tokens"), "muted")
        self.scale = _Scale()
        self._marks = text_label(_("dotted: drafted"), "muted")
        self._marks.setToolTip(_("These tokens were drafted and then accepted by the model."))
        self._group = QButtonGroup(self)
        line = fill(FlowLayout(self), self._title, margins=(14, 3, 14, 3), spacing=_GAP)
        self.buttons: dict[str, QToolButton] = {}
        for mode, source in _MODES:
            words = translate(source)
            button = self.buttons[mode] = QToolButton()
            button.setText(words)
            button.setCheckable(True)
            button.setAccessibleName(_("Token colours: {words}", words=words))
            button.setToolTip(translate(_MEANINGS.get(mode, N_("Turn off token colours"))))
            button.clicked.connect(self._clicked)
            self._group.addButton(button)
            line.addWidget(button)
        line.addWidget(self.scale, 8)
        line.addWidget(self._marks)
        self.scale.setMaximumWidth(320)
        line.addStretch(1)
        self.hide()

    def show_mode(self, mode: str) -> None:
        """Show the mode of the colours; "off" hides the bar."""
        self.buttons[mode].setChecked(True)
        if mode != "off":
            self.scale.mode = mode
            self.scale.setToolTip(translate(_MEANINGS[mode]))
            low, high = _ends(mode)
            self.scale.setAccessibleName(_("Scale from {low} to {high}", low=low, high=high))
            self.scale.setAccessibleDescription(translate(_MEANINGS[mode]))
            self.scale.update()
        self.setVisible(mode != "off")

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Hide the words for which there is no room."""
        super().resizeEvent(event)
        room = self.width() - _AROUND - self.scale.minimumSizeHint().width()
        room -= sum(button.sizeHint().width() + _GAP for button in self.buttons.values())
        for label in (self._title, self._marks):
            room -= label.sizeHint().width() + _GAP
            label.setVisible(room >= 0)

    def _clicked(self) -> None:
        self.chosen.emit(next(mode for mode, button in self.buttons.items() if button.isChecked()))
