"""Types of ik_llama.cpp's files with 4 or 8 rows in turn: their blocks become those of the plain types.

A block of them has a block of each row. What follows d there lies byte by byte of row 0, row 1 and so on, or
four bytes by four. Nothing is rounded: bits only move. Source of the layouts: ik_llama.cpp's `ggml-common.h`
and `iqk_quantize.cpp` (facts only).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.backends.gguf_blocks.block_type import BlockType, Bytes
from engine.backends.gguf_blocks.ik_quants import IK_BLOCKS
from engine.backends.gguf_blocks.iquants import IQUANTS
from engine.backends.gguf_blocks.pieces import nibbles
from engine.backends.gguf_blocks.quants import QUANTS
from engine.lazy_dataclass import dataclass

_PAIRS = np.array([0, 2, 4, 6], np.uint8)
_BITS = np.arange(8, dtype=np.uint8)
_LOW, _FOUR = np.uint8(15), np.uint8(4)


# --- codes and scales of four rows in turn, (B, bytes) to (4 B, values) ------------------------------------


def _by_row(values: npt.NDArray[Any], *order: int) -> Bytes:
    """Axes in this order after the block's, the row's first, to (rows B, values)."""
    moved = values.transpose(0, *order)
    return moved.reshape(moved.shape[0] * moved.shape[1], -1)


def _four_bits(packed: Bytes) -> Bytes:
    x = packed.reshape(-1, 8, 2, 2, 4, 4)
    return _by_row(np.stack([x & _LOW, x >> _FOUR], axis=-1), 4, 1, 3, 6, 2, 5)


def _two_bits(packed: Bytes) -> Bytes:
    x = packed.reshape(-1, 8, 2, 4, 4, 1) >> _PAIRS & np.uint8(3)
    return _by_row(x, 3, 1, 2, 5, 4)


def _bits(packed: Bytes, shape: tuple[int, ...], *order: int) -> Bytes:
    """Bits of 4 x 4 bytes for each 32 values: `shape` splits a byte's eight, and `order` has the axes."""
    x = packed.reshape(-1, 8, 4, 4, 1) >> _BITS & np.uint8(1)
    return _by_row(x.reshape(-1, 8, 4, 4, *shape), *order)


def _of_16(values: Bytes) -> Bytes:
    """Numbers of groups of 16 values (B, 64), in the order of 32 values, half, row."""
    return _by_row(values.reshape(-1, 8, 2, 4), 3, 1, 2)


def _of_32(values: Bytes) -> Bytes:
    return _by_row(values.reshape(-1, 8, 4), 2, 1)


def _extra(packed: Bytes) -> Bytes:
    """Bits of groups of 16 values: 8 bytes, of the first halves of each row, then of the others."""
    x = packed.reshape(-1, 2, 4, 1) >> _BITS & np.uint8(1)
    return _by_row(x, 2, 3, 1)


def _upper_pairs(packed: Bytes) -> Bytes:
    """(B, 16) to (B, 64): all bytes' lowest bit pairs, then the next."""
    return (packed[:, None] >> _PAIRS[:, None] & np.uint8(3)).reshape(-1, 64)


def _numbers(packed: Bytes, size: int, rows: int = 4) -> Bytes:
    """Numbers of `size` bytes for each row."""
    return packed.reshape(-1, rows, size).reshape(-1, size)


# --- pieces of plain blocks, (B, values) to bytes ----------------------------------------------------------


def _united(bits: Bytes, axis: int) -> Bytes:
    out: Bytes = np.bitwise_or.reduce(bits, axis=axis)
    return out


def _in_nibbles(codes: Bytes, run: int) -> Bytes:
    x = codes.reshape(len(codes), -1, 2, run)
    return (x[:, :, 0] | x[:, :, 1] << _FOUR).reshape(len(codes), -1)


def _in_two_bits(codes: Bytes) -> Bytes:
    return _united(codes.reshape(-1, 2, 4, 32) << _PAIRS[:, None], 2).reshape(len(codes), -1)


def _in_planes(bits: Bytes) -> Bytes:
    return _united(bits.reshape(-1, 8, 32) << _BITS[:, None], 1)


def _in_bit_pairs(values: Bytes) -> Bytes:
    return _united(values.reshape(len(values), -1, 4) << _PAIRS, 2)


def _in_bits(bits: Bytes) -> Bytes:
    return np.packbits(bits, axis=1, bitorder="little")


