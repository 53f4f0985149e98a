"""Where the CPU backend's matrices lie: in memory up to a limit, and beyond it in a temporary file that is
mapped into memory. The system reads its pages when a product needs them, and keeps those that fit.
"""

from __future__ import annotations

import mmap
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from engine.backends.cpu.runtime.memory import HUGE_PAGE, LINE, aligned
from engine.errors import NotEnoughMemory
from engine.platform.folders import cache_dir, private_folder
from engine.units import size_text
from engine.words import _

__all__ = ["Place", "WeightMemory"]

OVERREAD = 4096
"""Bytes that must be readable after a matrix: kernels prefetch a little past its end."""
_PAGE = 4096
_MOST_SHARED = 64 << 20
"""Bytes of memory that matrices share, so that nearly all of it are huge pages; those of a small model share
less. No more than this stays when some of the matrices in it are dropped.
"""


class Place(Protocol):
    """Memory of one matrix."""

    def write(self, start: int, data: npt.NDArray[np.uint8], apart: int) -> None:
        """Write the rows of `data`, which begin `apart` bytes from each other, the first at `start`. Raises
        `NotEnoughMemory` if a disk is full.
        """
        ...

    @property
    def memory(self) -> npt.NDArray[np.uint8] | None:
        """The bytes themselves, to be written where they are; None on a disk."""
        ...

    @property
    def address(self) -> int:
        """Address of the first byte, a multiple of 64. Nothing may be written once it was asked for."""
        ...


class _Block:
    """Memory of several matrices, whose last is followed by `OVERREAD` bytes."""

    def __init__(self, size: int) -> None:
        self._left = -(-size // LINE) * LINE
        self._data = aligned(self._left + OVERREAD)

    def take(self, size: int) -> npt.NDArray[np.uint8] | None:
        """The next `size` bytes and those that may be read after them; None without room."""
        whole = -(-size // LINE) * LINE
        if whole > self._left:
            return None
        start = self._data.size - OVERREAD - self._left
        self._left -= whole
        return self._data[start : start + size + OVERREAD]


class _InMemory:
    def __init__(self, block: _Block, memory: npt.NDArray[np.uint8]) -> None:
        self._block, self.memory = block, memory

    def write(self, start: int, data: npt.NDArray[np.uint8], apart: int) -> None:
        end = start + apart * (len(data) - 1) + data.shape[1]
        as_strided(self.memory[start:end], data.shape, (apart, 1))[...] = data

    @property
    def address(self) -> int:
        return int(self.memory.ctypes.data)


class _OnDisk:
    memory = None

    def __init__(self, file: _File, start: int) -> None:
        self._file, self._start = file, start

    def write(self, start: int, data: npt.NDArray[np.uint8], apart: int) -> None:
        for i, row in enumerate(data):
            self._file.write(self._start + start + apart * i, row)

    @property
    def address(self) -> int:
        return self._file.address() + self._start


class WeightMemory:
    """Gives each matrix its place.

    `limit` is how many bytes may be taken in memory; None sets no limit. The file is in the program's cache
    folder, and is deleted with the last matrix in it, or with the process.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._left = limit
        self._placed = 0
        self._block: weakref.ref[_Block] | None = None  # the matrices keep it alive
        self._file: weakref.ref[_File] | None = None  # the matrices keep it alive
        self.on_disk = 0
        """Bytes placed in the file."""

    def place(self, size: int) -> Place:
        """Room for `size` bytes. Raises `NotEnoughMemory` if a disk is full."""
        if self._left is None:
            return self._in_memory(size)
        if size <= self._left:
            self._left -= size
            return self._in_memory(size)
        self.on_disk += size
        file = self._file() if self._file is not None else None
        if file is None:
            file = _File(_folder())
            self._file = weakref.ref(file)
        return _OnDisk(file, file.reserve(size))

    def _in_memory(self, size: int) -> Place:
        """Room in the block that was begun last, or in a new one, as large as all before it."""
        block = self._block() if self._block is not None else None
        data = block.take(size) if block is not None else None
        if block is None or data is None:
            block = _Block(max(size, min(self._placed, _MOST_SHARED) // HUGE_PAGE * HUGE_PAGE - OVERREAD))
            self._block = weakref.ref(block)
            data = block.take(size)
            assert data is not None
        self._placed += size
        return _InMemory(block, data)

    def check_disk(self, needed: int) -> None:
        """Raise `NotEnoughMemory` if the disk has no room for `needed` bytes."""
        folder = _folder()
        free = shutil.disk_usage(folder).free
        if needed > free:
            raise NotEnoughMemory(
                _(
                    "{size} of the weights do not fit into memory, but the disk of {folder} has "
                    "room for only {size_2}; free some space there, or choose a smaller model or a "
                    "smaller quantisation of it.",
                    size=size_text(needed),
                    folder=folder,
                    size_2=size_text(free),
                )
            )


def _folder() -> Path:
    folder = cache_dir()
    try:
        return private_folder(folder)
    except OSError as error:
        raise NotEnoughMemory(
            _(
                "The weights that do not fit into memory need the folder {folder}, which cannot be "
                "used: {strerror}; choose another in the variable INGLENOOK_CACHE.",
                folder=folder,
                strerror=error.strerror or error,
            )
        ) from error


class _File:
    """A temporary file without a name, written first and then mapped as a whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: Any = None
        self._size = 0
        self._map: npt.NDArray[np.uint8] | None = None

    def reserve(self, size: int) -> int:
        """The offset of `size` bytes more, a multiple of the page size."""
        start = self._size
        self._size += -(-size // _PAGE) * _PAGE
        return start

    def write(self, offset: int, data: npt.NDArray[np.uint8]) -> None:
        """Write `data` at `offset`. Raises `NotEnoughMemory` if the disk is full."""
        assert self._map is None, "what is mapped is no longer written"
        try:
            if self._file is None:  # closed once it is mapped
                self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115
            self._file.seek(offset)
            left = np.ascontiguousarray(data).data.cast("B")
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            raise NotEnoughMemory(
                _(
                    "The weights that do not fit into memory could not be written to {folder} "
                    "({size} so far): {strerror}; free some space there, or choose a smaller model "
                    "or a smaller quantisation of it.",
                    folder=self._folder,
                    size=size_text(offset + data.size),
                    strerror=error.strerror or error,
                )
            ) from error

    def address(self) -> int:
        """The address of the mapped file's first byte."""
        if self._map is None:
            size = self._size + OVERREAD
            self._file.truncate(size)
            self._map = np.frombuffer(mmap.mmap(self._file.fileno(), size, access=mmap.ACCESS_READ), np.uint8)
            self._file.close()
        return int(self._map.ctypes.data)
