"""Codes of 2 to 8 bits packed without gaps into 32-bit words: little-endian streams, lowest bit first."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]


def unpack_codes(words: Words, bits: int, count: int) -> Bytes:
    """The first `count` codes of each row of `words` (n, W), uint8 (n, count).

    Code i begins at bit i * `bits` of its row. W must be at least count * bits / 32, rounded up.
    """
    raw = np.ascontiguousarray(words, "<u4").view(np.uint8)
    if bits == 8:
        return raw[:, :count]
    if bits in (2, 4):
        per_byte, mask = 8 // bits, np.uint8((1 << bits) - 1)
        out = np.empty((*raw.shape, per_byte), np.uint8)
        for i in range(per_byte):
            np.bitwise_and(raw >> np.uint8(i * bits), mask, out=out[..., i])
        return out.reshape(len(raw), -1)[:, :count]
    octets = -(-count // 8)
    size = octets * bits  # eight codes are `bits` bytes
    padded = np.zeros((len(raw), octets, 8), np.uint8)
    whole = np.zeros((len(raw), size), np.uint8)
    there = min(size, raw.shape[1])
    whole[:, :there] = raw[:, :there]
    padded[..., :bits] = whole.reshape(len(raw), octets, bits)
    eight = padded.reshape(len(raw), -1).view("<u8")
    shifts = np.arange(8, dtype=np.uint64) * np.uint64(bits)
    codes: Bytes = ((eight[..., None] >> shifts) & np.uint64((1 << bits) - 1)).astype(np.uint8)
    return codes.reshape(len(raw), -1)[:, :count]


def words_for(count: int, bits: int) -> int:
    """The number of words that `count` codes need."""
    return -(-count * bits // 32)