def _joined(*parts: Bytes) -> Bytes:
    return np.concatenate(parts, axis=1)


# --- types --------------------------------------------------------------------------------------------------


def _iq2_k(x: Bytes) -> Bytes:
    scales = _in_nibbles(_of_16(nibbles(x[:, 16:48], 32)), 1)
    return _joined(
        _numbers(x[:, :8], 2), _in_bits(_extra(x[:, 8:16])), scales, _in_two_bits(_two_bits(x[:, 48:]))
    )


def _iq3_k(x: Bytes) -> Bytes:
    signs = (x[:, None, 16:24] >> _BITS[:, None] & np.uint8(1)).reshape(-1, 64)
    scales = _in_nibbles(_of_16(nibbles(x[:, 24:56], 32)), 1)
    third = _bits(x[:, 312:], (8,), 2, 1, 4, 3)
    return _joined(
        _numbers(x[:, :8], 2), _in_bits(_extra(x[:, 8:16])), _in_bits(_of_16(signs)), scales,
        _in_two_bits(_two_bits(x[:, 56:312])), _in_planes(third),
    )  # fmt: skip


def _six_bits(high: Bytes, low: Bytes) -> Bytes:
    """Scales of IQ4_K and IQ5_K: bytes of upper bit pairs, then of nibbles."""
    return _joined(_in_bit_pairs(_of_16(_upper_pairs(high))), _in_nibbles(_of_16(nibbles(low, 32)), 1))


def _iq4_k(x: Bytes) -> Bytes:
    return _joined(
        _numbers(x[:, :8], 2), _in_bits(_extra(x[:, 8:16])), _six_bits(x[:, 16:32], x[:, 32:64]),
        _in_nibbles(_four_bits(x[:, 64:]), 16),
    )  # fmt: skip


def _fifth(packed: Bytes) -> Bytes:
    return _in_planes(_bits(packed, (2, 4), 2, 1, 5, 4, 3))


def _iq5_k(x: Bytes) -> Bytes:
    return _joined(
        _numbers(x[:, :8], 2), _in_bits(_extra(x[:, 8:16])), _six_bits(x[:, 16:32], x[:, 32:64]),
        _in_nibbles(_four_bits(x[:, 64:576]), 32), _fifth(x[:, 576:]),
    )  # fmt: skip


def _iq4_ks(x: Bytes) -> Bytes:
    return _joined(_numbers(x[:, :16], 4), _of_32(x[:, 16:48]), _in_nibbles(_four_bits(x[:, 48:]), 16))


def _iq5_ks(x: Bytes) -> Bytes:
    codes = _in_nibbles(_four_bits(x[:, 48:560]), 32)
    return _joined(_numbers(x[:, :16], 4), _of_32(x[:, 16:48]), codes, _fifth(x[:, 560:]))


def _scales_and_mins(high: Bytes, low: Bytes) -> Bytes:
    """The 12 bytes of Q4_K and Q5_K."""
    upper = nibbles(high, 16)
    scales = _of_32(low & _LOW | (upper & np.uint8(3)) << _FOUR)
    mins = _of_32(low >> _FOUR | (upper >> np.uint8(2)) << _FOUR)
    first, second = (v[:, :4] | (v[:, 4:] >> _FOUR) << np.uint8(6) for v in (scales, mins))
    return _joined(first, second, scales[:, 4:] & _LOW | (mins[:, 4:] & _LOW) << _FOUR)


def _two_numbers(x: Bytes) -> Bytes:
    """d of each row, then dmin of each."""
    return _joined(_numbers(x[:, :8], 2), _numbers(x[:, 8:16], 2))


def _q4_k(x: Bytes) -> Bytes:
    codes = _in_nibbles(_four_bits(x[:, 64:]), 32)
    return _joined(_two_numbers(x), _scales_and_mins(x[:, 16:32], x[:, 32:64]), codes)


def _q5_k(x: Bytes) -> Bytes:
    fifth = _in_planes(_bits(x[:, 64:192], (2, 2, 2), 2, 1, 4, 6, 5, 3))
    codes = _in_nibbles(_four_bits(x[:, 192:]), 32)
    return _joined(_two_numbers(x), _scales_and_mins(x[:, 16:32], x[:, 32:64]), fifth, codes)


