"""Large batches times integer weights: products of int16 pairs (vpdpwssd, vpmaddwd) or of bytes.

Weights are unpacked once into a packed panel that stays in the first-level cache, and register tiles run over
all rows. `PanelFormat` describes the panel. Pairs take 16-bit activations, as decoding does; they need VNNI
or AVX2, without which float32 is as fast. Bytes take 8-bit activations, if the settings ask for them: twice
as many products for each instruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from llvmlite import ir
from numba.core import types

from engine.backends.cpu.codegen.memory_ops import ld_i64
from engine.backends.cpu.codegen.simd import (
    F32,
    I8,
    I16,
    I32,
    I64,
    LANES,
    VF32,
    VI32,
    WIDE,
    OutputTile,
    const_vector,
    counted_loop,
    fma,
    intrinsic_function,
    load,
    splat,
    store,
)
from engine.backends.cpu.codegen.simd_bytes import (
    KIND,
    V64I8,
    byte_products,
    byte_sums,
    call_function,
    in_step,
    join,
    part_of,
    products_in_int16,
    spread_word,
)
from engine.backends.cpu.codegen.specialise import specialise
from engine.backends.cpu.kernels.linear.gemm import tile_function
from engine.backends.cpu.kernels.packed_activations import FEATURES, quantise
from engine.lazy_dataclass import dataclass

PAIRS = KIND == "vnni" or (KIND == "avx2" and not WIDE)
"""Whether products of int16 pairs take less time than those of float32. With VNNI they are half as many
instructions; with AVX2 as many, but half of them are additions, which more ports take.
"""
LARGEST_BYTE = 127
V32I16 = ir.VectorType(I16, 2 * LANES)
ROW_STEPS = (6, 2) if WIDE else (3, 1)
COLUMN_VECTORS = 2 if WIDE else 1

(P_X, P_X_STRIDE, P_Y, P_Y_STRIDE, P_BLOCKS) = range(5)
"""Of the pack kernels: addresses and strides in bytes of x and y, and blocks of 32 features in a row."""


@dataclass(frozen=True)
class PanelFormat:
    """How a packed panel holds a layout's weights: blocks of 32 features x 16 columns.

    bits 16   16 vectors of int16 pairs: of each quad of features the pairs are (0, 2) and (1, 3), which a
              mask and a shift extract from bytes.
    bits 8    8 vectors of quads of bytes, weights plus `zero`, from 0 to `largest`, or signed if that is 0.
    Then, for each part of `part` features, 16 float32 scales and, if `mins`, 16 float32 minimums, which are
    multiplied by the sum of the activations. With `zero` there are always minimums, which subtract it.

    A block of 32 packed activations: 32 integers of `bits` bits in the order of the weights, then float32:
    the scale, and the scale times the sums of the first 16 integers, of the last 16 and of all.
    """

    bits: int
    part: int
    mins: bool
    zero: int = 0
    largest: int = 0

    @property
    def name(self) -> str:
        """The part of a compiled function's name that stands for this format."""
        kind = "pairs" if self.bits == 16 else f"bytes{self.largest or 's'}"
        return f"{kind}_{self.part}{'_min' if self.mins else ''}"

    @property
    def vectors(self) -> int:
        """Vectors of a block's weights."""
        return self.bits

    @property
    def quads_in_int16(self) -> int:
        """How many vectors of bytes have their products added before they become int32."""
        return products_in_int16(self.largest) if self.bits == 8 else 1

    @property
    def code_bytes(self) -> int:
        """Bytes of a block's weights."""
        return 64 * self.vectors

    @property
    def size(self) -> int:
        """Bytes of a block."""
        return self.code_bytes + FEATURES // self.part * LANES * 4 * (2 if self.mins else 1)

    @property
    def scale_at(self) -> int:
        """Offset of the scale in a block of packed activations; the sums follow."""
        return FEATURES * self.bits // 8

    @property
    def activation_bytes(self) -> int:
        """Bytes of a block of packed activations."""
        return self.scale_at + 16

    def put_quad(self, b: ir.IRBuilder, block: ir.Value, q: int, vectors: Sequence[ir.Value]) -> None:
        """Write the weights of quad q: two vectors of pairs, or one of bytes."""
        for i, vector in enumerate(vectors):
            store(b, vector, block, 64 * (q * self.vectors // 8 + i))

    def put_scales(
        self, b: ir.IRBuilder, block: ir.Value, part: int, scale: ir.Value, minimum: ir.Value | None
    ) -> None:
        """Write a part's scales and minimums, float32 (16)."""
        at = self.code_bytes + part * LANES * 4 * (2 if self.mins else 1)
        store(b, scale, block, at)
        minimum = self.minimum(b, scale, minimum)
        if minimum is not None:
            store(b, minimum, block, at + 4 * LANES)

    def minimum(self, b: ir.IRBuilder, scale: ir.Value, minimum: ir.Value | None) -> ir.Value | None:
        """A part's minimums with `zero` subtracted from its weights; None without `mins`."""
        if self.zero:
            added = const_vector(0.0) if minimum is None else minimum
            minimum = fma(b, scale, const_vector(-float(self.zero)), added)
        assert (minimum is not None) == self.mins
        return minimum

    def product(self, b: ir.IRBuilder, total: ir.Value, weights: ir.Value, x: ir.Value) -> ir.Value:
        """total[lane] + the products of the weights and the 4 bytes of activations in the lane."""
        if self.bits == 16:
            return in_step(b, pair_products(b, total, weights, b.bitcast(x, V32I16)))
        return in_step(b, byte_products(b, total, weights, b.bitcast(x, V64I8), not self.largest))

    def sum_at(self, part: int) -> int:
        """Offset of the sum over a part's features in a block of packed activations."""
        return self.scale_at + 4 + 4 * (2 if self.part == FEATURES else part)


class UnpackedWeights(Protocol):
    """Where a layout's unpacked weights go: to a packed panel (`PanelFormat`) or into products at once
    (`direct.DirectProducts`).

    A layout emits, for each block of 32 features, the quads of a part and then the part's scales. `block` is
    the address that it was given plus `size` for each block before.
    """

    @property
    def bits(self) -> int:
        """Bits of the activations that the weights will be multiplied by."""
        ...

    @property
    def size(self) -> int:
        """Bytes from a block to the next."""
        ...

    def put_quad(self, b: ir.IRBuilder, block: ir.Value, q: int, vectors: Sequence[ir.Value]) -> None:
        """Take the weights of quad q."""
        ...

    def put_scales(
        self, b: ir.IRBuilder, block: ir.Value, part: int, scale: ir.Value, minimum: ir.Value | None
    ) -> None:
        """Take a part's scales and minimums, float32 (16)."""
        ...


INT16_ACTIVATIONS, INT8_ACTIVATIONS = PanelFormat(16, FEATURES, False), PanelFormat(8, FEATURES, False)
"""The formats whose packed activations all panels of 16 and of 8 bits read."""


def code_pairs(b: ir.IRBuilder, quad: ir.Value, minus: ir.Value | None) -> tuple[ir.Value, ir.Value]:
    """The pairs of a quad of unsigned bytes, minus `minus` (32 int16)."""
    mask = const_vector(0x00FF00FF, VI32)
    both = [b.and_(quad, mask), b.and_(b.lshr(quad, const_vector(8, VI32)), mask)]
    first, second = (b.bitcast(v, V32I16) for v in both)
    return (first, second) if minus is None else (b.sub(first, minus), b.sub(second, minus))


def signed_pairs(b: ir.IRBuilder, quad: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The pairs of a quad of signed bytes."""
    eight, both = ir.Constant(V32I16, [ir.Constant(I16, 8)] * 32), b.bitcast(quad, V32I16)
    return b.ashr(b.shl(both, eight), eight), b.ashr(both, eight)


def in_both(b: ir.IRBuilder, numbers: ir.Value) -> ir.Value:
    """16 int32 that fit in 16 bits, each as both numbers of its lane's pair."""
    low = b.and_(numbers, const_vector(0xFFFF, VI32))
    return b.bitcast(b.or_(low, b.shl(low, const_vector(16, VI32))), V32I16)


def pair_products(b: ir.IRBuilder, total: ir.Value, weights: ir.Value, x: ir.Value) -> ir.Value:
    """total[lane] + both products of the lane's pairs: int32 (16), int16 (32), int16 (32)."""
    size = LANES if WIDE else 8
    parts = []
    for start in range(0, LANES, size):
        w, v = (part_of(b, a, 2 * start, 2 * size) for a in (weights, x))
        before = part_of(b, total, start, size)
        if KIND == "vnni":
            parts.append(call_function(b, f"llvm.x86.avx512.vpdpwssd.{32 * size}", before.type, before, w, v))
        else:
            parts.append(b.add(before, call_function(b, "llvm.x86.avx2.pmadd.wd", before.type, w, v)))
    return join(b, parts)


def _emit_row(form: PanelFormat) -> Any:
    """row(x, count, packed): 32 `count` float32 values to `count` blocks of packed activations."""
    number = ir.VectorType(I16 if form.bits == 16 else I8, LANES)
    order = [4 * (i // 4) + (0, 2, 1, 3)[i % 4] if form.bits == 16 else i for i in range(FEATURES)]
    mask = ir.Constant(ir.VectorType(I32, FEATURES), [ir.Constant(I32, k) for k in order])

    def emit(b: ir.IRBuilder, x: Any, count: Any, packed: Any) -> None:
        with counted_loop(b, count) as i:
            target = b.add(packed, b.mul(i, ir.Constant(I64, form.activation_bytes)))
            place = b.add(x, b.mul(i, ir.Constant(I64, 4 * FEATURES)))
            scale, parts, totals = quantise(b, place) if form.bits == 16 else quantise(b, place, LARGEST_BYTE)
            store(b, b.shuffle_vector(*[b.trunc(part, number) for part in parts], mask), target)
            store(b, scale, target, form.scale_at)
            for n, total in enumerate(totals):
                store(b, b.fmul(total, scale), target, form.scale_at + 4 + 4 * n)

    return emit


pack_int16_row = intrinsic_function(
    "pack_int16_row", types.void, (types.int64,) * 3, _emit_row(INT16_ACTIVATIONS)
)
pack_int8_row = intrinsic_function(
    "pack_int8_row", types.void, (types.int64,) * 3, _emit_row(INT8_ACTIVATIONS)
)
pack_row: Any = None


def _pack_template(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile for each row: float32 to packed activations."""
    x = ld_i64(args + 8 * P_X) + tile * ld_i64(args + 8 * P_X_STRIDE)
    y = ld_i64(args + 8 * P_Y) + tile * ld_i64(args + 8 * P_Y_STRIDE)
    pack_row(x, ld_i64(args + 8 * P_BLOCKS), y)


pack_int16 = specialise(_pack_template, "pack_int16", pack_row=pack_int16_row)
pack_int8 = specialise(_pack_template, "pack_int8", pack_row=pack_int8_row)
"""Kernels that pack rows to activations of 16 and of 8 bits."""


def add_scaled(
    b: ir.IRBuilder,
    form: PanelFormat,
    part: int,
    products: ir.Value,
    row: ir.Value,
    numbers: tuple[ir.Value, ir.Value | None],
    total: ir.Value,
) -> ir.Value:
    """total + minimums * sum of activations + a part's integer sum * the scales of weights and activations,
    in the order of `emit_dot`.

    `row` is the address of the block of packed activations, `numbers` the part's scales and minimums.
    """
    scale, minimum = numbers
    if minimum is not None:
        total = fma(b, minimum, splat(b, load(b, row, F32, form.sum_at(part))), total)
    value = b.fmul(b.sitofp(products, VF32), splat(b, load(b, row, F32, form.scale_at)))
    return fma(b, scale, value, total)


def _scale_tile(
    b: ir.IRBuilder,
    form: PanelFormat,
    part: int,
    sums: list[ir.Value],
    starts: list[ir.Value],
    packed: Sequence[ir.Value],
    tile: OutputTile,
) -> None:
    """Add the scaled sums of a part of all rows and columns to the tile."""
    at = form.code_bytes + part * LANES * 4 * (2 if form.mins else 1)
    for m, start in enumerate(starts):
        scale = load(b, start, VF32, at)
        minimum = load(b, start, VF32, at + 64) if form.mins else None
        for t, block in enumerate(packed):
            slot = tile.slot(t, m)
            total = add_scaled(b, form, part, sums[slot], block, (scale, minimum), tile.sums.get(slot))
            tile.sums.set(slot, total)


def _in_int16(
    b: ir.IRBuilder,
    tile: OutputTile,
    sums: list[ir.Value],
    starts: list[ir.Value],
    packed: list[ir.Value],
    ks: range,
) -> list[ir.Value]:
    """The tile's sums plus the products of vectors `ks` of bytes, which are added in int16."""
    out = list(sums)
    for m, start in enumerate(starts):
        slots = [tile.slot(t, m) for t in range(len(packed))]
        # Lazily, so that each activation is loaded where it is used.
        quads = ((load(b, start, V64I8, 64 * k), [spread_word(b, x, 4 * k) for x in packed]) for k in ks)
        found = byte_sums(b, [sums[slot] for slot in slots], quads, False, len(ks) > 1)
        for slot, total in zip(slots, found, strict=True):
            out[slot] = total
    return out


def integer_tile(vectors: int, rows: int, form: PanelFormat) -> Any:
    """The tile (`tile_function`) of x (rows, 32 count), packed activations, times a panel of this form."""
    steps = form.part * form.vectors // FEATURES
    vector = V32I16 if form.bits == 16 else V64I8

    def add(
        b: ir.IRBuilder, tile: OutputTile, x_rows: list[ir.Value], columns: list[ir.Value], i: ir.Value
    ) -> None:
        starts = [b.add(column, b.mul(i, ir.Constant(I64, form.size))) for column in columns]
        packed = [b.add(row, b.mul(i, ir.Constant(I64, form.activation_bytes))) for row in x_rows]
        for part in range(FEATURES // form.part):
            sums: list[ir.Value] = [const_vector(0, VI32) for _ in range(vectors * rows)]
            for k in range(part * steps, (part + 1) * steps, form.quads_in_int16):
                if form.quads_in_int16 > 1:
                    ks = range(k, min(k + form.quads_in_int16, (part + 1) * steps))
                    sums = _in_int16(b, tile, sums, starts, packed, ks)
                    continue
                weights = [load(b, start, vector, 64 * k) for start in starts]
                for t, block in enumerate(packed):
                    value = splat(b, load(b, block, I32, 4 * k))
                    for m in range(vectors):
                        slot = tile.slot(t, m)
                        sums[slot] = form.product(b, sums[slot], weights[m], value)
            _scale_tile(b, form, part, sums, starts, packed, tile)

    return tile_function(f"{form.name}_{vectors}x{rows}", vectors, rows, add)
