"""Rotary position embedding (rope, arXiv 2104.09864): tables of cosines and sines for every scaling in use.

Without scaling, frequency i is base^(-2i / dim). "linear" (arXiv 2306.15595), "llama3" (the reference code of
the Llama 3.1 model card) and "longrope" (arXiv 2402.13753) divide each frequency by a constant; "yarn" (arXiv
2309.00071) does, too, and also scales attention; "dynamic" NTK scaling raises the base with the context.
Longrope and dynamic scaling depend on the length of the context. Here that is the length the cache was made
for, since keys in the cache are already rotated. `rope_files.py` reads these settings from files.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from engine.backends.base import RotaryTable
from engine.errors import BadCheckpoint
from engine.lazy_dataclass import dataclass
from engine.words import _


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """The rope of a model, with its scaling."""

    base: float
    dim: int
    """The leading dimensions of each head that are rotated."""
    interleaved: bool
    """As in `RotaryTable`."""
    divisors: tuple[float, ...]
    """Of the dim / 2 frequencies; all 1 without scaling."""
    magnitude: float = 1.0
    """Multiplies cosines and sines."""
    original_length: int = 0
    """The context in tokens beyond which the fields below apply; 0: never."""
    long_divisors: tuple[float, ...] = ()
    long_magnitude: float = 1.0
    dynamic: float = 0.0
    """The factor of dynamic NTK scaling; 0: none."""
    query_beta: float = 0.0
    """Queries at position p are multiplied by 1 + beta ln(1 + floor(p / `query_length`)), as in Llama 4 (its
    "attention temperature tuning"); 0: not so.
    """
    query_power: float = 0.0
    """Queries at position p are multiplied by (1 + p / `query_length`)^power (Beam); 0: not so."""
    query_length: int = 0
    query_offset: int = 0
    """Added to p there."""
    sections: tuple[int, int, int] | None = None
    """How many of the dim / 2 pairs rotate by the time, the row and the column of a picture's token (M-RoPE,
    arXiv 2409.12191); texts are the same with and without. None: the file states none that fit.
    """
    sections_interleaved: bool = False
    """As in `engine.models.layers.positions.mrope.axes_of_pairs`."""

    @property
    def scales_queries(self) -> bool:
        """Whether queries are scaled by their positions."""
        return self.query_beta != 0.0 or self.query_power != 0.0


def rotary_table(rope: RopeConfig, positions: int, context: int = 0, *, queries: bool = False) -> RotaryTable:
    """The table for positions 0 to positions - 1 of a context of `context` tokens, computed in float64; with
    `queries` the one of queries, where they are scaled.
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
    places = np.arange(positions, dtype=np.float64)
    angles, factors = np.outer(places, frequencies), np.full((positions, 1), magnitude)
    if queries and rope.scales_queries:
        factors *= _query_factors(rope, positions)
    return RotaryTable(
        (np.cos(angles) * factors).astype(np.float32),
        (np.sin(angles) * factors).astype(np.float32),
        rope.interleaved,
    )


def scaling_table(rope: RopeConfig, positions: int, dim: int) -> RotaryTable:
    """The table that only scales `dim` numbers (an even number) of a query by its position."""
    factors = _query_factors(rope, positions).astype(np.float32).repeat(dim // 2, axis=1)
    return RotaryTable(factors, np.zeros_like(factors), True)


def _query_factors(rope: RopeConfig, positions: int) -> npt.NDArray[np.float64]:
    """What queries at positions 0 to positions - 1 are multiplied by, (positions, 1)."""
    lengths = (np.arange(positions, dtype=np.float64) + rope.query_offset) / rope.query_length
    factors: npt.NDArray[np.float64] = 1 + rope.query_beta * np.log(1 + np.floor(lengths))
    return (factors * (1 + lengths) ** rope.query_power)[:, None]


def yarn_divisors(
    base: float, dim: int, factor: float, original: int, fast: float, slow: float, truncate: bool = True
) -> tuple[float, ...]:
    """Divisors of "yarn" (arXiv 2309.00071, section 3.2).

    Dimensions with more than `fast` rotations in the `original` context keep their frequency, those with
    fewer than `slow` are divided by `factor`, and a linear ramp lies between. `truncate` rounds the ends of
    the ramp outward to whole dimensions. Raises `BadCheckpoint` for a base of 1, with which all rotate alike.
    """
    if base == 1.0:
        raise BadCheckpoint(
            _(
                "The base of the model's rotary embedding is 1; with yarn a larger one was expected. The "
                "file is damaged."
            )
        )

    def dimension(rotations: float) -> float:
        return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low, high = dimension(fast), dimension(slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    kept = [1 - min(max((i - low) / (high - low), 0.0), 1.0) for i in range(dim // 2)]
    return tuple(1 / ((1 - k) / factor + k) for k in kept)


def yarn_magnitude(factor: float, weight: float = 1.0) -> float:
    """0.1 weight ln(factor) + 1, the scale of attention in yarn (arXiv 2309.00071, equation 22)."""
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


def llama3_divisors(
    base: float, dim: int, factor: float, low: float, high: float, original: int
) -> tuple[float, ...]:
    """Divisors of "llama3": `factor` for long waves, 1 for short ones, a smooth transition between.

    `low` and `high` bound the transition, in rotations within the `original` context.
    """
    divisors = []
    for i in range(0, dim, 2):
        rotations = original * base ** (-i / dim) / (2 * math.pi)
        kept = min(max((rotations - low) / (high - low), 0.0), 1.0)
        divisors.append(1 / ((1 - kept) / factor + kept))
    return tuple(divisors)
