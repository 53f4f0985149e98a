"""Opens the conversations, recovering what can be read of a damaged file."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from desktop.store.database.connecting import Migration
from desktop.store.database.data_folder import set_aside
from desktop.store.database.database import Database
from desktop.store.database.errors import Damaged, StoreError
from desktop.store.database.integrity_marker import check_done, was_emptied
from desktop.store.database.migrations import MIGRATIONS
from engine.words import _

__all__ = ["open_conversations"]

log = logging.getLogger(__name__)


def open_conversations(path: Path, migrations: Sequence[Migration] = MIGRATIONS) -> Database:
    """The database at `path`. A damaged file is set aside, and what can be read goes into a new one.

    A file that had chats and is now empty is used again. `notices` of the result tell the user about either
    case, and `set_aside` is the path of the damaged file. Raises `StoreError` if the file was written by
    a newer version or cannot be opened at all.
    """
    emptied = was_emptied(path)
    try:
        database = Database(path, migrations)
        if emptied:
            log.error("the database %s was empty", path)
            database.notices = (_emptied(),)
        return database
    except Damaged as damage:
        damaged = set_aside(path)
        log.error("the damaged database %s was set aside as %s: %s", path, damaged, damage)
    database = Database(path, migrations)
    database.set_aside, database.notices = damaged, (_recover(damaged, database),)
    check_done(path)
    return database


def _emptied() -> str:
    return _(
        "The file with your chats was empty, as a power failure can leave it, so a new one was started. "
        "Choose “{command}” in the File menu to get back the chats of a backup.",
        command=_("Restore from a backup"),
    )


def _recover(damaged: Path, database: Database) -> str:
    """Fill the new `database` from the damaged file; returns a sentence for the user."""
    from desktop.store.database.recovery import recover  # hardly any start needs it

    kept = _(
        "The file with your chats was damaged; it is kept as {damaged} in {parent}",
        damaged=damaged.name,
        parent=damaged.parent,
    )
    try:
        return f"{kept}. {recover(damaged, database).sentence}"
    except StoreError as error:
        log.error("nothing was recovered from %s: %s", damaged, error)
        return _(
            "{kept}, and a new one was started, because nothing could be read from it ({error})",
            kept=kept,
            error=error,
        )
