"""The quantised block types of GGUF: codes, scales of groups, and a d (and perhaps dmin) for each block.

One class serves them all; `engine.backends.gguf_blocks` describes the types. A block begins with 16 fp16 d
and, with minimums, 16 fp16 dmin (MXFP4: 16 exponent bytes instead; NVFP4: 16 float32 d). Groups of 32
features x 16 rows follow: for each part of `part` features 16 scale bytes, then, if the type has minimums, 16
minimum bytes for each (Q2_K: both in one byte), then the group's codes (`codes`). A weight is d * scale *
code - dmin * minimum.
Products are summed as integers and scaled afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from llvmlite import ir

from engine.backends.cpu.codegen.simd import (
    I8,
    I64,
    LANES,
    VF32,
    VI32,
    Accumulators,
    const_vector,
    counted_loop,
    fma,
    load,
    load_e4m3,
    load_half,
    store,
)
from engine.backends.cpu.kernels.linear.integer_dot import (
    ALL,
    HALF_SUMS,
    integer_products,
    packed_scale,
    packed_sum,
)
from engine.backends.cpu.kernels.linear.panel_format import PanelFormat, UnpackedWeights
from engine.backends.cpu.kernels.packed_activations import PACKED_BYTES
from engine.backends.cpu.layouts.byte_codes import ByteCodes
from engine.backends.cpu.layouts.codes import GROUP, QUADS, Codes
from engine.backends.cpu.layouts.layout import Bytes, Distance, ReadAhead, lanes_of
from engine.backends.gguf_blocks.block_type import BlockType, Parts
from engine.lazy_dataclass import dataclass

_VI8 = ir.VectorType(I8, LANES)


@dataclass(frozen=True)
class BlockLayout:
    """A `WeightLayout` for one type of block."""

    block: BlockType

    integer = True

    @property
    def name(self) -> str:
        return self.block.name.replace("_", "").lower()

    @property
    def types(self) -> tuple[str, ...]:
        return self.block.types or (self.block.name,)

    @cached_property
    def codes(self) -> Codes | ByteCodes:
        """How the codes are packed, and what they mean."""
        if self.block.bits == 8:
            assert self.block.zero == 128
            return ByteCodes()
        return Codes(self.block.bits, self.block.zero, self.block.levels or None)

    @property
    def groups(self) -> int:
        """Groups of 32 features."""
        return self.block.values // GROUP

    @property
    def part(self) -> int:
        """Features that share a scale within a group."""
        return min(GROUP, self.block.values // self.block.groups)

    @property
    def _nibbles(self) -> bool:
        """Whether a scale and a minimum share a byte."""
        return self.block.mins and self.block.scale_bits == 4

    @property
    def _addends(self) -> bool:
        """Whether something is added to the products of a group's codes and its scale."""
        return self.block.mins or self.block.moved > 0

    @property
    def _exponent(self) -> bool:
        """Whether d is 2^(e - 128), e a byte."""
        return self.block.d == "e8m0"

    @property
    def _wide(self) -> bool:
        """Whether d is float32."""
        return self.block.d == "fp32"

    @property
    def unit(self) -> int:
        return self.block.values

    @property
    def file_bytes(self) -> int:
        return self.block.nbytes

    @property
    def _small_bytes(self) -> int:
        """Bytes of a group's scales and minimums."""
        small = 2 if self.block.mins and not self._nibbles else 1
        return small * LANES * (GROUP // self.part) if self.block.scale_bits else 0

    @property
    def _group_bytes(self) -> int:
        return self._small_bytes + self.codes.group_bytes

    @property
    def _numbers_bytes(self) -> int:
        """Bytes of d and dmin."""
        return LANES if self._exponent else 4 * LANES if self.block.mins or self._wide else 2 * LANES

    @property
    def block_bytes(self) -> int:
        return self._numbers_bytes + self.groups * self._group_bytes

    def pack(self, raw: Bytes, rows: int, columns: int) -> Bytes:
        return self.pack_parts(self.block.split(raw.reshape(-1, self.block.nbytes)), rows, columns)

    def pack_parts(self, parts: Parts, rows: int, columns: int) -> Bytes:
        """`pack` for blocks that are taken apart."""
        blocks, height = columns // self.unit, rows // LANES
        out = np.empty((height, blocks, self.block_bytes), np.uint8)
        groups = out[:, :, self._numbers_bytes :].reshape(height, blocks, self.groups, self._group_bytes)
        shape = (height, LANES, blocks, self.groups)
        # With the quad of features first, all work is on long contiguous vectors.
        quads = np.ascontiguousarray(parts.codes).view("<u4").reshape(*shape, GROUP // 4)
        codes = np.ascontiguousarray(quads.transpose(4, 0, 2, 3, 1))
        for j, word in enumerate(self.codes.pack_quads(codes)):
            place = self._small_bytes + j * LANES * 4
            groups[..., place : place + LANES * 4] = word.view(np.uint8)
        at = 0
        scales, mins = parts.scales, parts.mins
        if scales is not None and mins is not None and self._nibbles:
            scales, mins = scales | mins << np.uint8(4), None
        for small in (scales, mins):
            if small is not None:
                count = GROUP // self.part
                values = small.reshape(*shape, count).transpose(0, 2, 3, 4, 1)
                groups[..., at : at + count * LANES] = values.reshape(height, blocks, self.groups, -1)
                at += count * LANES
        numbers = parts.d if parts.dmin is None else np.concatenate([parts.d, parts.dmin], axis=1)
        out[:, :, : self._numbers_bytes] = lanes_of(numbers.reshape(rows, blocks, -1), rows)
        return out.reshape(-1)

    def _numbers(self, b: ir.IRBuilder, block: ir.Value) -> tuple[ir.Value, ir.Value | None]:
        """d and dmin of the 16 rows, float32; None for a type without minimums."""
        if self._exponent:
            return _power(b, b.zext(load(b, block, _VI8), VI32)), None
        if self._wide:
            return load(b, block, VF32), None
        d = load_half(b, block)
        if self.block.unit != 1:
            d = b.fmul(d, const_vector(self.block.unit))
        return d, load_half(b, block, 2 * LANES) if self.block.mins else None

    def _scale(
        self, b: ir.IRBuilder, group: ir.Value, part: int, d: ir.Value, m: ir.Value | None
    ) -> tuple[ir.Value, ir.Value | None]:
        """A part's factor d * scale and addend -dmin * minimum (or None), exact in float32."""
        if not self.block.scale_bits:
            return d, m
        at = part * LANES
        if self.block.floats:
            return b.fmul(d, load_e4m3(b, group, at)), None
        byte = load(b, group, _VI8, at)
        if self.block.signed:
            return self._signed_scale(b, b.sext(byte, VI32), d)
        scale, minimum = b.zext(byte, VI32), None
        if m is not None:
            if self._nibbles:
                low = b.lshr(scale, const_vector(4, VI32))
                scale = b.and_(scale, const_vector(15, VI32))
            else:
                low = b.zext(load(b, group, _VI8, at + LANES * (GROUP // self.part)), VI32)
            minimum = b.fneg(b.fmul(m, b.sitofp(low, VF32)))
        return b.fmul(d, b.sitofp(scale, VF32)), minimum

    def _signed_scale(
        self, b: ir.IRBuilder, number: ir.Value, d: ir.Value
    ) -> tuple[ir.Value, ir.Value | None]:
        """`_scale` for signed scales; what levels are moved by is an addend."""
        if not self.block.moved:
            return b.fmul(d, b.sitofp(number, VF32)), None
        moved = b.and_(number, const_vector(1, VI32))
        whole = b.sub(number, moved)
        if self.block.lowest:
            whole = b.or_(whole, const_vector(1, VI32))
        scale = b.fmul(d, b.sitofp(whole, VF32))
        return scale, b.fmul(scale, b.sitofp(b.mul(moved, const_vector(self.block.moved, VI32)), VF32))

    def _each_group(
        self, b: ir.IRBuilder, block: ir.Value, emit: Callable[[ir.Value, ir.Value], None]
    ) -> None:
        """emit(address of a group, its index) for all groups, in a loop, which compiles faster."""
        first = b.add(block, ir.Constant(I64, self._numbers_bytes))
        if self.groups == 1:
            emit(first, ir.Constant(I64, 0))
            return
        with counted_loop(b, ir.Constant(I64, self.groups)) as g:
            emit(b.add(first, b.mul(g, ir.Constant(I64, self._group_bytes))), g)

    def emit_dot(
        self,
        b: ir.IRBuilder,
        block: ir.Value,
        rows: Sequence[ir.Value],
        totals: Accumulators,
        ahead: Distance,
    ) -> None:
        d, m = self._numbers(b, block)
        ReadAhead(b, block, self._numbers_bytes, len(rows), ahead).step()

        def group_dot(group: ir.Value, g: ir.Value) -> None:
            soon = ReadAhead(b, group, self._group_bytes, len(rows), ahead, QUADS)
            reader = self.codes.reader(b, group, self._small_bytes)
            packed = [b.add(x, b.mul(g, ir.Constant(I64, PACKED_BYTES))) for x in rows]
            for part in range(GROUP // self.part):
                which = ALL if self.part == GROUP else HALF_SUMS[part]
                scale, minimum = self._scale(b, group, part, d, m)
                quads = range(part * self.part // 4, (part + 1) * self.part // 4)
                operands = ((q, reader.operand(q)) for q in soon.beside(quads))
                for r, value in enumerate(
                    integer_products(b, operands, packed, self.codes.zero, which, self.codes.largest)
                ):
                    total = totals.get(r)
                    if minimum is not None:
                        total = fma(b, minimum, packed_sum(b, packed[r], which), total)
                    totals.set(r, fma(b, scale, b.fmul(value, packed_scale(b, packed[r])), total))

        self._each_group(b, block, group_dot)

    def panel_format(self, bits: int) -> PanelFormat:
        zero = self.codes.zero if bits == 8 else 0
        return PanelFormat(
            bits, self.part, self._addends or zero > 0, zero, self.codes.largest, self.codes.magnitude
        )

    def emit_panel(self, b: ir.IRBuilder, block: ir.Value, target: ir.Value, form: UnpackedWeights) -> None:
        d, m = self._numbers(b, block)

        def group_panel(group: ir.Value, g: ir.Value) -> None:
            reader, out = (
                self.codes.reader(b, group, self._small_bytes),
                b.add(target, b.mul(g, ir.Constant(I64, form.size))),
            )
            for part in range(GROUP // self.part):
                for q in range(part * self.part // 4, (part + 1) * self.part // 4):
                    form.put_quad(b, out, q, reader.numbers(q, form))
                form.put_scales(b, out, part, *self._scale(b, group, part, d, m))

        self._each_group(b, block, group_panel)

    def emit_unpack(self, b: ir.IRBuilder, block: ir.Value, target: ir.Value) -> None:
        d, m = self._numbers(b, block)

        def group_unpack(group: ir.Value, g: ir.Value) -> None:
            reader = self.codes.reader(b, group, self._small_bytes)
            out = b.add(target, b.mul(g, ir.Constant(I64, GROUP * LANES * 4)))
            for part in range(GROUP // self.part):
                scale, minimum = self._scale(b, group, part, d, m)
                for k in range(part * self.part, (part + 1) * self.part):
                    value = reader.vector(k)
                    if self.codes.left:
                        value = b.fsub(value, const_vector(float(self.codes.left)))
                    store(
                        b,
                        b.fmul(value, scale) if minimum is None else fma(b, value, scale, minimum),
                        out,
                        k * LANES * 4,
                    )

        self._each_group(b, block, group_unpack)


def _power(b: ir.IRBuilder, exponent: ir.Value) -> ir.Value:
    """2^(e - 128) as a product of two normal numbers, since the two smallest powers are subnormal.

    Source: ggml's block_mxfp4.
    """
    half = b.lshr(exponent, const_vector(1, VI32))
    factors = [
        b.bitcast(b.shl(b.add(e, const_vector(63, VI32)), const_vector(23, VI32)), VF32)
        for e in (half, b.sub(exponent, half))
    ]
    return b.fmul(*factors)
