"""Keeps the wheel from changing controls that it only passes over while it scrolls what is around them."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtWidgets import QWidget

__all__ = ["guard_wheel"]


class _WheelGuard(QObject):
    """Lets the wheel scroll the pane instead of changing a control that has no focus."""

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Wheel and isinstance(watched, QWidget) and not watched.hasFocus():
            event.ignore()
            return True
        return False


def guard_wheel(owner: QWidget, *controls: QWidget) -> None:
    """Let the wheel scroll the area around these controls of `owner` while they have no focus."""
    guard = _WheelGuard(owner)
    for control in controls:
        control.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        control.installEventFilter(guard)
