"""Notices when the user acts in a window: what can wait does, and the model's threads leave a core to the
window.
"""

from __future__ import annotations

import time

from PySide6.QtCore import QEvent, QObject, Signal
from PySide6.QtGui import QMouseEvent
from PySide6.QtWidgets import QWidget

__all__ = ["InputWatch"]

_ACTING_S = 0.4
"""A user counts as acting for this long after the last event."""
_KINDS = frozenset({
    QEvent.Type.Wheel, QEvent.Type.KeyPress, QEvent.Type.MouseButtonPress, QEvent.Type.TouchBegin,
    QEvent.Type.TouchUpdate, QEvent.Type.NativeGesture, QEvent.Type.Resize,
})  # fmt: skip


class InputWatch(QObject):
    """Watches what the window system sends to `window`, which must be shown: `acted()` comes before the
    window handles it.

    The widgets' own events are not watched: there are many more of them, and each would cost a Python call.
    """

    acted = Signal()

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self._last = float("-inf")
        handle = window.windowHandle()
        if handle is None:
            raise ValueError("The window must be shown before its input can be watched.")
        handle.installEventFilter(self)

    @property
    def acting(self) -> bool:
        """Whether the user is acting now: scrolling, typing, dragging, resizing."""
        return time.monotonic() - self._last < _ACTING_S

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        kind = event.type()
        if kind in _KINDS or (
            kind == QEvent.Type.MouseMove and isinstance(event, QMouseEvent) and event.buttons()
        ):
            self._last = time.monotonic()
            self.acted.emit()
        return False
