"""GGUF's types with a code for each value: Q1_0 to Q8_0, K-quants, IQ4, ternary types, 4-bit floats."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.backends.gguf_blocks.block_type import BlockType, Bytes, Parts
from engine.backends.gguf_blocks.pieces import PAIRS, bit_pairs, fp16, nibble_pairs, nibbles, planes, two_bits

IQ4_LEVELS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""The value of each code of IQ4_NL and IQ4_XS."""
FP4_LEVELS = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""Twice the value of each 4-bit float (E2M1); the scales are halved in return."""


def _trits(packed: Bytes, count: int) -> Bytes:
    """(B, n) bytes to (B, count * n): the first base-3 digits of all bytes, then the second, and so on.

    A byte is a base-3 fraction of 256: digit i is 3 (byte * 3^i mod 256) / 256, rounded down.
    """
    front = packed[:, None, :] * np.array([1, 3, 9, 27, 81], np.uint8)[:count, None]
    return (front.astype(np.uint16) * 3 >> 8).astype(np.uint8).reshape(len(packed), -1)


# --- types --------------------------------------------------------------------------------------------------


def _legacy(minimum: bool, fifth: bool) -> Callable[[Bytes], Parts]:
    """Q4_0 to Q5_1 and IQ4_NL: d, perhaps m, perhaps 32 fifth bits, 16 bytes of nibbles."""

    def split(blocks: Bytes) -> Parts:
        codes, numbers = nibbles(blocks[:, -16:]), 4 if minimum else 2
        if fifth:
            bits = np.unpackbits(blocks[:, numbers : numbers + 4], axis=1, bitorder="little")
            codes |= bits << np.uint8(4)
        return Parts(codes, fp16(blocks, 0), fp16(blocks, 2) if minimum else None)

    return split


def _q8_0(blocks: Bytes) -> Parts:
    """d, 32 int8; 128 is added to make codes."""
    return Parts(blocks[:, 2:] ^ np.uint8(0x80), fp16(blocks, 0))


def _mxfp4(blocks: Bytes) -> Parts:
    """An exponent, 16 bytes of nibbles."""
    return Parts(nibbles(blocks[:, 1:]), blocks[:, :1])


def _nvfp4(blocks: Bytes) -> Parts:
    """Four 8-bit float scales, then 8 bytes of nibbles for each 16 values."""
    return Parts(nibbles(blocks[:, 4:], 8), blocks[:, :4])


def _q2_k(blocks: Bytes) -> Parts:
    """16 bytes (scale nibble, min nibble), 64 bytes of bit pairs, d, dmin."""
    both = blocks[:, :16]
    scales, mins = both & np.uint8(15), both >> np.uint8(4)
    return Parts(two_bits(blocks[:, 16:80]), fp16(blocks, 80), fp16(blocks, 82), scales, mins)


def _q3_k(blocks: Bytes) -> Parts:
    """32 bytes of third bits, 64 bytes of bit pairs, 12 bytes of 6-bit scales plus 32, d."""
    low = np.concatenate([blocks[:, 96:104] & 15, blocks[:, 96:104] >> 4], axis=1)
    high = ((blocks[:, None, 104:108] >> PAIRS) & np.uint8(3)).reshape(-1, 16)
    codes = two_bits(blocks[:, 32:96]) | (planes(blocks[:, :32]) << np.uint8(2))
    return Parts(codes, fp16(blocks, 108), scales=(low | (high << np.uint8(4))) - np.uint8(32))


def _q45_k(fifth: bool) -> Callable[[Bytes], Parts]:
    """d, dmin, 12 bytes of eight 6-bit scales and mins, 32 of fifth bits (Q5_K), 128 of nibbles."""

    def split(blocks: Bytes) -> Parts:
        first, second, third = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
        scales = np.concatenate([first & 63, (third & 15) | ((first >> 6) << np.uint8(4))], axis=1)
        mins = np.concatenate([second & 63, (third >> 4) | ((second >> 6) << np.uint8(4))], axis=1)
        codes = nibbles(blocks[:, -128:], 32)
        if fifth:
            codes |= planes(blocks[:, 16:48]) << np.uint8(4)
        return Parts(codes, fp16(blocks, 0), fp16(blocks, 2), scales, mins)

    return split


def _q6_k(blocks: Bytes) -> Parts:
    """128 bytes of low nibbles (a run of 64 is half the block), 64 of upper bit pairs, 16 int8 scales, d."""
    codes = nibbles(blocks[:, :128], 64) | (two_bits(blocks[:, 128:192]) << np.uint8(4))
    return Parts(codes, fp16(blocks, 208), scales=np.ascontiguousarray(blocks[:, 192:208]))


def _iq4_xs(blocks: Bytes) -> Parts:
    """d, 16 bits with the scales' upper bit pairs, 4 bytes with their low nibbles, 128 bytes of nibbles.

    32 is added to stored scales.
    """
    scales = (nibble_pairs(blocks[:, 4:8]) | (bit_pairs(blocks[:, 2:4]) << np.uint8(4))) - np.uint8(32)
    return Parts(nibbles(blocks[:, 8:]), fp16(blocks, 0), scales=scales)


def _tq1_0(blocks: Bytes) -> Parts:
    """32 and 16 bytes of five base-3 digits, 4 bytes of four, d."""
    runs = [_trits(blocks[:, :32], 5), _trits(blocks[:, 32:48], 5), _trits(blocks[:, 48:52], 4)]
    return Parts(np.concatenate(runs, axis=1), fp16(blocks, 52))


def _tq2_0(blocks: Bytes) -> Parts:
    """64 bytes of bit pairs, d."""
    return Parts(two_bits(blocks[:, :64]), fp16(blocks, 64))


def _q1_0(blocks: Bytes) -> Parts:
    """d, a bit for each value: 0 is -d, 1 is d. Codes are 0 and 2."""
    return Parts(np.unpackbits(blocks[:, 2:], axis=1, bitorder="little") << np.uint8(1), fp16(blocks, 0))


def _q2_0(blocks: Bytes) -> Parts:
    """d, 16 bytes of four bit pairs each, which follow each other."""
    return Parts(bit_pairs(blocks[:, 2:]), fp16(blocks, 0))


QUANTS = (
    BlockType("Q4_0", 2, 32, 18, 4, _legacy(False, False), zero=8),
    BlockType("Q4_1", 3, 32, 20, 4, _legacy(True, False), mins=True),
    BlockType("Q5_0", 6, 32, 22, 5, _legacy(False, True), zero=16),
    BlockType("Q5_1", 7, 32, 24, 5, _legacy(True, True), mins=True),
    BlockType("Q8_0", 8, 32, 34, 8, _q8_0, zero=128),
    BlockType("Q2_K", 10, 256, 84, 2, _q2_k, groups=16, scale_bits=4, mins=True),
    BlockType("Q3_K", 11, 256, 110, 3, _q3_k, zero=4, groups=16, scale_bits=6, signed=True),
    BlockType("Q4_K", 12, 256, 144, 4, _q45_k(False), groups=8, scale_bits=6, mins=True),
    BlockType("Q5_K", 13, 256, 176, 5, _q45_k(True), groups=8, scale_bits=6, mins=True),
    BlockType("Q6_K", 14, 256, 210, 6, _q6_k, zero=32, groups=16, scale_bits=8, signed=True),
    BlockType("IQ4_NL", 20, 32, 18, 4, _legacy(False, False), levels=IQ4_LEVELS),
    BlockType("IQ4_XS", 23, 256, 136, 4, _iq4_xs, levels=IQ4_LEVELS, groups=8, scale_bits=6, signed=True),
    BlockType("TQ1_0", 34, 256, 54, 2, _tq1_0, zero=1),
    BlockType("TQ2_0", 35, 256, 66, 2, _tq2_0, zero=1),
    BlockType("MXFP4", 39, 32, 17, 4, _mxfp4, levels=FP4_LEVELS, d="e8m0"),
    BlockType("NVFP4", 40, 64, 36, 4, _nvfp4, levels=FP4_LEVELS, groups=4, d="ue4m3"),
)
"""All of them but Q1_0 and Q2_0."""


def _nvfp4_pairs(blocks: Bytes) -> Parts:
    """A float32 d, four 8-bit float scales, 32 bytes of two neighbours."""
    packed = blocks[:, 8:]
    codes = np.stack([packed & 15, packed >> 4], axis=2).reshape(len(blocks), -1)
    d = np.ascontiguousarray(blocks[:, :4]).view(np.float32)
    return Parts(codes, d, scales=np.ascontiguousarray(blocks[:, 4:8]))


NVFP4_PAIRS = BlockType(
    "NVFP4_64", -1, 64, 40, 4, _nvfp4_pairs, levels=FP4_LEVELS, groups=4, d="fp32", scale_bits=8, floats=True,
)  # fmt: skip
"""NVFP4 as folders have it, made of separate tensors (`engine.weights.packed.float4`); no type of GGUF files.
d is half of the matrix's factor.
"""

TWO_BIT_BLOCKS = (
    BlockType("Q1_0", 41, 128, 18, 2, _q1_0, zero=1),
    BlockType("Q2_0", 42, 64, 18, 2, _q2_0, zero=1),
)
"""The types that `engine.weights.gguf.two_bits` reads as codes with a scale for each group."""
