"""Pieces of blocks: numbers and codes of a few bits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.backends.gguf_blocks.block_type import Bytes

PAIRS = np.array([0, 2, 4, 6], np.uint8).reshape(4, 1)
_BITS = np.arange(8, dtype=np.uint8).reshape(8, 1)


def fp16(blocks: Bytes, at: int) -> npt.NDArray[np.uint16]:
    """The fp16 number at byte `at` as uint16 (B, 1)."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view(np.uint16)


def nibbles(packed: Bytes, run: int = 16) -> Bytes:
    """(B, n) bytes to (B, 2 n) codes: for each `run` bytes all low nibbles, then all high nibbles."""
    runs = packed.reshape(len(packed), -1, 1, run)
    return np.concatenate([runs & 15, runs >> 4], axis=2).reshape(len(packed), -1)


def nibble_pairs(packed: Bytes) -> Bytes:
    """(B, n) bytes to (B, 2 n): each byte's low nibble, then its high one."""
    return np.stack([packed & 15, packed >> 4], axis=2).reshape(len(packed), -1)


def bit_pairs(packed: Bytes) -> Bytes:
    """(B, n) bytes to (B, 4 n): each byte's bit pairs, lowest first."""
    return ((packed[:, :, None] >> PAIRS.reshape(4)) & np.uint8(3)).reshape(len(packed), -1)


def single_bits(packed: Bytes) -> Bytes:
    """(B, n) bytes to (B, 8 n): each byte's bits, lowest first."""
    return np.unpackbits(packed, axis=1, bitorder="little")


def two_bits(packed: Bytes) -> Bytes:
    """(B, 64) bytes to (B, 256) codes: for each 32 bytes the four bit pairs, lowest first."""
    return ((packed.reshape(-1, 2, 1, 32) >> PAIRS) & np.uint8(3)).reshape(-1, 256)


def planes(packed: Bytes) -> Bytes:
    """(B, 32) bytes to (B, 256): bit g of byte k belongs to value k of the g-th 32."""
    return ((packed[:, None, :] >> _BITS) & np.uint8(1)).reshape(-1, 256)
