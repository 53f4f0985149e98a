"""ALiBi's slopes (arXiv 2108.12409)."""

from __future__ import annotations

import numpy as np

from engine.tensors import Floats


def alibi_slopes(heads: int, most: float = 8.0) -> tuple[float, ...]:
    """The slope of each head: 2^(-most i / n) for i = 1 .. n, n being the largest power of two up to `heads`;
    the heads beyond n take those of every other i of 2 n.
    """
    whole = 1 << (heads.bit_length() - 1)
    slopes = [2 ** (-most * i / whole) for i in range(1, whole + 1)]
    return (*slopes, *(2 ** (-most * i / (2 * whole)) for i in range(1, 2 * (heads - whole) + 1, 2)))


def in_bfloat16(slopes: tuple[float, ...]) -> tuple[float, ...]:
    """The nearest bfloat16 of each, the even one of two."""
    bits = np.array(slopes, np.float32).view(np.uint32)
    rounded: Floats = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    return tuple(float(slope) for slope in rounded)
