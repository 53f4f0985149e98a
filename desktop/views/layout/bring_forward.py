"""Brings a window to the front when something outside asks for it."""

from __future__ import annotations

import os

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QWidget

__all__ = ["bring_forward"]


def bring_forward(window: QWidget, token: str = "") -> None:
    """Raise the window if the desktop allows it; otherwise its entry in the task bar asks for attention.

    `token` is a Wayland compositor's permission; Qt reads it from the environment.
    """
    if token:
        os.environ["XDG_ACTIVATION_TOKEN"] = token
    window.setWindowState(window.windowState() & ~Qt.WindowState.WindowMinimized)
    window.show()
    window.raise_()
    window.activateWindow()
    os.environ.pop(
        "XDG_ACTIVATION_TOKEN", None
    )  # It is valid once; programs that this one starts must not inherit it.
    if not window.isActiveWindow():
        QApplication.alert(window)
