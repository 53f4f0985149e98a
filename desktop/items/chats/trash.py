"""The trash as a Qt list model: titles, and when each chat was deleted."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable

from PySide6.QtCore import QObject, Qt

from desktop.items.chats.conversations import ID_ROLE, UNTITLED
from desktop.items.rows_model import RowsModel
from desktop.store.conversations.records import ConversationSummary
from desktop.store.conversations.trash import DAY_S
from engine.words import _, ngettext, translate

__all__ = ["NOTE_ROLE", "TrashModel", "since_words"]

NOTE_ROLE = int(Qt.ItemDataRole.UserRole) + 50
"""The second line of a row."""


def since_words(moment: float, now: float, keep_days: int) -> str:
    """When a chat was deleted and, unless `keep_days` is 0, how long it will still be kept."""
    days = max(0, int((now - moment) // DAY_S))
    gone = _("Today") if not days else _("Yesterday") if days == 1 else _("{days:,} days ago", days=days)
    if not keep_days:
        return gone
    left = max(0, math.ceil((moment + keep_days * DAY_S - now) / DAY_S))
    return (
        ngettext("{gone}, {n} day left", "{gone}, {n} days left", left, gone=gone)
        if left
        else _("{gone}, deleted at the next start", gone=gone)
    )


class TrashModel(RowsModel[ConversationSummary]):
    """Rows are the chats in the trash, the last deleted first."""

    def __init__(self, parent: QObject | None = None, now: Callable[[], float] = time.time) -> None:
        super().__init__(parent)
        self._now = now
        self._keep_days = 0

    def reset(self, rows: Iterable[ConversationSummary], keep_days: int) -> None:
        """Show other chats."""
        self._keep_days = keep_days
        self.set_rows(rows)

    def value(self, row: ConversationSummary, role: int) -> object:
        """The title, the note below it, the id."""
        note = since_words(
            row.updated_at if row.deleted_at is None else row.deleted_at, self._now(), self._keep_days
        )
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            return row.title or translate(UNTITLED)
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return _(
                "{title}, deleted {when}",
                title=row.title or translate(UNTITLED),
                when=note[:1].lower() + note[1:],
            )
        return {ID_ROLE: row.id, NOTE_ROLE: note}.get(role)
