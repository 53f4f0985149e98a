"""The types of ik_llama.cpp's GGUF files: nonlinear levels, which may be moved for each group, and trellises.

A group's levels are those of a table, or all of them a few units more, as a bit of the group says. Of the
types with a number for the whole row, `row_bytes` are its bytes, which stand before the row's blocks in a
file and here before each block. Of IQ4 a bit of each scale says whether levels are moved; other types
with more levels than backends look up are packed as the levels themselves (`BYTES_16`, `BYTES_32`), which
loses nothing.

A trellis (IQ1_KT to IQ4_KT) gives the values of a group by its index i: the k-th, from 1 on, is the sum of
the bytes of (i + 4096) 0xCBAC1FED^k mod 2^32, six bits of each, minus 126.

Source of the layouts: ik_llama.cpp's `ggml-common.h` and `iqk_quantize.cpp` (facts only). Blocks hold 256
values, those of Q6_0 32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from engine.backends.gguf_blocks.block_type import BlockType, Bytes, Parts
from engine.backends.gguf_blocks.pieces import (
    bit_pairs,
    fp16,
    nibble_pairs,
    nibbles,
    planes,
    single_bits,
    two_bits,
)
from engine.backends.gguf_blocks.quants import IQ4_LEVELS

_LEVELS_2 = (-31, -13, 1, 17)
_LEVELS_3 = (-63, -40, -23, -10, 1, 13, 28, 47)
_LEVELS_5 = (
    -126, -114, -103, -92, -83, -74, -65, -57, -50, -43, -36, -30, -24, -18, -12, -6, -1, 5, 11, 17, 23, 29,
    36, 43, 51, 59, 68, 77, 87, 97, 109, 121,
)  # fmt: skip
_LEVELS_6 = (
    -127, -121, -115, -109, -104, -98, -93, -88, -84, -79, -74, -70, -66, -62, -58, -54, -51, -47, -44, -40,
    -37, -34, -31, -28, -25, -22, -19, -16, -13, -11, -8, -5, -2, 0, 3, 6, 9, 12, 14, 17, 20, 23, 27, 30, 33,
    36, 40, 44, 47, 51, 55, 59, 63, 68, 72, 77, 82, 87, 92, 98, 103, 109, 115, 121,
)  # fmt: skip
"""IQ6_K's as products have them; ggml's decoder of rows has a polynomial, which these are rounded from."""
_MOVED = {2: 5, 3: 4, 4: 4, 5: 2, 6: 1}
"""How much levels are moved, by the bits of a code."""
_PAIRS_OF_LEVELS = (
    (-63, -23), (-63, 13), (-40, -63), (-40, -10), (-40, 13), (-40, 47), (-23, -40), (-23, -23), (-23, 1),
    (-23, 13), (-23, 28), (-10, -63), (-10, 1), (-10, 13), (-10, 47), (1, -23), (1, -10), (1, 1), (1, 13),
    (1, 28), (13, -40), (13, -23), (13, -10), (13, 1), (13, 13), (28, -63), (28, -23), (28, 1), (28, 28),
    (28, 47), (47, -23), (47, 13),
)  # fmt: skip
"""IQ2_KL's two values of each code."""

# As in `iquants`, codes that differ in bit 2 alone have the same sign.
_BY_SIGN_2 = tuple(level + moved for moved in (0, _MOVED[2]) for level in _LEVELS_2)
_BY_SIGN_3 = tuple(
    _LEVELS_3[4 * high + low] + moved for high in (0, 1) for moved in (0, 4) for low in range(4)
)
_BY_SIGN_KL = tuple(_LEVELS_3[i] for i in (0, 1, 4, 5, 2, 3, 6, 7))
_PAIRS_OF_CODES = np.array(
    [[_BY_SIGN_KL.index(level) for level in pair] for pair in _PAIRS_OF_LEVELS], np.uint8
)


def _signed(numbers: Bytes, zero: int) -> Bytes:
    """Numbers minus `zero` in two's complement."""
    out: Bytes = numbers - np.uint8(zero)
    return out


