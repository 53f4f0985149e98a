"""GGUF's codebook types (IQ1 to IQ3): groups of 4 or 8 values from a codebook, times a scale.

Source of the layouts: the ggml project's `ggml-common.h` (facts only). Blocks hold 256 values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from engine.weights.format import Bytes, Floats, Format
from engine.weights.gguf.codebooks import even_signs, grid, signs

_DELTA = np.float32(0.125)


def _half(blocks: Bytes, at: int) -> Floats:
    """The float16 at byte `at` of each block: (B, 1)."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view(np.float16).astype(np.float32)


def _words(blocks: Bytes, start: int, stop: int, dtype: str) -> npt.NDArray[np.uint32]:
    """Bytes `start` to `stop` of each block as little-endian integers, widened to uint32."""
    return np.ascontiguousarray(blocks[:, start:stop]).view(dtype).astype(np.uint32)


def _pairs(packed: Bytes) -> Bytes:
    """(B, n) bytes to (B, 2n): each byte's low nibble, then its high one."""
    return np.stack([packed & 15, packed >> 4], axis=2).reshape(len(packed), -1)


def _digits(packed: npt.NDArray[np.uint32], bits: int, count: int, mask: int) -> npt.NDArray[np.uint32]:
    """(B, n) to (B, n, count): `count` digits of each number, `bits` apart, lowest first."""
    return packed[:, :, None] >> np.arange(0, bits * count, bits, dtype=np.uint32) & np.uint32(mask)


def _quarters(d: Floats, scale: npt.NDArray[Any]) -> Floats:
    """d (1/2 + scale) / 4, the step of the IQ2 types."""
    step: Floats = d * (np.float32(0.5) + scale.astype(np.float32)) * np.float32(0.25)
    return step


def _scaled(step: Floats, values: Floats, sign: Floats) -> Floats:
    """step (B, g) * values * sign, each step for 256 / g of the 256 values of a block: (B, 256)."""
    groups = step.shape[1]
    out = step[:, :, None] * values.reshape(-1, groups, 256 // groups)
    out *= sign.reshape(out.shape)
    return out.reshape(-1, 256)


def _iq2_xxs(blocks: Bytes) -> Floats:
    """d f16; for each 32 values four indices u8 and a u32: four 7-bit sign patterns, then a 4-bit scale."""
    words = _words(blocks, 2, 66, "<u4")
    index = np.ascontiguousarray(blocks[:, 2:66]).reshape(-1, 8, 8)[:, :, :4]
    tail = words[:, 1::2]
    return _scaled(
        _quarters(_half(blocks, 0), tail >> 28),
        grid("IQ2_XXS")[index],
        even_signs()[_digits(tail, 7, 4, 127)],
    )


def _iq2_xs(blocks: Bytes) -> Floats:
    """d f16, 32 u16 (a 9-bit index, then a 7-bit sign pattern), 8 bytes of scale nibbles.

    A scale is for 16 values.
    """
    words = _words(blocks, 2, 66, "<u2")
    return _scaled(
        _quarters(_half(blocks, 0), _pairs(blocks[:, 66:74])),
        grid("IQ2_XS")[words & 511],
        even_signs()[words >> 9],
    )


def _iq2_s(blocks: Bytes) -> Floats:
    """d f16, 32 indices u8, 32 sign bytes, 8 bytes of pairs of upper index bits, 8 bytes of scale nibbles.

    A scale is for 16 values.
    """
    upper = _digits(blocks[:, 66:74].astype(np.uint32), 2, 4, 3).reshape(-1, 32)
    index = blocks[:, 2:34] | upper << 8
    return _scaled(
        _quarters(_half(blocks, 0), _pairs(blocks[:, 74:82])), grid("IQ2_S")[index], signs()[blocks[:, 34:66]]
    )


def _iq3_xxs(blocks: Bytes) -> Floats:
    """d f16, 64 indices u8 of 4 values each, 8 u32 (four 7-bit sign patterns, then a 4-bit scale).

    The step is d (1/2 + scale) / 2.
    """
    tail = _words(blocks, 66, 98, "<u4")
    step = _half(blocks, 0) * (np.float32(0.5) + (tail >> 28).astype(np.float32)) * np.float32(0.5)
    return _scaled(step, grid("IQ3_XXS")[blocks[:, 2:66]], even_signs()[_digits(tail, 7, 4, 127)])


def _iq3_s(blocks: Bytes) -> Floats:
    """d f16, 64 indices u8, 8 bytes of ninth index bits, 32 sign bytes, 4 bytes of scale nibbles.

    A scale is for 32 values; the step is d (1 + 2 scale).
    """
    ninth = _digits(blocks[:, 66:74].astype(np.uint32), 1, 8, 1).reshape(-1, 64)
    step = _half(blocks, 0) * (1 + 2 * _pairs(blocks[:, 106:110])).astype(np.float32)
    return _scaled(step, grid("IQ3_S")[blocks[:, 2:66] | ninth << 8], signs()[blocks[:, 74:106]])


def _iq1_s(blocks: Bytes) -> Floats:
    """d f16, 32 indices u8, 8 u16 (four triples of upper index bits, a 3-bit scale, the sign of delta).

    value = d (2 scale + 1) (q + delta), delta = +-1/8.
    """
    words = _words(blocks, 34, 50, "<u2")
    step = _half(blocks, 0) * (2 * (words >> 12 & 7) + 1).astype(np.float32)
    delta = np.where(words & 0x8000, -_DELTA, _DELTA)
    index = blocks[:, 2:34] | _digits(words, 3, 4, 7).reshape(-1, 32) << 8
    values: Floats = grid("IQ1_S")[index].reshape(-1, 8, 32) + delta[:, :, None]
    out: Floats = step[:, :, None] * values
    return out.reshape(-1, 256)


def _iq1_m(blocks: Bytes) -> Floats:
    """32 indices u8, 16 bytes of nibbles (3 upper index bits, the sign of delta), 4 u16 (four 3-bit scales,
    then 4 of the 16 bits of d). Values as in IQ1_S.
    """
    words = _words(blocks, 48, 56, "<u2")
    quarters = words >> 12 << np.array([0, 4, 8, 12], np.uint32)
    d = quarters.sum(axis=1, dtype=np.uint32).astype(np.uint16).view(np.float16).astype(np.float32)
    step = d[:, None] * (2 * _digits(words, 3, 4, 7).reshape(-1, 16) + 1).astype(np.float32)
    high = _pairs(blocks[:, 32:48]).astype(np.uint32)
    delta = np.where(high & 8, -_DELTA, _DELTA)
    values: Floats = grid("IQ1_S")[blocks[:, :32] | (high & 7) << 8] + delta[:, :, None]
    out: Floats = step[:, :, None] * values.reshape(-1, 16, 16)
    return out.reshape(-1, 256)


IQ_FORMATS = (
    Format("IQ3_S", 256, 110, _iq3_s),
    Format("IQ3_XXS", 256, 98, _iq3_xxs),
    Format("IQ2_S", 256, 82, _iq2_s),
    Format("IQ2_XS", 256, 74, _iq2_xs),
    Format("IQ2_XXS", 256, 66, _iq2_xxs),
    Format("IQ1_M", 256, 56, _iq1_m),
    Format("IQ1_S", 256, 50, _iq1_s),
)
