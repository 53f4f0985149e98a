"""The quantised block types of GGUF: small codes, a number d (and perhaps a minimum) for a block, scales for
its parts.

One class serves them all; `gguf` has the table. A block holds `groups` groups of 32 features x 16 rows, one
after another: the group's codes (`codes`), then for each part of `part` features 16 scale bytes and, where
there are minimums, 16 minimum bytes; after the groups come 16 fp16 d and, where there are minimums, 16 fp16 d
of the minimums (for MXFP4: 16 exponent bytes). A weight is d scale code - dmin minimum. Sums of products are
of whole codes; scales come after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
    load_half,
    store,
)
from engine.backends.cpu.kernels.linear.integer_dot import (
    ALL,
    HALF_SUMS,
    record_scale,
    record_sum,
    whole_products,
)
from engine.backends.cpu.kernels.linear.integer_gemm import Cells
from engine.backends.cpu.kernels.packed_activations import RECORD
from engine.backends.cpu.layouts.codes import GROUP, QUADS, CodeReader, Codes
from engine.backends.cpu.layouts.layout import Bytes, prefetch_lines, tiles
from engine.backends.gguf_parts import Parts

_VI8 = ir.VectorType(I8, LANES)


@dataclass(frozen=True)
class BlockLayout:
    """A `WeightLayout` of the layout above.

    `scale_kind`: "none" (one d for the block), "signed" and "unsigned" bytes, or "nibbles" (scale low,
    minimum high, in one byte). `minimums`: weights have minimums, with bytes of their own after unsigned
    scales; with "none" it is the block's m, added. `exponent`: d is 2^(e - 128), e a byte. `take_apart` gives
    the `Parts` of file bytes (rows, bytes of a row).
    """

    whole = True

    name: str
    types: tuple[str, ...]
    file_bytes: int
    codes: Codes
    take_apart: Callable[[Bytes], Parts]
    groups: int = 1
    part: int = GROUP
    scale_kind: str = "none"
    minimums: bool = False
    exponent: bool = False

    @property
    def unit(self) -> int:
        """See `WeightLayout`."""
        return GROUP * self.groups

    @property
    def _group_bytes(self) -> int:
        kinds = {"none": 0, "nibbles": 1}.get(self.scale_kind, 2 if self.minimums else 1)
        return self.codes.group_bytes + kinds * LANES * (GROUP // self.part)

    @property
    def block_bytes(self) -> int:
        """See `WeightLayout`."""
        numbers = LANES if self.exponent else 4 * LANES if self.minimums else 2 * LANES
        return self.groups * self._group_bytes + numbers

    def pack(self, type_name: str, raw: Bytes, rows: int, columns: int) -> Bytes:
        """See `WeightLayout.pack`."""
        blocks, height = columns // self.unit, rows // LANES
        parts = self.take_apart(raw.reshape(rows * blocks, self.file_bytes))
        out = np.empty((height, blocks, self.block_bytes), np.uint8)
        groups = out[:, :, : self.groups * self._group_bytes].reshape(
            height, blocks, self.groups, self._group_bytes
        )
        shape = (height, LANES, blocks, self.groups)
        # The quad of features comes first: all the work is then on long contiguous vectors.
        quads = np.ascontiguousarray(parts.codes).view("<u4").reshape(*shape, GROUP // 4)
        codes = np.ascontiguousarray(quads.transpose(4, 0, 2, 3, 1))
        for j, word in enumerate(self.codes.pack_quads(codes)):
            groups[..., j * LANES * 4 : (j + 1) * LANES * 4] = word.view(np.uint8)
        at = self.codes.group_bytes
        for small in (parts.scales, parts.minimums):
            if small is not None:
                count = GROUP // self.part
                values = small.reshape(*shape, count).transpose(0, 2, 3, 4, 1)
                groups[..., at : at + count * LANES] = values.reshape(height, blocks, self.groups, -1)
                at += count * LANES
        numbers = parts.numbers.reshape(rows, blocks, -1)
        if not self.exponent:
            numbers = np.ascontiguousarray(numbers).view(np.uint16)
        packed = np.ascontiguousarray(tiles(numbers, rows)).view(np.uint8)
        out[:, :, self.groups * self._group_bytes :] = packed.reshape(height, blocks, -1)
        return out.reshape(-1)

    def _numbers(self, b: ir.IRBuilder, block: ir.Value) -> tuple[ir.Value, ir.Value | None]:
        """d, and the block's minimum (or what the minimums are multiplied with)."""
        at = self.groups * self._group_bytes
        if self.exponent:
            return _power(b, b.zext(load(b, block, _VI8, at), VI32)), None
        return load_half(b, block, at), load_half(b, block, at + 2 * LANES) if self.minimums else None

    def _scale(
        self, b: ir.IRBuilder, group: ir.Value, part: int, d: ir.Value, m: ir.Value | None
    ) -> tuple[ir.Value, ir.Value | None]:
        """The part's factor of a code, and what is added to the product; exact in float32."""
        if self.scale_kind == "none":
            return d, m
        at = self.codes.group_bytes + part * LANES
        byte = load(b, group, _VI8, at)
        if self.scale_kind == "signed":
            return b.fmul(d, b.sitofp(b.sext(byte, VI32), VF32)), None
        scale, minimum = b.zext(byte, VI32), None
        if m is not None:
            if self.scale_kind == "nibbles":
                low = b.lshr(scale, const_vector(4, VI32))
                scale = b.and_(scale, const_vector(15, VI32))
            else:
                low = b.zext(load(b, group, _VI8, at + LANES * (GROUP // self.part)), VI32)
            minimum = b.fneg(b.fmul(m, b.sitofp(low, VF32)))
        return b.fmul(d, b.sitofp(scale, VF32)), minimum

    def _each_group(
        self, b: ir.IRBuilder, block: ir.Value, emit: Callable[[ir.Value, ir.Value], None]
    ) -> None:
        """emit(address of the group, its index) for all groups: in a loop, which is faster to compile and
        as fast to run.
        """
        if self.groups == 1:
            emit(block, ir.Constant(I64, 0))
            return
        with counted_loop(b, ir.Constant(I64, self.groups)) as g:
            emit(b.add(block, b.mul(g, ir.Constant(I64, self._group_bytes))), g)

    def emit_dot(
        self, b: ir.IRBuilder, block: ir.Value, rows: Sequence[ir.Value], totals: Accumulators
    ) -> None:
        """See `WeightLayout.emit_dot`."""
        d, m = self._numbers(b, block)

        def group_dot(group: ir.Value, g: ir.Value) -> None:
            prefetch_lines(b, group, self.block_bytes if self.groups == 1 else self._group_bytes)
            reader = CodeReader(b, self.codes, group)
            records = [b.add(x, b.mul(g, ir.Constant(I64, RECORD))) for x in rows]
            for part in range(GROUP // self.part):
                which = ALL if self.part == GROUP else HALF_SUMS[part]
                scale, minimum = self._scale(b, group, part, d, m)
                quads = (
                    (q, reader.operand(q)) for q in range(part * self.part // 4, (part + 1) * self.part // 4)
                )
                for r, value in enumerate(
                    whole_products(b, quads, records, self.codes.zero, which, self.codes.signed)
                ):
                    total = totals.get(r)
                    if minimum is not None:
                        total = fma(b, minimum, record_sum(b, records[r], which), total)
                    totals.set(r, fma(b, scale, b.fmul(value, record_scale(b, records[r])), total))

        self._each_group(b, block, group_dot)

    def cells(self, bits: int) -> Cells:
        """See `Whole.cells`."""
        zero = self.codes.zero if bits == 8 else 0
        return Cells(bits, self.part, self.minimums or zero > 0, zero, self.codes.signed)

    def emit_cells(self, b: ir.IRBuilder, block: ir.Value, target: ir.Value, cells: Cells) -> None:
        """See `Whole.emit_cells`."""
        d, m = self._numbers(b, block)

        def group_cells(group: ir.Value, g: ir.Value) -> None:
            reader, out = (
                CodeReader(b, self.codes, group),
                b.add(target, b.mul(g, ir.Constant(I64, cells.size))),
            )
            for q in range(QUADS):
                cells.put_quad(b, out, q, reader.numbers(q, cells))
            for part in range(GROUP // self.part):
                cells.put_scales(b, out, part, *self._scale(b, group, part, d, m))

        self._each_group(b, block, group_cells)

    def emit_unpack(self, b: ir.IRBuilder, block: ir.Value, target: ir.Value) -> None:
        """See `WeightLayout.emit_unpack`."""
        d, m = self._numbers(b, block)

        def group_unpack(group: ir.Value, g: ir.Value) -> None:
            reader = CodeReader(b, self.codes, group)
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
    """2^(e - 128) as a product of two normal numbers: the smallest two are subnormal.

    Source: ggml's block_mxfp4.
    """
    half = b.lshr(exponent, const_vector(1, VI32))
    factors = [
        b.bitcast(b.shl(b.add(e, const_vector(63, VI32)), const_vector(23, VI32)), VF32)
        for e in (half, b.sub(exponent, half))
    ]
    return b.fmul(*factors)
