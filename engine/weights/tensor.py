"""A tensor in a model's file: name, type and shape from the header, and its bytes on request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from engine.errors import BadCheckpoint
from engine.weights.file import Bytes
from engine.weights.format import Format
from engine.weights.gguf.table import ALL_FORMATS
from engine.words import _

Rows = npt.NDArray[np.int64]

_FORMATS = {entry.name: entry for entry in ALL_FORMATS}
_CHUNK_BYTES = 1 << 20
"""Bytes read at a time for decoding, at least one row: temporaries stay small for tensors of any size."""


def find_format(type_name: str) -> Format | None:
    """The format with this name, or None if it cannot be read."""
    return _FORMATS.get(type_name)


class Readable(Protocol):
    """What holds a tensor's bytes: `ModelFile`, or `JoinedBytes`."""

    def read(self, start: int, count: int, what: str) -> Bytes: ...

    def read_runs(self, runs: Iterable[tuple[int, int]], out: Bytes, what: str) -> None: ...


class FileTensor:
    """A `RawTensor` at byte `start` of a `source`: a file, or bytes in memory (uint8, flat).

    `order`, int64 (N,), selects rows of the source; None means all. The file is read only by `data`,
    `numbers`, `columns` and `dequantise`, which raise `BadCheckpoint` if it has changed.
    """

    __slots__ = ("_order", "_source", "_start", "name", "shape", "type")

    def __init__(
        self,
        name: str,
        type: str,
        shape: tuple[int, ...],
        source: Readable | Bytes,
        start: int = 0,
        order: Rows | None = None,
    ) -> None:
        self.name, self.type, self.shape = name, type, shape
        self._source, self._start, self._order = source, start, order

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return _FORMATS[self.type].nbytes(self.shape)

    @property
    def ordered(self) -> bool:
        """Whether its rows were chosen by `take`."""
        return self._order is not None

    @property
    def data(self) -> Bytes:
        """The file's bytes, uint8, flat, read-only. Each access reads them again; see `rows`."""
        out = (
            self._read(0, self.shape[0])
            if self._order is not None and self.shape
            else self._read_bytes(0, self.nbytes)
        )
        out.flags.writeable = False
        return out

    def numbers(self) -> npt.NDArray[Any]:
        """The numbers of a plain type in that type ("I32" as int32, "F16" as float16), in `shape`."""
        dtype = _FORMATS[self.type].dtype
        if dtype is None:
            raise BadCheckpoint(
                _(
                    "The tensor {name} has the type {type}; plain numbers were expected. Download "
                    "the model again.",
                    name=self.name,
                    type=self.type,
                )
            )
        return self.data.view(dtype).reshape(self.shape)

    def dequantise(self) -> npt.NDArray[np.float32]:
        """All values, float32, in `shape`, in a new array."""
        format = _FORMATS[self.type]
        out = np.empty(self.shape, np.float32)
        if not out.size:
            return out
        flat = out.reshape(-1)
        if self._order is None and not format.row_bytes:
            blocks = self.nbytes // format.block_bytes
            step = max(1, _CHUNK_BYTES // format.block_bytes)
            for first in range(0, blocks, step):
                last = min(first + step, blocks)
                raw = self._read_bytes(first * format.block_bytes, (last - first) * format.block_bytes)
                flat[first * format.block_size : last * format.block_size] = format.dequantise(raw, (-1,))
            return out
        if len(self.shape) == 1:
            return format.dequantise(self.data, self.shape)
        step = max(1, _CHUNK_BYTES // max(1, self._row_bytes))
        for first in range(0, self.shape[0], step):
            last = min(first + step, self.shape[0])
            out[first:last] = format.dequantise(self._read(first, last), (last - first, *self.shape[1:]))
        return out

    def part_of_data(self, start: int, count: int) -> Bytes:
        """`count` bytes of `data` from byte `start` on, where no rows were chosen by `take`."""
        assert self._order is None
        return self._read_bytes(start, count)

    def columns(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Columns of a matrix of plain numbers, in the type of `numbers`: (N, stop - start), a new array."""
        dtype = _FORMATS[self.type].dtype
        if (
            dtype is None
            or self._order is not None
            or len(self.shape) != 2
            or not 0 <= start <= stop <= self.shape[1]
        ):
            raise BadCheckpoint(
                _(
                    "The tensor {name} of {type} {shape} has no columns {start} to {stop} of plain numbers.",
                    name=self.name,
                    type=self.type,
                    shape=self.shape,
                    start=start,
                    stop=stop,
                )
            )
        size = np.dtype(dtype).itemsize
        out = np.empty((self.shape[0], (stop - start) * size), np.uint8)
        if isinstance(self._source, np.ndarray):
            table = self._read_bytes(0, self.nbytes).reshape(self.shape[0], -1)
            out[:] = table[:, start * size : stop * size]
        elif stop - start == self.shape[1]:
            return self._read_bytes(0, self.nbytes).view(dtype).reshape(self.shape)
        else:
            starts = range(self._start + start * size, self._start + self.nbytes, self._row_bytes)
            self._source.read_runs(
                ((at, out.shape[1]) for at in starts), out.reshape(-1), _("tensor {name}", name=self.name)
            )
        return out.view(dtype)

    def part(self, index: int) -> FileTensor:
        """Element `index` of a stack: (X, N, K) gives (N, K). Nothing is copied."""
        _check_range(self, index, index + 1)
        row = int(self._order[index]) if self._order is not None else index
        return FileTensor(
            self.name, self.type, self.shape[1:], self._source, self._start + row * self._row_bytes
        )

    def rows(self, start: int, stop: int) -> FileTensor:
        """Rows `start` to `stop` of the first dimension. Nothing is copied."""
        _check_range(self, start, stop)
        shape = (stop - start, *self.shape[1:])
        if self._order is not None:
            return FileTensor(self.name, self.type, shape, self._source, self._start, self._order[start:stop])
        return FileTensor(self.name, self.type, shape, self._source, self._start + start * self._row_bytes)

    def take(self, indices: npt.ArrayLike) -> FileTensor:
        """The rows `indices` in that order, repeated if an index repeats. Nothing is copied."""
        order = np.asarray(indices, np.int64).reshape(-1)
        if order.size:
            _check_range(self, int(order.min()), int(order.max()) + 1)
        if self._order is not None:
            order = self._order[order]
        return FileTensor(
            self.name, self.type, (order.size, *self.shape[1:]), self._source, self._start, order
        )

    def retyped(self, name: str, type: str, shape: tuple[int, ...]) -> FileTensor:
        """The same bytes under another name, type and shape of the same size."""
        if self._order is not None or _FORMATS[type].nbytes(shape) != self.nbytes:
            raise BadCheckpoint(
                _(
                    "The tensor {name} has {nbytes} bytes and cannot be {type} of shape {shape}.",
                    name=self.name,
                    nbytes=self.nbytes,
                    type=type,
                    shape=shape,
                )
            )
        return FileTensor(name, type, shape, self._source, self._start)

    @property
    def _row_bytes(self) -> int:
        return _FORMATS[self.type].nbytes(self.shape[1:])

    def _read(self, first: int, last: int) -> Bytes:
        """The bytes of rows `first` to `last`, gathered if there is an order."""
        size = self._row_bytes
        if self._order is None:
            return self._read_bytes(first * size, (last - first) * size)
        order = self._order[first:last]
        if isinstance(self._source, np.ndarray):
            count = int(order.max(initial=-1)) + 1
            table = self._source[self._start : self._start + count * size].reshape(count, size)
            return np.ascontiguousarray(table[order]).reshape(-1)
        out = np.empty(order.size * size, np.uint8)
        runs = ((self._start + row * size, count * size) for row, count in _runs(order))
        self._source.read_runs(runs, out, _("tensor {name}", name=self.name))
        return out

    def _read_bytes(self, start: int, count: int) -> Bytes:
        if isinstance(self._source, np.ndarray):
            return self._source[self._start + start : self._start + start + count].view()
        return self._source.read(self._start + start, count, _("tensor {name}", name=self.name))


def _check_range(tensor: Any, start: int, stop: int) -> None:
    size = tensor.shape[0] if tensor.shape else 0
    if not 0 <= start <= stop <= size:
        raise BadCheckpoint(
            _(
                "Rows {start} to {stop} of the tensor {tensor} were expected, but it has the shape "
                "{shape}; the model's headers and its weights do not belong together.",
                start=start,
                stop=stop,
                tensor=tensor.name,
                shape=tensor.shape,
            )
        )


def _runs(order: Rows) -> Iterator[tuple[int, int]]:
    """(first, count) of each run of consecutive rows."""
    if not order.size:
        return
    breaks = np.flatnonzero(np.diff(order) != 1) + 1
    for run in np.split(order, breaks):
        yield int(run[0]), run.size


def check_overlap(file_name: str, spans: Iterable[tuple[int, int, str]]) -> None:
    """Raise `BadCheckpoint` if two of the (start, end, tensor name) spans share bytes."""
    last_end, last_name = 0, ""
    for start, end, name in sorted(spans):
        if start < last_end:
            raise BadCheckpoint(
                _(
                    "{file_name}: tensor {name} begins at byte {start} of the data, inside tensor "
                    "{last_name}, which ends at {last_end}; the file is damaged. Download it again.",
                    file_name=file_name,
                    name=name,
                    start=start,
                    last_name=last_name,
                    last_end=last_end,
                )
            )
        last_end, last_name = end, name
