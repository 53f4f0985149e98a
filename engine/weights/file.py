"""A model's file, read in pieces. It is never mapped: reading a mapped file that shrank kills the process."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from engine.errors import BadCheckpoint, ModelNotFound
from engine.weights.gguf.ollama import known_name, known_place
from engine.words import _

Bytes = npt.NDArray[np.uint8]

_Stamp = tuple[int, int, int, int]


class ModelFile:
    """The file `path` of `size` bytes. Reads fail if the file has changed since the object was made.

    No descriptor is kept open between reads. Raises `ModelNotFound` or, for an empty file, `BadCheckpoint`.
    """

    __slots__ = ("_stamp", "path", "size")

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._open() as file:
            self._stamp = _stamp(file)
        self.size = self._stamp[0]
        if not self.size:
            raise BadCheckpoint(
                _("{path} is empty; a model file was expected. Download it again.", path=known_name(path))
            )

    def read(self, start: int, count: int, what: str) -> Bytes:
        """`count` bytes from byte `start` on, uint8, in a new array; `what` is for the error message.

        Raises `BadCheckpoint`.
        """
        out = np.empty(count, np.uint8)
        self.read_runs([(start, count)], out, what)
        return out

    def read_runs(self, runs: Iterable[tuple[int, int]], out: Bytes, what: str) -> None:
        """Fill `out` with the bytes of all (start, count) `runs` in order. Raises `BadCheckpoint`."""
        target, at = out.data, 0
        with self._open() as file:
            self._check(file, what)
            for start, count in runs:
                file.seek(start)
                end = at + count
                while at < end:
                    got = _read_into(file, target[at:end], self.path)
                    if not got:
                        raise self._changed(what)
                    at += got
            self._check(file, what)

    def _open(self) -> io.FileIO:
        try:
            # Opening a named pipe would block.
            if self.path.exists() and not self.path.is_file():
                raise ModelNotFound(
                    _("{path} is not a plain file; a model file was expected.", path=known_place(self.path))
                )
            return io.FileIO(self.path, "rb")
        except (OSError, ValueError) as error:  # ValueError: a null character in the name
            raise ModelNotFound(
                _(
                    "{path} cannot be read: {reason}.",
                    path=known_place(self.path),
                    reason=getattr(error, "strerror", None) or error,
                )
            ) from error

    def _check(self, file: io.FileIO, what: str) -> None:
        if _stamp(file) != self._stamp:
            raise self._changed(what)

    def _changed(self, what: str) -> BadCheckpoint:
        return BadCheckpoint(
            _(
                "{path} was changed while {what} was read; wait until no program writes to the file, "
                "then load it again.",
                path=known_name(self.path),
                what=what,
            )
        )


def _stamp(file: io.FileIO) -> _Stamp:
    """Size, modification time, device and inode of an open file."""
    facts = os.fstat(file.fileno())
    return facts.st_size, facts.st_mtime_ns, facts.st_dev, facts.st_ino


def _read_into(file: io.FileIO, target: memoryview, path: Path) -> int:
    try:
        return file.readinto(target) or 0
    except OSError as error:
        raise BadCheckpoint(
            _(
                "{path} cannot be read to its end: {strerror}; check the disk.",
                path=known_name(path),
                strerror=error.strerror or error,
            )
        ) from error
