"""Products of integer weights with packed 16-bit activations, exact in int32 on every CPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from llvmlite import ir

from engine.backends.cpu.codegen.simd import F32, I32, VF32, VI32, const_vector, load, splat
from engine.backends.cpu.codegen.simd_bytes import byte_sums, joined, products_in_int16, spread_word
from engine.backends.cpu.kernels.packed_activations import INTEGER_SUMS, LOW, SCALE, SUMS

HALF_SUMS = (0, 1)
ALL = 2
"""Which of a block's sums of activations: the first 16 features, the last 16, or all."""


def integer_products(
    b: ir.IRBuilder,
    operands: Iterable[tuple[int, ir.Value]],
    packed: Sequence[ir.Value],
    zero: int | ir.Value,
    part: int,
    largest: int,
) -> list[ir.Value]:
    """For each block of `packed`: the sum of (weight - zero) * activation over the operands' features, as
    float32 from int32.

    An operand is (q, the bytes of features 4 q .. 4 q + 3 in each lane), from 0 to `largest`, or signed if
    that is 0; `part` names the sum that covers all of them, and a `zero` that is a vector has one for each
    lane. No sum overflows: the largest is 32 x 255 x 32639.
    """
    high: list[ir.Value] = [const_vector(0, VI32) for _ in packed]
    low = [_start(b, block, zero, part) for block in packed]
    left = iter(operands)
    while chosen := list(islice(left, products_in_int16(largest))):
        for r, block in enumerate(packed):
            # Lazily, so that each activation is loaded where it is used.
            quads = (
                (weights, [spread_word(b, block, 4 * q), spread_word(b, block, LOW + 4 * q)])
                for q, weights in chosen
            )
            high[r], low[r] = byte_sums(b, [high[r], low[r]], quads, not largest, len(chosen) > 1)
    return [b.sitofp(joined(b, h, v), VF32) for h, v in zip(high, low, strict=True)]


def _start(b: ir.IRBuilder, block: ir.Value, zero: int | ir.Value, part: int) -> ir.Value:
    if isinstance(zero, int):
        if not zero:
            return const_vector(0, VI32)
        zero = const_vector(zero, VI32)
    return b.mul(splat(b, load(b, block, I32, INTEGER_SUMS + 4 * part)), zero)


def packed_scale(b: ir.IRBuilder, block: ir.Value) -> ir.Value:
    """The scale of a block of activations, in every lane."""
    return splat(b, load(b, block, F32, SCALE))


def packed_sum(b: ir.IRBuilder, block: ir.Value, part: int) -> ir.Value:
    """A sum of a block's activations, in every lane."""
    return splat(b, load(b, block, F32, SUMS + 4 * part))
