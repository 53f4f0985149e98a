"""The results of a search as a Qt list model: each chat once, with its messages below it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from PySide6.QtCore import Qt

from desktop.items.chats.conversations import ID_ROLE, UNTITLED
from desktop.items.rows_model import RowsModel
from desktop.store.conversations.records import ConversationSummary, SearchHit
from engine.words import _, translate

__all__ = ["HIT_ROLE", "SPANS_ROLE", "SearchHitsModel"]

HIT_ROLE = int(Qt.ItemDataRole.UserRole) + 40
"""The `SearchHit` of a row; None for the row of a chat."""
SPANS_ROLE = int(Qt.ItemDataRole.UserRole) + 41
"""Where the words are in the displayed text: (start, end) in characters."""
BEFORE = 18
"""Characters shown before the first word, which must be visible in a narrow list too."""
_WORDS = (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole)


class _Row(NamedTuple):
    conversation: int
    text: str
    spans: tuple[tuple[int, int], ...]
    hit: SearchHit | None = None


class SearchHitsModel(RowsModel[_Row]):
    """`begin` with the chats found by title, then `add` the messages found."""

    @property
    def messages(self) -> int:
        """The number of messages found."""
        return sum(1 for row in self._rows if row.hit is not None)

    @property
    def chats(self) -> int:
        """The number of chats found, by title or by message."""
        return len(self._rows) - self.messages

    def has(self, conversation_id: int) -> bool:
        """Whether a chat is among the results."""
        return any(row.conversation == conversation_id for row in self._rows)

    def begin(self, titles: Iterable[tuple[ConversationSummary, tuple[tuple[int, int], ...]]]) -> None:
        """Show the results of another search."""
        self.set_rows(_Row(chat.id, chat.title, spans) for chat, spans in titles)

    def add(self, hits: Sequence[SearchHit]) -> None:
        """Add messages, each below its chat."""
        for hit in hits:
            if hit.snippet == hit.title and any(
                row.conversation == hit.conversation_id for row in self._rows
            ):
                continue  # the message that gave the chat its title, which was found already
            text, spans = _near(hit.snippet, hit.spans)
            row = _Row(hit.conversation_id, text, spans, hit)
            places = [
                place for place, other in enumerate(self._rows) if other.conversation == hit.conversation_id
            ]
            new = [row] if places else [_Row(hit.conversation_id, hit.title or translate(UNTITLED), ()), row]
            self.insert_rows(places[-1] + 1 if places else len(self._rows), new)

    def forget(self, conversation_id: int) -> None:
        """Take a chat and its messages away."""
        for place in range(len(self._rows) - 1, -1, -1):
            if self._rows[place].conversation == conversation_id:
                self.remove_rows(place, place)

    def value(self, row: _Row, role: int) -> object:
        """The title or the snippet of the message (display, tool tip, accessible text), and the
        roles above.
        """
        if role in _WORDS:
            return row.text if row.hit is None or role == Qt.ItemDataRole.DisplayRole else row.hit.snippet
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return (
                _("Chat {text}", text=row.text)
                if row.hit is None
                else _(
                    "Message in {title}: {snippet}",
                    title=row.hit.title or translate(UNTITLED),
                    snippet=row.hit.snippet,
                )
            )
        return {ID_ROLE: row.conversation, HIT_ROLE: row.hit, SPANS_ROLE: row.spans}.get(role)


def _near(text: str, spans: tuple[tuple[int, int], ...]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The text from shortly before the first span on, with its spans."""
    if not spans or spans[0][0] <= BEFORE + 6:
        return text, spans
    start = spans[0][0] - BEFORE
    blank = text.find(" ", start, spans[0][0])
    start = blank + 1 if blank >= 0 else start
    return "…" + text[start:], tuple((first - start + 1, end - start + 1) for first, end in spans)
