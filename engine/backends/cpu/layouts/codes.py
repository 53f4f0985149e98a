"""Integer codes of 2 to 6 bits: packing 32 neighbouring features of a row, and reading them back.

A group of 32 codes of `bits` bits is `bits` words of 32 bits for each row. Codes are split into planes of 4,
2 or 1 bits (5 is 4 and 1), lowest first. Byte i of a word belongs to features 4 q + i; in a plane of w bits
the lowest w bits of the bytes are the word's first quad q, the next w bits the next quad. So one shift and
one mask for each plane give the four codes of a quad as the dot product of bytes takes them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils

from engine.backends.cpu.codegen.simd import (
    ARM64,
    F32,
    FEATURES,
    I8,
    I16,
    LANES,
    VF32,
    VI32,
    WIDE,
    const_vector,
    load,
    permute,
)
from engine.backends.cpu.codegen.simd_bytes import BIAS, V64I8, join
from engine.backends.cpu.kernels.linear.panel_format import V32I16, UnpackedWeights, code_pairs, signed_pairs
from engine.backends.cpu.layouts.layout import Bytes

GROUP = 32
QUADS = GROUP // 4
_PLANES = {2: (2,), 3: (2, 1), 4: (4,), 5: (4, 1), 6: (4, 2)}


class Codes:
    """Codes of `bits` bits and the integers they stand for.

    Code q means q - `offset`, or `values[q]` if a table of values from -128 to 127 is given (3 or 4 bits).
    `left` is what must still be subtracted from a vector of `CodeReader`, `zero` from its operands, the
    largest of which is `largest`, 0 if they are signed.
    """

    def __init__(self, bits: int, offset: int = 0, values: Sequence[int] | None = None) -> None:
        assert bits in _PLANES
        assert values is None or (bits in (3, 4) and len(values) == 1 << bits)
        self.bits = bits
        self.offset = offset
        self.values = None if values is None else tuple(values)
        self.by_table = WIDE and bits <= 5
        self.left = 0 if self.by_table or values is not None else offset
        self.zero = offset if values is None else BIAS
        self.signed = values is not None
        self.magnitude = max(abs(int(v)) for v in self.meaning())
        self.largest = 0 if self.signed else (1 << bits) - 1
        self.group_bytes = bits * LANES * 4
        # For each plane: its bits, the code's first bit in it, and where its words are among all words, which
        # stand in the order in which the quads need them.
        needed = sorted((n * QUADS // width, -width) for width in _PLANES[bits] for n in range(width))
        self.planes: list[tuple[int, int, list[int]]] = []
        for width in _PLANES[bits]:
            places = [i for i, (_, other) in enumerate(needed) if other == -width]
            self.planes.append((width, sum(plane[0] for plane in self.planes), places))

    def pack(self, codes: Bytes) -> list[npt.NDArray[np.uint32]]:
        """Codes (32, ...) to the group's words, `bits` arrays of the other axes' shape."""
        quads = np.moveaxis(codes.reshape(QUADS, 4, *codes.shape[1:]), 1, -1)
        return self.pack_quads(np.ascontiguousarray(quads).view("<u4")[..., 0])

    def pack_quads(self, codes: npt.NDArray[np.uint32]) -> list[npt.NDArray[np.uint32]]:
        """`pack` for quads (8, ...), with the first code of each in the lowest byte."""
        words = [np.zeros(codes.shape[1:], np.uint32) for _ in range(self.bits)]
        for width, first, places in self.planes:
            per_word, mask = QUADS // width, np.uint32(0x01010101 * ((1 << width) - 1))
            for q in range(QUADS):
                place, quad = divmod(q, per_word)
                words[places[place]] |= ((codes[q] >> np.uint32(first)) & mask) << np.uint32(width * quad)
        return words

    def reader(self, b: ir.IRBuilder, address: ir.Value, offset: int) -> CodeReader:
        return CodeReader(b, self, address, offset)

    def meaning(self) -> list[int]:
        """What each code stands for."""
        return [q - self.offset for q in range(1 << self.bits)] if self.values is None else list(self.values)

    def table(self) -> list[float]:
        """The meaning of each code, repeated up to 16 entries (5 bits: 32)."""
        meaning = self.meaning()
        return [float(v) for v in meaning * max(1, 16 // len(meaning))]


class CodeReader:
    """The codes of one group of 32 features x 16 rows at `address` + `offset` bytes."""

    def __init__(self, b: ir.IRBuilder, codes: Codes, address: ir.Value, offset: int = 0) -> None:
        self._b, self._codes = b, codes
        self._address, self._offset = address, offset
        self._words: dict[int, ir.Value] = {}
        self._quads: dict[int, ir.Value] = {}
        self._looked_up: dict[int, ir.Value] = {}

    def _word(self, j: int) -> ir.Value:
        if j not in self._words:
            self._words[j] = load(self._b, self._address, VI32, self._offset + j * LANES * 4)
        return self._words[j]

    def _quad(self, q: int) -> ir.Value:
        """The codes of features 4 q .. 4 q + 3, as the bytes of 32-bit lanes."""
        if q not in self._quads:
            b, value = self._b, None
            for width, first, places in self._codes.planes:
                place, quad = divmod(q, QUADS // width)
                piece, shift = self._word(places[place]), width * quad - first
                if shift:
                    piece = (b.lshr if shift > 0 else b.shl)(piece, const_vector(abs(shift), VI32))
                mask = ((1 << width) - 1) << first
                piece = b.and_(piece, const_vector(mask * 0x01010101, VI32))
                value = piece if value is None else b.or_(value, piece)
            assert value is not None
            self._quads[q] = value
        return self._quads[q]

    def operand(self, q: int) -> ir.Value:
        """Features 4 q .. 4 q + 3 for `byte_products`: the codes' meaning plus `codes.zero`."""
        b, codes = self._b, self._codes
        quad = b.bitcast(self._quad(q), V64I8)
        if codes.values is None:
            return quad
        return look_up_bytes(b, [v + BIAS for v in codes.values], quad)

    def numbers(self, q: int, form: UnpackedWeights) -> tuple[ir.Value, ...]:
        """Quad q as `form` takes it."""
        if form.numbers == "pairs":
            return self.pairs(q)
        if form.numbers == "floats":
            return self.floats(q)
        return (self.operand(q) if form.numbers == "codes" else self.signed(q),)

    def signed(self, q: int) -> ir.Value:
        """The meaning of features 4 q .. 4 q + 3 in signed bytes."""
        b, codes = self._b, self._codes
        quad = b.bitcast(self._quad(q), V64I8)
        if codes.values is not None:
            return look_up_bytes(b, list(codes.values), quad)
        return b.sub(quad, ir.Constant(V64I8, [ir.Constant(I8, codes.offset)] * 64)) if codes.offset else quad

    def pairs(self, q: int) -> tuple[ir.Value, ir.Value]:
        """The meaning of features (4 q, 4 q + 2) and (4 q + 1, 4 q + 3) in int16."""
        b, codes = self._b, self._codes
        if codes.values is not None:
            return signed_pairs(b, b.bitcast(self.signed(q), VI32))
        minus = ir.Constant(V32I16, [ir.Constant(I16, codes.offset)] * 32) if codes.offset else None
        return code_pairs(b, self._quad(q), minus)

    def floats(self, q: int, minus: ir.Value | None = None) -> tuple[ir.Value, ir.Value]:
        """`pairs` in bfloat16; AVX-512 only. Of an index only the bits of a code count. `minus`, 32 int16
        from 0 to one past the largest code, takes the place of the offset, for codes of up to 5 bits.
        """
        b, quad, meaning = self._b, self._quad(q), self._codes.meaning()
        places = [b.bitcast(place, V32I16) for place in (quad, b.lshr(quad, const_vector(8, VI32)))]
        if minus is not None:
            # Every difference modulo twice the number of codes: those below 0 follow the others.
            count = 1 << self._codes.bits
            meaning = [*range(count), *range(-count, 0)]
            places = [b.sub(place, minus) for place in places]
        table = [int(np.float32(v).view(np.uint32)) >> 16 for v in meaning]
        first, second = (look_up_words(b, table, place) for place in places)
        return first, second

    def vector(self, k: int) -> ir.Value:
        """Feature k of the group as float32: its code's meaning plus `codes.left`, exactly."""
        b, codes = self._b, self._codes
        place = const_vector(8 * (k % 4), VI32)
        if codes.by_table:
            # The table is periodic and only the lowest bits of an index count, so a code of a single plane
            # needs no mask.
            if len(codes.planes) == 1:
                word, quad = divmod(k // 4, QUADS // codes.bits)
                shift = 8 * (k % 4) + codes.bits * quad
                value = self._word(word)
                return look_up(b, codes.table(), b.lshr(value, const_vector(shift, VI32)) if shift else value)
            return look_up(b, codes.table(), b.lshr(self._quad(k // 4), place))
        if codes.values is not None:
            if k // 4 not in self._looked_up:
                index = b.bitcast(self._quad(k // 4), V64I8)
                self._looked_up[k // 4] = b.bitcast(look_up_bytes(b, list(codes.values), index), VI32)
            top = b.shl(self._looked_up[k // 4], const_vector(24 - 8 * (k % 4), VI32))
            return b.sitofp(b.ashr(top, const_vector(24, VI32)), VF32)
        return b.sitofp(b.and_(b.lshr(self._quad(k // 4), place), const_vector(255, VI32)), VF32)


def look_up(b: ir.IRBuilder, table: list[float], index: ir.Value) -> ir.Value:
    """table[index % len(table)] in each lane, for tables of 16 or 32 entries; AVX-512 only."""
    parts = [
        ir.Constant(VF32, [ir.Constant(F32, v) for v in table[i : i + LANES]])
        for i in range(0, len(table), LANES)
    ]
    if len(parts) == 1:
        return permute(b, parts[0], index)
    kind = ir.FunctionType(VF32, [VF32, VI32, VF32])
    function = cgutils.get_or_insert_function(b.module, kind, "llvm.x86.avx512.vpermi2var.ps.512")
    return b.call(function, [parts[0], index, parts[1]])


def look_up_words(b: ir.IRBuilder, table: list[int], index: ir.Value) -> ir.Value:
    """table[index % 32] for 32 words and up to 32 entries, or [index % 64] for 64; AVX-512 only.

    A shorter table is repeated.
    """
    table = table * max(1, 32 // len(table))
    parts = [
        ir.Constant(V32I16, [ir.Constant(I16, v) for v in table[i : i + 32]])
        for i in range(0, len(table), 32)
    ]
    name, operands = "permvar.hi", [parts[0], index]
    if len(parts) == 2:
        name, operands = "vpermi2var.hi", [parts[0], index, parts[1]]
    kind = ir.FunctionType(V32I16, [V32I16] * len(operands))
    function = cgutils.get_or_insert_function(b.module, kind, f"llvm.x86.avx512.{name}.512")
    return b.call(function, operands)


def look_up_bytes(b: ir.IRBuilder, table: list[int], index: ir.Value) -> ir.Value:
    """table[index] for 64 bytes, by the CPU's byte permutation or else a tree of selections.

    Tables have 8 or 16 entries from -128 to 255.
    """
    for feature, width, name in (
        ("avx512bw", 64, "llvm.x86.avx512.pshuf.b.512"),
        ("avx2", 32, "llvm.x86.avx2.pshuf.b"),
        ("ssse3", 16, "llvm.x86.ssse3.pshuf.b.128"),
        ("neon", 16, "llvm.aarch64.neon.tbl1.v16i8"),
    ):
        if feature in FEATURES or (feature == "neon" and ARM64):
            return _permute_bytes(b, table, index, width, name)
    level = [ir.Constant(V64I8, [ir.Constant(I8, v)] * 64) for v in table]
    bit = 1
    while len(level) > 1:
        mask = ir.Constant(V64I8, [ir.Constant(I8, bit)] * 64)
        chosen = b.icmp_signed("==", b.and_(index, mask), mask)
        level = [b.select(chosen, level[i + 1], level[i]) for i in range(0, len(level), 2)]
        bit *= 2
    return level[0]


def _permute_bytes(b: ir.IRBuilder, table: list[int], index: ir.Value, width: int, name: str) -> ir.Value:
    kind = ir.VectorType(I8, width)
    function = cgutils.get_or_insert_function(b.module, ir.FunctionType(kind, [kind, kind]), name)
    entries = ir.Constant(kind, [ir.Constant(I8, v) for v in table] * (width // len(table)))
    parts = []
    for start in range(0, 64, width):
        mask = ir.Constant(
            ir.VectorType(ir.IntType(32), width),
            [ir.Constant(ir.IntType(32), start + i) for i in range(width)],
        )
        parts.append(
            b.call(function, [entries, b.shuffle_vector(index, ir.Constant(V64I8, ir.Undefined), mask)])
        )
    return join(b, parts)
