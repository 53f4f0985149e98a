"""Matrices of integer codes with a scale and a zero point for each group: w = (code - zero) * scale.

GPTQ, AWQ, EXL2 and compressed-tensors files all hold such matrices, packed in different ways. The inputs
(columns) may be stored in another order than the model's, so that groups are contiguous, and may have several
code widths.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from engine.errors import BadCheckpoint
from engine.weights.format import Bytes, Floats

Indices = npt.NDArray[np.int64]
Zeros = npt.NDArray[np.int16]

UNITS = (128, 64, 32)
"""Numbers of columns that backends pack with one scale."""
_CHUNK_VALUES = 1 << 20


@dataclass(frozen=True, slots=True)
class Run:
    """Stored columns start .. start + size - 1: codes of `bits` bits with the scale and zero of `group`."""

    start: int
    size: int
    bits: int
    group: int

    @property
    def unit(self) -> int:
        """The largest of `UNITS` that divides the run, or 0."""
        return next((unit for unit in UNITS if self.size % unit == 0), 0)


class Source(Protocol):
    """Reads codes, scales and zero points of a matrix for some outputs (rows). Raises `BadCheckpoint`."""

    def codes(self, outputs: Indices, start: int, stop: int) -> Bytes:
        """Codes of the stored columns start .. stop - 1, (outputs, stop - start)."""
        ...

    def scales(self, outputs: Indices) -> Floats:
        """(outputs, groups)."""
        ...

    def zeros(self, outputs: Indices) -> Zeros:
        """(outputs, groups)."""
        ...


class Recent:
    """Keeps what was last read of one matrix, so that pieces of its rows do not read it again."""

    def __init__(self) -> None:
        self._owner, self._kept = "", dict[str, Any]()

    def get(
        self, owner: str, what: str, make: Callable[[], Any], fits: Callable[[Any], bool] = lambda value: True
    ) -> Any:
        """The value kept as `what` of the matrix `owner`; `make` makes it if it is missing or unfit."""
        if owner != self._owner:
            self._owner, self._kept = owner, {}
        if what not in self._kept or not fits(self._kept[what]):
            self._kept.pop(what, None)
            self._kept[what] = make()
        return self._kept[what]


@dataclass(frozen=True, slots=True)
class Layout:
    """How a matrix's columns are stored: in `runs`; stored column j is the model's `order[j]` (None: j).

    `half` says that every scale is an fp16 number. `file_bytes` is the size of all its tensors in the file,
    `file_rows` the number of their rows.
    """

    columns: int
    runs: Sequence[Run]
    order: Indices | None
    half: bool
    file_bytes: int
    file_rows: int

    def pieces(self) -> list[list[Run]]:
        """The runs, grouped into neighbours that one packed matrix can hold: of equal `bits` and `unit`."""
        out: list[list[Run]] = []
        for run in self.runs:
            if out and (out[-1][-1].bits, out[-1][-1].unit) == (run.bits, run.unit):
                out[-1].append(run)
            else:
                out.append([run])
        return out


def _type_name(runs: Sequence[Run], half: bool) -> str:
    """ "GROUPED4_128": 4 bits and one fp16 scale for 128 columns; "GROUPED4_128_F32" with float32 scales.

    Without a unit it is "GROUPED", or "GROUPED_REST" for at most `UNITS[0]` columns.
    """
    if not runs or not runs[0].unit:
        return "GROUPED" if sum(run.size for run in runs) > UNITS[0] else "GROUPED_REST"
    return f"GROUPED{runs[0].bits}_{runs[0].unit}{'' if half else '_F32'}"


class GroupedTensor:
    """A `RawTensor` (N, K) of such a matrix, or of some of its rows.

    `type` is as in `_type_name` for one packed matrix in the model's order of columns; otherwise it is
    "PERMUTED" and the types of the pieces: "PERMUTED+GROUPED8_128+GROUPED4_128".
    """

    __slots__ = ("_layout", "_outputs", "_source", "name", "shape", "type")

    def __init__(self, name: str, layout: Layout, source: Source, outputs: Indices | None = None) -> None:
        self.name, self._layout, self._source = name, layout, source
        self._outputs = np.arange(layout.file_rows) if outputs is None else outputs
        self.shape: tuple[int, ...] = (len(self._outputs), layout.columns)
        pieces = layout.pieces()
        if len(pieces) == 1 and layout.order is None:
            self.type = _type_name(pieces[0], layout.half)
        else:
            self.type = "+".join(
                dict.fromkeys(["PERMUTED", *(_type_name(runs, layout.half) for runs in pieces)])
            )

    @property
    def nbytes(self) -> int:
        """Bytes in the file, scales and zero points included."""
        return self._layout.file_bytes * self.shape[0] // max(1, self._layout.file_rows)

    @property
    def order(self) -> Indices | None:
        """The model's column for each stored column; None if the order is the same."""
        return self._layout.order

    def pieces(self) -> list[Piece]:
        """The pieces, in the order of the stored columns."""
        return [
            Piece(self.name, runs, self._layout.half, self._source, self._outputs)
            for runs in self._layout.pieces()
        ]

    @property
    def data(self) -> Bytes:
        """`Piece.data` of a tensor of one piece in the model's order of columns."""
        pieces = self.pieces()
        assert len(pieces) == 1
        assert self.order is None
        return pieces[0].data

    def dequantise(self) -> Floats:
        """All values, float32, in `shape` and the model's order of columns."""
        out = np.empty(self.shape, np.float32)
        step = max(1, _CHUNK_VALUES // max(1, self.shape[1]))
        group = _by_column(self._layout.runs)
        for first in range(0, self.shape[0], step):
            values = _values(self._source, self._outputs[first : first + step], 0, self.shape[1], group)
            if self.order is None:
                out[first : first + step] = values
            else:
                out[first : first + step, self.order] = values
        return out

    def part(self, index: int) -> GroupedTensor:
        """Raises `BadCheckpoint`: a matrix has no parts."""
        raise BadCheckpoint(
            f"The tensor {self.name} is one matrix, where the model's headers call for a stack of matrices."
        )

    def rows(self, start: int, stop: int) -> GroupedTensor:
        return GroupedTensor(self.name, self._layout, self._source, self._outputs[start:stop])

    def take(self, indices: npt.ArrayLike) -> GroupedTensor:
        return GroupedTensor(
            self.name, self._layout, self._source, self._outputs[np.asarray(indices, np.int64).reshape(-1)]
        )


class Piece:
    """A `RawTensor` of neighbouring stored columns with codes of one width."""

    __slots__ = ("_half", "_outputs", "_runs", "_source", "name", "shape", "type")

    def __init__(self, name: str, runs: Sequence[Run], half: bool, source: Source, outputs: Indices) -> None:
        self.name, self._runs, self._half, self._source, self._outputs = name, runs, half, source, outputs
        self.shape: tuple[int, ...] = (len(outputs), sum(run.size for run in runs))
        self.type = _type_name(runs, half)

    @property
    def start(self) -> int:
        """The first of its stored columns."""
        return self._runs[0].start

    @property
    def nbytes(self) -> int:
        """Bytes of its codes."""
        return self.shape[0] * sum(run.size * run.bits for run in self._runs) // 8

    @property
    def data(self) -> Bytes:
        """For each row and block of `unit` columns: code bytes, a float32 scale, an int16 zero point."""
        unit = self._runs[0].unit
        codes = self._codes()
        out = np.empty((self.shape[0], self.shape[1] // unit, unit + 6), np.uint8)
        out[:, :, :unit] = codes.reshape(*out.shape[:2], unit)
        groups = np.concatenate([np.full(run.size // unit, run.group) for run in self._runs])
        scales, zeros = (
            self._source.scales(self._outputs)[:, groups],
            self._source.zeros(self._outputs)[:, groups],
        )
        out[:, :, unit : unit + 4] = np.ascontiguousarray(scales, np.float32)[..., None].view(np.uint8)
        out[:, :, unit + 4 :] = np.ascontiguousarray(zeros, np.int16)[..., None].view(np.uint8)
        return out.reshape(-1)

    def _codes(self) -> Bytes:
        return self._source.codes(self._outputs, self.start, self.start + self.shape[1])

    def dequantise(self) -> Floats:
        """All values, float32, in `shape`."""
        return _values(
            self._source, self._outputs, self.start, self.start + self.shape[1], _by_column(self._runs)
        )

    def part(self, index: int) -> Piece:
        """Raises `BadCheckpoint`: a matrix has no parts."""
        raise BadCheckpoint(
            f"The tensor {self.name} is one matrix, where the model's headers call for a stack of matrices."
        )

    def rows(self, start: int, stop: int) -> Piece:
        return Piece(self.name, self._runs, self._half, self._source, self._outputs[start:stop])

    def take(self, indices: npt.ArrayLike) -> Piece:
        return Piece(
            self.name,
            self._runs,
            self._half,
            self._source,
            self._outputs[np.asarray(indices, np.int64).reshape(-1)],
        )


def _by_column(runs: Sequence[Run]) -> Indices:
    """The group of each column."""
    return np.repeat([run.group for run in runs], [run.size for run in runs]).astype(np.int64)


def _values(source: Source, outputs: Indices, start: int, stop: int, group: Indices) -> Floats:
    """(code - zero) * scale, float32: the difference is exact, the product is rounded once."""
    codes = source.codes(outputs, start, stop).astype(np.int16)
    # A NaN in a scale is kept without a warning.
    with np.errstate(invalid="ignore", over="ignore"):
        out: Floats = (codes - source.zeros(outputs)[:, group]).astype(np.float32) * source.scales(outputs)[
            :, group
        ]
    return out


def runs_by_group(groups: Indices, bits: int) -> tuple[list[Run], Indices | None]:
    """The runs of columns with these groups, and the order that makes groups contiguous (None: they are)."""
    order = None if (np.diff(groups) >= 0).all() else np.argsort(groups, kind="stable")
    kept = groups if order is None else groups[order]
    starts = np.concatenate([[0], np.flatnonzero(np.diff(kept)) + 1]) if kept.size else np.zeros(0, np.int64)
    sizes = np.diff(np.append(starts, kept.size))
    runs = [Run(int(s), int(n), bits, int(kept[s])) for s, n in zip(starts, sizes, strict=True)]
    return runs, order
