"""The packed weight layouts of the CPU backend, and the table of them.

Every layout keeps 16 neighbouring rows together as a *tile*, so that each vector lane owns one row and no horizontal sum is
needed. A tile is a run of *blocks* of `unit` input features. A family says how a block is packed, and emits the two pieces
of code every matrix kernel is made of: the dot product of a block with R activation rows, and its unpacking to float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from llvmlite import ir

from engine.backends.cpu.simd import LANES, WIDE, Accumulators

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class BlockRows:
    """Where a block's activations are: for each of R rows the address of its first value and of its first 16-sum."""

    x: tuple[ir.Value, ...]
    sums: tuple[ir.Value, ...]


class Family(Protocol):
    """One packed layout. `unit` features a block, `block_bytes` for 16 rows, `types` the GGUF types packed into it.

    `needs_sums`: `emit_dot` reads the sums of 16 neighbouring activations (for zero points and minimums).
    """

    name: str
    types: tuple[str, ...]
    unit: int
    block_bytes: int
    needs_sums: bool

    def pack(self, type_name: str, raw: Bytes, rows: int, columns: int) -> Bytes:
        """File bytes of `rows` x `columns` (rows a multiple of 16, columns of `unit`) to tiles, flat uint8."""
        ...

    def emit_dot(self, b: ir.IRBuilder, block: ir.Value, rows: BlockRows, totals: Accumulators) -> None:
        """totals[r] += block times activation row r, for each r."""
        ...

    def emit_unpack(self, b: ir.IRBuilder, block: ir.Value, target: ir.Value) -> None:
        """Write the block as float32 (unit, 16) to `target`."""
        ...


def tiles(values: npt.NDArray[np.generic], rows: int) -> npt.NDArray[np.generic]:
    """(rows, blocks, ...) to (rows / 16, blocks, ..., 16): the row within its tile becomes the last axis."""
    split = values.reshape(rows // LANES, LANES, *values.shape[1:])
    return np.moveaxis(split, 1, -1)


CHAINS = 2 if WIDE else 1
"""Partial sums of each activation row within a block, the same for any number of rows: a row's answer is then the same to the
last bit whichever rows are beside it. Without AVX-512 a vector is two registers or more, so one sum is two chains already."""
