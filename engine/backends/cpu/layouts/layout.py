"""What a packed weight layout of the CPU backend is, and what layouts share.

Every layout keeps 16 neighbouring rows together as a *tile*: each vector lane holds one row, so that no
horizontal sum is needed. A tile is a run of *blocks* of `unit` input features. A weight layout packs blocks
and emits the two pieces of code of every matrix kernel: the dot product of a block with R activation rows,
and its unpacking to float32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from llvmlite import ir

from engine.backends.cpu.codegen.simd import AMD, LANES, WIDE, Accumulators, fma, prefetch
from engine.backends.cpu.kernels.linear.panel_format import PanelFormat, UnpackedWeights

Bytes = npt.NDArray[np.uint8]


class WeightLayout(Protocol):
    """One packed layout.

    `name` is lower case without an underscore: kernels are called `linear_<name>` and `embed_<name>`. `unit`
    divides 256. `integer` layouts hold integers with scales: 32 divides their `unit`, and `emit_dot` gets
    rows as blocks of 16-bit activations (`packed_activations`); the others get float32 rows.

    A new layout is a class with these members and an entry in `table.WEIGHT_LAYOUTS`. Read `q8` first, which
    is short; `codes` packs and reads codes of 2 to 6 bits, `integer_dot` multiplies them, and `add_to_chain`,
    `join_chains` and `ReadAhead` below do the rest. A row's result must not depend on the other rows, to
    the last bit: every row of `rows` takes the same additions in the same order. `emit_dot` reads a block's
    lines in their order, scales first: a processor's prefetcher follows nothing else.
    """

    def __hash__(self) -> int: ...

    @property
    def name(self) -> str:
        """The name that kernels' names end with."""
        ...

    @property
    def types(self) -> tuple[str, ...]:
        """The values of `RawTensor.type` that are packed into this layout."""
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
    def file_bytes(self) -> int:
        """Bytes of a block of one row as `pack` takes them."""
        ...

    @property
    def integer(self) -> bool:
        """Whether `emit_dot` reads packed 16-bit activations."""
        ...

    def pack(self, raw: Bytes, rows: int, columns: int) -> Bytes:
        """Pack file bytes of `rows` x `columns` (multiples of 16 and `unit`) into tiles, flat uint8."""
        ...

    def emit_dot(
        self,
        b: ir.IRBuilder,
        block: ir.Value,
        rows: Sequence[ir.Value],
        totals: Accumulators,
        ahead: Distance,
    ) -> None:
        """Emit totals[r] += block times the activations at rows[r], for each r; weights are prefetched
        `ahead`.
        """
        ...

    def emit_unpack(self, b: ir.IRBuilder, block: ir.Value, target: ir.Value) -> None:
        """Emit code that writes the block as float32 (unit, 16) to `target`."""
        ...


@runtime_checkable
class IntegerLayout(WeightLayout, Protocol):
    """A weight layout of integers with scales (`integer` is true)."""

    def panel_format(self, bits: int) -> PanelFormat:
        """How packed panels for activations of 16 or 8 bits hold its weights."""
        ...

    def emit_panel(self, b: ir.IRBuilder, block: ir.Value, target: ir.Value, form: UnpackedWeights) -> None:
        """Emit code that unpacks the block and gives it to `form`, whose first block of 32 is `target`."""
        ...


def tiles(values: npt.NDArray[np.generic], rows: int) -> npt.NDArray[np.generic]:
    """Reshape (rows, blocks, ...) to (rows / 16, blocks, ..., 16): the row within its tile comes last."""
    split = values.reshape(rows // LANES, LANES, *values.shape[1:])
    return np.moveaxis(split, 1, -1)


def lanes_of(values: npt.NDArray[np.generic], rows: int) -> Bytes:
    """The bytes of (rows, blocks, n) numbers by tile and block: (rows / 16, blocks, bytes)."""
    found = np.ascontiguousarray(tiles(values, rows)).view(np.uint8)
    return found.reshape(*found.shape[:2], -1)


CHAINS = 2 if WIDE else 1
"""Partial sums of each activation row within a block, the same for any number of rows, so that a row's result
does not depend on the others. Without AVX-512 a vector is two or more registers: one sum is two chains.
"""


READ_AHEAD = 8 << 10
"""How many bytes ahead packed weights are prefetched: 0.4 microseconds at 20 GB/s for each core."""


class Distance(NamedTuple):
    """How far ahead a product prefetches its weights."""

    bytes: ir.Value
    first: bool = True
    """Whether into the first-level cache, too. That can make a product an eighth faster. It can also make it
    a third slower, and the same instructions at another place in memory no slower at all.
    """


class ReadAhead:
    """Prefetches the `size` bytes that begin `ahead` of `start`, for a product of `rows` rows, a few lines
    with each of `steps` steps, into the second-level cache, which can have many more reads in flight than the
    first.

    Between the steps weights are read and multiplied. Where all lines of a group were prefetched at once, the
    reads of its own weights waited behind them: a Xeon with AMX read Q4_K and Q6_K a fifth slower than memory
    is, and without AVX-512 four rows took two fifths longer.

    All bytes of a block must be prefetched: a line that is not costs memory's whole latency for each block.
    With AVX-512 they may come into the first level, too: on AMD's Zen 5 at once and for a single row alone,
    which was as fast or faster; on others a quarter as far ahead, by which Intel's Emerald Rapids decodes
    Q4_K_M a tenth faster, and a Xeon with AMX reads it a twentieth faster for two to eight rows.
    """

    def __init__(
        self, b: ir.IRBuilder, start: ir.Value, size: int, rows: int, ahead: Distance, steps: int = 1
    ) -> None:
        self._b, self._far = b, b.add(start, ahead.bytes)
        self._near = b.add(start, b.lshr(ahead.bytes, ir.Constant(ahead.bytes.type, 2)))
        self._at_once = WIDE and AMD and rows == 1 and ahead.first
        self._twice = WIDE and not AMD and ahead.first
        lines = range(0, size, 64)
        self._shares = [
            lines[len(lines) * k // steps : len(lines) * (k + 1) // steps] for k in reversed(range(steps))
        ]

    def step(self) -> None:
        """Prefetch the next lines."""
        for line in self._shares.pop():
            prefetch(self._b, self._far, line, 1 if self._at_once else 2)
            if self._twice:
                prefetch(self._b, self._near, line, 1)

    def beside(self, numbers: Iterable[int]) -> Iterator[int]:
        """The numbers; before each a step."""
        for number in numbers:
            self.step()
            yield number


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
