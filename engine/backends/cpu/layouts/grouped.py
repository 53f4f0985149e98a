"""Codes with a scale and an integer zero point for each group of inputs, w = (q - z) s, or with a scale and a
bias, w = q s + b.

Holds the types of `engine.weights.packed.grouped` and `affine`. A block of `unit` features x 16 rows has 16
scales (fp16 or float32), then 16 zero points minus the middle code, int8 (8 bits: int16); or 16 scales and 16
biases of one type. Then come groups of 32 features (`codes`; 8 bits: bytes (8, 16, 4) of q - 128). Products
are summed as integers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from llvmlite import ir

from engine.backends.cpu.codegen.simd import (
    I8,
    I16,
    I64,
    LANES,
    VF32,
    VI32,
    Accumulators,
    const_vector,
    counted_loop,
    fma,
    load,
    load_bfloat,
    load_half,
    store,
)
from engine.backends.cpu.codegen.simd_bytes import BIAS
from engine.backends.cpu.kernels.linear.integer_dot import ALL, integer_products, packed_scale, packed_sum
from engine.backends.cpu.kernels.linear.panel_format import (
    UNBOUNDED,
    PanelFormat,
    UnpackedWeights,
    in_both,
    in_each_byte,
)
from engine.backends.cpu.kernels.packed_activations import PACKED_BYTES
from engine.backends.cpu.layouts.codes import GROUP, QUADS, CodeReader, Codes
from engine.backends.cpu.layouts.layout import Bytes, Distance, ReadAhead, lanes_of
from engine.backends.cpu.layouts.q8 import byte_numbers, byte_operand, byte_vector
from engine.backends.packing.kept_numbers import KeptNumbers, Numbers
from engine.backends.packing.pieces import KINDS, affine_type, kept_numbers
from engine.lazy_dataclass import dataclass

WIDTHS = (2, 3, 4, 5, 6, 8)
UNITS = (32, 64, 128)


@dataclass(frozen=True)
class _Groups(ABC):
    """Codes of `bits` bits in groups of `unit`, which follow a block's numbers."""

    bits: int
    unit: int

    integer = True
    _offset = 0
    """What is subtracted from codes."""
    _groups_at = 0
    """Where the groups begin."""
    number_bytes = 0
    """Of the two numbers of a block in a file."""

    @property
    def file_bytes(self) -> int:
        return self.unit + self.number_bytes

    def pack(self, raw: Bytes, rows: int, columns: int) -> Bytes:
        """For each row and block, `raw` holds `unit` code bytes and two numbers."""
        parts = raw.reshape(-1, self.file_bytes)
        return self._pack_kept(parts[:, : self.unit], self._kept(parts[:, self.unit :]), rows, columns)

    @property
    def kept(self) -> KeptNumbers:
        return KeptNumbers(self.unit, self.number_bytes, self._kept, self._pack_kept)

    @abstractmethod
    def _kept(self, numbers: Bytes) -> Sequence[Numbers]:
        """What the tiles hold of the numbers of each block (B, `number_bytes`)."""

    @abstractmethod
    def _pack_kept(self, codes: Bytes, numbers: Sequence[Numbers], rows: int, columns: int) -> Bytes:
        """Packs the codes (B, `unit`) and what is kept of the numbers."""

    @property
    def _codes(self) -> Codes | None:
        return None if self.bits == 8 else Codes(self.bits, offset=self._offset)

    @property
    def _group_bytes(self) -> int:
        return self.bits * LANES * 4

    @property
    def block_bytes(self) -> int:
        return self._groups_at + self._group_bytes * (self.unit // GROUP)

    def _with_codes(self, values: Bytes, rows: int) -> Bytes:
        """Blocks with the codes `values` (rows * blocks, unit) in place: (tiles, blocks, bytes)."""
        height, blocks = rows // LANES, len(values) // rows
        out = np.empty((height, blocks, self.block_bytes), np.uint8)
        groups = out[:, :, self._groups_at :].reshape(height, blocks, -1, self._group_bytes)
        split = values.reshape(height, LANES, blocks, -1, GROUP)
        codes = self._codes
        if codes is None:
            signed = (split ^ np.uint8(0x80)).reshape(*split.shape[:-1], GROUP // 4, 4)
            groups[...] = signed.transpose(0, 2, 3, 4, 1, 5).reshape(groups.shape)
        else:
            # With the quad of features first, all work is on long contiguous vectors.
            quads = np.ascontiguousarray(split).view("<u4").transpose(4, 0, 2, 3, 1)
            for j, word in enumerate(codes.pack_quads(np.ascontiguousarray(quads))):
                groups[..., j * LANES * 4 : (j + 1) * LANES * 4] = word.view(np.uint8)
        return out

    def _group(self, b: ir.IRBuilder, block: ir.Value, g: ir.Value) -> ir.Value:
        """The address of group g."""
        first = b.add(block, ir.Constant(I64, self._groups_at))
        return b.add(first, b.mul(g, ir.Constant(I64, self._group_bytes)))

    def _vectors(self, b: ir.IRBuilder, group: ir.Value) -> list[ir.Value]:
        """The 32 features' codes minus the middle code plus `_left`, float32."""
        codes = self._codes
        if codes is not None:
            reader = CodeReader(b, codes, group)
            return [reader.vector(k) for k in range(GROUP)]
        return [byte_vector(b, group, k) for k in range(GROUP)]

    @property
    def _left(self) -> float:
        codes = self._codes
        return 0.0 if codes is None else float(codes.left)


@dataclass(frozen=True)
class Grouped(_Groups):
    """The layout of codes with zero points; scales are fp16 if `half`, else float32."""

    half: bool

    @property
    def name(self) -> str:
        return f"grouped{self.bits}u{self.unit}{'' if self.half else 'f32'}"

    @property
    def types(self) -> tuple[str, ...]:
        return (f"GROUPED{self.bits}_{self.unit}{'' if self.half else '_F32'}",)

    @property
    def _offset(self) -> int:  # type: ignore[override]
        """The middle code."""
        return 1 << (self.bits - 1)

    @property
    def _zeros_at(self) -> int:
        """Where the zero points stand, between the scales and the groups."""
        return (2 if self.half else 4) * LANES

    @property
    def _groups_at(self) -> int:  # type: ignore[override]
        return self._zeros_at + (2 if self.bits == 8 else 1) * LANES

    number_bytes = 6
    """A float32 scale and an int16 zero point."""

    def _kept(self, numbers: Bytes) -> Sequence[Numbers]:
        """Scales, and zero points minus the middle code."""
        scales = np.ascontiguousarray(numbers[:, :4]).view(np.float32)[:, 0]
        zeros = np.ascontiguousarray(numbers[:, 4:]).view(np.int16)[:, 0] - np.int16(self._offset)
        return (
            scales.astype(np.float16) if self.half else scales,
            zeros if self.bits == 8 else zeros.astype(np.int8),
        )

    def _pack_kept(self, codes: Bytes, numbers: Sequence[Numbers], rows: int, columns: int) -> Bytes:
        out = self._with_codes(codes, rows)
        scales, zeros = (lanes_of(each.reshape(rows, -1), rows) for each in numbers)
        out[:, :, : self._zeros_at], out[:, :, self._zeros_at : self._groups_at] = scales, zeros
        return out.reshape(-1)

    def _numbers(self, b: ir.IRBuilder, block: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The scales, and the zero points minus the middle code, float32."""
        scale = load_half(b, block) if self.half else load(b, block, VF32)
        zero = load(b, block, ir.VectorType(I16 if self.bits == 8 else I8, LANES), self._zeros_at)
        return scale, b.sitofp(b.sext(zero, VI32), VF32)

    def emit_dot(
        self,
        b: ir.IRBuilder,
        block: ir.Value,
        rows: Sequence[ir.Value],
        totals: Accumulators,
        ahead: Distance,
    ) -> None:
        scale, zero = self._numbers(b, block)
        codes = self._codes
        raised = BIAS if codes is None else codes.zero
        whole = b.add(b.fptosi(zero, VI32), const_vector(raised, VI32))
        ReadAhead(b, block, self._groups_at, len(rows), ahead).step()
        with counted_loop(b, ir.Constant(I64, self.unit // GROUP)) as g:
            group = self._group(b, block, g)
            soon = ReadAhead(b, group, self._group_bytes, len(rows), ahead, QUADS)
            packed = [b.add(x, b.mul(g, ir.Constant(I64, PACKED_BYTES))) for x in rows]
            reader = None if codes is None else CodeReader(b, codes, group)
            quads = (
                (q, byte_operand(b, group, q) if reader is None else reader.operand(q))
                for q in soon.beside(range(QUADS))
            )
            for r, value in enumerate(
                integer_products(b, quads, packed, whole, ALL, 0 if codes is None else codes.largest)
            ):
                totals.set(r, fma(b, scale, b.fmul(value, packed_scale(b, packed[r])), totals.get(r)))

    def panel_format(self, bits: int) -> PanelFormat:
        """The zero point is subtracted from the weights themselves; for 8 bits of activations a minimum does
        that.
        """
        codes = self._codes
        if bits == 16:
            # Zero points lie between 0 and 2^bits, except those of `quantize`'s 6 bits, between -64 and 127.
            # What is left of codes of 8 bits may not fit in a signed byte.
            magnitude = {6: 127, 8: UNBOUNDED}.get(self.bits, 1 << self.bits)
            return PanelFormat(16, GROUP, False, magnitude=magnitude)
        return (
            PanelFormat(8, GROUP, True, BIAS)
            if codes is None
            else PanelFormat(8, GROUP, True, codes.zero, codes.largest)
        )

    def emit_panel(self, b: ir.IRBuilder, block: ir.Value, target: ir.Value, form: UnpackedWeights) -> None:
        scale, zero = self._numbers(b, block)
        codes, whole, kind = self._codes, b.fptosi(zero, VI32), form.numbers
        minus = in_each_byte(b, whole) if kind == "bytes" else in_both(b, whole)
        # Looked up among the differences of codes as they are stored.
        raised = in_both(b, b.add(whole, const_vector(self._offset, VI32)))

        def numbers(group: ir.Value, reader: CodeReader | None, q: int) -> Sequence[ir.Value]:
            if reader is not None and kind == "floats":
                return reader.floats(q, raised)
            found = byte_numbers(b, group, q, form) if reader is None else reader.numbers(q, form)
            return found if kind == "codes" else [b.sub(each, minus) for each in found]

        with counted_loop(b, ir.Constant(I64, self.unit // GROUP)) as g:
            group = self._group(b, block, g)
            out = b.add(target, b.mul(g, ir.Constant(I64, form.size)))
            reader = None if codes is None else CodeReader(b, codes, group)
            for q in range(QUADS):
                form.put_quad(b, out, q, numbers(group, reader, q))
            form.put_scales(b, out, 0, scale, b.fneg(b.fmul(zero, scale)) if kind == "codes" else None)

    def emit_unpack(self, b: ir.IRBuilder, block: ir.Value, target: ir.Value) -> None:
        scale, zero = self._numbers(b, block)
        minus = b.fadd(zero, const_vector(self._left)) if self._left else zero
        with counted_loop(b, ir.Constant(I64, self.unit // GROUP)) as g:
            group = self._group(b, block, g)
            out = b.add(target, b.mul(g, ir.Constant(I64, GROUP * LANES * 4)))
            for k, value in enumerate(self._vectors(b, group)):
                store(b, b.fmul(b.fsub(value, minus), scale), out, k * LANES * 4)


@dataclass(frozen=True)
class Affine(_Groups):
    """The layout of codes with biases; scales and biases are of the type `kind` ("F16", "BF16", "F32")."""

    kind: str

    @property
    def name(self) -> str:
        return f"affine{self.bits}u{self.unit}{self.kind.lower()}"

    @property
    def types(self) -> tuple[str, ...]:
        return (affine_type(self.bits, self.unit, self.kind),)

    @property
    def _biases_at(self) -> int:
        """Where the biases stand, between the scales and the groups."""
        return (4 if self.kind == "F32" else 2) * LANES

    @property
    def _groups_at(self) -> int:  # type: ignore[override]
        return 2 * self._biases_at

    number_bytes = 8
    """A float32 scale and a float32 bias."""

    def _kept(self, numbers: Bytes) -> Sequence[Numbers]:
        """Scales and biases."""
        both = kept_numbers(np.ascontiguousarray(numbers).view(np.float32), self.kind)
        return both[:, 0], both[:, 1]

    def _pack_kept(self, codes: Bytes, numbers: Sequence[Numbers], rows: int, columns: int) -> Bytes:
        out = self._with_codes(codes, rows)
        both = np.stack(list(numbers), axis=-1).reshape(rows, -1, 2)
        out[:, :, : self._groups_at] = lanes_of(both, rows)
        return out.reshape(-1)

    def _numbers(self, b: ir.IRBuilder, block: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The scales and the biases, float32."""
        if self.kind == "F32":
            return load(b, block, VF32), load(b, block, VF32, self._biases_at)
        read = load_half if self.kind == "F16" else load_bfloat
        return read(b, block), read(b, block, self._biases_at)

    def _minimums(self, b: ir.IRBuilder, scale: ir.Value, bias: ir.Value) -> ir.Value:
        """What a code of 0 means, or at 8 bits one of 128, since 128 is subtracted from those."""
        return fma(b, scale, const_vector(128.0), bias) if self.bits == 8 else bias

    def emit_dot(
        self,
        b: ir.IRBuilder,
        block: ir.Value,
        rows: Sequence[ir.Value],
        totals: Accumulators,
        ahead: Distance,
    ) -> None:
        scale, bias = self._numbers(b, block)
        minimum, codes = self._minimums(b, scale, bias), self._codes
        ReadAhead(b, block, self._groups_at, len(rows), ahead).step()
        with counted_loop(b, ir.Constant(I64, self.unit // GROUP)) as g:
            group = self._group(b, block, g)
            soon = ReadAhead(b, group, self._group_bytes, len(rows), ahead, QUADS)
            packed = [b.add(x, b.mul(g, ir.Constant(I64, PACKED_BYTES))) for x in rows]
            reader = None if codes is None else CodeReader(b, codes, group)
            quads = (
                (q, byte_operand(b, group, q) if reader is None else reader.operand(q))
                for q in soon.beside(range(QUADS))
            )
            zero, largest = (BIAS, 0) if codes is None else (0, codes.largest)
            for r, value in enumerate(integer_products(b, quads, packed, zero, ALL, largest)):
                total = fma(b, minimum, packed_sum(b, packed[r], ALL), totals.get(r))
                totals.set(r, fma(b, scale, b.fmul(value, packed_scale(b, packed[r])), total))

    def panel_format(self, bits: int) -> PanelFormat:
        codes = self._codes
        if codes is None:
            return PanelFormat(bits, GROUP, True, BIAS if bits == 8 else 0)
        return PanelFormat(bits, GROUP, True, 0, codes.largest, codes.magnitude)

    def emit_panel(self, b: ir.IRBuilder, block: ir.Value, target: ir.Value, form: UnpackedWeights) -> None:
        scale, bias = self._numbers(b, block)
        minimum, codes = self._minimums(b, scale, bias), self._codes
        with counted_loop(b, ir.Constant(I64, self.unit // GROUP)) as g:
            group = self._group(b, block, g)
            out = b.add(target, b.mul(g, ir.Constant(I64, form.size)))
            reader = None if codes is None else CodeReader(b, codes, group)
            for q in range(QUADS):
                form.put_quad(
                    b, out, q, byte_numbers(b, group, q, form) if reader is None else reader.numbers(q, form)
                )
            form.put_scales(b, out, 0, scale, minimum)

    def emit_unpack(self, b: ir.IRBuilder, block: ir.Value, target: ir.Value) -> None:
        """Rounded after the product and the sum."""
        scale, bias = self._numbers(b, block)
        with counted_loop(b, ir.Constant(I64, self.unit // GROUP)) as g:
            group = self._group(b, block, g)
            out = b.add(target, b.mul(g, ir.Constant(I64, GROUP * LANES * 4)))
            for k, value in enumerate(self._vectors(b, group)):
                code = b.fadd(value, const_vector(128.0)) if self.bits == 8 else value
                store(b, b.fadd(b.fmul(code, scale), bias), out, k * LANES * 4)


GROUPED_WEIGHT_LAYOUTS: tuple[Grouped | Affine, ...] = (
    *(Grouped(bits, unit, half) for half in (True, False) for unit in UNITS for bits in WIDTHS),
    *(Affine(bits, unit, kind) for kind in KINDS for unit in UNITS for bits in WIDTHS),
)
"""All widths, units and types of numbers; only those that a model uses are compiled."""
