"""The trash as a Qt list model: titles, and when each chat was thrown away."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable

from PySide6.QtCore import QAbstractListModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from desktop.items.chats.conversations import ID_ROLE, UNTITLED
from desktop.store.conversations.records import ConversationSummary
from desktop.store.conversations.trash import DAY_S

__all__ = ["NOTE_ROLE", "TrashModel", "since_words"]

NOTE_ROLE = int(Qt.ItemDataRole.UserRole) + 50
"""A second line in quiet words."""
_NO_PARENT = QModelIndex()


def since_words(moment: float, now: float, keep_days: int) -> str:
    """When it was thrown away and, unless `keep_days` is 0, how long it will still be kept."""
    days = max(0, int((now - moment) // DAY_S))
    gone = "Today" if not days else "Yesterday" if days == 1 else f"{days:,} days ago"
    if not keep_days:
        return gone
    left = max(0, math.ceil((moment + keep_days * DAY_S - now) / DAY_S))
    return (
        f"{gone}, {left:,} {'day' if left == 1 else 'days'} left"
        if left
        else f"{gone}, goes at the next start"
    )


class TrashModel(QAbstractListModel):
    """Rows are chats in the trash, thrown away last first."""

    def __init__(self, parent: QObject | None = None, now: Callable[[], float] = time.time) -> None:
        super().__init__(parent)
        self._now = now
        self._rows: list[ConversationSummary] = []
        self._keep_days = 0

    def reset(self, rows: Iterable[ConversationSummary], keep_days: int) -> None:
        """Show other rows."""
        self.beginResetModel()
        self._rows, self._keep_days = list(rows), keep_days
        self.endResetModel()

    def rowCount(self, parent: QModelIndex | QPersistentModelIndex = _NO_PARENT) -> int:
        """The number of chats; 0 below one, because a list has no children."""
        return 0 if parent.isValid() else len(self._rows)

    def data(
        self, index: QModelIndex | QPersistentModelIndex, role: int = Qt.ItemDataRole.DisplayRole
    ) -> object:
        """The title, the note below it, the id."""
        if not index.isValid() or not 0 <= index.row() < len(self._rows):
            return None
        row = self._rows[index.row()]
        note = since_words(
            row.updated_at if row.deleted_at is None else row.deleted_at, self._now(), self._keep_days
        )
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            return row.title or UNTITLED
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return f"{row.title or UNTITLED}, deleted {note[:1].lower()}{note[1:]}"
        return {ID_ROLE: row.id, NOTE_ROLE: note}.get(role)
