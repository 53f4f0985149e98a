"""The files at a chosen path: the file itself, the members of a zip archive, or the files of a folder whose
names end as those of chats. Names do not matter otherwise, only content.

The directory of an archive is read once, however many members it has, and what is unpacked to disk is
bounded.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import unquote

from desktop.store.transfer.importers.protocol import Unreadable
from engine.lazy_dataclass import dataclass
from engine.platform.regular_file import regular_file
from engine.printable import one_line
from engine.units import size_text
from engine.words import _

__all__ = [
    "ARCHIVES", "ENDINGS", "TROUBLE", "UTF_16", "Assets", "SourceFile", "after", "as_utf_8", "chat_files",
    "directory_size", "on_disk", "opened", "source_files",
]  # fmt: skip

ENDINGS = (
    ".json", ".jsonl", ".ndjson", ".csv", ".md", ".html", ".htm", ".zip", ".charx", ".chat", ".db", ".sqlite",
    ".sqlite3",
)  # fmt: skip
"""Extensions of files that may have chats in them; every archive is taken for an export of chats."""

ARCHIVES = (".zip", ".charx")

TROUBLE = (OSError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError)
"""What reading a damaged, encrypted or unknown kind of archive raises: zipfile's errors have no common base.
"""

UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""How a text in UTF-16 begins, as some programs of Windows write it."""

_ASSET = re.compile(r"file[-_][0-9A-Za-z]+")
_MOST_ASSET = 64 << 20
_MOST_FILES = 100_000
"""Files of a folder that are looked at."""
_MOST_FOLDERS = 8
"""Folders around a chat in which its pictures are looked for."""
_PIECE = 1 << 20
_MOST_DIRECTORY = 64 << 20
"""Bytes of an archive's directory, several copies of which are held in memory: about 500,000 members."""
_MOST_RATIO = 100
_FREELY = 64 << 20
"""A database may be this large, or `_MOST_RATIO` times its packed size; a real one packs to a fifth or a
tenth.
"""
_LEFT_FREE = 1 << 30
"""Free disk space to keep when unpacking."""
_END, _END_64, _LONGEST_COMMENT = b"PK\x05\x06", b"PK\x06\x06", 65_535


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read: `member` is its entry in `archive`, None for the file itself; `size` is in bytes,
    unpacked. `folder` is the chosen folder that it was found in.

    Members can be read while `source_files` is open.
    """

    path: Path
    archive: zipfile.ZipFile | None
    member: zipfile.ZipInfo | None
    size: int
    folder: Path | None = None

    @property
    def name(self) -> str:
        """The name to show."""
        if self.member is not None:
            return one_line(f"{self.path.name}, {self.member.filename}")
        return one_line(str(self.path.relative_to(self.folder.parent)) if self.folder else self.path.name)

    @property
    def ending(self) -> str:
        """The end of the file's name, with its dot, in small letters."""
        name = self.member.filename if self.member is not None else self.path.name
        return PurePosixPath(name).suffix.lower()

    def beside(self, ending: str) -> SourceFile | None:
        """The archive's member named like this one plus `ending`; None if there is none."""
        if self.archive is None or self.member is None:
            return None
        try:
            found = self.archive.getinfo(self.member.filename + ending)
        except KeyError:
            return None
        return SourceFile(self.path, self.archive, found, found.file_size)


@contextlib.contextmanager
def source_files(path: Path) -> Iterator[list[SourceFile]]:
    """The files at `path`. Raises one of `TROUBLE` if it cannot be read."""
    if path.is_dir():
        yield list(chat_files(path))
        return
    regular_file(path)
    with path.open("rb") as file:
        if file.read(4) != b"PK\x03\x04":
            yield [SourceFile(path, None, None, path.stat().st_size)]
            return
        size = directory_size(file)
        if size > _MOST_DIRECTORY:
            raise ValueError(f"its directory is larger than {_MOST_DIRECTORY >> 20} MB")
        with zipfile.ZipFile(file) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            yield [SourceFile(path, archive, member, member.file_size) for member in members]


def chat_files(folder: Path, most: int = _MOST_FILES) -> Iterator[SourceFile]:
    """The files in a folder, and in the folders in it, whose names end as those of chats; no archives. At
    most `most` files are looked at, links to folders are not followed, and what cannot be read is left out.
    """
    left = most
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            left -= 1
            path = Path(place, name)
            if left >= 0 and path.suffix.lower() in ENDINGS and path.suffix.lower() not in ARCHIVES:
                with contextlib.suppress(OSError):
                    yield SourceFile(path, None, None, path.stat().st_size, folder)
        if left <= 0:
            return


