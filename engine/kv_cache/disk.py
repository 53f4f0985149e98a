"""A file of cached pages: their entries and the raw bytes of their keys and values; and of the states of
recurrent layers that are kept with them.

The file is a safetensors file (format: https://huggingface.co/docs/safetensors, "Format") of n pages and m
states with ten tensors in this order: ids I32 (n, 256), lengths I32 (n), parents I32 (n), roots U8 (n, 16),
checks U32 (n), state_pages I32 (m), state_places I32 (m), state_checks U32 (m), pages U8 (n, bytes of a
page), states U8 (m, bytes of a state). The first four are the entries
(`engine.kv_cache.prefix_index.PageEntry`; length 0 is a lost one), the next three of states say with which
page each is kept and after how many of its tokens; checks are the CRC-32 of each page and state.
Metadata: format and version; identity, which says for what model and layout the bytes are good; and the
BLAKE2b digest of the first eight tensors. Damaged or foreign content is thus detected before it is used:
entries when the file is opened, each page when it is read, which is when a conversation needs it.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.core import PAGE_TOKENS
from engine.kv_cache.prefix_index import Kept, PageEntry
from engine.lazy_dataclass import dataclass
from engine.words import _

Bytes = npt.NDArray[np.uint8]

FORMAT, VERSION = "inglenook-cache", "2"
SUFFIX, PART_SUFFIX = ".safetensors", ".part"
_MAX_HEADER = 1 << 16
_ROOT = 16
_TABLES = {
    "ids": ("<i4", PAGE_TOKENS),
    "lengths": ("<i4", 0),
    "parents": ("<i4", 0),
    "roots": ("u1", _ROOT),
    "checks": ("<u4", 0),
    "state_pages": ("<i4", 0),
    "state_places": ("<i4", 0),
    "state_checks": ("<u4", 0),
}
_OF_STATES = "state_"
_TYPE_NAMES = {"<i4": "I32", "u1": "U8", "<u4": "U32"}


@dataclass(frozen=True, slots=True)
class SavedStates:
    """The states to write, each of `size` bytes: the number of its page in the file and its place there;
    `read` gives the bytes of one by its number in `places`.
    """

    size: int = 0
    places: Sequence[tuple[int, int]] = ()
    read: Callable[[int], Bytes] = lambda number: np.empty(0, np.uint8)


NO_SAVED_STATES = SavedStates()


class Unusable(ValueError):
    """The file cannot be used; the text says why, as the end of a sentence."""


def write_pages(
    path: Path,
    identity: str,
    kept: Sequence[Kept],
    page_bytes: int,
    read: Callable[[Kept], Bytes | None],
    before_replacing: Callable[[], None],
    states: SavedStates = NO_SAVED_STATES,
) -> None:
    """Write the pages, each `read` when its turn comes, into a new file that then replaces `path`.

    `before_replacing` closes the old file if it is open: Windows does not replace an open file. A page for
    which `read` returns None is marked as lost. Raises OSError, with `path` unchanged and no other file left.
    """
    tables, counts, sizes = _tables(kept, states), (len(kept), len(states.places)), (page_bytes, states.size)
    head = _header(counts, sizes, identity, "0" * 32)
    size = len(head) + sum(table.nbytes for table in tables.values())
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=PART_SUFFIX)
    try:
        with os.fdopen(handle, "wb") as file:
            file.seek(size)
            for number, page in enumerate(kept):
                content = read(page)
                if content is None or content.nbytes != page_bytes:
                    tables["lengths"][number] = 0
                    file.seek(page_bytes, os.SEEK_CUR)
                    continue
                tables["checks"][number] = zlib.crc32(content.data)
                file.write(content.data)
            for number in range(len(states.places)):
                content = states.read(number)
                tables["state_checks"][number] = zlib.crc32(content.data)
                file.write(content.data)
            # A last page that was lost left a hole.
            file.truncate(size + len(kept) * page_bytes + len(states.places) * states.size)
            file.seek(0)
            entries = b"".join(table.tobytes() for table in tables.values())
            file.write(_header(counts, sizes, identity, _digest(entries)) + entries)
        before_replacing()
        os.replace(name, path)  # no fsync: after a power cut the digests show what is missing
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


class PageFile:
    """An open file of pages; `entries` has None for each lost one. `states` are the number of its page and
    the place of each state.

    Raises OSError, and `Unusable` for a file that is damaged or was written for something else than
    `identity`.
    """

    def __init__(self, path: Path, identity: str, page_bytes: int, state_bytes: int = 0) -> None:
        self.page_bytes, self.state_bytes = page_bytes, state_bytes
        self._file = path.open("rb")
        try:
            parts, self._start = self._open(identity)
            self.entries, self._checks = _entries(parts), parts["checks"].tolist()
            self.states = list(
                zip(parts["state_pages"].tolist(), parts["state_places"].tolist(), strict=True)
            )
            self._state_checks = parts["state_checks"].tolist()
        except BaseException:
            self._file.close()
            raise

    def read(self, number: int) -> Bytes | None:
        """The bytes of a page; None if they cannot be read or differ from what was written."""
        return self._content(self._start + number * self.page_bytes, self.page_bytes, self._checks[number])

    def read_state(self, number: int) -> Bytes | None:
        """The same of a state."""
        first = self._start + len(self.entries) * self.page_bytes
        return self._content(first + number * self.state_bytes, self.state_bytes, self._state_checks[number])

    def _content(self, start: int, size: int, check: int) -> Bytes | None:
        content = np.empty(size, np.uint8)
        try:
            self._file.seek(start)
            whole = self._file.readinto(content.data) == size
        except (OSError, ValueError):  # closed, or the disk is gone
            return None
        return content if whole and zlib.crc32(content.data) == check else None

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _open(self, identity: str) -> tuple[dict[str, npt.NDArray[Any]], int]:
        head = self._file.read(8)
        length = int.from_bytes(head, "little")
        if len(head) < 8 or length > _MAX_HEADER:
            raise Unusable(_("it is not a file of cached pages"))
        head += self._file.read(length)
        try:
            fields = json.loads(head[8:])
            about = fields["__metadata__"]
            counts = fields["lengths"]["shape"][0], fields["state_pages"]["shape"][0]
            known = (about["format"], about["version"]) == (FORMAT, VERSION)
            digest = about["tables"]
        except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            raise Unusable(_("it is not a file of cached pages")) from error
        if not known or about.get("identity") != identity:
            raise Unusable(_("it was written for another model, cache type or version"))
        size = os.fstat(self._file.fileno()).st_size
        sizes = self.page_bytes, self.state_bytes
        if (
            any(type(count) is not int or not 0 <= count <= size for count in counts)
            or _header(counts, sizes, identity, str(digest)) != head
        ):
            raise Unusable(_("its header is damaged"))
        entries = self._file.read(sum(_shape_bytes(name, counts) for name in _TABLES))
        content = sum(count * each for count, each in zip(counts, sizes, strict=True))
        if _digest(entries) != digest or size != len(head) + len(entries) + content:
            raise Unusable(_("it is damaged"))
        return _parts(entries, counts), len(head) + len(entries)


def _tables(kept: Sequence[Kept], states: SavedStates) -> dict[str, npt.NDArray[Any]]:
    counts = len(kept), len(states.places)
    tables = {
        name: np.zeros((_count(name, counts), width) if width else _count(name, counts), dtype)
        for name, (dtype, width) in _TABLES.items()
    }
    for number, (page, place) in enumerate(states.places):
        tables["state_pages"][number], tables["state_places"][number] = page, place
    for number, entry in enumerate(page.entry for page in kept):
        tables["ids"][number, : len(entry.ids)] = entry.ids
        tables["lengths"][number] = len(entry.ids)
        tables["parents"][number] = entry.parent
        tables["roots"][number] = np.frombuffer(entry.root.ljust(_ROOT, b"\0"), np.uint8)
    return tables


def _count(name: str, counts: tuple[int, int]) -> int:
    """Rows of a table, of `counts` pages and states."""
    return counts[name.startswith(_OF_STATES)]


def _parts(tables: bytes, counts: tuple[int, int]) -> dict[str, npt.NDArray[Any]]:
    parts, at = dict[str, npt.NDArray[Any]](), 0
    for name, (dtype, width) in _TABLES.items():
        count = _count(name, counts)
        part = np.frombuffer(tables, dtype, count * (width or 1), at)
        parts[name] = part.reshape(count, width) if width else part
        at += _shape_bytes(name, counts)
    return parts


def _entries(parts: dict[str, npt.NDArray[Any]]) -> list[PageEntry | None]:
    lengths, parents = parts["lengths"].tolist(), parts["parents"].tolist()
    return [
        PageEntry(tuple(ids[:length]), parent, b"" if parent >= 0 else root.tobytes()) if length else None
        for ids, length, parent, root in zip(
            parts["ids"].tolist(), lengths, parents, parts["roots"], strict=True
        )
    ]


def _shape_bytes(name: str, counts: tuple[int, int]) -> int:
    dtype, width = _TABLES[name]
    return _count(name, counts) * (width or 1) * np.dtype(dtype).itemsize


def _header(counts: tuple[int, int], sizes: tuple[int, int], identity: str, digest: str) -> bytes:
    """The head of the file: its length as 8 bytes and JSON, padded with spaces to a multiple of 8."""
    fields: dict[str, object] = {
        "__metadata__": {"format": FORMAT, "version": VERSION, "identity": identity, "tables": digest}
    }
    at = 0
    for name, (dtype, width) in _TABLES.items():
        end, count = at + _shape_bytes(name, counts), _count(name, counts)
        fields[name] = {
            "dtype": _TYPE_NAMES[dtype],
            "shape": [count, width] if width else [count],
            "data_offsets": [at, end],
        }
        at = end
    for name, count, size in zip(("pages", "states"), counts, sizes, strict=True):
        end = at + count * size
        fields[name] = {"dtype": "U8", "shape": [count, size], "data_offsets": [at, end]}
        at = end
    text = json.dumps(fields, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _digest(entries: bytes) -> str:
    return hashlib.blake2b(entries, digest_size=16).hexdigest()
