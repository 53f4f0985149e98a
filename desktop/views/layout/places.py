"""Where the window was and which side panes were shown, from one start to the next."""

from __future__ import annotations

from PySide6.QtCore import QSettings
from PySide6.QtWidgets import QMainWindow

from desktop.views.layout.on_screen import OnScreen, first_size
from desktop.views.layout.panes import LEFT, RIGHT, Panes

__all__ = ["recall_places", "remember_places"]

_WINDOW, _PANES = "window", "panes"
_FIRST_SIZE = 1180, 780
_AT_FIRST = {LEFT: True, RIGHT: False}
"""At the first start a new user needs the chats and the message box, not every setting."""


def recall_places(window: QMainWindow, panes: Panes, places: QSettings) -> None:
    """Restore them, or show the window as at the first start; it stays on the screens from now on."""
    place, sizes = places.value(_WINDOW), places.value(_PANES)
    if place is None or not window.restoreGeometry(place):
        window.resize(first_size(window, *_FIRST_SIZE))
    OnScreen(window)
    if sizes is not None:
        panes.restoreState(sizes)
    for side, shown in _AT_FIRST.items():
        saved = places.value(side)
        panes.set_requested(side, shown if saved is None else str(saved) == "true")


def remember_places(window: QMainWindow, panes: Panes, places: QSettings) -> None:
    """Keep them for the next start."""
    places.setValue(_WINDOW, window.saveGeometry())
    places.setValue(_PANES, panes.saveState())
    for side in _AT_FIRST:
        places.setValue(side, "true" if panes.requested(side) else "false")
