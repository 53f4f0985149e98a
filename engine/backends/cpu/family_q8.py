"""8-bit weights with one scale for 32 features: w = d q. Holds Q8_0.

Block of 32 features x 16 rows, 544 bytes: int8 (32, 16), then 16 fp16 scales. Source of the file layout: ggml's block_q8_0.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from engine.backends.cpu.family import CHAINS, BlockRows, Bytes, add_to_chain, join_chains, prefetch_lines, tiles
from engine.backends.cpu.simd import F32, I8, LANES, VF32, VI32, Accumulators, fma, load, load_half, splat, store

_UNIT = 32
_SCALES = _UNIT * LANES


class Q8:
    """See the module docstring."""

    name = "q8"
    types: tuple[str, ...] = ("Q8_0",)
    unit = _UNIT
    block_bytes = _SCALES + 2 * LANES
    needs_sums = False

    def pack(self, type_name: str, raw: Bytes, rows: int, columns: int) -> Bytes:
        """See `Family.pack`."""
        blocks = columns // _UNIT
        source = raw.reshape(rows, blocks, 34)
        out = np.empty((rows // LANES, blocks, self.block_bytes), np.uint8)
        out[:, :, :_SCALES] = tiles(source[:, :, 2:], rows).reshape(rows // LANES, blocks, -1)
        scales = np.ascontiguousarray(source[:, :, :2]).view(np.uint16)
        out[:, :, _SCALES:] = np.ascontiguousarray(tiles(scales, rows)).view(np.uint8).reshape(rows // LANES, blocks, -1)
        return out.reshape(-1)

    @staticmethod
    def _vector(b: ir.IRBuilder, block: ir.Value, k: int) -> ir.Value:
        return b.sitofp(b.sext(load(b, block, ir.VectorType(I8, LANES), k * LANES), VI32), VF32)

    def emit_dot(self, b: ir.IRBuilder, block: ir.Value, rows: BlockRows, totals: Accumulators) -> None:
        """See `Family.emit_dot`."""
        prefetch_lines(b, block, self.block_bytes)
        parts: list[list[ir.Value | None]] = [[None] * CHAINS for _ in rows.x]
        for k in range(_UNIT):
            weight = self._vector(b, block, k)
            for r, x in enumerate(rows.x):
                add_to_chain(b, parts[r], k % CHAINS, splat(b, load(b, x, F32, 4 * k)), weight)
        scale = load_half(b, block, _SCALES)
        for r in range(len(rows.x)):
            totals.set(r, fma(b, scale, join_chains(b, parts[r]), totals.get(r)))

    def emit_unpack(self, b: ir.IRBuilder, block: ir.Value, target: ir.Value) -> None:
        """See `Family.emit_unpack`."""
        scale = load_half(b, block, _SCALES)
        for k in range(_UNIT):
            store(b, b.fmul(self._vector(b, block, k), scale), target, k * LANES * 4)
