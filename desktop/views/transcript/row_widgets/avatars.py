"""Pictures of the authors of messages, for the header rows."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QPixmap

from desktop.items.chats.messages import MessageItem

__all__ = ["Avatars"]

Draw = Callable[[int, str, int], QPixmap]


class Avatars(QObject):
    """Has no pictures until `draw_with` is called. `changed()` is emitted when the pictures change."""

    changed = Signal()

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._draw: Draw | None = None

    def draw_with(self, draw: Draw) -> None:
        """`draw(persona, name, side)` makes the picture of an author; the persona's number is 0 for none."""
        self._draw = draw
        self.changed.emit()

    def picture(self, item: MessageItem, side: int) -> QPixmap | None:
        """The picture of a message's author, `side` pixels wide; None for the user and unnamed authors."""
        named = bool(item.author) and item.role == "assistant"
        return self._draw(item.persona, item.author, side) if named and self._draw is not None else None
