"""The pictures of messages in the database: each once, whichever messages, drafts and queued messages have
it, and gone with the last of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from desktop.store.database.database import Database

__all__ = ["MOST_STORED", "PictureStore", "StoredPicture", "key_of"]

MOST_STORED = 4 << 30
"""Bytes of all pictures, above which no more can be attached."""
_UNUSED = (
    "NOT EXISTS (SELECT 1 FROM message_pictures WHERE message_pictures.key = pictures.key) "
    "AND NOT EXISTS (SELECT 1 FROM draft_files WHERE instr(draft_files.picture, pictures.key)) "
    "AND NOT EXISTS (SELECT 1 FROM queued_messages WHERE instr(queued_messages.text, pictures.key))"
)


class StoredPicture(NamedTuple):
    """A picture file: `data` is of `media_type`, PNG or JPEG, which every server with pictures takes; `width`
    by `height` in pixels.
    """

    media_type: str
    width: int
    height: int
    data: bytes


def key_of(data: bytes) -> str:
    """What names a picture in the store: 32 hexadecimal digits that equal pictures share."""
    return hashlib.sha256(data).hexdigest()[:32]


class PictureStore:
    """Reads and writes pictures. Methods raise `StoreError`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, picture: StoredPicture) -> str:
        """Save a picture, unless it is there; returns its key. It stays until the next `sweep` without a
        message, a draft or a queued message that has it.
        """
        key = key_of(picture.data)
        if self._database.execute("SELECT 1 FROM pictures WHERE key = ?", (key,)).fetchone():
            return key
        self._database.execute(
            "INSERT OR IGNORE INTO pictures (key, media_type, width, height, data) VALUES (?, ?, ?, ?, ?)",
            (key, picture.media_type, picture.width, picture.height, picture.data),
        )
        return key

    def get(self, key: str) -> StoredPicture | None:
        """The picture; None if it is not there."""
        row = self._database.execute(
            "SELECT media_type, width, height, data FROM pictures WHERE key = ?", (key,)
        ).fetchone()
        return StoredPicture(str(row[0]), int(row[1]), int(row[2]), bytes(row[3])) if row else None

    def total(self) -> int:
        """Bytes of all pictures."""
        row = self._database.execute("SELECT coalesce(sum(length(data)), 0) FROM pictures").fetchone()
        return int(row[0])

    def copy_to(self, other: Database, keys: Iterable[str]) -> None:
        """Save these pictures in another database, too."""
        target = PictureStore(other)
        for key in keys:
            picture = self.get(key)
            if picture is not None:
                target.put(picture)

    def sweep(self) -> int:
        """Delete the pictures that nothing has any more; returns their number. Not during an import, nor
        while attached files are not saved yet.
        """
        return self._database.execute(f"DELETE FROM pictures WHERE {_UNUSED}").rowcount
