"""Functions that a service calls for as long as a part of the window exists.

Qt ends a connection to a method when its object goes. It cannot know whose a lambda is, or a connection of
two services that a controller made: these would go on for a window that was replaced, which happens when the
language changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject, SignalInstance

__all__ = ["listen"]


def listen(owner: QObject, signal: SignalInstance, slot: Callable[..., Any]) -> None:
    """Connect `signal` with `slot` until `owner` is deleted."""
    connection = signal.connect(slot)
    owner.destroyed.connect(lambda: QObject.disconnect(connection))
