"""The messages of the open conversation as a Qt list model: plain frozen data in, Qt notifications out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import field, replace

from PySide6.QtCore import QModelIndex, QObject, Qt, Signal

from desktop.items.rows_model import RowsModel
from desktop.store.conversations.token_trace import TokenTrace
from desktop.store.conversations.tool_calls import StoredCall
from engine.lazy_dataclass import dataclass
from engine.words import N_, _, translate

__all__ = ["MESSAGE_ROLE", "MessageItem", "MessagesModel", "author_label"]

MESSAGE_ROLE = int(Qt.ItemDataRole.UserRole) + 1
"""The item role for the whole `MessageItem`."""

_LABELS = {"user": N_("You"), "assistant": N_("Assistant"), "system": N_("System"), "tool": N_("Tool")}


@dataclass(frozen=True)
class MessageItem:
    """One message as the transcript shows it.

    `id` is the key of the message in the store; `text` its Markdown source (plain text when `role` is
    "user"); `running` is true while the reply grows; `variant_index` (from 0) of `variant_count` versions is
    shown; `footer` is small text below the message (speed, stop reason); `notice` a sentence that the reader
    should see (an error, a context that was cut). When the prompt had opened a thought, `opened` is the tag
    that closes it. `author` is its name, empty for an unnamed one, and `persona` the number of
    the persona whose picture is shown, 0 for none. A row with a `call` of a tool has
    its `result`, and in `text` both as Markdown; its `state` is "waiting" (for the user), "running",
    "complete", "failed" or "stopped". A text that is no Markdown but code has its `language`.
    It was `written_at` a time in seconds since 1970, 0 where that is not known. `model` is the name of the
    model that wrote it, empty where that is not known.
    """

    id: int
    role: str
    text: str
    running: bool = False
    variant_index: int = 0
    variant_count: int = 1
    footer: str = ""
    notice: str = ""
    opened: str = ""
    author: str = ""
    persona: int = 0
    call: StoredCall | None = None
    state: str = ""
    result: str = ""
    language: str = ""
    written_at: float = field(default=0.0, compare=False)
    model: str = ""

    @property
    def stored_text(self) -> str:
        """The text as the store has it."""
        return self.text if self.call is None else self.result


def _role_label(role: str) -> str:
    """The label of a role of the chat format."""
    return translate(_LABELS[role]) if role in _LABELS else role.capitalize() or _("Message")


def author_label(item: MessageItem) -> str:
    """The label of a message's author."""
    return item.author or _role_label(item.role)


class MessagesModel(RowsModel[MessageItem]):
    """Rows are messages from oldest to newest; every message id is in the model at most once.

    A streamed reply grows by `append_text`, which only emits `text_appended(row, text)`: a transcript appends
    the text, while views of whole items repaint on `dataChanged`. `trace(id)` returns the tokens of a reply,
    the same object while it grows, or None where they are not known. Methods that name a message raise
    KeyError for an unknown id.
    """

    text_appended = Signal(int, str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._places: dict[int, int] = {}
        self.trace: Callable[[int], TokenTrace | None] = lambda message_id: None

    def value(self, row: MessageItem, role: int) -> object:
        """The text (display), "role: text" (accessible text) or the `MessageItem` (`MESSAGE_ROLE`) of a
        row.
        """
        if role == Qt.ItemDataRole.DisplayRole:
            return row.text
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return f"{author_label(row)}: {row.text}"
        return row if role == MESSAGE_ROLE else None

    def items(self) -> tuple[MessageItem, ...]:
        """All messages, oldest first."""
        return tuple(self._rows)

    def item(self, message_id: int) -> MessageItem:
        """The message with this id."""
        return self._rows[self._places[message_id]]

    def row(self, message_id: int) -> int:
        """The row of the message with this id."""
        return self._places[message_id]

    def reset(self, items: Iterable[MessageItem]) -> None:
        """Show another conversation. Raises ValueError when two messages have the same id."""
        fresh = list(items)
        if len({item.id for item in fresh}) != len(fresh):
            raise ValueError("Two messages of one chat have the same id; ids must be unique.")
        self.beginResetModel()
        self._rows = fresh
        self._number()
        self.endResetModel()

    def append(self, item: MessageItem) -> None:
        """Add a message at the end. Raises ValueError when its id is already here."""
        self.extend([item])

    def extend(self, items: Sequence[MessageItem]) -> None:
        """Add messages at the end with one change of the model; none does nothing.

        Raises ValueError when one of their ids is already here, or twice among them, before anything changes.
        """
        places = {item.id: len(self._rows) + place for place, item in enumerate(items)}
        taken = next((number for number in places if number in self._places), None)
        if taken is not None:
            raise ValueError(f"Message {taken} is already in the chat; use replace() to change it.")
        if len(places) != len(items):
            raise ValueError("Two of the messages to add have the same id; ids must be unique.")
        self._places.update(places)
        if items:
            self.insert_rows(len(self._rows), items)

    def replace(self, message_id: int, item: MessageItem) -> None:
        """Replace the message `message_id` by `item`, whose id may differ: another version of it."""
        row = self._places[message_id]
        if item.id != message_id and item.id in self._places:
            raise ValueError(f"Message {item.id} is already in the chat at another place.")
        del self._places[message_id]
        self._rows[row] = item
        self._places[item.id] = row
        index = self.index(row)
        self.dataChanged.emit(index, index)

    def remove(self, message_ids: Collection[int]) -> None:
        """Take messages away, adjacent ones together.

        Raises KeyError for an unknown id, before anything changes.
        """
        rows = sorted({self._places[message_id] for message_id in message_ids}, reverse=True)
        while rows:
            last = first = rows.pop(0)
            while rows and rows[0] == first - 1:
                first = rows.pop(0)
            self.beginRemoveRows(QModelIndex(), first, last)
            del self._rows[first : last + 1]
            self._number()
            self.endRemoveRows()

    def append_text(self, message_id: int, text: str) -> None:
        """Append `text` to a message and emit `text_appended`; an empty text does nothing."""
        row = self._places[message_id]
        if text:
            item = self._rows[row]
            self._rows[row] = replace(item, text=item.text + text)
            self.text_appended.emit(row, text)

    def _number(self) -> None:
        self._places = {item.id: row for row, item in enumerate(self._rows)}
