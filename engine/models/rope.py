"""Rotary position embedding: the table of cosines and sines for every scaling in use.

Without scaling frequency i is base^(-2i / dim). "linear" (arXiv 2306.15595), "llama3" (the Llama 3.1 model
card's reference code) and "longrope" (arXiv 2402.13753) divide each frequency by a constant of its own;
"yarn" (arXiv 2309.00071) too, and scales what the attention sees; "dynamic" NTK scaling raises the base with
the context. Longrope and dynamic depend on how long the context is: here that is the context the cache was
made for, one choice for a whole conversation, as keys that lie turned in the cache cannot change. Reading
these settings from files: `rope_files.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from engine.backends.base import RotaryTable


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """`dim` leading dimensions of each head are turned; `divisors` has dim / 2 entries, all 1 without
    scaling.

    `interleaved` as in `RotaryTable`; `magnitude` multiplies cosines and sines. In a context longer than
    `original_length` `long_divisors` and `long_magnitude` are taken instead, where there are any, and with
    `dynamic` > 0 the base is raised as dynamic NTK scaling by that factor has it.
    """

    base: float
    dim: int
    interleaved: bool
    divisors: tuple[float, ...]
    magnitude: float = 1.0
    original_length: int = 0
    long_divisors: tuple[float, ...] = ()
    long_magnitude: float = 1.0
    dynamic: float = 0.0


def rotary_table(rope: RopeConfig, positions: int, context: int = 0) -> RotaryTable:
    """Cosines and sines of positions 0 .. positions - 1 for a context of `context` tokens, computed in
    double precision.
    """
    base, divisors, magnitude = rope.base, rope.divisors, rope.magnitude
    if rope.original_length and context > rope.original_length:
        if rope.long_divisors:
            divisors, magnitude = rope.long_divisors, rope.long_magnitude
        if rope.dynamic:
            stretch = rope.dynamic * context / rope.original_length - (rope.dynamic - 1)
            base *= stretch ** (rope.dim / (rope.dim - 2))
    exponents = np.arange(0, rope.dim, 2, dtype=np.float64) / rope.dim
    frequencies = base**-exponents / np.array(divisors, np.float64)
    angles = np.outer(np.arange(positions, dtype=np.float64), frequencies)
    return RotaryTable(
        (np.cos(angles) * magnitude).astype(np.float32),
        (np.sin(angles) * magnitude).astype(np.float32),
        rope.interleaved,
    )


def yarn_divisors(
    base: float, dim: int, factor: float, original: int, fast: float, slow: float, truncate: bool = True
) -> tuple[float, ...]:
    """Divisors of "yarn": dimensions that turn more than `fast` times in the original context stay, those
    below `slow` are divided by `factor`, with a straight ramp over the dimensions between; `truncate` rounds
    the ramp's ends outward to whole dimensions.
    """

    def dimension(turns: float) -> float:
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = dimension(fast), dimension(slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    kept = [1 - min(max((i - low) / (high - low), 0.0), 1.0) for i in range(dim // 2)]
    return tuple(1 / ((1 - k) / factor + k) for k in kept)


def yarn_magnitude(factor: float, weight: float = 1.0) -> float:
    """0.1 weight ln(factor) + 1, the scale of attention that goes with a stretch of positions (arXiv
    2309.00071, equation 22).
    """
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


def llama3_divisors(
    base: float, dim: int, factor: float, low: float, high: float, original: int
) -> tuple[float, ...]:
    """Long waves are stretched by `factor`, short ones stay, and between the two bounds the frequency goes
    over smoothly.
    """
    divisors = []
    for i in range(0, dim, 2):
        turns = original * base ** (-i / dim) / (2 * math.pi)  # whole turns within the original context
        kept = min(max((turns - low) / (high - low), 0.0), 1.0)
        divisors.append(1 / ((1 - kept) / factor + kept))
    return tuple(divisors)
