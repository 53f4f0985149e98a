"""What a search found as a Qt list model: each chat once, the places found in it below."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QAbstractListModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from desktop.items.chats.conversations import ID_ROLE, UNTITLED
from desktop.store.conversations.records import ConversationSummary, SearchHit

__all__ = ["HIT_ROLE", "SPANS_ROLE", "SearchHitsModel"]

HIT_ROLE = int(Qt.ItemDataRole.UserRole) + 40
"""The `SearchHit` of a row; None for the row of a chat."""
SPANS_ROLE = int(Qt.ItemDataRole.UserRole) + 41
"""Where the words stand in what the row displays: (first, behind) in characters."""
BEFORE = 18
"""So many characters before the first word are shown: in a narrow list it must not lie outside."""
_NO_PARENT = QModelIndex()
_WORDS = (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole)


@dataclass(frozen=True, slots=True)
class _Row:
    conversation: int
    text: str
    spans: tuple[tuple[int, int], ...]
    hit: SearchHit | None = None


class SearchHitsModel(QAbstractListModel):
    """`begin` with the chats whose titles were found, then `add` what was found in messages."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rows: list[_Row] = []

    @property
    def messages(self) -> int:
        """How many messages were found."""
        return sum(1 for row in self._rows if row.hit is not None)

    @property
    def chats(self) -> int:
        """How many chats they, and the titles found, belong to."""
        return len(self._rows) - self.messages

    def has(self, conversation_id: int) -> bool:
        """Whether something of a chat was found."""
        return any(row.conversation == conversation_id for row in self._rows)

    def begin(self, titles: Iterable[tuple[ConversationSummary, tuple[tuple[int, int], ...]]]) -> None:
        """A new search."""
        self.beginResetModel()
        self._rows = [_Row(chat.id, chat.title, spans) for chat, spans in titles]
        self.endResetModel()

    def add(self, hits: Sequence[SearchHit]) -> None:
        """More messages, each put under its chat."""
        for hit in hits:
            if hit.snippet == hit.title and any(
                row.conversation == hit.conversation_id for row in self._rows
            ):
                continue  # the message that gave the chat its title, which is found already
            text, spans = _near(hit.snippet, hit.spans)
            row = _Row(hit.conversation_id, text, spans, hit)
            places = [
                place for place, other in enumerate(self._rows) if other.conversation == hit.conversation_id
            ]
            new = [row] if places else [_Row(hit.conversation_id, hit.title or UNTITLED, ()), row]
            at = places[-1] + 1 if places else len(self._rows)
            self.beginInsertRows(QModelIndex(), at, at + len(new) - 1)
            self._rows[at:at] = new
            self.endInsertRows()

    def forget(self, conversation_id: int) -> None:
        """A chat is not there any more."""
        for place in range(len(self._rows) - 1, -1, -1):
            if self._rows[place].conversation == conversation_id:
                self.beginRemoveRows(QModelIndex(), place, place)
                del self._rows[place]
                self.endRemoveRows()

    def rowCount(self, parent: QModelIndex | QPersistentModelIndex = _NO_PARENT) -> int:
        """The number of rows; 0 below one, because a list has no children."""
        return 0 if parent.isValid() else len(self._rows)

    def data(
        self, index: QModelIndex | QPersistentModelIndex, role: int = Qt.ItemDataRole.DisplayRole
    ) -> object:
        """The title or the piece of the message (display, tool tip, accessible text), and the roles above."""
        if not index.isValid() or not 0 <= index.row() < len(self._rows):
            return None
        row = self._rows[index.row()]
        if role in _WORDS:
            return row.text if row.hit is None or role == Qt.ItemDataRole.DisplayRole else row.hit.snippet
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return (
                f"Chat {row.text}"
                if row.hit is None
                else f"Message in {row.hit.title or UNTITLED}: {row.hit.snippet}"
            )
        return {ID_ROLE: row.conversation, HIT_ROLE: row.hit, SPANS_ROLE: row.spans}.get(role)


def _near(text: str, spans: tuple[tuple[int, int], ...]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The text from shortly before the first span on."""
    if not spans or spans[0][0] <= BEFORE + 6:
        return text, spans
    start = spans[0][0] - BEFORE
    blank = text.find(" ", start, spans[0][0])
    start = blank + 1 if blank >= 0 else start
    return "…" + text[start:], tuple((first - start + 1, behind - start + 1) for first, behind in spans)
