"""Brings a window to the front when something outside asks for it."""

from __future__ import annotations

import os

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QWidget

__all__ = ["bring_forward"]


def bring_forward(window: QWidget, token: str = "") -> None:
    """Show the window before all others, where the desktop allows that; else its entry in the task bar asks
    for attention.

    `token` is the leave to do so that a Wayland compositor gave; Qt takes it from the environment when it
    asks for the front.
    """
    if token:
        os.environ["XDG_ACTIVATION_TOKEN"] = token
    window.setWindowState(window.windowState() & ~Qt.WindowState.WindowMinimized)
    window.show()
    window.raise_()
    window.activateWindow()
    os.environ.pop("XDG_ACTIVATION_TOKEN", None)  # good for once; what this program starts shall not have it
    if not window.isActiveWindow():
        QApplication.alert(window)
