"""6-bit weights in super-blocks of 256 with an 8-bit scale for 16 features: w = d s (q - 32). Holds Q6_K.

Block of 256 features x 16 rows, 3,360 bytes: 32 vectors of sixteen 32-bit words with the low nibbles (word j: features
8 j .. 8 j + 7), 16 vectors with the high pairs of bits (word j: features 16 j .. 16 j + 15), int8 scales (16, 16), 16 fp16
super-scales d. Source of the file layout: ggml's block_q6_K (ql[128], qh[64], scales[16], d).
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from engine.backends.cpu.family import CHAINS, BlockRows, Bytes, tiles
from engine.backends.cpu.family_q4 import add_to_chain, gather_nibbles, join_chains, prefetch_lines
from engine.backends.cpu.simd import F32, I8, LANES, VF32, VI32, Accumulators, const_vector, fma, load, load_half, splat, store

_UNIT = 256
_HIGH = 32 * LANES * 4
_SCALES = _HIGH + 16 * LANES * 4
_SUPER = _SCALES + 16 * LANES
_FILE_BYTES = 210


class Q6K:
    """See the module docstring."""

    name = "q6k"
    types: tuple[str, ...] = ("Q6_K",)
    unit = _UNIT
    block_bytes = _SUPER + 2 * LANES
    needs_sums = True

    def pack(self, type_name: str, raw: Bytes, rows: int, columns: int) -> Bytes:
        """See `Family.pack`."""
        blocks = columns // _UNIT
        source = raw.reshape(rows, blocks, _FILE_BYTES)
        # A half of 128 features: ql byte l holds feature l (low nibble) and l + 64 (high), for l in 0..63; qh byte l in
        # 0..31 holds two bits each of features l, l + 32, l + 64, l + 96.
        ql = source[:, :, :128].reshape(rows, blocks, 2, 64)
        low = np.concatenate([ql & 15, ql >> 4], axis=3).reshape(rows, blocks, 256)
        qh = source[:, :, 128:192].reshape(rows, blocks, 2, 1, 32)
        high = ((qh >> np.array([0, 2, 4, 6], np.uint8).reshape(4, 1)) & 3).reshape(rows, blocks, 16, 16)
        shifts = (2 * np.arange(16)).astype(np.uint32)
        high_words = np.bitwise_or.reduce(high.astype(np.uint32) << shifts, axis=3)
        low_words = gather_nibbles(np.ascontiguousarray(low).view(np.uint64))
        shape = (rows // LANES, blocks, -1)
        out = np.empty((rows // LANES, blocks, self.block_bytes), np.uint8)
        out[:, :, :_HIGH] = np.ascontiguousarray(tiles(low_words, rows)).view(np.uint8).reshape(shape)
        out[:, :, _HIGH:_SCALES] = np.ascontiguousarray(tiles(high_words, rows)).view(np.uint8).reshape(shape)
        out[:, :, _SCALES:_SUPER] = tiles(source[:, :, 192:208], rows).reshape(shape)
        supers = np.ascontiguousarray(source[:, :, 208:]).view(np.uint16)
        out[:, :, _SUPER:] = np.ascontiguousarray(tiles(supers, rows)).view(np.uint8).reshape(shape)
        return out.reshape(-1)

    @staticmethod
    def _vector(b: ir.IRBuilder, low: ir.Value, high: ir.Value, k: int) -> ir.Value:
        nibble = b.and_(b.lshr(low, const_vector(4 * (k % 8), VI32)), const_vector(15, VI32))
        pair = b.and_(b.lshr(high, const_vector(2 * k, VI32)), const_vector(3, VI32))
        return b.sitofp(b.or_(nibble, b.shl(pair, const_vector(4, VI32))), VF32)

    @staticmethod
    def _scale(b: ir.IRBuilder, block: ir.Value, group: int) -> ir.Value:
        small = load(b, block, ir.VectorType(I8, LANES), _SCALES + group * LANES)
        return b.fmul(b.sitofp(b.sext(small, VI32), VF32), load_half(b, block, _SUPER))

    def emit_dot(self, b: ir.IRBuilder, block: ir.Value, rows: BlockRows, totals: Accumulators) -> None:
        """See `Family.emit_dot`."""
        prefetch_lines(b, block, self.block_bytes, self.block_bytes)
        for group in range(16):
            parts: list[list[ir.Value | None]] = [[None] * CHAINS for _ in rows.x]
            high = load(b, block, VI32, _HIGH + group * LANES * 4)
            for k in range(16):
                low = load(b, block, VI32, (2 * group + k // 8) * LANES * 4)
                weight = self._vector(b, low, high, k)
                for r, x in enumerate(rows.x):
                    add_to_chain(b, parts[r], k % CHAINS, splat(b, load(b, x, F32, 4 * (16 * group + k))), weight)
            scale = self._scale(b, block, group)
            for r, s in enumerate(rows.sums):
                offset = splat(b, load(b, s, F32, 4 * group))
                value = fma(b, const_vector(-32.0), offset, join_chains(b, parts[r]))
                totals.set(r, fma(b, scale, value, totals.get(r)))

    def emit_unpack(self, b: ir.IRBuilder, block: ir.Value, target: ir.Value) -> None:
        """See `Family.emit_unpack`."""
        for group in range(16):
            scale = self._scale(b, block, group)
            high = load(b, block, VI32, _HIGH + group * LANES * 4)
            for k in range(16):
                low = load(b, block, VI32, (2 * group + k // 8) * LANES * 4)
                value = b.fsub(self._vector(b, low, high, k), const_vector(32.0))
                store(b, b.fmul(value, scale), target, (16 * group + k) * LANES * 4)
