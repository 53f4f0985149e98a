"""Integer codes of 2 to 6 bits, 32 neighbouring features of a row packed without a gap, and their way to float32 lanes.

A group of 32 codes of `bits` bits is `bits` words of 32 bits: word j holds the 32 // bits codes that begin at feature
j * (32 // bits), first code lowest. The bits left over at the top of the words, read word by word, are the last codes (of 3, 5
and 6 bits: features 30 and 31). So nearly every code is one shift away, whatever the width, and no bit is spent on padding.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils

from engine.backends.cpu.family import Bytes
from engine.backends.cpu.simd import ARM64, F32, FEATURES, I8, LANES, VF32, VI32, WIDE, const_vector, load, permute

GROUP = 32
_V64I8 = ir.VectorType(I8, 4 * LANES)


class Codes:
    """Codes of `bits` bits and the whole numbers they stand for.

    Code q means q - `offset`, or `values[q]` where a table of 2^bits values from -128 to 127 is given (at most 16 of them).
    `left` is what must still be subtracted from a vector of `CodeReader`: 0, or `offset` where it is cheaper to subtract
    `offset` times the sum of the activations once for many codes.
    """

    def __init__(self, bits: int, offset: int = 0, values: Sequence[int] | None = None) -> None:
        assert 2 <= bits <= 6
        self.bits = bits
        self.offset = offset
        self.per_word = 32 // bits
        self.values = None if values is None else tuple(values)
        self.by_table = WIDE and bits <= 5
        self.left = 0 if self.by_table or values is not None else offset
        self.group_bytes = bits * LANES * 4

    def pack(self, codes: Bytes) -> list[npt.NDArray[np.uint32]]:
        """Codes (32, ...) to the group's words, `bits` arrays of the other axes' shape."""
        words = []
        for j in range(self.bits):
            word = codes[j * self.per_word].astype(np.uint32)
            for i in range(1, self.per_word):
                word |= codes[j * self.per_word + i].astype(np.uint32) << np.uint32(i * self.bits)
            words.append(word)
        for code, bit, word_index, position, count in self._left_over():
            piece = (codes[code] >> np.uint8(bit)) & np.uint8((1 << count) - 1)
            words[word_index] |= piece.astype(np.uint32) << np.uint32(position)
        return words

    def _left_over(self) -> list[tuple[int, int, int, int, int]]:
        """(code, its first bit, word, position there, bits) of each piece of the codes that the words' tops make up."""
        spare = 32 - self.per_word * self.bits
        pieces: list[tuple[int, int, int, int, int]] = []
        code, bit = self.per_word * self.bits, 0
        for word in range(self.bits):
            position = 32 - spare
            while position < 32 and code < GROUP:
                count = min(32 - position, self.bits - bit)
                pieces.append((code, bit, word, position, count))
                position += count
                bit = (bit + count) % self.bits
                code += bit == 0
        return pieces

    def table(self) -> list[float]:
        """What each code means, one period after another up to 16 (5 bits: 32) entries."""
        meaning = [q - self.offset for q in range(1 << self.bits)] if self.values is None else list(self.values)
        return [float(v) for v in meaning * max(1, 16 // len(meaning))]


class CodeReader:
    """The codes of one group of 32 features x 16 rows at `address` + `offset` bytes, as float32 vectors."""

    def __init__(self, b: ir.IRBuilder, codes: Codes, address: ir.Value, offset: int = 0) -> None:
        self._b, self._codes = b, codes
        self._address, self._offset = address, offset
        self._words: dict[int, ir.Value] = {}
        self._looked_up: dict[tuple[int, int], ir.Value] = {}
        self._spread: dict[int, list[tuple[int, int, int, int]]] = {}
        for code, bit, word, position, count in codes._left_over():
            self._spread.setdefault(code, []).append((bit, word, position, count))

    def _word(self, j: int) -> ir.Value:
        if j not in self._words:
            self._words[j] = load(self._b, self._address, VI32, self._offset + j * LANES * 4)
        return self._words[j]

    def _whole(self, k: int) -> ir.Value:
        """Code k in the lowest bits; what is above them is another code's."""
        b, codes = self._b, self._codes
        if k not in self._spread:
            shift = (k % codes.per_word) * codes.bits
            word = self._word(k // codes.per_word)
            return b.lshr(word, const_vector(shift, VI32)) if shift else word
        value: ir.Value | None = None
        for bit, word_index, position, count in self._spread[k]:
            word, shift = self._word(word_index), position - bit
            moved = b.lshr(word, const_vector(shift, VI32)) if shift else word
            piece = b.and_(moved, const_vector(((1 << count) - 1) << bit, VI32))
            value = piece if value is None else b.or_(value, piece)
        assert value is not None
        return value

    def vector(self, k: int) -> ir.Value:
        """Feature k of the group: its code's meaning plus `codes.left`, exact."""
        b, codes = self._b, self._codes
        if codes.by_table:
            return look_up(b, codes.table(), self._whole(k))
        if codes.values is not None:
            return self._by_bytes(k)
        return b.sitofp(b.and_(self._whole(k), const_vector((1 << codes.bits) - 1, VI32)), VF32)

    def _by_bytes(self, k: int) -> ir.Value:
        """Table look-up of four codes of each word at once, where only bytes can be permuted."""
        b, codes = self._b, self._codes
        assert codes.bits == 4, "a table needs AVX-512 or codes of 4 bits"
        word_index, odd, byte = k // 8, k % 2, k % 8 // 2
        if (word_index, odd) not in self._looked_up:
            word = self._word(word_index)
            moved = b.lshr(word, const_vector(4, VI32)) if odd else word
            index = b.bitcast(b.and_(moved, const_vector(0x0F0F0F0F, VI32)), _V64I8)
            self._looked_up[word_index, odd] = b.bitcast(look_up_bytes(b, [int(v) for v in codes.table()], index), VI32)
        found = self._looked_up[word_index, odd]
        top = b.shl(found, const_vector(24 - 8 * byte, VI32)) if byte < 3 else found
        return b.sitofp(b.ashr(top, const_vector(24, VI32)), VF32)


def look_up(b: ir.IRBuilder, table: list[float], index: ir.Value) -> ir.Value:
    """table[index % len(table)] in each lane, for tables of 16 or 32 entries; AVX-512 only."""
    halves = [ir.Constant(VF32, [ir.Constant(F32, v) for v in table[i : i + LANES]]) for i in range(0, len(table), LANES)]
    if len(halves) == 1:
        return permute(b, halves[0], index)
    kind = ir.FunctionType(VF32, [VF32, VI32, VF32])
    function = cgutils.get_or_insert_function(b.module, kind, "llvm.x86.avx512.vpermi2var.ps.512")
    return b.call(function, [halves[0], index, halves[1]])


def look_up_bytes(b: ir.IRBuilder, table: list[int], index: ir.Value) -> ir.Value:
    """table[index] of 64 bytes below 16; the CPU's byte permutation, or else a tree of selections."""
    for feature, width, name in (
        ("avx2", 32, "llvm.x86.avx2.pshuf.b"),
        ("ssse3", 16, "llvm.x86.ssse3.pshuf.b.128"),
        ("neon", 16, "llvm.aarch64.neon.tbl1.v16i8"),
    ):
        if feature in FEATURES or (feature == "neon" and ARM64):
            return _permute_bytes(b, table, index, width, name)
    level = [ir.Constant(_V64I8, [ir.Constant(I8, v)] * 64) for v in table]
    bit = 1
    while len(level) > 1:
        mask = ir.Constant(_V64I8, [ir.Constant(I8, bit)] * 64)
        chosen = b.icmp_signed("==", b.and_(index, mask), mask)
        level = [b.select(chosen, level[i + 1], level[i]) for i in range(0, len(level), 2)]
        bit *= 2
    return level[0]


def _permute_bytes(b: ir.IRBuilder, table: list[int], index: ir.Value, width: int, name: str) -> ir.Value:
    kind = ir.VectorType(I8, width)
    function = cgutils.get_or_insert_function(b.module, ir.FunctionType(kind, [kind, kind]), name)
    entries = ir.Constant(kind, [ir.Constant(I8, v) for v in table] * (width // 16))
    parts = []
    for start in range(0, 64, width):
        mask = ir.Constant(ir.VectorType(ir.IntType(32), width), [ir.Constant(ir.IntType(32), start + i) for i in range(width)])
        parts.append(b.call(function, [entries, b.shuffle_vector(index, ir.Constant(_V64I8, ir.Undefined), mask)]))
    while len(parts) > 1:
        size = parts[0].type.count
        mask = ir.Constant(ir.VectorType(ir.IntType(32), 2 * size), [ir.Constant(ir.IntType(32), i) for i in range(2 * size)])
        parts = [b.shuffle_vector(parts[i], parts[i + 1], mask) for i in range(0, len(parts), 2)]
    return parts[0]
