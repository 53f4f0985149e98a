"""What all editors have in common: the control for one setting."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from desktop.views.widgets.wheel_guard import guard_wheel
from engine.settings import Settings

__all__ = ["Editor"]


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
