"""Reads rows straight from the pages of a database with broken b-trees: a leaf page describes its own rows.

Layout: https://www.sqlite.org/fileformat2.html (sections 1.3 header, 1.5 freelist, 1.6 b-tree pages, 2.1
records) and section 4 (write-ahead log). No number in the file is trusted: whatever does not fit is skipped.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["Value", "index_records", "leaf_rows", "record_values"]

Value = int | float | str | bytes | None
_LEAF = 0x0D
_INDEX_INTERIOR, _INDEX_LEAF = 0x02, 0x0A
_DEFAULT_PAGE = 4096
_MAGIC = b"SQLite format 3\0"
_WAL_MAGIC = (0x377F0682, 0x377F0683)
_SIZES = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)
"""Bytes of the serial types 0 to 9."""
_MOST_COLUMNS = 64
_NO_CELL = (IndexError, struct.error, ValueError)
"""What reading raises if there is no valid cell."""


def leaf_rows(path: Path) -> Iterator[tuple[int, tuple[Value, ...]]]:
    """Every row on any leaf page: its rowid and its values as stored (an alias of the rowid is None).

    Pages on the freelist, which hold deleted rows, are skipped as far as that list can be read. UTF-8 only.
    Raises OSError if the file cannot be read.
    """
    with path.open("rb") as file:
        pages = _Pages(file, path.with_name(path.name + "-wal"))
        for page, start, _ in pages.of_kind(_LEAF):
            for at in _cells(page, start, 8):
                with contextlib.suppress(*_NO_CELL):
                    length, at = _varint(page, at)
                    rowid, at = _varint(page, at)
                    payload = _payload(pages, page, at, length, pages.usable - 35)
                    if payload is not None:
                        yield _signed(rowid), record_values(payload)


def index_records(path: Path) -> Iterator[tuple[Value, ...]]:
    """Every record on the pages of indexes and of WITHOUT ROWID tables, which are stored alike. Like
    `leaf_rows`.
    """
    with path.open("rb") as file:
        pages = _Pages(file, path.with_name(path.name + "-wal"))
        for page, start, kind in pages.of_kind(_INDEX_LEAF, _INDEX_INTERIOR):
            inner = kind == _INDEX_INTERIOR  # its cells begin with a page number
            for at in _cells(page, start, 12 if inner else 8):
                with contextlib.suppress(*_NO_CELL):
                    length, at = _varint(page, at + 4 * inner)
                    payload = _payload(pages, page, at, length, (pages.usable - 12) * 64 // 255 - 23)
                    if payload is not None:
                        yield record_values(payload)


class _Pages:
    """The latest state of each page: from the write-ahead log up to its last complete transaction, else the
    file.
    """

    def __init__(self, file: BinaryIO, wal: Path) -> None:
        self._file = file
        header = file.read(100)
        size, reserved = (
            (struct.unpack_from(">H", header, 16)[0], header[20]) if header.startswith(_MAGIC) else (0, 0)
        )
        size = 65_536 if size == 1 else size
        self.size = size if 512 <= size <= 65_536 and not size & (size - 1) else _DEFAULT_PAGE
        self.usable = self.size - reserved if self.size - reserved >= 480 else self.size
        self._newer = _log(wal, self.size)
        self._wal = wal
        self.count = max([file.seek(0, 2) // self.size, *self._newer])

    def read(self, number: int) -> bytes:
        """One page, numbered from 1; empty if there is none."""
        if number in self._newer:
            with self._wal.open("rb") as log:
                log.seek(self._newer[number])
                return log.read(self.size)
        if not 1 <= number <= self.count:
            return b""
        self._file.seek((number - 1) * self.size)
        return self._file.read(self.size)

    def of_kind(self, *kinds: int) -> Iterator[tuple[bytes, int, int]]:
        """The complete pages of these kinds that are in use: (bytes, offset of the header, kind)."""
        free = self.free()
        for number in range(1, self.count + 1):
            page = self.read(number)
            start = 100 if number == 1 else 0
            if number not in free and len(page) == self.size and page[start] in kinds:
                yield page, start, page[start]

    def free(self) -> frozenset[int]:
        """The pages on the freelist."""
        first = self.read(1)
        found: set[int] = set()
        trunk = struct.unpack_from(">I", first, 32)[0] if first.startswith(_MAGIC) else 0
        while 1 <= trunk <= self.count and trunk not in found:
            found.add(trunk)
            page = self.read(trunk)
            if len(page) < self.size:
                break
            trunk, leaves = struct.unpack_from(">II", page)
            found.update(struct.unpack_from(f">{min(leaves, self.size // 4 - 2)}I", page, 8))
        return frozenset(found)


def _log(wal: Path, size: int) -> dict[int, int]:
    """The offset in the write-ahead log of the latest committed state of each page."""
    newest: dict[int, int] = {}
    pending: dict[int, int] = {}
    try:
        with wal.open("rb") as file:
            header = file.read(32)
            if len(header) < 32 or struct.unpack_from(">I", header)[0] not in _WAL_MAGIC:
                return {}
            place = 32
            while len(frame := file.read(24)) == 24 and frame[8:16] == header[16:24]:
                number, committed = struct.unpack_from(">II", frame)
                pending[number] = place + 24
                if committed:
                    newest.update(pending)
                    pending.clear()
                place += 24 + size
                file.seek(place)
    except OSError:
        return newest
    return newest


def _cells(page: bytes, start: int, header: int) -> Iterator[int]:
    """The offsets of the cells on a page."""
    (cells,) = struct.unpack_from(">H", page, start + 3)
    for place in range(start + header, min(start + header + 2 * cells, len(page) - 1), 2):
        yield struct.unpack_from(">H", page, place)[0]


def _payload(pages: _Pages, page: bytes, at: int, length: int, most: int) -> bytes | None:
    """The bytes of a record, of which a page holds up to `most`, with its overflow pages; None if one is
    missing.
    """
    usable = pages.usable
    if length <= most:
        return page[at : at + length] if at + length <= len(page) else None
    if length > pages.count * pages.size:
        return None
    least = (usable - 12) * 32 // 255 - 23
    local = least + (length - least) % (usable - 4)
    local = local if local <= most else least
    parts = [page[at : at + local]]
    (following,) = struct.unpack_from(">I", page, at + local)
    left = length - local
    while left > 0:
        overflow = pages.read(following)
        if len(overflow) < usable:
            return None
        (following,) = struct.unpack_from(">I", overflow)
        parts.append(overflow[4 : 4 + min(left, usable - 4)])
        left -= usable - 4
    return b"".join(parts)


def record_values(payload: bytes) -> tuple[Value, ...]:
    size, at = _varint(payload, 0)
    kinds: list[int] = []
    while at < size:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    if at != size or len(kinds) > _MOST_COLUMNS:
        raise ValueError("no record")
    values: list[Value] = []
    for kind in kinds:
        length = _SIZES[kind] if kind < 10 else (kind - 12) // 2
        data = payload[at : at + length]
        if len(data) != length or kind in (10, 11):
            raise ValueError("a value ends too early")
        values.append(_value(kind, data))
        at += length
    return tuple(values)


def _value(kind: int, data: bytes) -> Value:
    if kind == 0:
        return None
    if kind in (8, 9):
        return kind - 8
    if kind == 7:
        return float(struct.unpack(">d", data)[0])
    if kind < 7:
        return int.from_bytes(data, "big", signed=True)
    return data if kind % 2 == 0 else data.decode()


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A big-endian number of 7 bits a byte, 8 in the ninth, and the offset after it."""
    value = 0
    for place in range(at, at + 8):
        value = value << 7 | data[place] & 0x7F
        if data[place] < 0x80:
            return value, place + 1
    return value << 8 | data[at + 8], at + 9


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
