"""Products of packed panels by Intel's Advanced Matrix Extensions (AMX).

An instruction adds the products of up to 16 rows of 64 bytes of activations and as many bytes of 16 columns,
in a cycle for each row, whether it is full or not. Since every 32 features have scales of their own, it takes
32 features, or 16; then the sums are stored, scaled and added to the float32 totals by AVX-512, in the order
of `emit_dot`, while the next features are multiplied. Of 16-bit activations the high and the low bytes are
multiplied apart.

Sums of bytes are int32. Sums of bfloat16 are float32, but of integers below 2^24, which it adds exactly:
half as much is stored, since high and low bytes have one sum. So either way a row gets the bits that it gets
in decoding.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types

from engine.backends.cpu.codegen.memory_ops import ld_i64
from engine.backends.cpu.codegen.simd import (
    I1,
    I8,
    I16,
    I32,
    I64,
    LANES,
    VF32,
    VI32,
    const_vector,
    counted_loop,
    intrinsic_function,
    load,
    prefetch,
    splat,
    stack_room,
    store,
)
from engine.backends.cpu.codegen.simd_bytes import BASE, LIMIT, joined
from engine.backends.cpu.codegen.specialise import specialise
from engine.backends.cpu.kernels.linear.integer_gemm import (
    LARGEST_BYTE,
    P_BLOCKS,
    P_X,
    P_X_STRIDE,
    P_Y,
    P_Y_STRIDE,
    add_scaled,
)
from engine.backends.cpu.kernels.linear.panel_format import PanelFormat
from engine.backends.cpu.kernels.packed_activations import FEATURES, Quantised, each_quantised, high_byte

ROWS = LANES
"""Rows that are multiplied at once."""
COLUMN_VECTORS = 2
_SUM_BYTES = ROWS * 4 * LANES
"""Bytes of a tile of sums."""
_SUMS, _ACTIVATIONS, _WEIGHTS = range(4), (4, 5), (6, 7)
"""Numbers of AMX's tiles: of each vector of columns one or two sums; high and low activations; the vectors of
columns.
"""
_CONFIGURATION = 64
_ROW_BYTES, _ROW_COUNTS = 16, 48
"""Bytes of a configuration; offsets of the bytes of each tile's rows, uint16, and of the rows, uint8."""
_LINE = 4 * LANES


def _call(b: ir.IRBuilder, name: str, *arguments: ir.Value) -> None:
    """Call an intrinsic; AMX's tiles are given by number."""
    values = [ir.Constant(I8, a) if isinstance(a, int) else a for a in arguments]
    kind = ir.FunctionType(ir.VoidType(), [value.type for value in values])
    b.call(cgutils.get_or_insert_function(b.module, kind, f"llvm.x86.{name}"), values)


def _pointer(b: ir.IRBuilder, address: ir.Value, offset: int = 0) -> ir.Value:
    return b.inttoptr(b.add(address, ir.Constant(I64, offset)), I8.as_pointer())


def _step_bytes(form: PanelFormat) -> int:
    """Bytes of a row of activations in one product."""
    return form.half_bytes * form.part // FEATURES


def block_bytes(form: PanelFormat) -> int:
    """Bytes of 16 rows' packed activations of 32 features."""
    return ROWS * form.activation_bytes


def configure(form: PanelFormat) -> Any:
    """configure(first, rows): AMX's tiles for panels of this form and `rows` rows from number `first` on:
    fewer than 16 take less time.
    """
    fixed = np.zeros(_CONFIGURATION, np.uint8)
    fixed[0] = 1  # the palette
    widths, counts = fixed[_ROW_BYTES:_ROW_COUNTS].view(np.uint16), fixed[_ROW_COUNTS:]
    widths[[*_SUMS, *_WEIGHTS]], widths[[*_ACTIVATIONS]] = _LINE, _step_bytes(form)
    counts[[*_WEIGHTS]] = _step_bytes(form) // 4
    by_rows = [_ROW_COUNTS + n for n in (*_SUMS, *_ACTIVATIONS)]

    def emit(b: ir.IRBuilder, first: ir.Value, rows: ir.Value) -> None:
        kind, room = ir.VectorType(I8, _CONFIGURATION), stack_room(b, _CONFIGURATION)
        last = b.add(b.and_(first, ir.Constant(I64, ROWS - 1)), rows)
        count = b.select(b.icmp_signed("<", last, ir.Constant(I64, ROWS)), last, ir.Constant(I64, ROWS))
        known = ir.Constant(kind, [ir.Constant(I8, int(v)) for v in fixed])
        chosen = ir.Constant(
            ir.VectorType(I1, _CONFIGURATION), [ir.Constant(I1, i in by_rows) for i in range(_CONFIGURATION)]
        )
        counted = splat(b, b.trunc(count, I8), _CONFIGURATION)
        store(b, b.select(chosen, counted, known), room)
        _call(b, "ldtilecfg", _pointer(b, room))

    name = f"amx_configure_{_step_bytes(form)}"
    return intrinsic_function(name, types.void, (types.int64,) * 2, emit)


