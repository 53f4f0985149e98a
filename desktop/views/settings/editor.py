"""What all editors have in common: the control for one setting."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtWidgets import QWidget

from engine.settings import Settings

__all__ = ["Editor", "guard_wheel"]


class _WheelGuard(QObject):
    """Lets the wheel scroll the pane instead of changing a control that has no focus."""

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Wheel and isinstance(watched, QWidget) and not watched.hasFocus():
            event.ignore()
            return True
        return False


class Editor(QWidget):
    """A control for one setting.

    `edited` carries the new value when the user changed it, never when the program did.

    `typed` carries the value of the present text, at every key; `edited` follows when the user pauses or
    leaves. `beside` is a part that belongs on the line of the label; `labelled` is true if the control shows
    the label itself.
    """

    edited = Signal(object)
    typed = Signal(object)
    beside: QWidget | None = None
    labelled = False

    def value(self) -> Any:
        """The value shown, in the setting's type."""
        raise AssertionError(f"{type(self).__name__} must say its value.")

    def set_value(self, value: Any) -> None:
        """Show `value`; `edited` is not emitted."""
        raise AssertionError(f"{type(self).__name__} must show {value!r}.")

    def show_context(self, settings: Settings) -> None:
        """Receive the other values of the same pane."""

    def finish(self) -> None:
        """Emit `edited` now instead of after a pause."""

    def _guard(self, *controls: QWidget) -> None:
        guard_wheel(self, *controls)


def guard_wheel(owner: QWidget, *controls: QWidget) -> None:
    """Let the wheel scroll the area around these controls of `owner` while they have no focus."""
    guard = _WheelGuard(owner)
    for control in controls:
        control.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        control.installEventFilter(guard)