def _each(bits: Bytes) -> Bytes:
    """(B, groups) to (B, 256)."""
    return np.repeat(bits, 256 // bits.shape[1], axis=1)


def _moved_bytes(levels: Sequence[int], codes: Bytes, moved: Bytes) -> Bytes:
    """128 plus each value's level, moved where `moved` (B, groups) is 1."""
    step = _MOVED[len(levels).bit_length() - 1]
    table = np.concatenate([np.array(levels) + 128, np.array(levels) + 128 + step]).astype(np.uint8)
    out: Bytes = table[codes | _each(moved * np.uint8(len(levels)))]
    return out


def _by_sign_3(codes: Bytes, moved: Bytes) -> Bytes:
    """The indices in `_BY_SIGN_3` of codes of three bits."""
    low, high = np.uint8(3), np.uint8(4)
    out: Bytes = (codes & low) | (codes & high) << np.uint8(1) | _each(moved << np.uint8(2))
    return out


# --- an fp16 number for each block -------------------------------------------------------------------------


def _q6_0(blocks: Bytes) -> Parts:
    """d, 8 bytes of upper bit pairs (of values j, 16 + j, 8 + j, 24 + j), 16 bytes of nibbles."""
    pairs = bit_pairs(blocks[:, 2:10]).reshape(-1, 8, 2, 2).transpose(0, 3, 2, 1).reshape(-1, 32)
    return Parts(nibbles(blocks[:, 10:]) | pairs << np.uint8(4), fp16(blocks, 0))


def _iq2_k(blocks: Bytes) -> Parts:
    """d, 16 bits that move, 8 bytes of scale nibbles plus 8, 64 bytes of bit pairs."""
    moved = single_bits(blocks[:, 2:4])
    codes = two_bits(blocks[:, 12:]) | _each(moved << np.uint8(2))
    return Parts(codes, fp16(blocks, 0), scales=_signed(nibble_pairs(blocks[:, 4:12]), 8))


def _iq3_k(blocks: Bytes) -> Parts:
    """d, 16 bits that move, 16 signs of scales, 8 bytes of nibbles s of scales 2 s + 1, 64 of bit pairs, 32
    of third bits.
    """
    codes = two_bits(blocks[:, 14:78]) | planes(blocks[:, 78:]) << np.uint8(2)
    size = (nibble_pairs(blocks[:, 6:14]) << np.uint8(1)) | np.uint8(1)
    scales = np.where(single_bits(blocks[:, 4:6]) == 1, -size, size)
    return Parts(_by_sign_3(codes, single_bits(blocks[:, 2:4])), fp16(blocks, 0), scales=scales)


def _six_bit_scales(blocks: Bytes) -> Bytes:
    """4 bytes of upper bit pairs, then 8 of nibbles; 32 is added to stored scales."""
    return _signed(nibble_pairs(blocks[:, 4:12]) | bit_pairs(blocks[:, :4]) << np.uint8(4), 32)


def _iq4_k(blocks: Bytes) -> Parts:
    """d, 16 bits that move, scales, 128 bytes of nibbles."""
    scales = _six_bit_scales(blocks[:, 4:16]) << np.uint8(1) | single_bits(blocks[:, 2:4])
    return Parts(nibbles(blocks[:, 16:]), fp16(blocks, 0), scales=scales)


def _iq5_k(blocks: Bytes) -> Parts:
    """d, 16 bits that move, scales, 128 bytes of nibbles, 32 of fifth bits."""
    codes = nibbles(blocks[:, 16:144], 32) | planes(blocks[:, 144:]) << np.uint8(4)
    codes = _moved_bytes(_LEVELS_5, codes, single_bits(blocks[:, 2:4]))
    return Parts(codes, fp16(blocks, 0), scales=_six_bit_scales(blocks[:, 4:16]))


def _iq6_k(blocks: Bytes) -> Parts:
    """d, 16 bits that move, 16 int8 scales, 128 bytes of nibbles, 64 of upper bit pairs."""
    codes = nibbles(blocks[:, 20:148], 32) | two_bits(blocks[:, 148:]) << np.uint8(4)
    codes = _moved_bytes(_LEVELS_6, codes, single_bits(blocks[:, 2:4]))
    return Parts(codes, fp16(blocks, 0), scales=np.ascontiguousarray(blocks[:, 4:20]))


# --- an fp16 number for each row ---------------------------------------------------------------------------


def _iq2_ks(blocks: Bytes) -> Parts:
    """8 bits that move, 8 upper bits of scales plus 16, 4 bytes of their nibbles, 64 bytes of bit pairs."""
    bits = single_bits(blocks[:, 2:4])
    codes = two_bits(blocks[:, 8:]) | _each(bits[:, :8] << np.uint8(2))
    scales = nibble_pairs(blocks[:, 4:8]) | bits[:, 8:] << np.uint8(4)
    return Parts(codes, fp16(blocks, 0), scales=_signed(scales, 16))


def _iq2_kl(blocks: Bytes) -> Parts:
    """8 upper bit pairs of scales plus 32, 4 bytes of nibbles (of scale g, then of 4 + g), 64 bytes of
    nibbles of codes, each for two values, 16 of their fifth bits.
    """
    scales = nibbles(blocks[:, 4:8], 4) | bit_pairs(blocks[:, 2:4]) << np.uint8(4)
    fifth = (blocks[:, None, 72:] >> np.arange(8, dtype=np.uint8)[:, None] & np.uint8(1)).reshape(-1, 128)
    codes = _PAIRS_OF_CODES[nibbles(blocks[:, 8:72]) | fifth << np.uint8(4)].reshape(-1, 256)
    return Parts(codes, fp16(blocks, 0), scales=_signed(scales, 32))


def _iq3_ks(blocks: Bytes) -> Parts:
    """8 upper bits of scales plus 16, 8 bits that move, 4 bytes of nibbles (of scale g, then of 4 + g), 64
    bytes of bit pairs, 32 of third bits.
    """
    bits = single_bits(blocks[:, 2:4])
    codes = two_bits(blocks[:, 8:72]) | planes(blocks[:, 72:]) << np.uint8(2)
    scales = nibbles(blocks[:, 4:8], 4) | bits[:, :8] << np.uint8(4)
    return Parts(_by_sign_3(codes, bits[:, 8:]), fp16(blocks, 0), scales=_signed(scales, 16))


# --- a float32 number for each row -------------------------------------------------------------------------


def _fp32(blocks: Bytes) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(blocks[:, :4]).view(np.float32)


def _odd_scales(stored: Bytes) -> tuple[Bytes, Bytes]:
    """The scales of bytes plus 127, whose lowest bits, the other result, move."""
    return _signed(stored & np.uint8(254), 127), stored & np.uint8(1)


def _iq4_ks(blocks: Bytes) -> Parts:
    """8 scales plus 127, whose lowest bits move, 128 bytes of nibbles."""
    return Parts(nibbles(blocks[:, 12:]), _fp32(blocks), scales=blocks[:, 4:12] ^ np.uint8(0x80))


def iq4_ks_of(blocks: Bytes) -> Bytes:
    """The blocks of IQ4_KS that blocks of IQ4_KSS are.

    Those have 64 u16: the lowest bits of eight are a scale; bit i of the other 15, exclusive or bit i + 1, is
    one of four nibbles.
    """
    words = np.ascontiguousarray(blocks[:, 4:]).view("<u2")
    scales = np.packbits((words & np.uint16(1)).astype(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
    words = words & np.uint16(0xFFFE)
    packed = np.ascontiguousarray(words ^ words >> np.uint16(1)).view(np.uint8)
    return np.concatenate([blocks[:, :4], scales.reshape(-1, 8), packed], axis=1)


def _iq4_kss(blocks: Bytes) -> Parts:
    return _iq4_ks(iq4_ks_of(blocks))


def _iq5_ks(blocks: Bytes) -> Parts:
    """8 scales, 128 bytes of nibbles, 32 of fifth bits."""
    scales, moved = _odd_scales(blocks[:, 4:12])
    codes = nibbles(blocks[:, 12:140], 32) | planes(blocks[:, 140:]) << np.uint8(4)
    return Parts(_moved_bytes(_LEVELS_5, codes, moved), _fp32(blocks), scales=scales)


@functools.cache
def _trellis(width: int) -> Bytes:
    """128 plus the first `width` values of each index, (65536, `width`)."""
    number = np.arange(1 << 16, dtype=np.uint32) + np.uint32(4096)
    out = np.empty((1 << 16, width), np.uint8)
    for k in range(width):
        number *= np.uint32(0xCBAC1FED)
        sixes = np.ascontiguousarray(number & np.uint32(0x3F3F3F3F)).view(np.uint8).reshape(-1, 4)
        out[:, k] = sixes.sum(1) + 2
    return out


def _of_trellis(index: npt.NDArray[np.uint16], width: int) -> Bytes:
    return _trellis(width)[index].reshape(len(index), 256)


def _level_scales(stored: Bytes) -> Bytes:
    return np.array(IQ4_LEVELS, np.int8).view(np.uint8)[stored]


def _iq1_kt(blocks: Bytes) -> Parts:
    """8 bytes (the code of a scale, then the 13th bits of four indices), 32 indices of 8 values, 16 bytes of
    nibbles of their next bits (of the first 16 indices, then of the last).
    """
    head = blocks[:, 4:12]
    low, high = blocks[:, 12:44].astype(np.uint16), nibbles(blocks[:, 44:]).astype(np.uint16)
    last = single_bits(head).reshape(-1, 8, 8)[:, :, 4:].reshape(-1, 32).astype(np.uint16)
    index = low | high << np.uint16(8) | last << np.uint16(12)
    return Parts(_of_trellis(index, 8), _fp32(blocks), scales=_level_scales(head & np.uint8(15)))


def _iq2_kt(blocks: Bytes) -> Parts:
    """4 bytes of codes of scales (of scale g, then of 4 + g), 32 indices u16 of 8 values."""
    index = np.ascontiguousarray(blocks[:, 8:]).view("<u2")
    return Parts(_of_trellis(index, 8), _fp32(blocks), scales=_level_scales(nibbles(blocks[:, 4:8], 4)))


def _iq3_kt(blocks: Bytes) -> Parts:
    """4 bytes of scales (of scale g, then of 4 + g), 32 indices u16 of 8 magnitudes, 32 bytes of signs."""
    codes = _of_trellis(np.ascontiguousarray(blocks[:, 8:72]).view("<u2"), 8)
    size = np.where(codes < 128, np.uint8(128) - codes, codes - np.uint8(128))
    codes = np.where(planes(blocks[:, 72:]) == 1, np.uint8(128) - size, np.uint8(128) + size)
    return Parts(codes, _fp32(blocks), scales=nibbles(blocks[:, 4:8], 4))


def _iq4_kt(blocks: Bytes) -> Parts:
    """8 u32 (the 16th bit of eight indices, 7 bits of a scale plus 64, eight triples of upper bits), 64
    indices of 4 values, 32 bytes of nibbles of their next bits (of the first 32 indices, then of the last).
    """
    head = np.ascontiguousarray(blocks[:, 4:36]).view("<u4")
    low, high = blocks[:, 36:100].astype(np.uint16), nibbles(blocks[:, 100:], 32).astype(np.uint16)
    upper = head[:, :, None] >> np.arange(8, 32, 3, dtype=np.uint32) & np.uint32(7)
    upper = (upper << np.uint32(12) | (head[:, :, None] & np.uint32(1)) << np.uint32(15)).astype(np.uint16)
    index = low | high << np.uint16(8) | upper.reshape(-1, 64)
    scales = _signed((head >> np.uint32(1)).astype(np.uint8) & np.uint8(127), 64)
    return Parts(_of_trellis(index, 4), _fp32(blocks), scales=scales)


def _bytes_16(blocks: Bytes) -> Parts:
    return Parts(blocks[:, 18:], fp16(blocks, 0), scales=np.ascontiguousarray(blocks[:, 2:18]))


def _bytes_32(blocks: Bytes) -> Parts:
    return Parts(blocks[:, 12:], _fp32(blocks), scales=np.ascontiguousarray(blocks[:, 4:12]))


BYTES_16 = BlockType(
    "BYTES_16", -1, 256, 274, 8, _bytes_16, zero=128, groups=16, scale_bits=8, signed=True,
    types=("IQ5_K", "IQ6_K"),
)  # fmt: skip
"""d, 16 scales, 256 levels plus 128; no type of files."""
BYTES_32 = BlockType(
    "BYTES_32", -1, 256, 268, 8, _bytes_32, zero=128, groups=8, d="fp32", scale_bits=8, signed=True,
    types=("IQ5_KS", "IQ1_KT", "IQ2_KT", "IQ3_KT", "IQ4_KT"),
)  # fmt: skip
"""d, 8 scales, 256 levels plus 128; no type of files."""


def _in_bytes(
    name: str, number: int, nbytes: int, split: Callable[[Bytes], Parts], row_bytes: int = 0
) -> BlockType:
    """A type that is packed as `BYTES_16` or, with a float32 number for each row, as `BYTES_32`."""
    packed = BYTES_32 if row_bytes else BYTES_16
    return BlockType(
        name, number, 256, nbytes + row_bytes, 8, split, zero=128, groups=packed.groups, d=packed.d,
        scale_bits=8, signed=True, row_bytes=row_bytes,
    )  # fmt: skip


def _looked_up(
    name: str, number: int, nbytes: int, split: Callable[[Bytes], Parts], levels: tuple[int, ...],
    row_bytes: int = 0,
) -> BlockType:  # fmt: skip
    """A type whose codes are looked up; with a number for each row, groups have 32 values."""
    return BlockType(
        name, number, 256, nbytes + row_bytes, len(levels).bit_length() - 1, split, levels=levels,
        groups=8 if row_bytes else 16, scale_bits=8, signed=True, row_bytes=row_bytes,
    )  # fmt: skip


def _moved(
    name: str, number: int, nbytes: int, split: Callable[[Bytes], Parts], types: tuple[str, ...] = ()
) -> BlockType:
    """A type whose levels are those of IQ4 or 4 more: odd scales of 32 values with a float32 number for each
    row if `types` says what is packed so, else twice the scales of 16 values.
    """
    row_bytes = 4 if types else 0
    return BlockType(
        name, number, 256, nbytes + row_bytes, 4, split, levels=IQ4_LEVELS, groups=8 if types else 16,
        d="fp32" if types else "fp16", scale_bits=8, signed=True, unit=1.0 if types else 0.5,
        moved=_MOVED[4], lowest=1 if types else 0, row_bytes=row_bytes, types=types,
    )  # fmt: skip


LOOKED_UP = (
    _looked_up("IQ2_K", 137, 76, _iq2_k, _BY_SIGN_2),
    _looked_up("IQ2_KS", 145, 70, _iq2_ks, _BY_SIGN_2, row_bytes=2),
    _looked_up("IQ2_KL", 157, 86, _iq2_kl, _BY_SIGN_KL, row_bytes=2),
    _looked_up("IQ3_K", 138, 110, _iq3_k, _BY_SIGN_3),
    _looked_up("IQ3_KS", 156, 102, _iq3_ks, _BY_SIGN_3, row_bytes=2),
    _moved("IQ4_K", 139, 144, _iq4_k),
    _moved("IQ4_KS", 144, 136, _iq4_ks, ("IQ4_KS", "IQ4_KSS")),
)
"""The types that backends pack as they are, in 3 or 4 bits."""
Q6_0 = BlockType("Q6_0", 133, 32, 26, 6, _q6_0, zero=32)

IK_BLOCKS = (
    Q6_0,
    *LOOKED_UP,
    _in_bytes("IQ5_K", 140, 176, _iq5_k),
    _in_bytes("IQ6_K", 141, 212, _iq6_k),
    _moved("IQ4_KSS", 146, 128, _iq4_kss, ("IQ4_KS", "IQ4_KSS")),
    _in_bytes("IQ5_KS", 152, 168, _iq5_ks, row_bytes=4),
    _in_bytes("IQ1_KT", 158, 56, _iq1_kt, row_bytes=4),
    _in_bytes("IQ2_KT", 153, 68, _iq2_kt, row_bytes=4),
    _in_bytes("IQ3_KT", 154, 100, _iq3_kt, row_bytes=4),
    _in_bytes("IQ4_KT", 155, 128, _iq4_kt, row_bytes=4),
)
"""The types of ik_llama.cpp's files."""
