"""Keys that a widget keeps for itself."""

from __future__ import annotations

from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QKeyEvent

__all__ = ["claims"]


def claims(event: QEvent, key: Qt.Key) -> bool:
    """Accept `event` if it offers `key` to the widget before the window's shortcuts; whether it did."""
    offered = event.type() == QEvent.Type.ShortcutOverride
    if offered and isinstance(event, QKeyEvent) and event.key() == key:
        event.accept()
        return True
    return False
