"""How the files of GGUF's block types are taken apart, for backends that pack them anew: NumPy only.

Source of the file layouts: the GGUF format page and ggml's block_q4_0 .. block_q6_K, block_iq4_nl,
block_iq4_xs, block_mxfp4, block_tq1_0, block_tq2_0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""What the codes of IQ4_NL and IQ4_XS mean."""
FP4_VALUES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""What the codes of MXFP4 mean, times two."""
_PAIRS = np.array([0, 2, 4, 6], np.uint8).reshape(4, 1)
_BITS = np.arange(8, dtype=np.uint8).reshape(8, 1)


@dataclass(frozen=True)
class Parts:
    """A tensor's rows taken apart, all uint8: codes (rows, groups, 32); bytes of scales and minimums (rows,
    groups, parts of a group); the numbers of a block (rows, blocks, bytes).
    """

    codes: Bytes
    numbers: Bytes
    scales: Bytes | None = None
    minimums: Bytes | None = None


def _nibbles(packed: Bytes, run: int = 16) -> Bytes:
    """(B, n) bytes to (B, groups, 32): of each `run` bytes all low nibbles, then all high ones."""
    runs = packed.reshape(len(packed), -1, 1, run)
    return np.concatenate([runs & 15, runs >> 4], axis=2).reshape(len(packed), -1, 32)


def _two_bits(packed: Bytes) -> Bytes:
    """(B, 64) bytes to (B, 8, 32): of each 32 bytes the four bit pairs, lowest first."""
    return ((packed.reshape(-1, 2, 1, 32) >> _PAIRS) & np.uint8(3)).reshape(-1, 8, 32)


def _planes(packed: Bytes) -> Bytes:
    """(B, 32) bytes to (B, 8, 32): bit g of byte k belongs to feature k of group g."""
    return (packed[:, None, :] >> _BITS) & np.uint8(1)


def legacy_parts(numbers: int, fifth: bool) -> Callable[[Bytes], Parts]:
    """Q4_0 to Q5_1, IQ4_NL and MXFP4: `numbers` bytes of d (and m), 32 fifth bits where there are any, 16
    bytes of nibbles.
    """

    def take_apart(raw: Bytes) -> Parts:
        codes = _nibbles(raw[:, -16:])
        if fifth:
            codes |= (np.unpackbits(raw[:, numbers : numbers + 4], axis=1, bitorder="little") << np.uint8(4))[
                :, None, :
            ]
        return Parts(codes, raw[:, :numbers])

    return take_apart


def q8_parts(raw: Bytes) -> Parts:
    """Q8_0: d, 32 int8; the codes are those plus 128."""
    return Parts((raw[:, 2:] ^ np.uint8(0x80))[:, None, :], raw[:, :2])


def q2_k_parts(raw: Bytes) -> Parts:
    """16 bytes (scale nibble, minimum nibble), 64 bytes of bit pairs, d, dmin."""
    return Parts(_two_bits(raw[:, 16:80]), raw[:, 80:84], raw[:, :16])


def q3_k_parts(raw: Bytes) -> Parts:
    """32 bytes of third bits, 64 bytes of bit pairs, 12 bytes of 6-bit scales plus 32, d."""
    low = np.concatenate([raw[:, 96:104] & 15, raw[:, 96:104] >> 4], axis=1)
    high = ((raw[:, None, 104:108] >> _PAIRS) & np.uint8(3)).reshape(-1, 16)
    scales = (low | (high << np.uint8(4))) - np.uint8(32)  # two's complement
    return Parts(_two_bits(raw[:, 32:96]) | (_planes(raw[:, :32]) << np.uint8(2)), raw[:, 108:110], scales)


def q45_k_parts(fifth: bool) -> Callable[[Bytes], Parts]:
    """d, dmin, 12 bytes of eight 6-bit scales and minimums, in Q5_K 32 bytes of fifth bits, 128 bytes of
    nibbles.
    """

    def take_apart(raw: Bytes) -> Parts:
        first, second, third = raw[:, 4:8], raw[:, 8:12], raw[:, 12:16]
        scales = np.concatenate([first & 63, (third & 15) | ((first >> 6) << np.uint8(4))], axis=1)
        minimums = np.concatenate([second & 63, (third >> 4) | ((second >> 6) << np.uint8(4))], axis=1)
        codes = _nibbles(raw[:, -128:], 32)
        if fifth:
            codes |= _planes(raw[:, 16:48]) << np.uint8(4)
        return Parts(codes, raw[:, :4], scales, minimums)

    return take_apart


def q6_k_parts(raw: Bytes) -> Parts:
    """128 bytes of low nibbles (a run of 64 is half the block), 64 of upper bit pairs, 16 int8 scales, d."""
    return Parts(
        _nibbles(raw[:, :128], 64) | (_two_bits(raw[:, 128:192]) << np.uint8(4)),
        raw[:, 208:210],
        raw[:, 192:208],
    )


def iq4_xs_parts(raw: Bytes) -> Parts:
    """d, 16 bits with the scales' upper pairs, 4 bytes with their lower nibbles, 128 bytes of nibbles;
    scales are plus 32.
    """
    low = np.stack([raw[:, 4:8] & 15, raw[:, 4:8] >> 4], axis=2).reshape(-1, 8)
    high = ((raw[:, 2:4, None] >> _PAIRS.reshape(4)) & np.uint8(3)).reshape(-1, 8)
    return Parts(_nibbles(raw[:, 8:136]), raw[:, :2], (low | (high << np.uint8(4))) - np.uint8(32))


def tq1_0_parts(raw: Bytes) -> Parts:
    """48 bytes of five ternary digits each (of 32 bytes all first ones, and so on, then of 16), 4 bytes of
    four, d.

    A byte is a fraction of 256 in base 3: after a product with 3^i modulo 256, digit i is what three times it
    carries over.
    """
    powers = np.array([1, 3, 9, 27, 81], np.uint8).reshape(5, 1)
    fractions = [raw[:, None, :32] * powers, raw[:, None, 32:48] * powers, raw[:, None, 48:52] * powers[:4]]
    digits = np.concatenate([f.reshape(len(raw), -1) for f in fractions], axis=1).astype(np.uint16) * 3 >> 8
    return Parts(digits.astype(np.uint8).reshape(-1, 8, 32), raw[:, 52:54])


def tq2_0_parts(raw: Bytes) -> Parts:
    """64 bytes of bit pairs, d."""
    return Parts(_two_bits(raw[:, :64]), raw[:, 64:66])
