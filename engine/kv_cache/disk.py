"""A file of cached pages: their entries and the raw bytes of their keys and values.

The file is a safetensors file (format: https://huggingface.co/docs/safetensors, "Format") of n pages with six
tensors in this order: ids I32 (n, 256), lengths I32 (n), parents I32 (n), roots U8 (n, 16), checks U32 (n),
pages U8 (n, bytes of a page). The first four are the entries (`engine.kv_cache.prefix_index.PageEntry`;
length 0 is a lost one), checks are the CRC-32 of each page.
Metadata: format and version; identity, which says for what model and layout the bytes are good; and the
BLAKE2b digest of the first five tensors. Damaged or foreign content is thus detected before it is used:
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

Bytes = npt.NDArray[np.uint8]

FORMAT, VERSION = "inglenook-cache", "1"
SUFFIX, PART_SUFFIX = ".safetensors", ".part"
_MAX_HEADER = 1 << 16
_ROOT = 16
_TABLES = {
    "ids": ("<i4", PAGE_TOKENS),
    "lengths": ("<i4", 0),
    "parents": ("<i4", 0),
    "roots": ("u1", _ROOT),
    "checks": ("<u4", 0),
}
_TYPE_NAMES = {"<i4": "I32", "u1": "U8", "<u4": "U32"}


class Unusable(ValueError):
    """The file cannot be used; the text says why, as the end of a sentence."""


def write_pages(
    path: Path,
    identity: str,
    kept: Sequence[Kept],
    page_bytes: int,
    read: Callable[[Kept], Bytes | None],
    before_replacing: Callable[[], None],
) -> None:
    """Write the pages, each `read` when its turn comes, into a new file that then replaces `path`.

    `before_replacing` closes the old file if it is open: Windows does not replace an open file. A page for
    which `read` returns None is marked as lost. Raises OSError, with `path` unchanged and no other file left.
    """
    tables = _tables(kept)
    head = _header(len(kept), page_bytes, identity, "0" * 32)
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
            file.truncate(size + len(kept) * page_bytes)  # a last page that was lost left a hole
            file.seek(0)
            entries = b"".join(table.tobytes() for table in tables.values())
            file.write(_header(len(kept), page_bytes, identity, _digest(entries)) + entries)
        before_replacing()
        os.replace(name, path)  # no fsync: after a power cut the digests show what is missing
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


class PageFile:
    """An open file of pages; `entries` has None for each lost one.

    Raises OSError, and `Unusable` for a file that is damaged or was written for something else than
    `identity`.
    """

    def __init__(self, path: Path, identity: str, page_bytes: int) -> None:
        self.page_bytes = page_bytes
        self._file = path.open("rb")
        try:
            self.entries, self._checks, self._start = self._open(identity)
        except BaseException:
            self._file.close()
            raise

    def read(self, number: int) -> Bytes | None:
        """The bytes of a page; None if they cannot be read or differ from what was written."""
        content = np.empty(self.page_bytes, np.uint8)
        try:
            self._file.seek(self._start + number * self.page_bytes)
            whole = self._file.readinto(content.data) == self.page_bytes
        except (OSError, ValueError):  # closed, or the disk is gone
            return None
        return content if whole and zlib.crc32(content.data) == self._checks[number] else None

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _open(self, identity: str) -> tuple[list[PageEntry | None], list[int], int]:
        head = self._file.read(8)
        length = int.from_bytes(head, "little")
        if len(head) < 8 or length > _MAX_HEADER:
            raise Unusable("it is no file of cached pages")
        head += self._file.read(length)
        try:
            fields = json.loads(head[8:])
            about, count = fields["__metadata__"], fields["lengths"]["shape"][0]
            known = (about["format"], about["version"]) == (FORMAT, VERSION)
            digest = about["tables"]
        except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            raise Unusable("it is no file of cached pages") from error
        if not known or about.get("identity") != identity:
            raise Unusable("it was written for another model, cache type or version")
        size = os.fstat(self._file.fileno()).st_size
        if (
            type(count) is not int
            or not 0 <= count <= size
            or _header(count, self.page_bytes, identity, str(digest)) != head
        ):
            raise Unusable("its header is damaged")
        entries = self._file.read(sum(_shape_bytes(name, count) for name in _TABLES))
        if _digest(entries) != digest or size != len(head) + len(entries) + count * self.page_bytes:
            raise Unusable("it is damaged")
        return *_entries(entries, count), len(head) + len(entries)


def _tables(kept: Sequence[Kept]) -> dict[str, npt.NDArray[Any]]:
    tables = {
        name: np.zeros((len(kept), width) if width else len(kept), dtype)
        for name, (dtype, width) in _TABLES.items()
    }
    for number, entry in enumerate(page.entry for page in kept):
        tables["ids"][number, : len(entry.ids)] = entry.ids
        tables["lengths"][number] = len(entry.ids)
        tables["parents"][number] = entry.parent
        tables["roots"][number] = np.frombuffer(entry.root.ljust(_ROOT, b"\0"), np.uint8)
    return tables


def _entries(tables: bytes, count: int) -> tuple[list[PageEntry | None], list[int]]:
    parts, at = dict[str, npt.NDArray[Any]](), 0
    for name, (dtype, width) in _TABLES.items():
        part = np.frombuffer(tables, dtype, count * (width or 1), at)
        parts[name] = part.reshape(count, width) if width else part
        at += _shape_bytes(name, count)
    lengths, parents = parts["lengths"].tolist(), parts["parents"].tolist()
    entries: list[PageEntry | None] = [
        PageEntry(tuple(ids[:length]), parent, b"" if parent >= 0 else root.tobytes()) if length else None
        for ids, length, parent, root in zip(
            parts["ids"].tolist(), lengths, parents, parts["roots"], strict=True
        )
    ]
    return entries, parts["checks"].tolist()


def _shape_bytes(name: str, count: int) -> int:
    dtype, width = _TABLES[name]
    return count * (width or 1) * np.dtype(dtype).itemsize


def _header(count: int, page_bytes: int, identity: str, digest: str) -> bytes:
    """The head of the file: its length as 8 bytes and JSON, padded with spaces to a multiple of 8."""
    fields: dict[str, object] = {
        "__metadata__": {"format": FORMAT, "version": VERSION, "identity": identity, "tables": digest}
    }
    at = 0
    for name, (dtype, width) in _TABLES.items():
        end = at + _shape_bytes(name, count)
        fields[name] = {
            "dtype": _TYPE_NAMES[dtype],
            "shape": [count, width] if width else [count],
            "data_offsets": [at, end],
        }
        at = end
    fields["pages"] = {
        "dtype": "U8",
        "shape": [count, page_bytes],
        "data_offsets": [at, at + count * page_bytes],
    }
    text = json.dumps(fields, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _digest(entries: bytes) -> str:
    return hashlib.blake2b(entries, digest_size=16).hexdigest()
