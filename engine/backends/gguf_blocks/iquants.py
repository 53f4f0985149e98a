"""GGUF's codebook types (IQ1 to IQ3): groups of 4 or 8 values from a codebook, times a scale.

Taken apart, each value has a code of its own, as in other types, which is quicker to read than a codebook: a
magnitude of IQ3 and its sign are 4 bits, the six values of IQ2 or IQ1 take 3. Codes that differ in bit 2
alone have the same sign, as CUDA's look-up needs it (`engine.backends.cuda.kernels.linear.read_codes`).
Source of the layouts: the ggml project's `ggml-common.h` (facts only). Blocks hold 256 values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.backends.gguf_blocks.block_type import BlockType, Bytes, Parts
from engine.backends.gguf_blocks.codebooks import (
    BitFields,
    Codebook,
    Words,
    even_signs,
    even_signs_in_fours,
    grid,
    signs,
    signs_of_four,
)
from engine.backends.gguf_blocks.pieces import nibble_pairs

Numbers = tuple[npt.NDArray[np.uint16], Bytes]
"""d and the scales of blocks, as in `Parts`."""

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


def _digits(packed: npt.NDArray[np.uint32], bits: int, count: int, mask: int) -> npt.NDArray[np.uint32]:
    """(B, n) to (B, n, count): `count` digits of each number, `bits` apart, lowest first."""
    return packed[:, :, None] >> np.arange(0, bits * count, bits, dtype=np.uint32) & np.uint32(mask)


def _odd(scales: npt.NDArray[Any]) -> Bytes:
    """A stored scale s means 2 s + 1."""
    return (2 * scales + 1).astype(np.uint8)


def _run(groups: int, place: Callable[[int], int], bits: int) -> tuple[tuple[int, ...], int]:
    """A run of `BitFields`, whose first bit in group g is `place(g)`."""
    return tuple(map(place, range(groups))), bits


# Each type: its codebook; then its d and scales, which are for 32 values, or for 16.

_IQ2_XXS = Codebook(
    8,
    BitFields((_run(32, lambda g: 16 + 64 * (g // 4) + 8 * (g % 4), 8),)),
    lambda: grid("IQ2_XXS", _IQ2_CODES),
    BitFields((_run(32, lambda g: 48 + 64 * (g // 4) + 7 * (g % 4), 7),)),
    lambda: even_signs(_IQ2_SIGN),
)
"""d f16; for each 32 values four indices u8 and a u32: four 7-bit sign patterns, then a 4-bit scale."""


def _iq2_xxs(blocks: Bytes) -> Numbers:
    return _half(blocks), _odd(_words(blocks, 2, 66, "<u4")[:, 1::2] >> 28)


_IQ2_XS = Codebook(
    8,
    BitFields((_run(32, lambda g: 16 + 16 * g, 9),)),
    lambda: grid("IQ2_XS", _IQ2_CODES),
    BitFields((_run(32, lambda g: 25 + 16 * g, 7),)),
    lambda: even_signs(_IQ2_SIGN),
)
"""d f16, 32 u16 (a 9-bit index, then a 7-bit sign pattern), 8 bytes of scale nibbles."""


def _iq2_xs(blocks: Bytes) -> Numbers:
    return _half(blocks), _odd(nibble_pairs(blocks[:, 66:74]))


_IQ2_S = Codebook(
    8,
    BitFields((_run(32, lambda g: 16 + 8 * g, 8), _run(32, lambda g: 8 * 66 + 2 * g, 2))),
    lambda: grid("IQ2_S", _IQ2_CODES),
    BitFields((_run(32, lambda g: 8 * 34 + 8 * g, 8),)),
    lambda: signs(_IQ2_SIGN),
)
"""d f16, 32 indices u8, 32 sign bytes, 8 bytes of pairs of upper index bits, 8 bytes of scale nibbles."""


def _iq2_s(blocks: Bytes) -> Numbers:
    return _half(blocks), _odd(nibble_pairs(blocks[:, 74:82]))


_IQ3_XXS = Codebook(
    4,
    BitFields((_run(64, lambda g: 16 + 8 * g, 8),)),
    lambda: grid("IQ3_XXS"),
    BitFields(
        (_run(64, lambda g: 8 * 66 + 32 * (g // 8) + 7 * (g // 2 % 4), 7),),
        tuple(128 * (g % 2) for g in range(64)),
    ),
    lambda: even_signs_in_fours(_IQ3_SIGN),
)
"""d f16, 64 indices u8 of 4 values each, 8 u32 (four 7-bit sign patterns, then a 4-bit scale)."""


def _iq3_xxs(blocks: Bytes) -> Numbers:
    return _half(blocks), _odd(_words(blocks, 66, 98, "<u4") >> 28)


_IQ3_S = Codebook(
    4,
    BitFields((_run(64, lambda g: 16 + 8 * g, 8), _run(64, lambda g: 8 * 66 + g, 1))),
    lambda: grid("IQ3_S"),
    BitFields((_run(64, lambda g: 8 * 74 + 4 * g, 4),)),
    lambda: signs_of_four(_IQ3_SIGN),
)
"""d f16, 64 indices u8, 8 bytes of ninth index bits, 32 sign bytes, 4 bytes of scale nibbles."""


def _iq3_s(blocks: Bytes) -> Numbers:
    return _half(blocks), _odd(nibble_pairs(blocks[:, 106:110]))


@functools.cache
def _shifted_rows() -> Words:
    """The codebook of IQ1 with delta added, then with delta subtracted."""
    return np.concatenate([grid("IQ1_S", codes) for codes in _IQ1_CODES])


_IQ1_S = Codebook(
    8,
    BitFields(
        (
            _run(32, lambda g: 16 + 8 * g, 8),
            _run(32, lambda g: 8 * 34 + 16 * (g // 4) + 3 * (g % 4), 3),
            _run(32, lambda g: 8 * 34 + 16 * (g // 4) + 15, 1),
        )
    ),
    _shifted_rows,
)
"""d f16, 32 indices u8, 8 u16 (four triples of upper index bits, a 3-bit scale, the sign of delta)."""


def _iq1_s(blocks: Bytes) -> Numbers:
    return _half(blocks), _odd(_words(blocks, 34, 50, "<u2") >> 12 & 7)


_IQ1_M = Codebook(
    8, BitFields((_run(32, lambda g: 8 * g, 8), _run(32, lambda g: 8 * 32 + 4 * g, 4))), _shifted_rows
)
"""32 indices u8, 16 bytes of nibbles (3 upper index bits, the sign of delta), 4 u16 (four 3-bit scales, then
4 of the 16 bits of d).
"""


def _iq1_m(blocks: Bytes) -> Numbers:
    words = _words(blocks, 48, 56, "<u2")
    quarters = words >> 12 << np.array([0, 4, 8, 12], np.uint32)
    d = quarters.sum(axis=1, dtype=np.uint32).astype(np.uint16)[:, None]
    return d, _odd(_digits(words, 3, 4, 7).reshape(-1, 16))


def _split(codebook: Codebook, numbers: Callable[[Bytes], Numbers], blocks: Bytes) -> Parts:
    d, scales = numbers(blocks)
    return Parts(codebook.codes(blocks), d, scales=scales)


def _of(
    name: str,
    number: int,
    nbytes: int,
    codebook: Codebook,
    numbers: Callable[[Bytes], Numbers],
    levels: tuple[int, ...],
    groups: int,
    unit: float,
) -> BlockType:
    return BlockType(
        name, number, 256, nbytes, 4 if len(levels) == 16 else 3, partial(_split, codebook, numbers),
        levels=levels, groups=groups, scale_bits=8, signed=True, unit=unit, codebook=codebook,
    )  # fmt: skip


IQUANTS = (
    _of("IQ3_S", 21, 110, _IQ3_S, _iq3_s, _IQ3_S_LEVELS, 8, 1),
    _of("IQ3_XXS", 18, 98, _IQ3_XXS, _iq3_xxs, _IQ3_XXS_LEVELS, 8, 1 / 4),
    _of("IQ2_S", 22, 82, _IQ2_S, _iq2_s, _IQ2_LEVELS, 16, 1 / 8),
    _of("IQ2_XS", 17, 74, _IQ2_XS, _iq2_xs, _IQ2_LEVELS, 16, 1 / 8),
    _of("IQ2_XXS", 16, 66, _IQ2_XXS, _iq2_xxs, _IQ2_LEVELS, 8, 1 / 8),
    _of("IQ1_M", 29, 56, _IQ1_M, _iq1_m, _IQ1_LEVELS, 16, 1 / 8),
    _of("IQ1_S", 19, 50, _IQ1_S, _iq1_s, _IQ1_LEVELS, 8, 1 / 8),
)