def _emit_release(b: ir.IRBuilder) -> None:
    _call(b, "tilerelease")


release = intrinsic_function("amx_release", types.void, (), _emit_release)
"""Clear the tiles, so that a switch of threads need not save them."""


class _Tile:
    """Emits the products of 16 rows and `vectors` vectors of 16 columns."""

    def __init__(self, vectors: int, form: PanelFormat) -> None:
        self.form = form
        self._vectors = range(vectors)
        self._pieces = range(form.bits // 8)
        self._parts = range(FEATURES // form.part)
        self._joined = form.amx == "bf16"  # high and low bytes have one sum
        self._product = "tdpbf16ps" if self._joined else "tdpbssd" if form.bits == 16 else "tdpbsud"
        self._sums = 1 if self._joined else len(self._pieces)

    @property
    def step_bytes(self) -> int:
        """Bytes of a step's stored sums."""
        return _SUM_BYTES * len(self._vectors) * self._sums

    def load(self, b: ir.IRBuilder, starts: list[ir.Value], x: ir.Value, part: int) -> None:
        """Load the weights and activations of a part."""
        line, bytes_ = ir.Constant(I64, _LINE), _step_bytes(self.form)
        for m in self._vectors:
            _call(b, "tileloadd64", _WEIGHTS[m], _pointer(b, starts[m], _LINE * bytes_ // 4 * part), line)
        apart = ir.Constant(I64, self.form.half_bytes)
        for h in self._pieces:
            place = _pointer(b, x, ROWS * self.form.half_bytes * h + bytes_ * part)
            _call(b, "tileloadd64", _ACTIVATIONS[h], place, apart)

    def write(self, b: ir.IRBuilder, out: ir.Value) -> None:
        """Store the sums: (vectors, those of high and low bytes or one, 16 rows, 16 columns)."""
        for n in range(len(self._vectors) * self._sums):
            _call(b, "tilestored64", _SUMS[n], _pointer(b, out, _SUM_BYTES * n), ir.Constant(I64, _LINE))

    def multiply(self, b: ir.IRBuilder) -> None:
        """The sums of products of what is loaded."""
        for n in range(len(self._vectors) * self._sums):
            _call(b, "tilezero", _SUMS[n])
        for h in self._pieces:
            for m in self._vectors:
                n = self._sums * m + (0 if self._joined else h)
                _call(b, self._product, _SUMS[n], _ACTIVATIONS[h], _WEIGHTS[m])

    def add(
        self,
        b: ir.IRBuilder,
        starts: list[ir.Value],
        part: int,
        sums: ir.Value,
        rows: tuple[ir.Value, ir.Value, ir.Value],
        y: tuple[ir.Value, ir.Value],
    ) -> None:
        """Add the scaled sums of a part to the totals of some rows.

        `rows`: the first of the 16, how many, and the address of its packed activations plus 4 for each row
        before; y: the address and stride of its totals.
        """
        first, count, x = rows
        at = self.form.numbers_at(part)
        scales = [load(b, start, VF32, at) for start in starts]
        mins = [load(b, start, VF32, at + _LINE) if self.form.mins else None for start in starts]
        place = b.add(sums, b.mul(first, ir.Constant(I64, _LINE)))
        with counted_loop(b, count) as t:
            row, out = b.add(x, b.shl(t, ir.Constant(I64, 2))), b.add(y[0], b.mul(t, y[1]))
            here = b.add(place, b.shl(t, ir.Constant(I64, 6)))
            kind, totals = VF32 if self._joined else VI32, list[ir.Value]()
            for m in self._vectors:
                found = [
                    load(b, here, kind, _SUM_BYTES * (self._sums * m + n), align=_LINE)
                    for n in range(self._sums)
                ]
                whole = joined(b, *found) if len(found) == 2 else found[0]
                total = load(b, out, VF32, _LINE * m)
                totals.append(add_scaled(b, self.form, part, whole, row, (scales[m], mins[m]), total))
            # After all loads: the row's numbers are not read again for the next vector.
            for m in self._vectors:
                store(b, totals[m], out, _LINE * m)


class _Step:
    """What a step multiplies, kept until the next one adds it: the address of the panel's block; the first of
    the 16 rows, how many, the address of its packed activations plus 4 for each row before; and the address
    of its totals.
    """

    def __init__(self, b: ir.IRBuilder, somewhere: ir.Value) -> None:
        """No rows yet; `somewhere` is an address that can be read."""
        self._b, self._slots = b, [cgutils.alloca_once(b, I64) for _ in range(5)]
        self.keep(somewhere, ir.Constant(I64, 0), ir.Constant(I64, 0), somewhere, somewhere)

    def keep(self, *values: ir.Value) -> None:
        """Replace all of it."""
        for slot, value in zip(self._slots, values, strict=True):
            self._b.store(value, slot)

    def get(self) -> list[ir.Value]:
        """All of it."""
        return [self._b.load(slot) for slot in self._slots]


class _Ahead:
    """Prefetches `size` bytes from each of some addresses on into the second-level cache, a few lines with
    each of `steps` steps: all at once would be more than a core can wait for while it computes.
    """

    def __init__(self, b: ir.IRBuilder, starts: list[ir.Value], size: ir.Value, steps: ir.Value) -> None:
        self._b, self._starts, self._done = b, starts, cgutils.alloca_once(b, I64)
        self._lines = b.lshr(b.add(b.udiv(size, steps), ir.Constant(I64, 63)), ir.Constant(I64, 6))
        b.store(ir.Constant(I64, 0), self._done)

    def step(self) -> None:
        """Prefetch the next lines."""
        b, done = self._b, self._b.load(self._done)
        with counted_loop(b, self._lines) as i:
            for start in self._starts:
                prefetch(b, b.add(start, b.add(done, b.shl(i, ir.Constant(I64, 6)))), 0, 2)
        b.store(b.add(done, b.shl(self._lines, ir.Constant(I64, 6))), self._done)


def _lanes(b: ir.IRBuilder, lowest: ir.Value, first: ir.Value, end: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Of the 16 rows from `lowest` on the first that is one of `first` .. `end` - 1, and how many are."""
    before = b.icmp_signed("<", first, lowest)
    lane = b.select(before, ir.Constant(I64, 0), b.sub(first, lowest))
    left, most = b.sub(b.sub(end, lowest), lane), b.sub(ir.Constant(I64, ROWS), lane)
    return lane, b.select(b.icmp_signed("<", left, most), left, most)


def amx_rows(vectors: int, form: PanelFormat) -> Any:
    """rows(panel, vector_stride, x, x_stride, first, count, rows, y, y_stride, ahead, apart, size):
    y += x times the panel.

    x is the address of 32 `count` features in the packed activations of rows 0 .. 15; each row takes
    `x_stride` bytes. `first`: the first of the `rows` rows. Meanwhile `size` bytes from `ahead` on are
    prefetched, and as many for each further vector, `apart` bytes apart.
    """
    tile, parts = _Tile(vectors, form), range(FEATURES // form.part)

    def emit(b: ir.IRBuilder, *arguments: Any) -> None:
        panel, vector_stride, x, x_stride, first, count, rows, y, y_stride, ahead, apart, size = arguments
        room, latest = stack_room(b, 2 * tile.step_bytes), _Step(b, panel)

        def each(start: ir.Value, stride: ir.Value) -> list[ir.Value]:
            return [b.add(start, b.mul(stride, ir.Constant(I64, m))) for m in range(vectors)]

        def add_latest(part: int, sums: ir.Value) -> None:
            block, lane, many, at, out = latest.get()
            tile.add(b, each(block, vector_stride), part, sums, (lane, many, at), (out, y_stride))

        end, step = b.add(first, rows), cgutils.alloca_once(b, I64)
        b.store(ir.Constant(I64, 0), step)
        start = b.and_(first, ir.Constant(I64, -ROWS))
        groups = b.lshr(b.add(b.sub(end, start), ir.Constant(I64, ROWS - 1)), ir.Constant(I64, 4))
        steps = b.mul(groups, b.mul(count, ir.Constant(I64, len(parts))))
        soon = _Ahead(b, each(ahead, apart), size, steps)
        with counted_loop(b, groups) as g:
            lowest = b.add(start, b.mul(g, ir.Constant(I64, ROWS)))
            lane, many = _lanes(b, lowest, first, end)
            packed = b.add(x, b.mul(lowest, x_stride))
            out = b.add(y, b.mul(b.sub(b.add(lowest, lane), first), y_stride))
            with counted_loop(b, count) as i:
                block = b.add(panel, b.mul(i, ir.Constant(I64, form.size)))
                here = b.add(packed, b.mul(i, ir.Constant(I64, block_bytes(form))))
                at = b.add(here, b.shl(lane, ir.Constant(I64, 2)))
                for part in parts:
                    odd = b.and_(b.load(step), ir.Constant(I64, 1))
                    sums = b.add(room, b.mul(odd, ir.Constant(I64, tile.step_bytes)))
                    tile.load(b, each(block, vector_stride), here, part)
                    tile.write(b, sums)
                    tile.multiply(b)
                    soon.step()
                    add_latest(parts[part - 1], sums)
                    latest.keep(block, lane, many, at, out)
                    b.store(b.add(b.load(step), ir.Constant(I64, 1)), step)
        tile.write(b, room)
        add_latest(parts[-1], room)

    return intrinsic_function(f"{form.name}_{vectors}", types.void, (types.int64,) * 12, emit)


# --- packing ------------------------------------------------------------------------------------------------


def pack_rows(form: PanelFormat) -> Any:
    """row(x, count, packed, lane): 32 `count` float32 values to row `lane` of 16 packed rows at `packed`."""
    floats = form.amx == "bf16"
    # Integers of eight bits are exact in bfloat16, the upper half of float32.
    order = [8 * (i // 4) + (1, 5, 3, 7)[i % 4] if floats else i for i in range(FEATURES)]
    mask = ir.Constant(ir.VectorType(I32, FEATURES), [ir.Constant(I32, k) for k in order])

    def joined_parts(b: ir.IRBuilder, parts: list[ir.Value]) -> ir.Value:
        kind = ir.VectorType(I16, 2 * LANES) if floats else ir.VectorType(I8, LANES)
        found = [b.bitcast(each, kind) if floats else b.trunc(b.fptosi(each, VI32), kind) for each in parts]
        return b.shuffle_vector(*found, mask)

    def emit(b: ir.IRBuilder, x: Any, count: Any, packed: Any, lane: Any) -> None:
        row = b.add(packed, b.mul(lane, ir.Constant(I64, form.half_bytes)))
        numbers = b.add(packed, b.shl(lane, ir.Constant(I64, 2)))

        def put(i: ir.Value, block: Quantised) -> None:
            jump = b.mul(i, ir.Constant(I64, block_bytes(form)))
            pieces = [block.numbers]
            if form.bits == 16:
                highs = [high_byte(b, whole) for whole in block.numbers]
                raised = [b.fmul(high, const_vector(float(BASE))) for high in highs]
                lows = [b.fsub(*both) for both in zip(block.numbers, raised, strict=True)]
                pieces = [raised if floats else highs, lows]
            for h, parts in enumerate(pieces):
                store(b, joined_parts(b, parts), b.add(row, jump), ROWS * form.half_bytes * h)
            here = b.add(numbers, jump)
            store(b, block.scale, here, form.scale_at)
            for n, total in enumerate(block.sums):
                store(b, b.fmul(total, block.scale), here, form.scale_at + _LINE * (1 + n))

        each_quantised(b, x, count, put, LIMIT if form.bits == 16 else LARGEST_BYTE)

    return intrinsic_function(f"pack_{form.name}", types.void, (types.int64,) * 4, emit)


pack_row: Any = None


def _pack_template(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile for each row: float32 to its place among 16 packed rows."""
    x = ld_i64(args + 8 * P_X) + tile * ld_i64(args + 8 * P_X_STRIDE)
    packed = ld_i64(args + 8 * P_Y) + tile // ROWS * ROWS * ld_i64(args + 8 * P_Y_STRIDE)
    pack_row(x, ld_i64(args + 8 * P_BLOCKS), packed, tile % ROWS)


def pack_kernel(name: str) -> Any:
    """The kernel that packs activations for panels: see `FORMATS`."""
    return specialise(_pack_template, name, pack_row=pack_rows(FORMATS[name]))


FORMATS = {
    "pack_amx_bf16": PanelFormat(16, FEATURES, False, magnitude=1),
    "pack_amx_int16": PanelFormat(16, FEATURES, False),
    "pack_amx_int8": PanelFormat(8, FEATURES, False),
}
"""A format of panels that read what each of these kernels packs."""
