"""GGUF's codebook types (IQ1 to IQ3): groups of 4 or 8 values from a codebook, times a scale.

Taken apart, each value has a code of its own, as in other types, which is quicker to read than a codebook: a
magnitude of IQ3 and its sign are 4 bits, the six values of IQ2 or IQ1 take 3. Codes that differ in bit 2
alone have the same sign, as CUDA's look-up needs it (`engine.backends.cuda.kernels.linear.read_codes`).
Source of the layouts: the ggml project's `ggml-common.h` (facts only). Blocks hold 256 values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from engine.backends.gguf_blocks.block_type import BlockType, Bytes, Parts
from engine.backends.gguf_blocks.codebooks import Words, even_signs, grid, signs

_IQ3_SIGN = 8
"""The bit of a code that says minus. The other bits are the index of the magnitude."""
_IQ3_XXS_LEVELS = (4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62)
_IQ3_S_LEVELS = (1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15)
_IQ2_SIGN, _IQ2_CODES = 2, (0, 1, 4)
"""The bit of a code that says minus, and the codes of the three magnitudes."""
_IQ2_LEVELS = (8, 25, -8, -25, 43, 43, -43, -43)
_IQ1_CODES = ((0, 1, 2), (4, 7, 5))
"""The codes of -1, 0 and 1 plus delta, and minus delta."""
_IQ1_LEVELS = (-7, 1, 9, -1, -9, 7, 9, -1)
"""Eight times the values, whose delta is 1/8; codes 3 and 6 do not occur."""


def _half(blocks: Bytes) -> npt.NDArray[np.uint16]:
    """The fp16 number at the beginning of each block: uint16 (B, 1)."""
    return np.ascontiguousarray(blocks[:, :2]).view(np.uint16)


def _words(blocks: Bytes, start: int, stop: int, dtype: str) -> npt.NDArray[np.uint32]:
    """Bytes `start` to `stop` of each block as little-endian integers, widened to uint32."""
    return np.ascontiguousarray(blocks[:, start:stop]).view(dtype).astype(np.uint32)


def _pairs(packed: Bytes) -> Bytes:
    """(B, n) bytes to (B, 2n): each byte's low nibble, then its high one."""
    return np.stack([packed & 15, packed >> 4], axis=2).reshape(len(packed), -1)


def _digits(packed: npt.NDArray[np.uint32], bits: int, count: int, mask: int) -> npt.NDArray[np.uint32]:
    """(B, n) to (B, n, count): `count` digits of each number, `bits` apart, lowest first."""
    return packed[:, :, None] >> np.arange(0, bits * count, bits, dtype=np.uint32) & np.uint32(mask)


def _parts(
    magnitudes: Words, sign: npt.NDArray[np.uint64], d: npt.NDArray[np.uint16], scales: npt.NDArray[Any]
) -> Parts:
    """Magnitudes and signs of 256 values, in words of any shape; a stored scale s means 2 s + 1."""
    codes = magnitudes.reshape(len(d), -1).view("<u8") | sign.reshape(len(d), -1)
    return Parts(codes.view(np.uint8), d, scales=_odd(scales))


def _odd(scales: npt.NDArray[Any]) -> Bytes:
    return (2 * scales + 1).astype(np.uint8)


def _iq2_xxs(blocks: Bytes) -> Parts:
    """d f16; for each 32 values four indices u8 and a u32: four 7-bit sign patterns, then a 4-bit scale."""
    tail = _words(blocks, 2, 66, "<u4")[:, 1::2]
    index = np.ascontiguousarray(blocks[:, 2:66]).reshape(-1, 8, 8)[:, :, :4]
    sign = even_signs(_IQ2_SIGN)[_digits(tail, 7, 4, 127)]
    return _parts(grid("IQ2_XXS", _IQ2_CODES)[index], sign, _half(blocks), tail >> 28)


def _iq2_xs(blocks: Bytes) -> Parts:
    """d f16, 32 u16 (a 9-bit index, then a 7-bit sign pattern), 8 bytes of scale nibbles.

    A scale is for 16 values.
    """
    words = _words(blocks, 2, 66, "<u2")
    magnitudes, sign = grid("IQ2_XS", _IQ2_CODES)[words & 511], even_signs(_IQ2_SIGN)[words >> 9]
    return _parts(magnitudes, sign, _half(blocks), _pairs(blocks[:, 66:74]))