def _q6_k(x: Bytes) -> Bytes:
    upper = x[:, 72:328].reshape(-1, 8, 2, 4, 4, 1) >> _PAIRS & np.uint8(3)
    upper = _by_row(upper.reshape(-1, 8, 2, 4, 4, 2, 2), 3, 1, 2, 6, 5, 4)
    low = _in_nibbles(_four_bits(x[:, 328:]), 64)
    return _joined(low, _in_two_bits(upper), _of_16(x[:, 8:72]), _numbers(x[:, :8], 2))


def _q2_k(x: Bytes) -> Bytes:
    return _joined(_of_16(x[:, 16:80]), _in_two_bits(_two_bits(x[:, 80:])), _two_numbers(x))


def _q3_k(x: Bytes) -> Bytes:
    third = _in_planes(_bits(x[:, 56:184], (8,), 2, 1, 4, 3))
    scales = _of_16(nibbles(x[:, 24:56], 32) | _upper_pairs(x[:, 8:24]) << _FOUR)
    upper = _united((scales >> _FOUR).reshape(-1, 4, 4) << _PAIRS[:, None], 1)
    codes, low = _in_two_bits(_two_bits(x[:, 184:])), _in_nibbles(scales & _LOW, 8)
    return _joined(third, codes, low, upper, _numbers(x[:, :8], 2))


def _q4_0(x: Bytes) -> Bytes:
    return _joined(_numbers(x[:, :16], 2, 8), _by_row(x[:, 16:].reshape(-1, 4, 8, 4), 2, 1, 3))


def _iq4_xs(x: Bytes) -> Bytes:
    low, high = (
        _by_row(each.reshape(-1, 8, 8), 2, 1)
        for each in (nibbles(x[:, 32:64], 32), _upper_pairs(x[:, 16:32]))
    )
    packed = x[:, 64:].reshape(-1, 8, 4, 8, 4)
    codes = _by_row(np.stack([packed & _LOW, packed >> _FOUR], axis=-1), 3, 1, 2, 5, 4)
    return _joined(
        _numbers(x[:, :16], 2, 8), _in_bit_pairs(high), _in_nibbles(low, 1), _in_nibbles(codes, 16)
    )


def _q8_0(x: Bytes) -> Bytes:
    codes = x[:, 16:].reshape(-1, 2, 4, 8, 4)
    return _joined(_numbers(x[:, :16], 2, 8), _by_row(codes, 3, 1, 2, 4))


def _iq1_s(x: Bytes) -> Bytes:
    """d of each row, then for each 32 values 16 indices, of all rows in turn, and a u16 of each row."""
    parts = x[:, 8:].reshape(-1, 8, 24)
    index = _by_row(parts[:, :, :16].reshape(-1, 8, 4, 4), 3, 1, 2)
    return _joined(_numbers(x[:, :8], 2), index, _by_row(parts[:, :, 16:].reshape(-1, 8, 4, 2), 2, 1, 3))


@dataclass(frozen=True)
class Interleaved:
    """A type with `rows` rows in turn. `plain` makes blocks of the type `block` (B rows, bytes) of blocks (B,
    bytes), whose rows follow each other; `row_bytes` for each row stand before a file's blocks.
    """

    name: str
    number: int
    block: BlockType
    rows: int
    plain: Callable[[Bytes], Bytes]
    row_bytes: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes for each row of a block without `row_bytes`."""
        return self.block.nbytes - self.row_bytes


def _of(
    number: int, plain: Callable[[Bytes], Bytes], name: str, rows: int = 4, row_bytes: int = 0
) -> Interleaved:
    block = next(each for each in (*QUANTS, *IQUANTS, *IK_BLOCKS) if each.name == name)
    return Interleaved(f"{name}_R{rows}", number, block, rows, plain, row_bytes or block.row_bytes)


INTERLEAVED = (
    _of(202, _q4_0, "Q4_0", 8),
    _of(208, _q8_0, "Q8_0", 8),
    _of(210, _q2_k, "Q2_K"),
    _of(211, _q3_k, "Q3_K"),
    _of(212, _q4_k, "Q4_K"),
    _of(213, _q5_k, "Q5_K"),
    _of(214, _q6_k, "Q6_K"),
    _of(219, _iq1_s, "IQ1_S", row_bytes=2),
    _of(223, _iq4_xs, "IQ4_XS", 8),
    _of(337, _iq2_k, "IQ2_K"),
    _of(338, _iq3_k, "IQ3_K"),
    _of(339, _iq4_k, "IQ4_K"),
    _of(340, _iq5_k, "IQ5_K"),
    _of(344, _iq4_ks, "IQ4_KS"),
    _of(352, _iq5_ks, "IQ5_KS"),
)
