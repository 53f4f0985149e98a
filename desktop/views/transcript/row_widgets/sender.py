"""Who a message is from: the name that is kept with it, and the picture that goes with the name, for the
rows that say who speaks.
"""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QPixmap

from desktop.items.chats.messages import MessageItem

__all__ = ["Speaker"]

Draw = Callable[[int, str, int], QPixmap]


class Speaker(QObject):
    """Below the transcript's viewport. `changed()` when pictures are other ones."""

    changed = Signal()

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._draw: Draw | None = None

    def draw_with(self, draw: Draw) -> None:
        """`draw(persona, name, side)` gives the picture of somebody with a name; the persona's number is 0
        for none.
        """
        self._draw = draw
        self.changed.emit()

    def picture(self, item: MessageItem, side: int) -> QPixmap | None:
        """The picture of who says a message, `side` pixels wide, if there is one."""
        named = bool(item.speaker) and item.role == "assistant"
        return self._draw(item.persona, item.speaker, side) if named and self._draw is not None else None
