"""Parts of a recovery: which ranges of a broken table are read, the report, and the state of the new file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from desktop.store.conversations.bulk_insert import conversation_ids
from desktop.store.conversations.stores import FIRST_TEMPORARY
from desktop.store.database.connecting import MEMORY
from desktop.store.database.database import Database, StoreError
from desktop.store.database.recovery import Recovery, _Reader, recover
from desktop.store.database.recovery_tables import content_tables, label


class Broken:
    """A connection to a table with the ids 1 to `last`, some of which cannot be read: reading stops there."""

    def __init__(self, last: int, bad: set[int]) -> None:
        self.last, self.bad, self.asked = last, bad, 0

    def execute(self, sql: str, values: tuple[int, int] = (0, 0)) -> Any:
        if "max(rowid)" in sql:
            return SimpleNamespace(fetchone=lambda: (self.last,))
        self.asked += 1
        return self._rows(range(max(values[0], 1), min(values[1], self.last) + 1), sql.endswith("DESC"))

    def _rows(self, ids: range, backwards: bool) -> Iterator[tuple[int]]:
        for number in reversed(ids) if backwards else ids:
            if number in self.bad:
                raise sqlite3.DatabaseError
            yield (number,)


@pytest.mark.parametrize(
    ("bad", "asked"),
    [
        (set(), 1), ({1}, 5), ({100}, 2), ({50}, 2), ({1, 100}, 9), ({50, 51}, 6), (set(range(20, 30)), 38),
        ({7, 30, 31, 80, 99}, 18),
        (set(range(1, 101)), 401),
    ],
)  # fmt: skip
def test_every_id_around_bad_ones_is_read_once(bad: set[int], asked: int) -> None:
    database = Database(MEMORY)
    table = next(table for table in content_tables(database) if table.name == "prompts")
    connection: Any = Broken(100, bad)
    reader = _Reader(connection, table, ["id"])
    found = [row[0] for row in reader.rows()]
    assert sorted(found) == sorted(set(range(1, 101)) - bad)
    assert reader.whole == (not bad)
    assert connection.asked == asked
    database.close()


def test_the_report() -> None:
    assert Recovery({}, ()).sentence == "Nothing could be recovered, so a new file was started."
    assert (Recovery({}, ()).conversations, Recovery({}, ()).messages, Recovery({}, ()).gaps) == (0, 0, False)
    assert Recovery({"conversations": 1, "messages": 1}, ()).sentence == (
        "Recovered 1 chat with 1 message. Nothing is missing."
    )
    assert Recovery({"conversations": 1000, "messages": 0}, ("draft_files", "some_table")).sentence == (
        "Recovered 1,000 chats with 0 messages. Content on damaged "
        "pages may be missing from: files attached to drafts, some table. An earlier backup may have it."
    )
    assert label("folders") == "folders"


def test_chats_with_the_number_of_no_chat_or_of_a_temporary_one_are_left_out(tmp_path: Path) -> None:
    """The next temporary chats would have the numbers of the others."""
    damaged = Database(tmp_path / "a.sqlite3")
    for number in (-1, 0, 1, FIRST_TEMPORARY - 1, FIRST_TEMPORARY):
        damaged.execute(
            "INSERT INTO conversations (id, title, created_at, updated_at) VALUES (?, 'A', 1, 1)", (number,)
        )
    damaged.close()
    database = Database(tmp_path / "b.sqlite3")
    assert recover(damaged.path, database).conversations == 2
    assert conversation_ids(database) == (1, FIRST_TEMPORARY - 1)
    database.close()


def test_foreign_keys_are_enforced_again_afterwards(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.sqlite3")
    (tmp_path / "b.sqlite3").write_bytes(b"\xa5" * 9000)
    recover(tmp_path / "b.sqlite3", database)
    assert database.execute("PRAGMA foreign_keys").fetchone() == (1,)
    database.execute("PRAGMA foreign_keys = OFF")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError) as reported:
        recover(tmp_path / "folder", database)
    assert str(reported.value).startswith(f"The file {tmp_path / 'folder'} cannot be read (")
    assert database.execute("PRAGMA foreign_keys").fetchone() == (1,)
    database.close()
