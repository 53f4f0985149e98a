"""Matrices of integer codes with a scale and a zero point for each group: w = (code - zero) * scale.

GPTQ, AWQ, EXL2 and compressed-tensors files all hold such matrices, packed in different ways. The inputs
(columns) may be stored in another order than the model's, so that groups are contiguous, and may have several
code widths.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from engine.errors import BadCheckpoint
from engine.lazy_dataclass import dataclass
from engine.weights.format import Bytes, Floats
from engine.words import _

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
        """(outputs, groups), each from 0 to one past the largest code."""
        ...


class Recent:
    """Keeps what was last read of one matrix, so that pieces of its rows do not read it again.

    Thread-safe; what is made may be made from what is kept.
    """

    def __init__(self) -> None:
        self._owner, self._kept = "", dict[str, Any]()
        self._lock = threading.RLock()

    def get(
        self, owner: str, what: str, make: Callable[[], Any], fits: Callable[[Any], bool] = lambda value: True
    ) -> Any:
        """The value kept as `what` of the matrix `owner`; `make` makes it if it is missing or unfit."""
        with self._lock:
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

    def pieces(self) -> list[Layout]:
        """Neighbouring columns that one packed matrix can hold: of equal `bits` and `unit`."""
        runs: list[list[Run]] = []
        for run in self.runs:
            if runs and (runs[-1][-1].bits, runs[-1][-1].unit) == (run.bits, run.unit):
                runs[-1].append(run)
            else:
                runs.append([run])
        return [self._piece(each) for each in runs]

    def _piece(self, runs: Sequence[Run]) -> Layout:
        columns, bits = sum(run.size for run in runs), sum(run.size * run.bits for run in runs)
        return replace(self, columns=columns, runs=runs, order=None, file_bytes=self.file_rows * bits // 8)


def _type_name(runs: Sequence[Run], half: bool) -> str:
    """ "GROUPED4_128": 4 bits and one fp16 scale for 128 columns; "GROUPED4_128_F32" with float32 scales.

    Without a unit it is "GROUPED", or "GROUPED_REST" for at most `UNITS[0]` columns.
    """
    if not runs or not runs[0].unit:
        return "GROUPED" if sum(run.size for run in runs) > UNITS[0] else "GROUPED_REST"
    return f"GROUPED{runs[0].bits}_{runs[0].unit}{'' if half else '_F32'}"


class GroupedTensor:
    """A `RawTensor` (N, K) of such a matrix, of one of its `pieces`, or of some of its rows.

    `type` is as in `_type_name` for one packed matrix in the model's order of columns; otherwise it is
    "PERMUTED" and the types of the pieces: "PERMUTED+GROUPED8_128+GROUPED4_128".
    """

    __slots__ = ("_layout", "_outputs", "_source", "name", "shape", "type")

    def __init__(self, name: str, layout: Layout, source: Source, outputs: Indices | None = None) -> None:
        self.name, self._layout, self._source = name, layout, source
        self._outputs = np.arange(layout.file_rows) if outputs is None else outputs
        self.shape: tuple[int, ...] = (len(self._outputs), layout.columns)
        types = [_type_name(piece.runs, layout.half) for piece in layout.pieces()]
        if len(types) == 1 and layout.order is None:
            self.type = types[0]
        else:
            self.type = "+".join(dict.fromkeys(["PERMUTED", *types]))

    @property
    def nbytes(self) -> int:
        """Bytes in the file, scales and zero points included; of a piece those of its codes."""
        return self._layout.file_bytes * self.shape[0] // max(1, self._layout.file_rows)

    @property
    def order(self) -> Indices | None:
        """The model's column for each stored column; None if the order is the same."""
        return self._layout.order

    def pieces(self) -> list[GroupedTensor]:
        """The packed matrices, in the order of the stored columns."""
        return [
            GroupedTensor(self.name, piece, self._source, self._outputs) for piece in self._layout.pieces()
        ]

    @property
    def data(self) -> Bytes:
        """For each row and block of `unit` columns: code bytes, a float32 scale, an int16 zero point.

        Only of one packed matrix in the model's order of columns.
        """
        runs, outputs = self._layout.runs, self._outputs
        assert not self.type.startswith("PERMUTED")
        unit, start = runs[0].unit, runs[0].start
        codes = self._source.codes(outputs, start, start + self.shape[1])
        out = np.empty((self.shape[0], self.shape[1] // unit, unit + 6), np.uint8)
        out[:, :, :unit] = codes.reshape(*out.shape[:2], unit)
        groups = np.concatenate([np.full(run.size // unit, run.group) for run in runs])
        scales, zeros = self._source.scales(outputs)[:, groups], self._source.zeros(outputs)[:, groups]
        out[:, :, unit : unit + 4] = np.ascontiguousarray(scales, np.float32)[..., None].view(np.uint8)
        out[:, :, unit + 4 :] = np.ascontiguousarray(zeros, np.int16)[..., None].view(np.uint8)
        return out.reshape(-1)

    def dequantise(self) -> Floats:
        """All values, float32, in `shape` and the model's order of columns: (code - zero) * scale.

        The difference is exact, the product is rounded once.
        """
        out, runs = np.empty(self.shape, np.float32), self._layout.runs
        step, start = max(1, _CHUNK_VALUES // max(1, self.shape[1])), runs[0].start if runs else 0
        group = np.repeat([run.group for run in runs], [run.size for run in runs]).astype(np.int64)
        columns = slice(None) if self.order is None else self.order
        for first in range(0, self.shape[0], step):
            outputs = self._outputs[first : first + step]
            codes = self._source.codes(outputs, start, start + self.shape[1]).astype(np.int16)
            zeros, scales = self._source.zeros(outputs)[:, group], self._source.scales(outputs)[:, group]
            # A NaN in a scale is kept without a warning.
            with np.errstate(invalid="ignore", over="ignore"):
                out[first : first + step, columns] = (codes - zeros).astype(np.float32) * scales
        return out

    def part(self, index: int) -> GroupedTensor:
        """Raises `BadCheckpoint`: a matrix has no parts."""
        raise one_matrix(self.name)

    def rows(self, start: int, stop: int) -> GroupedTensor:
        return GroupedTensor(self.name, self._layout, self._source, self._outputs[start:stop])

    def take(self, indices: npt.ArrayLike) -> GroupedTensor:
        chosen = self._outputs[np.asarray(indices, np.int64).reshape(-1)]
        return GroupedTensor(self.name, self._layout, self._source, chosen)


def runs_by_group(groups: Indices, bits: int) -> tuple[list[Run], Indices | None]:
    """The runs of columns with these groups, and the order that makes groups contiguous (None: they are)."""
    order = None if (np.diff(groups) >= 0).all() else np.argsort(groups, kind="stable")
    kept = groups if order is None else groups[order]
    starts = np.concatenate([[0], np.flatnonzero(np.diff(kept)) + 1]) if kept.size else np.zeros(0, np.int64)
    sizes = np.diff(np.append(starts, kept.size))
    runs = [Run(int(s), int(n), bits, int(kept[s])) for s, n in zip(starts, sizes, strict=True)]
    return runs, order


def one_matrix(name: str) -> BadCheckpoint:
    """The error for a part of a matrix."""
    return BadCheckpoint(
        _(
            "The tensor {name} is one matrix, where the model's headers call for a stack of matrices.",
            name=name,
        )
    )
