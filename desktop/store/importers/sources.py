"""The files behind a chosen path: itself, or what a zip archive holds. Only their bytes are looked at, never their names."""

from __future__ import annotations

import contextlib
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

__all__ = ["TROUBLE", "SourceFile", "on_disk", "opened", "source_files"]

TROUBLE = (OSError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError)
"""What reading a damaged, encrypted or unknown kind of archive raises: the module has no common base for it."""

_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read: `member` is its entry in the archive, None for the file itself; `size` is bytes, unpacked."""

    path: Path
    member: zipfile.ZipInfo | None
    size: int

    @property
    def name(self) -> str:
        """What people call it."""
        return self.path.name if self.member is None else f"{self.path.name}, {self.member.filename}"


def source_files(path: Path) -> list[SourceFile]:
    """The files behind `path`. Raises one of `TROUBLE` when it cannot be read."""
    with path.open("rb") as file:
        is_zip = file.read(4) == b"PK\x03\x04"
    if not is_zip:
        return [SourceFile(path, None, path.stat().st_size)]
    with zipfile.ZipFile(path) as archive:
        return [SourceFile(path, member, member.file_size) for member in archive.infolist() if not member.is_dir()]


@contextlib.contextmanager
def opened(source: SourceFile) -> Iterator[IO[bytes]]:
    """The file's bytes as a stream. Raises one of `TROUBLE`, also while it is read."""
    if source.member is None:
        with source.path.open("rb") as file:
            yield file
        return
    with zipfile.ZipFile(source.path) as archive, archive.open(source.member) as file:
        yield file


@contextlib.contextmanager
def on_disk(source: SourceFile, cancel: Callable[[], bool]) -> Iterator[Path | None]:
    """The file by itself: where it lies, or unpacked for as long as this lasts; None when `cancel()` turned true meanwhile.

    Raises one of `TROUBLE`.
    """
    if source.member is None:
        yield source.path
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "unpacked.db"
        with opened(source) as packed, path.open("wb") as file:
            while not cancel() and (piece := packed.read(_PIECE)):
                file.write(piece)
        yield None if cancel() else path
