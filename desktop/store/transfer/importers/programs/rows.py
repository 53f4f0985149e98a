"""Chats in rows of a message or of a question and its answer: Microsoft Copilot's and AnythingLLM's.

Sources: `copilot-activity-history.csv` of Microsoft's privacy dashboard, as readers of it on GitHub have it;
AnythingLLM, server/utils/helpers/chat/convertTo.js, in CSV or JSON. A row names its chat, by its title or
workspace, and rows of several chats may be mixed.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from desktop.store.transfer.importers.fields import mapping, rest, seconds, text
from desktop.store.transfer.importers.programs.message_lists.chat import Chat, chat_record
from desktop.store.transfer.importers.programs.message_lists.message import ROLES
from desktop.store.transfer.importers.protocol import Note
from desktop.store.transfer.records import ConversationRecord

__all__ = ["ROWS", "Rows", "table_columns", "table_rows"]

_LONGEST_CELL = 128 << 20


class Rows:
    """A program whose rows have the columns `columns`, of which the first names the chat."""

    beside = ""

    def __init__(self, source: str, label: str, columns: tuple[str, ...], newest_first: bool) -> None:
        self.source, self.label, self.columns = source, label, columns
        self._newest_first = newest_first

    def begins(self, value: Any) -> bool:
        return isinstance(value, dict) and all(name in value for name in self.columns)

    def continues(self, value: Any) -> bool:
        return self.begins(value)

    def chats(self, values: Sequence[Any]) -> list[list[Any]]:
        """The rows of each chat, from the oldest. Times tell the order of a file, if they differ at all."""
        times = [seconds(row.get("Time", row.get("sent_at"))) for row in values]
        known = [time for time in times if time is not None]
        differ = bool(known) and known[0] != known[-1]
        newest_first = known[0] > known[-1] if differ else self._newest_first
        found: dict[str, list[Any]] = {}
        for value in reversed(values) if newest_first else values:
            found.setdefault(text(value.get(self.columns[0])), []).append(value)
        return list(found.values())

    def read_lines(self, values: Sequence[Any], note: Note, about: dict[str, Any]) -> ConversationRecord:
        """The chat in rows of it alone, as `chats` returns them."""
        title = " ".join(text(values[0].get(self.columns[0])).split())
        entries = [entry for row in values for entry in self._entries(row)]
        return chat_record(Chat(self.source, entries, title, title), note)

    def _entries(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        if "Author" in row:
            role = text(row.get("Author")).strip().lower()
            return [
                {"role": ROLES.get(role, role), "content": row.get("Message"), "timestamp": row.get("Time")}
            ]
        files = rest(row, *self.columns, "id", "sent_at", "username")
        sent = {"timestamp": row.get("sent_at")}
        return [
            {"role": "user", "content": row.get("prompt")} | sent | files,
            {"role": "assistant", "content": row.get("response")} | sent,
        ]


ROWS = (
    Rows("copilot", "Microsoft Copilot", ("Conversation", "Time", "Author", "Message"), newest_first=True),
    Rows("anythingllm", "AnythingLLM", ("workspace", "prompt", "response"), newest_first=False),
)


def table_columns(text: str) -> dict[str, str]:
    """The names in the first line of a CSV file, as an empty row of it."""
    try:
        return dict.fromkeys(next(csv.reader(text.splitlines()[:1]), []), "")
    except csv.Error:
        return {}


def table_rows(data: bytes) -> list[dict[str, Any]]:
    """The rows of a CSV file in UTF-8, by their columns; empty if it is of no known program.

    Raises ValueError if it cannot be read.
    """
    csv.field_size_limit(_LONGEST_CELL)
    reader = csv.DictReader(io.StringIO(data.decode("utf-8-sig", "replace"), newline=""))
    try:
        columns = dict.fromkeys(reader.fieldnames or (), "")
        return [mapping(row) for row in reader] if any(one.begins(columns) for one in ROWS) else []
    except csv.Error as error:
        raise ValueError(str(error)) from error
