"""A few rows of a large batch: blocks are multiplied as they are unpacked, without a packed panel.

For up to some 60 rows with AVX-512, and 30 without, writing a panel and reading it again costs more than
unpacking each block once for every 8 or 4 rows, unless the panel's products are `fast` and it is one of
several.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from llvmlite import ir
from numba.core import cgutils, types

from engine.backends.cpu.codegen.simd import (
    I32,
    I64,
    VI32,
    WIDE,
    Accumulators,
    OutputTile,
    const_vector,
    counted_loop,
    intrinsic_function,
    load,
    row_addresses,
    splat,
)
from engine.backends.cpu.codegen.simd_bytes import byte_sums, spread_word
from engine.backends.cpu.codegen.specialise import specialise
from engine.backends.cpu.kernels.linear.integer_gemm import add_scaled
from engine.backends.cpu.kernels.linear.panel_format import Numbers, PanelFormat
from engine.backends.cpu.kernels.packed_activations import FEATURES
from engine.backends.cpu.layouts.layout import (
    CHAINS,
    READ_AHEAD,
    Distance,
    IntegerLayout,
    ReadAhead,
    WeightLayout,
)
from engine.backends.cpu.layouts.plain import Plain

FEW_ROWS = 48 if WIDE else 24
"""A large batch of at most this many rows takes no panel."""
FEW_COLUMNS = 1024
"""With `fast` products, only matrices of at most this many columns take no panel: the shorter the panels, the
more often the sums between them are written and read.
"""
ROW_STEPS = (8, 4) if WIDE else (4, 2)
"""Rows that are multiplied at once, largest first."""

direct_big: Any = None
direct_small: Any = None
STEP_BIG = STEP_SMALL = 0


class DirectProducts:
    """Multiplies unpacked weights by some rows of packed activations at once, with no panel between.

    Every sum takes the same additions in the same order as in `integer_tile`, so the results are the same to
    the last bit. `block` is the address of row 0's packed activations; those of row r are `offsets[r]` bytes
    further on.
    """

    def __init__(
        self, b: ir.IRBuilder, form: PanelFormat, offsets: Sequence[ir.Value], totals: Accumulators
    ) -> None:
        self._form, self._offsets, self._totals = form, offsets, totals
        self._sums: list[ir.Value] = [const_vector(0, VI32)] * len(offsets)
        self._waiting: list[tuple[int, ir.Value]] = []  # quads whose products are added in int16
        self._soon: ReadAhead | None = None
        self._place, self._size = cgutils.alloca_once(b, I64), 0

    @property
    def numbers(self) -> Numbers:
        return self._form.numbers

    @property
    def size(self) -> int:
        return self._form.activation_bytes

    def begin(self, b: ir.IRBuilder, block: ir.Value, size: int) -> None:
        """The next packed weights begin at `block`, `size` bytes for each 32 features. Beside their products
        those further on are prefetched.
        """
        self._size = size
        b.store(block, self._place)

    def _read_ahead(self, b: ir.IRBuilder, q: int) -> None:
        if q == 0:
            here, ahead = b.load(self._place), Distance(ir.Constant(I64, READ_AHEAD))
            self._soon = ReadAhead(b, here, self._size, len(self._offsets), ahead, FEATURES // 4)
            b.store(b.add(here, ir.Constant(I64, self._size)), self._place)
        assert self._soon is not None
        self._soon.step()

    def put_quad(self, b: ir.IRBuilder, block: ir.Value, q: int, vectors: Sequence[ir.Value]) -> None:
        self._read_ahead(b, q)
        if self._form.quads_in_int16 > 1:
            self._waiting.append((q, *vectors))
            if len(self._waiting) == self._form.quads_in_int16:
                self._add_waiting(b, block)
            return
        for i, weights in enumerate(vectors):
            at = 4 * (q * self._form.vectors // 8 + i)
            for r, offset in enumerate(self._offsets):
                x = splat(b, load(b, b.add(block, offset), I32, at))
                self._sums[r] = self._form.product(b, self._sums[r], weights, x)

    def _add_waiting(self, b: ir.IRBuilder, block: ir.Value) -> None:
        rows = [b.add(block, offset) for offset in self._offsets]
        quads = ((weights, [spread_word(b, row, 4 * q) for row in rows]) for q, weights in self._waiting)
        self._sums = byte_sums(b, self._sums, quads, False, len(self._waiting) > 1)
        self._waiting = []

    def put_scales(
        self, b: ir.IRBuilder, block: ir.Value, part: int, scale: ir.Value, minimum: ir.Value | None
    ) -> None:
        if self._waiting:
            self._add_waiting(b, block)
        form, minimum = self._form, self._form.minimum(b, scale, minimum)
        for r, offset in enumerate(self._offsets):
            row = b.add(block, offset)
            total = add_scaled(b, form, part, self._sums[r], row, (scale, minimum), self._totals.get(r))
            self._totals.set(r, total)
            self._sums[r] = const_vector(0, VI32)


def _direct(weight_layout: IntegerLayout, form: PanelFormat, rows: int) -> Any:
    """direct(tile, blocks, x, x_stride, here, y, y_stride): y += x times one weight tile, for `rows` rows.

    x is packed as `form` says. Rows from `here` on repeat the one before.
    """
    x_bytes = weight_layout.unit // FEATURES * form.activation_bytes

    def emit(b: ir.IRBuilder, *arguments: Any) -> None:
        tile, blocks, x, x_stride, here, y, y_stride = arguments
        outputs = OutputTile(b, 1, row_addresses(b, y, y_stride, rows, here))
        offsets = row_addresses(b, ir.Constant(I64, 0), x_stride, rows, here)
        products = DirectProducts(b, form, offsets, outputs.sums)
        with counted_loop(b, blocks) as i:
            block = b.add(tile, b.mul(i, ir.Constant(I64, weight_layout.block_bytes)))
            products.begin(b, block, -(-weight_layout.block_bytes * FEATURES // weight_layout.unit))
            weight_layout.emit_panel(b, block, b.add(x, b.mul(i, ir.Constant(I64, x_bytes))), products)
        outputs.write()

    name = f"direct{form.bits}_{weight_layout.name}_{rows}"
    return intrinsic_function(name, types.void, (types.int64,) * 7, emit)


def _direct_floats(weight_layout: Plain, rows: int) -> Any:
    """The same for plain numbers, x float32: the additions of `gemm.panel_tile`, in its order."""

    def emit(b: ir.IRBuilder, *arguments: Any) -> None:
        tile, blocks, x, x_stride, here, y, y_stride = arguments
        ahead = Distance(ir.Constant(I64, READ_AHEAD))
        outputs = OutputTile(b, 1, row_addresses(b, y, y_stride, rows, here))
        x_rows = row_addresses(b, x, x_stride, rows, here)
        with counted_loop(b, blocks) as i:
            block = b.add(tile, b.mul(i, ir.Constant(I64, weight_layout.block_bytes)))
            offset = b.mul(i, ir.Constant(I64, 4 * weight_layout.unit))
            weight_layout.emit_dot(b, block, [b.add(row, offset) for row in x_rows], outputs.sums, ahead)
        outputs.write()

    name = f"direct_{weight_layout.name}_{rows}"
    return intrinsic_function(name, types.void, (types.int64,) * 7, emit)


def _few_rows_template(
    tile: int, blocks: int, x: int, x_stride: int, rows: int, y: int, y_stride: int
) -> None:
    """y += x times one weight tile."""
    r = 0
    while r < rows:
        xr, yr, here = x + r * x_stride, y + r * y_stride, rows - r
        if here > STEP_SMALL:
            direct_big(tile, blocks, xr, x_stride, here, yr, y_stride)
            r += STEP_BIG
        else:
            direct_small(tile, blocks, xr, x_stride, here, yr, y_stride)
            r += STEP_SMALL


def few_rows_kernel(weight_layout: WeightLayout, form: PanelFormat | None) -> Any:
    """The template filled in for a layout and its panel format. Plain numbers (None) have one where a row's
    dot product is one chain of additions, as in a panel; None for others, and where AMX multiplies.
    """
    if form is not None and form.amx:
        return None
    if form is not None:
        big, small = (_direct(cast(IntegerLayout, weight_layout), form, rows) for rows in ROW_STEPS)
    elif isinstance(weight_layout, Plain) and CHAINS == 1:
        big, small = (_direct_floats(weight_layout, rows) for rows in ROW_STEPS)
    else:
        return None
    return specialise(
        _few_rows_template,
        f"few_rows_{'floats' if form is None else form.name}_{weight_layout.name}",
        direct_big=big,
        direct_small=small,
        STEP_BIG=ROW_STEPS[0],
        STEP_SMALL=ROW_STEPS[1],
    )
