"""A tensor inside a memory-mapped file."""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from engine.errors import BadCheckpoint, ModelNotFound
from engine.weights.gguf import GGUF_FORMATS, Format

_FORMATS = {entry.name: entry for entry in GGUF_FORMATS}


def find_format(type_name: str) -> Format | None:
    """The format with this name, or None when it cannot be read."""
    return _FORMATS.get(type_name)


def readable_types() -> str:
    """The names of all readable tensor types, for messages."""
    return ", ".join(_FORMATS)


@dataclass(slots=True, eq=False)
class FileTensor:
    """A `RawTensor`: `data` are the flat uint8 bytes of the file, which stay mapped as long as this lives."""

    name: str
    type: str
    shape: tuple[int, ...]
    data: npt.NDArray[np.uint8]

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return int(self.data.nbytes)

    def dequantise(self) -> npt.NDArray[np.float32]:
        """All values, float32, in `shape`; a fresh array that no longer needs the file."""
        return _FORMATS[self.type].dequantise(self.data, self.shape)


def map_file(path: Path) -> mmap.mmap:
    """The whole file, mapped read-only. Raises `ModelNotFound` or, for an empty file, `BadCheckpoint`."""
    try:
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                raise BadCheckpoint(f"{path.name} is empty; a model file was expected. Download it again.")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ModelNotFound(f"{path} cannot be read: {error.strerror or error}.") from error


def file_bytes(mapping: mmap.mmap) -> npt.NDArray[np.uint8]:
    """The mapped file as flat uint8."""
    return np.frombuffer(mapping, np.uint8)


def check_overlap(file_name: str, spans: Iterable[tuple[int, int, str]]) -> None:
    """Raise `BadCheckpoint` when two of the (start, end, tensor name) spans share bytes."""
    last_end, last_name = 0, ""
    for start, end, name in sorted(spans):
        if start < last_end:
            raise BadCheckpoint(
                f"{file_name}: tensor {name} begins at byte {start} of the data, inside tensor {last_name}, which ends at {last_end}; "
                "the file is damaged. Download it again."
            )
        last_end, last_name = end, name
