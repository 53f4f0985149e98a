"""Drafts: for each conversation the unsent text, the beginning of the reply and the files of the composer.

They survive the end of the program.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from desktop.store.attachments.message_format import Attachment
from desktop.store.attachments.picture_marks import marks
from desktop.store.database.database import Database

__all__ = ["LONGEST_DRAFT", "MOST_FILES", "DraftStore"]

LONGEST_DRAFT = 4 << 20
"""Characters of a draft that are kept, pasted text included: far more than a model reads."""
MOST_FILES = 8 << 20
"""Characters kept of all files of a draft."""


class DraftStore:
    """Reads and writes drafts: one small write, meant for half a second after the last keystroke.

    Methods raise `StoreError`.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, conversation_id: int) -> str:
        """The unsent text; empty for none."""
        row = self._database.execute(
            "SELECT text FROM drafts WHERE conversation_id = ?", (conversation_id,)
        ).fetchone()
        return str(row[0]) if row else ""

    def opening(self, conversation_id: int) -> str:
        """How the reply should begin; empty for no preference."""
        row = self._database.execute(
            "SELECT opening FROM drafts WHERE conversation_id = ?", (conversation_id,)
        ).fetchone()
        return str(row[0]) if row else ""

    def put(self, conversation_id: int, text: str, opening: str = "") -> None:
        """Save both, or delete the draft if both are blank. The conversation keeps its place in the list; one
        that does not exist any more gets no draft.
        """
        if not text.strip() and not opening.strip():
            self._database.execute("DELETE FROM drafts WHERE conversation_id = ?", (conversation_id,))
            return
        self._database.execute(
            "INSERT INTO drafts (conversation_id, text, updated_at, opening) SELECT id, ?2, ?3, ?4 FROM "
            "conversations WHERE id = ?1 ON CONFLICT (conversation_id) DO UPDATE SET text = excluded.text, "
            "updated_at = excluded.updated_at, opening = excluded.opening",
            (conversation_id, text[:LONGEST_DRAFT], time.time(), opening[:LONGEST_DRAFT]),
        )

    def files(self, conversation_id: int) -> tuple[Attachment, ...]:
        query = "SELECT name, text, note, picture FROM draft_files WHERE conversation_id = ? ORDER BY place"
        return tuple(
            Attachment(name, text, note, next(iter(marks(picture)), None))
            for name, text, note, picture in self._database.execute(query, (conversation_id,))
        )

    def put_files(self, conversation_id: int, files: Sequence[Attachment]) -> tuple[str, ...]:
        """Replace the files, up to `MOST_FILES` characters; returns the names of those that do not fit. A
        conversation that does not exist any more gets none.
        """
        room, kept, left_out = MOST_FILES, [], []
        for place, file in enumerate(files):
            if len(file.text) > room:
                left_out.append(file.name)
                continue
            room -= len(file.text)
            picture = file.picture.text if file.picture is not None else ""
            kept.append((conversation_id, place, file.name, file.text, file.note, picture))
        with self._database.transaction():
            self._database.execute("DELETE FROM draft_files WHERE conversation_id = ?", (conversation_id,))
            for row in kept:
                self._database.execute(
                    "INSERT INTO draft_files SELECT id, ?2, ?3, ?4, ?5, ?6 FROM conversations WHERE id = ?1",
                    row,
                )
        return tuple(left_out)

    def conversations_with_files(self) -> frozenset[int]:
        return frozenset(
            int(row[0]) for row in self._database.execute("SELECT DISTINCT conversation_id FROM draft_files")
        )

    def conversations(self) -> frozenset[int]:
        """The conversations that have a draft, for a mark in the sidebar."""
        return frozenset(int(row[0]) for row in self._database.execute("SELECT conversation_id FROM drafts"))