class Assets:
    """The files that chats refer to. They do by the beginnings of their names in an archive, as ChatGPT's do
    ("file-AbC123-beach.jpg"), or by their paths from a folder that `chats`, the file that is read, is in:
    directly or in folders of it. `used` are those that were read.
    """

    def __init__(self, files: list[SourceFile]) -> None:
        self._files: dict[str, SourceFile] = {}
        self._members: dict[str, list[SourceFile]] = {}
        self.used: set[tuple[Path, str]] = set()
        self.chats: SourceFile | None = None
        for file in files:
            name = file.member.filename.rpartition("/")[2] if file.member is not None else ""
            if (begin := _ASSET.match(name)) is not None:
                self._files.setdefault(begin[0], file)
            self._members.setdefault(name, []).append(file)

    def read(self, name: str) -> bytes | None:
        """The bytes of the file that a chat calls so, quoted as in an address; None if it is not there, too
        large or damaged.
        """
        begin = _ASSET.match(name)
        try:
            file = self._at(unquote(name)) if "/" in name else self._files.get(begin[0]) if begin else None
        except TROUBLE:
            return None
        return self._bytes(file)

    def beside(self, name: str) -> bytes | None:
        """The bytes of the file of this name in the folder of the chats; None as `read` says it."""
        if self.chats is None:
            return None
        if self.chats.member is None:
            path = self.chats.path.with_name(name)
            return self._bytes(SourceFile(path, None, None, path.stat().st_size) if path.is_file() else None)
        place = f"{self.chats.member.filename.rpartition('/')[0]}/{name}".removeprefix("/")
        found = (
            file for file in self._members.get(name, ()) if file.member and file.member.filename == place
        )
        return self._bytes(next(found, None))

    def _bytes(self, file: SourceFile | None) -> bytes | None:
        if file is None or file.size > _MOST_ASSET:
            return None
        try:
            with opened(file) as stream:
                data = stream.read(_MOST_ASSET + 1)
        except TROUBLE:
            return None
        self.used.add((file.path, file.name))
        return data

    def _at(self, path: str) -> SourceFile | None:
        """The file at a path from the nearest folder around the chats that has one there; never outside of
        it.
        """
        parts, chats = path.split("/"), self.chats
        if chats is None or not all(parts) or any(part in (".", "..") for part in parts):
            return None
        if chats.member is not None:
            place = f"/{chats.member.filename}"
            found = [
                (len(name), file)
                for file in self._members.get(parts[-1], ())
                if file.member is not None
                and (name := f"/{file.member.filename}").endswith(f"/{path}")
                and place.startswith(name.removesuffix(path))
            ]
            return max(found, key=lambda one: one[0])[1] if found else None
        for folder in chats.path.resolve().parents[:_MOST_FOLDERS]:
            file = folder.joinpath(*parts)
            if file.is_file() and file.resolve().is_relative_to(folder):
                return SourceFile(file, None, None, file.stat().st_size)
        return None


def directory_size(file: IO[bytes]) -> int:
    """The size in bytes of a zip archive's directory, from the record at its end; 0 if that is not found.

    Layout: PKWARE's APPNOTE.TXT, 4.3.14 to 4.3.16.
    """
    whole = file.seek(0, 2)
    # including the zip64 record of 56 bytes and its locator of 20 bytes before it
    file.seek(max(0, whole - 22 - _LONGEST_COMMENT - 76))
    tail = file.read()
    file.seek(0)
    end = tail.rfind(_END)
    if end < 0 or end + 16 > len(tail):
        return 0
    size = int(struct.unpack_from("<I", tail, end + 12)[0])
    larger = tail.rfind(_END_64, 0, end)
    if 0 <= larger <= len(tail) - 48:
        size = max(size if size != 0xFFFFFFFF else 0, int(struct.unpack_from("<Q", tail, larger + 40)[0]))
    return size


@contextlib.contextmanager
def opened(source: SourceFile) -> Iterator[IO[bytes]]:
    """The file's bytes as a stream. Raises one of `TROUBLE`, while reading too."""
    if source.archive is None or source.member is None:
        with source.path.open("rb") as file:
            yield file
        return
    with source.archive.open(source.member) as file:
        yield file


def after(head: bytes, stream: IO[bytes]) -> Callable[[int], bytes]:
    """A function that reads `head` first, then the rest of the stream."""
    waiting = [head]
    return lambda count: waiting.pop() if waiting and head else stream.read(count)


def as_utf_8(read: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """A function that returns in UTF-8 what `read(count)` returns of a text in UTF-16, b"" at its end. What
    is no UTF-16 becomes U+FFFD.
    """
    decoder = codecs.getincrementaldecoder("utf-16")("replace")

    def recoded(count: int) -> bytes:
        while data := read(count):
            if text := decoder.decode(data):
                return text.encode("utf-8")
        return decoder.decode(b"", final=True).encode("utf-8")

    return recoded


@contextlib.contextmanager
def on_disk(source: SourceFile, cancel: Callable[[], bool]) -> Iterator[Path | None]:
    """The path of a database file, unpacked for as long as the context lasts; None if `cancel()` became true.

    The journal comes with it if the archive has one. Raises one of `TROUBLE`, or `Unreadable` for a database
    that is implausibly large or exceeds the free disk space; nothing is written then.
    """
    if source.archive is None or source.member is None:
        yield source.path
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "unpacked.db"
        journal = source.beside("-wal")
        parts = [
            (source, path),
            *([(journal, path.with_name(f"{path.name}-wal"))] if journal is not None else []),
        ]
        _check_room(parts, Path(folder))
        for part, place in parts:
            with opened(part) as packed, place.open("wb") as file:
                while not cancel() and (piece := packed.read(_PIECE)):
                    file.write(piece)
        yield None if cancel() else path


def _check_room(parts: list[tuple[SourceFile, Path]], folder: Path) -> None:
    for part, _unused in parts:
        packed = (
            min(part.member.compress_size, part.path.stat().st_size) if part.member is not None else part.size
        )
        if part.size > max(_FREELY, packed * _MOST_RATIO):
            raise Unreadable(
                _(
                    "the archive claims that {packed} unpack to {size}, which is "
                    "not plausible for chats; if you trust it, unpack it yourself and import the "
                    "file",
                    packed=size_text(packed),
                    size=size_text(part.size),
                )
            )
    needed, free = sum(part.size for part, _unused in parts), shutil.disk_usage(folder).free
    if needed + _LEFT_FREE > free:
        raise Unreadable(
            _(
                "unpacking it needs {needed}, but the disk of {parent} has {free} free; free some "
                "space, or unpack it elsewhere and import the file",
                needed=size_text(needed),
                parent=folder.parent,
                free=size_text(free),
            )
        )
