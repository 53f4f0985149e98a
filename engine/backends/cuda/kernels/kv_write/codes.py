"""Device functions for numbers of the key/value cache: clamping, rounding to e4m3, and the levels of q4.

The rounding is defined in `backends.kv_rounding`.
"""

from __future__ import annotations

import math
from typing import Any

from engine.backends.cuda.codegen.ptx import absolute, float_bits, fma, maximum, minimum, to_float, to_int
from engine.backends.cuda.codegen.words import float32, int32, uint32
from engine.backends.kv_formats import GROUP

LARGEST = 65504.0
E4M3_LARGEST = 448.0
SHRINK = 1 / math.sqrt(GROUP)
CURVE = 3 / 512
"""The coefficient in `kv_formats.Q4_LEVELS`: code c + 8 has the level c + CURVE c^3."""
INVERSE = (
    0.9945462079299726,
    -0.005399574469031219,
    6.41564543877702e-05,
    -5.407242815494678e-07,
    1.943676786360371e-09,
)
"""Coefficients of y (sum of INVERSE[i] y^(2 i)), which rounds to the code (less 8) of the level nearest to y.

At the midpoints between levels, h (1 + 3/4 CURVE) + CURVE h^3 for h = -7.5, -6.5 .. 6.5, it is within 0.0007
of h. Fitted to minimise the largest error there.
"""


def number(x: Any) -> Any:
    """x, or 0 for NaN. Tested by its bits, because comparisons are compiled as if NaN did not occur."""
    return float32(0.0) if uint32(float_bits(x) & uint32(0x7FFFFFFF)) > uint32(0x7F800000) else float32(x)


def limited(x: Any) -> Any:
    """x with NaN as 0, clamped to the range of fp16."""
    return maximum(minimum(number(x), float32(LARGEST)), float32(-LARGEST))


def e4m3_byte(x: Any) -> Any:
    """The nearest e4m3 number to x as a byte in a uint32, ties to even; clamped to +-448, NaN gives 0.

    The result is the same on all devices.
    """
    x = maximum(minimum(number(x), float32(E4M3_LARGEST)), float32(-E4M3_LARGEST))
    bits = uint32(float_bits(x))
    size = uint32(bits & uint32(0x7FFFFFFF))
    # 20 bits of the fraction are dropped; the exponents' biases are 127 and 7. Below 2^-6, e4m3 numbers are
    # multiples of 2^-9.
    whole = uint32(
        uint32(size + uint32(0x7FFFF) + uint32(uint32(size >> uint32(20)) & uint32(1))) >> uint32(20)
    )
    small = uint32(to_int(absolute(x) * float32(512.0)))
    byte = small if size < uint32(0x3C800000) else uint32(whole - uint32(120 << 3))
    return uint32(byte | uint32(uint32(bits >> uint32(24)) & uint32(0x80)))


def level(code: Any) -> Any:
    """The level that a q4 code 0 .. 15 (uint32) stands for, exactly."""
    c = to_float(int32(code)) - float32(8.0)
    return c * fma(c * c, float32(CURVE), float32(1.0))
