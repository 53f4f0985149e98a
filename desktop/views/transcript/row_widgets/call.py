"""Below a call of a tool: the buttons that say whether it may run, end it, or let the model go on."""

from __future__ import annotations

from PySide6.QtWidgets import QPushButton

from desktop.store.conversations.call_words import call_label
from desktop.views.transcript.call_actions import ALL_CALL_ACTIONS, call_actions
from desktop.views.transcript.row_widgets.base import RowWidget
from desktop.views.transcript.row_widgets.context import RowContext
from desktop.views.transcript.rows import Row
from desktop.views.transcript.style import Style
from engine.words import _, translate

__all__ = ["CallRow"]

_BETWEEN = 8


class CallRow(RowWidget):
    """Its buttons emit actions. In a narrow column they stand below each other."""

    def __init__(self, context: RowContext) -> None:
        super().__init__(context)
        self.buttons = {name: QPushButton(self) for name in ALL_CALL_ACTIONS}
        for name, button in self.buttons.items():
            button.setAutoDefault(False)
            button.clicked.connect(lambda _checked=False, name=name: self._act(name))
            self.watch(button)

    def _act(self, name: str) -> None:
        if self.row is not None:
            self.signals.action.emit(name, self.row.item.id)

    def show_row(self, row: Row, style: Style, fresh: bool) -> None:
        call = row.item.call
        words = call_actions(row.item)
        about = call_label(call, row.item.state, row.item.result) if call is not None else ""
        self.setAccessibleName(about)
        for name, button in self.buttons.items():
            if name not in words:
                self.yield_focus(button)
            button.setVisible(name in words)
            button.setFont(style.small_font)
            text = translate(words.get(name, ""))
            button.setText(text)
            button.setAccessibleName(_("{action}: {what}", action=text, what=about) if text else "")

    def fit(self, width: int) -> int:
        x, y, high = 0, self.gap, 0
        for button in self.buttons.values():
            if button.isHidden():
                continue
            hint = button.sizeHint()
            wide = min(hint.width(), width)
            if x and x + wide > width:
                x, y = 0, y + high + _BETWEEN // 2
            button.setGeometry(width - x - wide if self.isRightToLeft() else x, y, wide, hint.height())
            x, high = x + wide + _BETWEEN, hint.height()
        return y + high
