"""8-bit weights with one scale for 32 features: w = d q. Holds Q8_0.

A block of 32 features x 16 rows takes 544 bytes: 16 fp16 scales, then int8 (8, 16, 4), four neighbouring
features of each row together. Source of the file's layout: ggml's block_q8_0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from llvmlite import ir

from engine.backends.cpu.codegen.simd import (
    I64,
    LANES,
    VF32,
    VI32,
    Accumulators,
    const_vector,
    fma,
    load,
    load_half,
    store,
)
from engine.backends.cpu.codegen.simd_bytes import BIAS, V64I8, biased
from engine.backends.cpu.kernels.linear.integer_dot import ALL, integer_products, packed_scale
from engine.backends.cpu.kernels.linear.panel_format import PanelFormat, UnpackedWeights, signed_pairs
from engine.backends.cpu.layouts.layout import Bytes, Distance, ReadAhead, lanes_of

_UNIT = 32
_CODES = 2 * LANES


def quads_of(values: Bytes, rows: int) -> Bytes:
    """Reshape (rows, blocks, features) to (rows / 16, blocks, -1), each block as (features / 4, 16, 4)."""
    height, blocks, features = rows // LANES, values.shape[1], values.shape[2]
    return (
        values.reshape(height, LANES, blocks, features // 4, 4)
        .transpose(0, 2, 3, 1, 4)
        .reshape(height, blocks, -1)
    )


def byte_operand(b: ir.IRBuilder, group: ir.Value, q: int) -> ir.Value:
    """Quad q of signed bytes at `group` for `byte_products`."""
    return biased(b, load(b, group, V64I8, 4 * LANES * q))


def byte_numbers(b: ir.IRBuilder, group: ir.Value, q: int, form: UnpackedWeights) -> tuple[ir.Value, ...]:
    """Quad q of signed bytes at `group` as `form` takes it."""
    if form.numbers == "pairs":
        return signed_pairs(b, load(b, group, VI32, 4 * LANES * q))
    if form.numbers == "bytes":
        return (load(b, group, V64I8, 4 * LANES * q),)
    return (byte_operand(b, group, q),)


def byte_vector(b: ir.IRBuilder, group: ir.Value, k: int) -> ir.Value:
    """Feature k of signed bytes at `group` as float32."""
    word = load(b, group, VI32, 4 * LANES * (k // 4))
    return b.sitofp(b.ashr(b.shl(word, const_vector(24 - 8 * (k % 4), VI32)), const_vector(24, VI32)), VF32)


class Q8:
    """The layout of Q8_0."""

    name = "q8"
    types: tuple[str, ...] = ("Q8_0",)
    unit = _UNIT
    block_bytes = _CODES + _UNIT * LANES
    file_bytes = 2 + _UNIT
    integer = True

    def pack(self, raw: Bytes, rows: int, columns: int) -> Bytes:
        source = raw.reshape(rows, columns // _UNIT, self.file_bytes)
        scales = np.ascontiguousarray(source[:, :, :2]).view(np.uint16)
        return np.concatenate((lanes_of(scales, rows), quads_of(source[:, :, 2:], rows)), axis=2).reshape(-1)

    def emit_dot(
        self,
        b: ir.IRBuilder,
        block: ir.Value,
        rows: Sequence[ir.Value],
        totals: Accumulators,
        ahead: Distance,
    ) -> None:
        soon = ReadAhead(b, block, self.block_bytes, len(rows), ahead, _UNIT // 4)
        scale, codes = load_half(b, block), b.add(block, ir.Constant(I64, _CODES))
        quads = ((q, byte_operand(b, codes, q)) for q in soon.beside(range(_UNIT // 4)))
        for r, value in enumerate(integer_products(b, quads, rows, BIAS, ALL, 0)):
            totals.set(r, fma(b, scale, b.fmul(value, packed_scale(b, rows[r])), totals.get(r)))

    def panel_format(self, bits: int) -> PanelFormat:
        return PanelFormat(16, _UNIT, False) if bits == 16 else PanelFormat(8, _UNIT, BIAS > 0, BIAS)

    def emit_panel(self, b: ir.IRBuilder, block: ir.Value, target: ir.Value, form: UnpackedWeights) -> None:
        scale, codes = load_half(b, block), b.add(block, ir.Constant(I64, _CODES))
        for q in range(_UNIT // 4):
            form.put_quad(b, target, q, byte_numbers(b, codes, q, form))
        form.put_scales(b, target, 0, scale, None)

    def emit_unpack(self, b: ir.IRBuilder, block: ir.Value, target: ir.Value) -> None:
        scale, codes = load_half(b, block), b.add(block, ir.Constant(I64, _CODES))
        for k in range(_UNIT):
            store(b, b.fmul(byte_vector(b, codes, k), scale), target, k * LANES * 4)
