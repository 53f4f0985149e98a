"""Rows read straight from pages equal those that SQLite reads, for every page size, number and record; free
and damaged pages.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
import struct
from pathlib import Path
from typing import Any

import pytest

from desktop.store.database import page_reader
from desktop.store.database.page_reader import index_records, leaf_rows

NUMBERS = [
    0,
    1,
    2,
    -1,
    127,
    -128,
    128,
    32767,
    -32769,
    1 << 23,
    (1 << 31) - 1,
    1 << 31,
    -(1 << 40),
    (1 << 47) - 1,
    1 << 47,
    -(1 << 63),
]
ROWIDS = [1, 2, 127, 128, 16_383, 16_384, (1 << 56) - 1, 1 << 56, (1 << 63) - 1, -1, -(1 << 63)]
Rows = list[tuple[Any, ...]]


def build(path: Path, size: int, sizes: list[int]) -> sqlite3.Connection:
    """A table with rowids and one without, with values of all types, and texts and blobs of these `sizes`."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute(f"PRAGMA page_size = {size}")
    connection.execute("CREATE TABLE rows (a, b)")
    connection.execute("CREATE TABLE keyed (a PRIMARY KEY, b) WITHOUT ROWID")
    values: list[Any] = [
        *NUMBERS,
        None,
        1.5,
        -0.0,
        "",
        "ä",
        b"\0",
        *("x" * length for length in sizes),
        *(b"y" * length for length in sizes),
    ]
    connection.executemany(
        "INSERT INTO rows VALUES (?, ?)", [(value, place) for place, value in enumerate(values)]
    )
    connection.executemany(
        "INSERT OR REPLACE INTO rows (rowid, a, b) VALUES (?, 'far', ?)", [(each, each) for each in ROWIDS]
    )
    connection.executemany(
        "INSERT OR IGNORE INTO keyed VALUES (?, ?)", [(v, p) for p, v in enumerate(values) if v is not None]
    )
    return connection


