"""Who the replies are from: the name and the picture of the persona that answers, for the rows that say who speaks."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QPixmap

from desktop.items.messages import role_label

__all__ = ["Speaker"]

Draw = Callable[[int], QPixmap]


class Speaker(QObject):
    """Below the transcript's viewport. `changed()` when replies are from somebody else."""

    changed = Signal()

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._name = ""
        self._draw: Draw | None = None

    def show(self, name: str, draw: Draw | None) -> None:
        """Replies are from `name`; `draw(side)` gives the picture. An empty name is nobody in particular."""
        self._name, self._draw = name, draw if name else None
        self.changed.emit()

    def label(self, role: str) -> str:
        """The word for who speaks in this role."""
        return self._name if role == "assistant" and self._name else role_label(role)

    def picture(self, role: str, side: int) -> QPixmap | None:
        """The picture of who speaks, `side` pixels wide, if there is one."""
        return self._draw(side) if role == "assistant" and self._draw is not None else None