def _iq2_s(blocks: Bytes) -> Parts:
    """d f16, 32 indices u8, 32 sign bytes, 8 bytes of pairs of upper index bits, 8 bytes of scale nibbles.

    A scale is for 16 values.
    """
    upper = _digits(blocks[:, 66:74].astype(np.uint32), 2, 4, 3).reshape(-1, 32)
    magnitudes, sign = grid("IQ2_S", _IQ2_CODES)[blocks[:, 2:34] | upper << 8], signs(_IQ2_SIGN)
    return _parts(magnitudes, sign[blocks[:, 34:66]], _half(blocks), _pairs(blocks[:, 74:82]))


def _iq3_xxs(blocks: Bytes) -> Parts:
    """d f16, 64 indices u8 of 4 values each, 8 u32 (four 7-bit sign patterns, then a 4-bit scale)."""
    tail = _words(blocks, 66, 98, "<u4")
    sign = even_signs(_IQ3_SIGN)[_digits(tail, 7, 4, 127)]
    return _parts(grid("IQ3_XXS")[blocks[:, 2:66]], sign, _half(blocks), tail >> 28)


def _iq3_s(blocks: Bytes) -> Parts:
    """d f16, 64 indices u8, 8 bytes of ninth index bits, 32 sign bytes, 4 bytes of scale nibbles.

    A scale is for 32 values.
    """
    ninth = _digits(blocks[:, 66:74].astype(np.uint32), 1, 8, 1).reshape(-1, 64)
    magnitudes, sign = grid("IQ3_S")[blocks[:, 2:66] | ninth << 8], signs(_IQ3_SIGN)
    return _parts(magnitudes, sign[blocks[:, 74:106]], _half(blocks), _pairs(blocks[:, 106:110]))


def _shifted(index: npt.NDArray[Any], below: npt.NDArray[Any]) -> Bytes:
    """Codes of IQ1: indices (B, 32), and, for equal parts of them, whether delta is negative (B, parts)."""
    minus = np.repeat(below != 0, 32 // below.shape[1], axis=1)
    plus = grid("IQ1_S", _IQ1_CODES[0])[index]
    codes: Bytes = np.where(minus, grid("IQ1_S", _IQ1_CODES[1])[index], plus).view(np.uint8)
    return codes


def _iq1_s(blocks: Bytes) -> Parts:
    """d f16, 32 indices u8, 8 u16 (four triples of upper index bits, a 3-bit scale, the sign of delta)."""
    words = _words(blocks, 34, 50, "<u2")
    index = blocks[:, 2:34] | _digits(words, 3, 4, 7).reshape(-1, 32) << 8
    return Parts(_shifted(index, words & 0x8000), _half(blocks), scales=_odd(words >> 12 & 7))


def _iq1_m(blocks: Bytes) -> Parts:
    """32 indices u8, 16 bytes of nibbles (3 upper index bits, the sign of delta), 4 u16 (four 3-bit scales,
    then 4 of the 16 bits of d).
    """
    words = _words(blocks, 48, 56, "<u2")
    quarters = words >> 12 << np.array([0, 4, 8, 12], np.uint32)
    d = quarters.sum(axis=1, dtype=np.uint32).astype(np.uint16)[:, None]
    high = _pairs(blocks[:, 32:48]).astype(np.uint32)
    codes = _shifted(blocks[:, :32] | (high & 7) << 8, high & 8)
    return Parts(codes, d, scales=_odd(_digits(words, 3, 4, 7).reshape(-1, 16)))


def _of(
    name: str, number: int, nbytes: int, split: Any, levels: tuple[int, ...], groups: int, unit: float
) -> BlockType:
    return BlockType(
        name, number, 256, nbytes, 4 if len(levels) == 16 else 3, split,
        levels=levels, groups=groups, scale_bits=8, signed=True, unit=unit,
    )  # fmt: skip


IQUANTS = (
    _of("IQ3_S", 21, 110, _iq3_s, _IQ3_S_LEVELS, 8, 1),
    _of("IQ3_XXS", 18, 98, _iq3_xxs, _IQ3_XXS_LEVELS, 8, 1 / 4),
    _of("IQ2_S", 22, 82, _iq2_s, _IQ2_LEVELS, 16, 1 / 8),
    _of("IQ2_XS", 17, 74, _iq2_xs, _IQ2_LEVELS, 16, 1 / 8),
    _of("IQ2_XXS", 16, 66, _iq2_xxs, _IQ2_LEVELS, 8, 1 / 8),
    _of("IQ1_M", 29, 56, _iq1_m, _IQ1_LEVELS, 16, 1 / 8),
    _of("IQ1_S", 19, 50, _iq1_s, _IQ1_LEVELS, 8, 1 / 8),
)
