"""The whole texts of files of which messages have only a part: later questions are answered from them.

A text belongs to a chat and to all files of its name there. It goes with the chat, or at the next start when
no message, draft or queued message of the chat has a part of the file any more.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable
from typing import NamedTuple

from desktop.store.attachments.message_format import HEAD, name_line
from desktop.store.database.database import Database

__all__ = ["LONGEST", "MOST_STORED", "PackedText", "WholeTextStore", "packed"]

LONGEST = 8 << 20
"""Characters of one text, as many as can be attached; what is longer is cut when it is read."""
MOST_STORED = 1 << 30
"""Bytes of all texts, compressed, above which no more are kept."""
_HAS = f"instr({{0}}.text, '{HEAD}' || whole_texts.name || ' (')"
_UNUSED = (
    "NOT EXISTS (SELECT 1 FROM messages WHERE messages.conversation_id = whole_texts.conversation_id AND "
    f"{_HAS.format('messages')}) "
    "AND NOT EXISTS (SELECT 1 FROM queued_messages WHERE queued_messages.conversation_id = "
    f"whole_texts.conversation_id AND {_HAS.format('queued_messages')}) "
    "AND NOT EXISTS (SELECT 1 FROM draft_files WHERE draft_files.conversation_id = "
    "whole_texts.conversation_id AND draft_files.name = whole_texts.name AND draft_files.note <> '')"
)


class PackedText(NamedTuple):
    """The text of the file `name`, compressed; equal texts have the same `key`."""

    name: str
    key: str
    data: bytes

    @property
    def text(self) -> str:
        """The text; "" if its bytes are damaged."""
        try:
            return zlib.decompressobj().decompress(self.data, 4 * LONGEST).decode("utf-8", "ignore")[:LONGEST]
        except zlib.error:
            return ""


def packed(name: str, text: str) -> PackedText:
    """The text of a file, compressed: a tenth of a second for the longest."""
    data = text.encode("utf-8", "replace")
    return PackedText(name_line(name), hashlib.sha256(data).hexdigest()[:32], zlib.compress(data, 1))


class WholeTextStore:
    """Reads and writes whole texts. Methods raise `StoreError`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, conversation_id: int, texts: Iterable[PackedText]) -> tuple[str, ...]:
        """Keep texts of a chat that are not there yet, unless it does not exist any more; returns the names
        of those that do not fit into `MOST_STORED`.
        """
        total, left_out = self.total(), []
        for each in texts:
            if total + len(each.data) > MOST_STORED:
                left_out.append(each.name)
                continue
            total += self._database.execute(
                "INSERT OR IGNORE INTO whole_texts (conversation_id, name, key, data) "
                "SELECT id, ?2, ?3, ?4 FROM conversations WHERE id = ?1",
                (conversation_id, *each),
            ).rowcount * len(each.data)
        return tuple(left_out)

    def of(self, conversation_id: int) -> tuple[PackedText, ...]:
        """The texts of a chat, oldest first."""
        rows = self._database.execute(
            "SELECT name, key, data FROM whole_texts WHERE conversation_id = ? ORDER BY id",
            (conversation_id,),
        )
        return tuple(PackedText(str(name), str(key), bytes(data)) for name, key, data in rows)

    def total(self) -> int:
        """Bytes of all texts, compressed."""
        row = self._database.execute("SELECT coalesce(sum(length(data)), 0) FROM whole_texts").fetchone()
        return int(row[0])

    def copy_to(self, other: Database, conversation_id: int, made: int) -> None:
        """Keep the texts of a chat for its copy `made`, which may be in another database."""
        WholeTextStore(other).put(made, self.of(conversation_id))

    def sweep(self) -> int:
        """Delete the texts that no chat has a part of any more; returns their number. Not while attached
        files are not saved yet.
        """
        return self._database.execute(f"DELETE FROM whole_texts WHERE {_UNUSED}").rowcount
