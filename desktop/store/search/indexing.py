"""Adds the messages of an older file to the word index, newest first, and removes the old index, in short
steps.

Nobody waits for it: the search reads what is not indexed yet (`search.scan`), and triggers index new
messages.
"""

from __future__ import annotations

from typing import NamedTuple

from desktop.store.database.database import Database

__all__ = ["Progress", "index_step"]

STEP_CHARACTERS = 150_000
"""Text indexed in one step: about 20 ms."""
STEP_PAGES = 400
"""Rows of the old index removed in one step, about one page each."""
MERGED_CHARACTERS = 2000
"""FTS5 merges one page of its index for every this many characters.

Left alone it merges now and then, for 20 to 30 ms.
"""
AUTOMERGE = 4
"""SQLite's own value, used for new messages:
https://www.sqlite.org/fts5.html#the_automerge_configuration_option
"""
_OLD = "message_search"


class Progress(NamedTuple):
    """`left` is the most messages that are not indexed yet; `done` when there is nothing left to do."""

    left: int
    done: bool


def index_step(database: Database, characters: int = STEP_CHARACTERS) -> Progress:
    """Do the next step in one transaction. A step that was interrupted is repeated by the next call."""
    low = int(database.execute("SELECT low FROM search_state").fetchone()[0])
    if low > 0:
        with database.transaction():
            low = _index(database, characters)
        return Progress(low, False)
    if database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (f"{_OLD}_data",)).fetchone() is None:
        return Progress(0, True)
    with database.transaction():
        done = _remove(database)
    return Progress(0, done)


def _index(database: Database, characters: int) -> int:
    (low,) = database.execute("SELECT low FROM search_state").fetchone()
    batch: list[tuple[int, str]] = []
    size = 0
    number = 0
    holes: set[int] = set()
    rows = database.execute(
        "SELECT id, text, state, conversation_id, deleted FROM messages WHERE id < ? ORDER BY id DESC", (low,)
    )
    for number, text, state, conversation, deleted in rows:
        if deleted:
            holes.add(int(conversation))
        if state != "running":
            batch.append((number, text))
        size += len(text) + 200
        if size > characters:
            break
    else:
        number = 0
    _run_index_command(database, "automerge", 0)
    for message_id, text in reversed(batch):  # FTS5 collects ascending ids in memory
        database.execute(
            "INSERT INTO message_words (rowid, text) VALUES (?, search_tokens(?))", (message_id, text)
        )
    database.execute("SAVEPOINT written")  # which makes it write them
    _run_index_command(database, "merge", 1 + characters // MERGED_CHARACTERS)
    _run_index_command(database, "automerge", AUTOMERGE)
    database.execute("RELEASE written")
    for conversation in holes:
        database.execute("UPDATE conversations SET holes = 1 WHERE id = ?", (conversation,))
    database.execute("UPDATE search_state SET low = ?", (number,))
    return int(number)


def _run_index_command(database: Database, command: str, value: int) -> None:
    database.execute("INSERT INTO message_words (message_words, rank) VALUES (?, ?)", (command, value))


def _remove(database: Database) -> bool:
    """Delete some pages of the trigram index, then its tables: dropping it at once writes all its pages."""
    sql = f"DELETE FROM {_OLD}_data WHERE id IN (SELECT id FROM {_OLD}_data LIMIT {STEP_PAGES})"
    if database.execute(sql).rowcount > 0:
        return False
    for table in ("idx", "docsize", "config", "data"):
        database.execute(f"DROP TABLE IF EXISTS {_OLD}_{table}")
    return True
