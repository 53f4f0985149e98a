"""The packed weight layouts of the CPU backend, and the table of them.

Every layout keeps 16 neighbouring rows together as a *tile*, so that each vector lane owns one row and no
horizontal sum is needed. A tile is a run of *blocks* of `unit` input features. A weight layout says how a
block is packed, and emits the two pieces of code every matrix kernel is made of: the dot product of a block
with R activation rows, and its unpacking to float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from llvmlite import ir

from engine.backends.cpu.codegen.simd import LANES, WIDE, Accumulators, fma, prefetch
from engine.backends.cpu.kernels.linear.integer_gemm import PanelFormat

Bytes = npt.NDArray[np.uint8]


class WeightLayout(Protocol):
    """One packed layout.

    `unit` features a block, `block_bytes` for 16 rows, `types` the tensor types packed into it.

    `name` is lower case without an underscore: kernels are called `linear_<name>` and `embed_<name>`. `unit`
    divides 256. `integer` weight layouts hold integers with scales: `emit_dot` then gets rows as blocks
    of 16-bit activations (`activations`), and 32 divides `unit`; the others get float32 rows.

    A new layout is a class with these members and an entry in `kernels.WEIGHT_LAYOUTS`. `q8` is a short one
    to read first; `codes` packs and reads codes of 2 to 6 bits, `integer_dot` multiplies them, and
    `add_to_chain`, `join_chains` and `prefetch_lines` below do the rest. Two rules keep a row's answer the
    same to the last bit whichever rows are beside it: every row of `rows` goes through the same additions in
    the same order, and a block's products are added up before they meet `totals`.
    """

    @property
    def name(self) -> str:
        """Of the kernels."""
        ...

    @property
    def types(self) -> tuple[str, ...]:
        """Names of the tensor types, as `RawTensor.type` has them."""
        ...

    @property
    def unit(self) -> int:
        """Features of a block."""
        ...

    @property
    def block_bytes(self) -> int:
        """Bytes of a block of 16 rows."""
        ...

    @property
    def integer(self) -> bool:
        """Whether `emit_dot` reads packed 16-bit activations."""
        ...

    def pack(self, type_name: str, raw: Bytes, rows: int, columns: int) -> Bytes:
        """File bytes of `rows` x `columns` (rows a multiple of 16, columns of `unit`) to tiles, flat
        uint8.
        """
        ...

    def emit_dot(
        self, b: ir.IRBuilder, block: ir.Value, rows: Sequence[ir.Value], totals: Accumulators
    ) -> None:
        """totals[r] += block times what is at rows[r], for each r."""
        ...

    def emit_unpack(self, b: ir.IRBuilder, block: ir.Value, target: ir.Value) -> None:
        """Write the block as float32 (unit, 16) to `target`."""
        ...


@runtime_checkable
class IntegerLayout(WeightLayout, Protocol):
    """A weight layout of whole numbers with scales: what a `integer` weight layout has besides."""

    def panel_format(self, bits: int) -> PanelFormat:
        """How panels for activations of 16 or 8 bits hold its weights."""
        ...

    def emit_panel(self, b: ir.IRBuilder, block: ir.Value, target: ir.Value, form: PanelFormat) -> None:
        """Write the block to `target` as a panel holds it; `form` is one that `panel_format` gives."""
        ...


def tiles(values: npt.NDArray[np.generic], rows: int) -> npt.NDArray[np.generic]:
    """(rows, blocks, ...) to (rows / 16, blocks, ..., 16): the row within its tile becomes the last axis."""
    split = values.reshape(rows // LANES, LANES, *values.shape[1:])
    return np.moveaxis(split, 1, -1)


CHAINS = 2 if WIDE else 1
"""Partial sums of each activation row within a block, the same for any number of rows: a row's answer is then
the same to the last bit whichever rows are beside it. Without AVX-512 a vector is two registers or more, so
one sum is two chains already.
"""


READ_AHEAD = 8 << 10
"""Bytes that packed weights are asked for ahead of their use: 0.4 microseconds at 20 GB/s a core."""


def prefetch_lines(b: ir.IRBuilder, block: ir.Value, size: int) -> None:
    """Ask for the cache lines of the `size` bytes that begin `READ_AHEAD` bytes after `block`, into the
    second-level cache: it has room for many more reads under way than the first.
    """
    for line in range(0, size, 64):
        prefetch(b, block, READ_AHEAD + line, 2)


def add_to_chain(
    b: ir.IRBuilder, parts: list[ir.Value | None], chain: int, x: ir.Value, weight: ir.Value
) -> None:
    """parts[chain] += x * weight; the first product starts the chain."""
    before = parts[chain]
    parts[chain] = b.fmul(x, weight) if before is None else fma(b, x, weight, before)


def join_chains(b: ir.IRBuilder, parts: list[ir.Value | None]) -> ir.Value:
    """The sum of all chains, pairwise."""
    values = [p for p in parts if p is not None]
    while len(values) > 1:
        values = [
            b.fadd(values[i], values[i + 1]) if i + 1 < len(values) else values[i]
            for i in range(0, len(values), 2)
        ]
    return values[0]