def kinds(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """With types, because 1 == 1.0."""
    return tuple((type(value).__name__, value) for value in row)


def rows_of(path: Path) -> tuple[set[Any], set[Any]]:
    """What SQLite reads, as stored on the pages."""
    connection = sqlite3.connect(path)
    try:
        return (
            {(row[0], *kinds(row[1:])) for row in connection.execute("SELECT rowid, * FROM rows")},
            {kinds(row) for row in connection.execute("SELECT * FROM keyed")},
        )
    finally:
        connection.close()


def read(path: Path) -> tuple[Rows, Rows]:
    """What the pages contain, without the rows of the schema."""
    found = [(rowid, *kinds(values)) for rowid, values in leaf_rows(path) if len(values) == 2]
    return found, [kinds(values) for values in index_records(path)]


def lengths(size: int) -> list[int]:
    """Lengths around where a record no longer fits on its page, and around multiples of a page more."""
    around = [
        (size - 12) * 64 // 255 - 23,
        size - 35,
        *(size - 35 + (size - 4) * more for more in (1, 2) if size < 4096),
    ]
    return sorted({length + by for length in around for by in range(-9, 4)} | {size * 5})


@pytest.mark.parametrize("size", [512, 1024, 4096, 65_536])
def test_every_row_is_read_unchanged(tmp_path: Path, size: int) -> None:
    path = tmp_path / "a.sqlite3"
    build(path, size, lengths(size)).close()
    rows, records = read(path)
    expected = rows_of(path)
    assert len(rows) == len(expected[0])
    assert set(rows) == expected[0]
    assert len(records) == len(expected[1])  # those of inner pages, too
    assert set(records) == expected[1]
    # on the page with the file's header
    assert [values[1] for _, values in leaf_rows(path) if len(values) == 5] == ["rows", "keyed"]


def test_pages_with_reserved_space(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite3"
    connection = build(tmp_path / "b.sqlite3", 1024, lengths(992))
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()
    empty = sqlite3.connect(path, isolation_level=None)
    empty.execute("PRAGMA page_size = 1024")
    empty.execute("CREATE TABLE none (a)")
    empty.execute("DROP TABLE none")
    empty.execute("VACUUM")
    empty.close()
    data = bytearray(path.read_bytes())
    data[20] = 32
    data[105:107] = struct.pack(">H", 992)  # where the content of the schema's page begins
    path.write_bytes(data)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"ATTACH '{tmp_path / 'b.sqlite3'}' AS other")
    connection.execute("CREATE TABLE rows (a, b)")
    connection.execute("CREATE TABLE keyed (a PRIMARY KEY, b) WITHOUT ROWID")
    connection.execute("INSERT INTO rows (rowid, a, b) SELECT rowid, a, b FROM other.rows")
    connection.execute("INSERT INTO keyed SELECT * FROM other.keyed")
    connection.close()
    assert path.read_bytes()[20] == 32
    rows, records = read(path)
    assert (set(rows), set(records)) == rows_of(path)


def test_free_pages_are_not_read(tmp_path: Path) -> None:
    """A freelist of several trunks with many leaves each."""
    path = tmp_path / "a.sqlite3"
    connection = build(path, 512, [3])
    connection.execute("PRAGMA secure_delete = OFF")
    connection.executemany("INSERT INTO rows VALUES ('gone', ?)", [("g" * 300,) for _ in range(500)])
    connection.execute("DELETE FROM rows WHERE a = 'gone'")
    free = connection.execute("PRAGMA freelist_count").fetchone()[0]
    connection.close()
    assert free > 2 * (512 // 4)
    with path.open("rb") as file:
        assert len(page_reader._Pages(file, tmp_path / "none").free()) == free
    assert set(read(path)[0]) == rows_of(path)[0]
    data = bytearray(path.read_bytes())
    (trunk,) = struct.unpack_from(">I", data, 32)
    # a circle, the end of nowhere, more than a page has
    for following, leaves in ((trunk, 1), (1 << 31, 1), (trunk, (1 << 32) - 1)):
        struct.pack_into(">II", data, (trunk - 1) * 512, following, leaves)
        path.write_bytes(data)
        with path.open("rb") as file:
            assert trunk in page_reader._Pages(file, tmp_path / "none").free()
    assert set(read(path)[0]) >= rows_of(path)[0]


def test_the_log_counts_up_to_its_last_complete_transaction(tmp_path: Path) -> None:
    path, copy = tmp_path / "a.sqlite3", tmp_path / "b.sqlite3"
    connection = build(path, 1024, [2000])
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("UPDATE rows SET a = 'newer' WHERE b = 1")
    connection.execute("INSERT INTO rows VALUES (?, 'beyond the end of the file')", ("z" * 90_000,))
    expected = rows_of(path)[0]
    sizes = [
        (copy.with_name(f"{copy.name}{end}"), path.with_name(f"{path.name}{end}")) for end in ("", "-wal")
    ]
    for target, source in sizes:
        shutil.copyfile(source, target)
    connection.close()
    log = sizes[1][0]
    whole = log.read_bytes()
    found = [row for row in read(copy)[0] if row[1] != ("NoneType", None)]
    assert set(found) == {row for row in expected if row[1] != ("NoneType", None)}
    # not a log: as if there was none
    for damage in (whole[:20], b"\0" * 4 + whole[4:], b"", whole[:32], whole[:50]):
        log.write_bytes(damage)
        assert "newer" not in str(read(copy)[0])
    log.write_bytes(whole[:-1100])  # the end of the last transaction is missing
    assert "newer" in str(read(copy)[0])
    assert "beyond" not in str(read(copy)[0])
    other = bytearray(whole)
    other[32 + 2 * (24 + 1024) + 8] ^= 1  # a frame of the log before this one ends it
    log.write_bytes(other)
    assert "beyond" not in str(read(copy)[0])


@pytest.mark.parametrize("size", [0, 100, 511, 1000, 3000])
def test_an_invalid_page_size_is_replaced_by_the_default(tmp_path: Path, size: int) -> None:
    path = tmp_path / "a.sqlite3"
    build(path, 4096, [5000]).close()
    expected = rows_of(path)
    data = bytearray(path.read_bytes())
    struct.pack_into(">H", data, 16, size)
    path.write_bytes(data)
    rows, records = read(path)
    assert (set(rows), set(records)) == expected
    data[20] = 255  # nor can so much be reserved of a page of 512 bytes
    struct.pack_into(">H", data, 16, 512)
    path.write_bytes(data)
    with path.open("rb") as file:
        assert page_reader._Pages(file, tmp_path / "none").usable == 512


def test_invalid_records() -> None:
    assert page_reader.record_values(bytes([3, 1, 8, 5])) == (5, 0)
    assert page_reader.record_values(bytes([3, 9, 0])) == (1, None)
    assert page_reader.record_values(bytes([65, *([8] * 64)])) == (0,) * 64
    for payload in ([2, 10], [2, 11], [3, 1, 8], [2, 0x81, 0], [66, *([8] * 65)], [2, 14]):
        with pytest.raises((ValueError, IndexError)):
            page_reader.record_values(bytes(payload))


@pytest.mark.parametrize("seed", range(5))
def test_random_bytes_raise_nothing(tmp_path: Path, seed: int) -> None:
    path, draw = tmp_path / "a.sqlite3", random.Random(seed)
    build(path, 512, lengths(512)).close()
    data = bytearray(path.read_bytes())
    for _ in range(len(data) // 40):
        data[draw.randrange(len(data))] = draw.randrange(256)
    path.write_bytes(data)
    assert all(isinstance(rowid, int) for rowid, *_ in read(path)[0])
