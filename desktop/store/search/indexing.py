"""Brings messages of an older file into the index of words, newest first, and removes the index of before: in
short steps.

Nobody has to wait for it: the search reads what is not indexed yet (`search.scan`), and new messages are
indexed by triggers.
"""

from __future__ import annotations

from dataclasses import dataclass

from desktop.store.database.database import Database

__all__ = ["Progress", "index_step"]

STEP_CHARACTERS = 150_000
"""Text indexed in one step: some 20 ms."""
STEP_PAGES = 400
"""Rows of the old index removed in one step, about one page each."""
MERGED_CHARACTERS = 2000
"""For each so many FTS5 merges a page of its index at once.

Left to itself it does that now and then, for 20 to 30 ms.
"""
AUTOMERGE = 4
"""SQLite's own value, which holds for new messages:
https://www.sqlite.org/fts5.html#the_automerge_configuration_option
"""
_OLD = "message_search"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is: `left` messages at most are not in the index; `done` when there is nothing more to
    do.
    """

    left: int
    done: bool


def index_step(database: Database, characters: int = STEP_CHARACTERS) -> Progress:
    """Do the next step, in one transaction. A step that died, or was never made, is made by the next call."""
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
    _tell_index(database, "automerge", 0)
    for message_id, text in reversed(batch):  # FTS5 gathers ascending ids in memory and writes them once
        database.execute(
            "INSERT INTO message_words (rowid, text) VALUES (?, search_tokens(?))", (message_id, text)
        )
    database.execute("SAVEPOINT written")  # here it writes them
    _tell_index(database, "merge", 1 + characters // MERGED_CHARACTERS)
    _tell_index(database, "automerge", AUTOMERGE)
    database.execute("RELEASE written")
    for conversation in holes:
        database.execute("UPDATE conversations SET holes = 1 WHERE id = ?", (conversation,))
    database.execute("UPDATE search_state SET low = ?", (number,))
    return int(number)


def _tell_index(database: Database, command: str, value: int) -> None:
    database.execute("INSERT INTO message_words (message_words, rank) VALUES (?, ?)", (command, value))


def _remove(database: Database) -> bool:
    """Some pages of the trigram index, then its tables: dropping it whole would write all its pages at
    once.
    """
    sql = f"DELETE FROM {_OLD}_data WHERE id IN (SELECT id FROM {_OLD}_data LIMIT {STEP_PAGES})"
    if database.execute(sql).rowcount > 0:
        return False
    for table in ("idx", "docsize", "config", "data"):
        database.execute(f"DROP TABLE IF EXISTS {_OLD}_{table}")
    return True
