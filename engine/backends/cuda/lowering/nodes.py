"""The operations of a pass before it is known who reads what: they become calls when the whole pass was
seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.backends.base import RotaryTable
from engine.backends.cuda.kernels.fused import RowNorm
from engine.backends.cuda.kernels.rope import HeadNorm
from engine.backends.cuda.lowering.call import Call, Operation
from engine.backends.cuda.weight import ExpertTable, WeightSpec
from engine.backends.graph.buffers import Buffer

Build = Callable[[Buffer | None, str, Buffer | None], tuple[Call, ...]]
"""Makes calls that write rows as floats (or None), and as records of a kind ("none", or "halves" or
"pairs" into a buffer).
"""


@dataclass(eq=False, kw_only=True)
class Node:
    """One operation, on the device of this number; `reads` are the rows that it takes as floats."""

    device: int
    reads: tuple[Buffer, ...]


@dataclass(eq=False, kw_only=True)
class Ready(Node):
    """An operation that depends on nothing else."""

    operation: Operation


@dataclass(eq=False, kw_only=True)
class Maker(Node):
    """Makes rows y as floats, as records of one kind, or as both.

    `long` is what long steps do, None the same with floats alone.
    """

    y: Buffer
    build: Build
    long: Operation | None = None


@dataclass(eq=False, kw_only=True)
class RowNormed(Maker):
    """y = the norm of each row of x."""

    x: Buffer
    norm: RowNorm


@dataclass(eq=False, kw_only=True)
class HeadsNormed(Node):
    """y = the norm of each of x's heads."""

    x: Buffer
    y: Buffer
    heads: int
    norm: HeadNorm


@dataclass(eq=False, kw_only=True)
class Cut(Node):
    """y = columns of x from `start` on."""

    x: Buffer
    start: int
    y: Buffer


@dataclass(eq=False, kw_only=True)
class Sum(Node):
    """y = x + scale z."""

    x: Buffer
    z: Buffer
    y: Buffer
    scale: float


@dataclass(eq=False, kw_only=True)
class Product(Node):
    """y = x times a weight, plus a bias (its address, 0 for none) and a residual.

    `x` may be wanted as a record.
    """

    x: Buffer
    weight: WeightSpec
    y: Buffer
    bias: int = 0
    residual: Buffer | None = None


@dataclass(eq=False, kw_only=True)
class ExpertProduct(Node):
    """y = spread rows x times their experts' weights, of one weight layout; those of experts of another are
    left as they are.

    `ids` are the experts of each row of the step, `bias` the address of a table with a row of `bias_stride`
    bytes for each expert.
    """

    x: Buffer
    table: ExpertTable
    ids: Buffer
    y: Buffer
    bias: int
    bias_stride: int

    @property
    def weight(self) -> WeightSpec:
        """One of the experts'."""
        return self.table.first


@dataclass(eq=False, kw_only=True)
class Turn(Node):
    """y = x from column `first` on, turned by the step's positions, each head normed before where there is a
    norm.

    `cos` and `sin` are the addresses of the table's numbers.
    """

    x: Buffer
    y: Buffer
    heads: int
    table: RotaryTable
    cos: int
    sin: int
    norm: HeadNorm | None = None
    first: int = 0


@dataclass(eq=False, kw_only=True)
class Move(Node):
    """Rows that are brought from another device."""

    source: Buffer
    target: Buffer
    source_device: int
