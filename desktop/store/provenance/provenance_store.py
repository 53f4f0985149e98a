"""Stores the provenance of each reply, packed relative to that of the previous reply in its conversation."""

from __future__ import annotations

from desktop.store.database.database import Database
from desktop.store.provenance.provenance import Provenance, pack, unpack

__all__ = ["ProvenanceStore"]

_DEEPEST = 24
"""The most entries to read for one; the next one is stored in full."""


class ProvenanceStore:
    """The provenance of the replies in one database. Methods raise `StoreError`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, message_id: int, provenance: Provenance) -> None:
        """Store the provenance of a reply, replacing an earlier one."""
        with self._database.transaction():
            rest = self._database.execute(
                "SELECT message_id FROM message_origins WHERE base_id = ?", (message_id,)
            ).fetchall()
            for (other,) in rest:  # they are packed relative to the one that is replaced
                found = self.load(int(other))
                if found is not None:
                    self._put(int(other), 0, 0, pack(found))
            base_id, depth = self._base(message_id)
            base = self.load(base_id) if base_id else None
            if base is None:
                self._put(message_id, 0, 0, pack(provenance))
            else:
                self._put(message_id, base_id, depth + 1, pack(provenance, base))

    def load(self, message_id: int) -> Provenance | None:
        """The provenance of a reply; None if none is stored or it is damaged."""
        chain: list[bytes] = []
        at = message_id
        while at and len(chain) <= _DEEPEST + 1:
            row = self._database.execute(
                "SELECT base_id, data FROM message_origins WHERE message_id = ?", (at,)
            ).fetchone()
            if row is None:
                return None
            at = int(row[0])
            chain.append(bytes(row[1]))
        found: Provenance | None = None
        for data in reversed(chain):
            found = unpack(data, found) if not at else None
            if found is None:
                return None
        return found

    def _base(self, message_id: int) -> tuple[int, int]:
        """The reply to pack against, and its depth; (0, 0) for none."""
        row = self._database.execute(
            """
            SELECT kept.message_id, kept.depth FROM messages AS own
            JOIN messages AS other ON other.conversation_id = own.conversation_id AND other.id < own.id
            JOIN message_origins AS kept ON kept.message_id = other.id
            WHERE own.id = ? ORDER BY other.id DESC LIMIT 1
            """,
            (message_id,),
        ).fetchone()
        return (int(row[0]), int(row[1])) if row is not None and row[1] < _DEEPEST else (0, 0)

    def _put(self, message_id: int, base_id: int, depth: int, data: bytes) -> None:
        self._database.execute(
            "INSERT OR REPLACE INTO message_origins VALUES (?, ?, ?, ?)", (message_id, base_id, depth, data)
        )
