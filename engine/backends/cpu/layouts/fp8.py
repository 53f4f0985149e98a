"""8-bit floats (e4m3) with a scale for each block of inputs: the types of `engine.weights.packed.fp8`.

Block of `unit` features x 16 rows: 16 float32 scales, then the bytes (unit, 16).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from llvmlite import ir

from engine.backends.cpu.codegen.simd import (
    F32,
    I64,
    LANES,
    VF32,
    Accumulators,
    counted_loop,
    fma,
    load,
    load_e4m3,
    splat,
    store,
)
from engine.backends.cpu.layouts.layout import (
    CHAINS,
    Bytes,
    Distance,
    ReadAhead,
    add_to_chain,
    join_chains,
    lanes_of,
)
from engine.lazy_dataclass import dataclass

_GROUP = 32
_SCALE_BYTES = 4 * LANES
UNITS = (128, 32)


@dataclass(frozen=True)
class Fp8:
    """The layout of fp8 weights with a scale for `unit` features."""

    unit: int

    integer = False

    @property
    def name(self) -> str:
        return f"fp8u{self.unit}"

    @property
    def types(self) -> tuple[str, ...]:
        return (f"FP8_{self.unit}",)

    @property
    def block_bytes(self) -> int:
        return _SCALE_BYTES + self.unit * LANES

    @property
    def file_bytes(self) -> int:
        return self.unit + 4

    def pack(self, raw: Bytes, rows: int, columns: int) -> Bytes:
        """For each row and block, `raw` holds `unit` numbers and a float32 scale."""
        parts = raw.reshape(rows, columns // self.unit, self.file_bytes)
        scales = np.ascontiguousarray(parts[:, :, self.unit :]).view(np.uint32)
        both = lanes_of(scales, rows), lanes_of(parts[:, :, : self.unit], rows)
        return np.concatenate(both, axis=2).reshape(-1)

    def emit_dot(
        self,
        b: ir.IRBuilder,
        block: ir.Value,
        rows: Sequence[ir.Value],
        totals: Accumulators,
        ahead: Distance,
    ) -> None:
        scale = load(b, block, VF32)
        ReadAhead(b, block, _SCALE_BYTES, len(rows), ahead).step()
        with counted_loop(b, ir.Constant(I64, self.unit // _GROUP)) as g:
            group = _group(b, block, g)
            soon = ReadAhead(b, group, _GROUP * LANES, len(rows), ahead, _GROUP)
            parts: list[list[ir.Value | None]] = [[None] * CHAINS for _ in rows]
            xs = [b.add(x, b.mul(g, ir.Constant(I64, 4 * _GROUP))) for x in rows]
            for k in soon.beside(range(_GROUP)):
                weight = load_e4m3(b, group, k * LANES)
                for r, x in enumerate(xs):
                    add_to_chain(b, parts[r], k % CHAINS, splat(b, load(b, x, F32, 4 * k)), weight)
            for r in range(len(xs)):
                totals.set(r, fma(b, scale, join_chains(b, parts[r]), totals.get(r)))

    def emit_unpack(self, b: ir.IRBuilder, block: ir.Value, target: ir.Value) -> None:
        scale = load(b, block, VF32)
        with counted_loop(b, ir.Constant(I64, self.unit // _GROUP)) as g:
            group = _group(b, block, g)
            out = b.add(target, b.mul(g, ir.Constant(I64, _GROUP * LANES * 4)))
            for k in range(_GROUP):
                store(b, b.fmul(load_e4m3(b, group, k * LANES), scale), out, k * LANES * 4)


def _group(b: ir.IRBuilder, block: ir.Value, g: ir.Value) -> ir.Value:
    """The address of the bytes of group g."""
    return b.add(block, b.add(b.mul(g, ir.Constant(I64, _GROUP * LANES)), ir.Constant(I64, _SCALE_BYTES)))


FP8_WEIGHT_LAYOUTS = tuple(Fp8(unit) for unit in UNITS)
"""The layouts of both units."""
