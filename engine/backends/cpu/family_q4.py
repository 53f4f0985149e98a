"""4-bit weights with one scale and one minimum for 32 features: w = d q + m. Holds Q4_0 and Q4_1.

Block of 32 features x 16 rows, 320 bytes: four vectors of sixteen 32-bit words (word j of a row holds features 8 j .. 8 j + 7,
low nibble first), then 16 fp16 scales d, then 16 fp16 minimums m. Source of the file layouts: the GGUF format page and
ggml's block_q4_0 / block_q4_1.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from llvmlite import ir

from engine.backends.cpu.family import CHAINS, BlockRows, Bytes, tiles
from engine.backends.cpu.simd import (
    F32,
    LANES,
    VF32,
    VI32,
    Accumulators,
    const_vector,
    fma,
    load,
    load_half,
    prefetch,
    splat,
    store,
)

_UNIT = 32
_SCALES = 4 * LANES * 4
_MINIMUMS = _SCALES + 2 * LANES
_READ_AHEAD = 5 * (_MINIMUMS + 2 * LANES)


def gather_nibbles(low: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
    """uint64 words of eight bytes below 16 to uint32 words of eight nibbles, first byte lowest."""
    x = low
    x = (x | (x >> np.uint64(4))) & np.uint64(0x00FF00FF00FF00FF)
    x = (x | (x >> np.uint64(8))) & np.uint64(0x0000FFFF0000FFFF)
    words: npt.NDArray[np.uint32] = ((x | (x >> np.uint64(16))) & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    return words


def emit_nibble(b: ir.IRBuilder, word: ir.Value, n: int) -> ir.Value:
    """Nibble n of each lane as float32."""
    shifted = b.lshr(word, const_vector(4 * n, VI32)) if n else word
    return b.sitofp(b.and_(shifted, const_vector(15, VI32)) if n < 7 else shifted, VF32)


class Q4:
    """See the module docstring."""

    name = "q4"
    types: tuple[str, ...] = ("Q4_0", "Q4_1")
    unit = _UNIT
    block_bytes = _MINIMUMS + 2 * LANES
    needs_sums = True

    def pack(self, type_name: str, raw: Bytes, rows: int, columns: int) -> Bytes:
        """See `Family.pack`. Q4_0's w = d (q - 8) becomes m = -8 d, exact in fp16 unless d is near its largest value."""
        blocks = columns // _UNIT
        header = 2 if type_name == "Q4_0" else 4
        source = raw.reshape(rows, blocks, header + 16)
        nibbles = np.ascontiguousarray(source[:, :, header:]).view(np.uint64)  # (rows, blocks, 2)
        mask = np.uint64(0x0F0F0F0F0F0F0F0F)
        words = np.concatenate([gather_nibbles(nibbles & mask), gather_nibbles((nibbles >> np.uint64(4)) & mask)], axis=2)
        scales = np.ascontiguousarray(source[:, :, :2]).view(np.float16)
        if header == 4:
            minimums = np.ascontiguousarray(source[:, :, 2:4]).view(np.float16)
        else:
            minimums = (scales.astype(np.float32) * -8).astype(np.float16)
        out = np.empty((rows // LANES, blocks, self.block_bytes), np.uint8)
        shape = (rows // LANES, blocks, -1)
        out[:, :, :_SCALES] = np.ascontiguousarray(tiles(words, rows)).view(np.uint8).reshape(shape)
        out[:, :, _SCALES:_MINIMUMS] = np.ascontiguousarray(tiles(scales, rows)).view(np.uint8).reshape(shape)
        out[:, :, _MINIMUMS:] = np.ascontiguousarray(tiles(minimums, rows)).view(np.uint8).reshape(shape)
        return out.reshape(-1)

    def emit_dot(self, b: ir.IRBuilder, block: ir.Value, rows: BlockRows, totals: Accumulators) -> None:
        """See `Family.emit_dot`."""
        prefetch_lines(b, block, self.block_bytes, _READ_AHEAD)
        parts: list[list[ir.Value | None]] = [[None] * CHAINS for _ in rows.x]
        for j in range(4):
            word = load(b, block, VI32, j * LANES * 4)
            for n in range(8):
                weight = emit_nibble(b, word, n)
                for r, x in enumerate(rows.x):
                    add_to_chain(b, parts[r], (8 * j + n) % CHAINS, splat(b, load(b, x, F32, 4 * (8 * j + n))), weight)
        scale, minimum = load_half(b, block, _SCALES), load_half(b, block, _MINIMUMS)
        for r, s in enumerate(rows.sums):
            total = b.fadd(load(b, s, F32), load(b, s, F32, 4))
            value = fma(b, minimum, splat(b, total), totals.get(r))
            totals.set(r, fma(b, scale, join_chains(b, parts[r]), value))

    def emit_unpack(self, b: ir.IRBuilder, block: ir.Value, target: ir.Value) -> None:
        """See `Family.emit_unpack`."""
        scale, minimum = load_half(b, block, _SCALES), load_half(b, block, _MINIMUMS)
        for j in range(4):
            word = load(b, block, VI32, j * LANES * 4)
            for n in range(8):
                store(b, fma(b, emit_nibble(b, word, n), scale, minimum), target, (8 * j + n) * LANES * 4)


def prefetch_lines(b: ir.IRBuilder, block: ir.Value, size: int, ahead: int) -> None:
    """Ask for all cache lines of the block `ahead` bytes on."""
    for line in range(0, size, 64):
        prefetch(b, block, ahead + line)


def add_to_chain(b: ir.IRBuilder, parts: list[ir.Value | None], chain: int, x: ir.Value, weight: ir.Value) -> None:
    """parts[chain] += x * weight; the first product starts the chain."""
    before = parts[chain]
    parts[chain] = b.fmul(x, weight) if before is None else fma(b, x, weight, before)


def join_chains(b: ir.IRBuilder, parts: list[ir.Value | None]) -> ir.Value:
    """The sum of all chains, pairwise."""
    values = [p for p in parts if p is not None]
    while len(values) > 1:
        values = [b.fadd(values[i], values[i + 1]) if i + 1 < len(values) else values[i] for i in range(0, len(values), 2)]
    return values[0]
