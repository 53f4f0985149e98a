"""A call that comes a while after it was last asked for, as when the user pauses."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer

__all__ = ["debounce"]


def debounce(parent: QObject, call: Callable[[], object], milliseconds: int = 0) -> QTimer:
    """A stopped single-shot timer below `parent`: `call` comes `milliseconds` after its last `start`."""
    timer = QTimer(parent)
    timer.setSingleShot(True)
    timer.setInterval(milliseconds)
    timer.timeout.connect(call)
    return timer
