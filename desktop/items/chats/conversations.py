"""All conversations as a Qt list model, latest first, with their date groups; `chat_list` arranges them for
the sidebar.
"""

from __future__ import annotations

import datetime
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence

from PySide6.QtCore import QModelIndex, QObject, Qt

from desktop.items.rows_model import RowsModel
from desktop.store.conversations.records import ConversationSummary
from engine.words import N_, _, translate

__all__ = [
    "GROUP_ROLE",
    "ID_ROLE",
    "NEW_NOTEBOOK",
    "UNTITLED",
    "UPDATED_ROLE",
    "ConversationsModel",
    "date_group",
    "group_start",
]

ID_ROLE = int(Qt.ItemDataRole.UserRole) + 1
"""The conversation's id."""
GROUP_ROLE = int(Qt.ItemDataRole.UserRole) + 2
"""The date group: "Today", "Yesterday", "Previous 7 days", "Previous 30 days", "March 2026"."""
UPDATED_ROLE = int(Qt.ItemDataRole.UserRole) + 3
"""The time of the latest change in seconds since 1970."""

UNTITLED, NEW_NOTEBOOK = N_("New chat"), N_("New notebook")
"""The names of a conversation and of a notebook without a title."""
_MONTHS = (
    N_("January"),
    N_("February"),
    N_("March"),
    N_("April"),
    N_("May"),
    N_("June"),
    N_("July"),
    N_("August"),
    N_("September"),
    N_("October"),
    N_("November"),
    N_("December"),
)


def date_group(moment: float, today: datetime.date) -> str:
    """The date group of a change at `moment` (seconds since 1970, shown in local time)."""
    day = datetime.datetime.fromtimestamp(moment).date()
    age = (today - day).days
    if age <= 0:
        return _("Today")
    if age == 1:
        return _("Yesterday")
    if age <= 7:
        return _("Previous 7 days")
    if age <= 30:
        return _("Previous 30 days")
    return _("{month} {year}", month=translate(_MONTHS[day.month - 1]), year=day.year)


def group_start(moment: float, today: datetime.date) -> float:
    """The earliest moment in the same date group as `moment`."""
    day = datetime.datetime.fromtimestamp(moment).date()
    age = (today - day).days
    limit = next((limit for limit in (0, 1, 7, 30) if age <= limit), None)
    first = today - datetime.timedelta(days=limit) if limit is not None else day.replace(day=1)
    return datetime.datetime.combine(first, datetime.time.min).timestamp()


class ConversationsModel(RowsModel[ConversationSummary]):
    """Rows are conversations, latest first.

    `today` is called for every row that is shown, so that groups change at midnight.
    """

    def __init__(
        self, parent: QObject | None = None, today: Callable[[], datetime.date] = datetime.date.today
    ) -> None:
        super().__init__(parent)
        self._today = today

    def value(self, row: ConversationSummary, role: int) -> object:
        """The title (display, edit, tool tip, accessible text), `ID_ROLE`, `GROUP_ROLE` or `UPDATED_ROLE`
        of a row.
        """
        if role in (
            Qt.ItemDataRole.DisplayRole,
            Qt.ItemDataRole.ToolTipRole,
            Qt.ItemDataRole.AccessibleTextRole,
        ):
            return row.title or translate(UNTITLED)
        if role == Qt.ItemDataRole.EditRole:
            return row.title
        if role == ID_ROLE:
            return row.id
        if role == GROUP_ROLE:
            return date_group(row.updated_at, self._today())
        return row.updated_at if role == UPDATED_ROLE else None

    def reset(self, rows: Iterable[ConversationSummary]) -> None:
        """Show other conversations, latest first."""
        self.set_rows(rows)

    def summaries(self) -> Sequence[ConversationSummary]:
        """All rows, latest first; not to be changed."""
        return self._rows

    def row(self, conversation_id: int) -> int:
        """The row of a conversation, or -1."""
        return next((number for number, row in enumerate(self._rows) if row.id == conversation_id), -1)

    def put(self, summary: ConversationSummary) -> None:
        """Add a conversation, or change its title and move it to the place of its time."""
        old = self.row(summary.id)
        new = bisect_left(
            self._rows, (-summary.updated_at, -summary.id), key=lambda row: (-row.updated_at, -row.id)
        )
        new -= 0 <= old < new  # counted without the conversation itself
        if old < 0:
            self.insert_rows(new, [summary])
            return
        if new != old:
            # Qt counts the target row before the moved row is removed
            self.beginMoveRows(QModelIndex(), old, old, QModelIndex(), new if new < old else new + 1)
            del self._rows[old]
            self._rows.insert(new, summary)
            self.endMoveRows()
        self._rows[new] = summary
        self.dataChanged.emit(self.index(new), self.index(new))

    def remove(self, conversation_id: int) -> None:
        """Take a conversation away, if it is here."""
        row = self.row(conversation_id)
        if row >= 0:
            self.remove_rows(row, row)

    def put_all(self, summaries: Collection[ConversationSummary]) -> None:
        """`put` for many at once: one change of the model."""
        if len(summaries) == 1:
            self.put(*summaries)
        elif summaries:
            ids = {summary.id for summary in summaries}
            rows = [row for row in self._rows if row.id not in ids]
            self.reset(sorted([*rows, *summaries], key=lambda row: (row.updated_at, row.id), reverse=True))

    def remove_all(self, ids: Collection[int]) -> None:
        """`remove` for many at once: one change of the model."""
        if len(ids) == 1:
            self.remove(*ids)
        elif ids:
            gone = frozenset(ids)
            self.reset([row for row in self._rows if row.id not in gone])
