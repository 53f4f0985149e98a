"""GGUF K types, blocks of 256 with scales in two levels: Q2_K to Q6_K.

Source of the layouts: the ggml project's `ggml-common.h` and `docs/gguf.md` (facts only).
"""

from __future__ import annotations

import numpy as np

from engine.weights.format import Bytes, Floats, Format, half, nibbles


def _two_bits(packed: Bytes) -> Bytes:
    """(B, 64) bytes of Q2_K / Q3_K to (B, 2, 4, 32): half of the block, bit pair, byte within 32."""
    halves = packed.reshape(-1, 2, 1, 32)
    return (halves >> np.array([0, 2, 4, 6], np.uint8).reshape(4, 1)) & np.uint8(3)


def _q2_k(blocks: Bytes) -> Floats:
    """16 bytes (scale nibble, min nibble), 64 bytes of 2-bit q, d f16, dmin f16: (d scale) q - (dmin min),
    16 at a time.
    """
    scales = blocks[:, :16]
    scale = half(blocks, 80) * (scales & 15).astype(np.float32)  # (B, 16)
    low = half(blocks, 82) * (scales >> 4).astype(np.float32)
    q = _two_bits(blocks[:, 16:80]).reshape(-1, 16, 16).astype(np.float32)
    return (scale[:, :, None] * q - low[:, :, None]).reshape(-1, 256)


def _q3_k(blocks: Bytes) -> Floats:
    """32 bytes of third bits, 64 bytes of 2-bit q, 12 bytes of 6-bit scales, d f16: d (scale - 32) (q -
    4).
    """
    packed = blocks[:, 96:108]
    low = nibbles(packed[:, :8])  # (B, 16)
    high = (packed[:, None, 8:12] >> np.array([0, 2, 4, 6], np.uint8).reshape(4, 1)) & 3
    scales = (low | (high.reshape(-1, 16) << 4)).astype(np.int8) - np.int8(32)
    scale = half(blocks, 108) * scales.astype(np.float32)
    third = (blocks[:, None, :32] >> np.arange(8, dtype=np.uint8).reshape(8, 1)) & 1  # (B, 8, 32)
    q = _two_bits(blocks[:, 32:96]).reshape(-1, 8, 32) | (third << 2)
    values = (q.astype(np.int8) - np.int8(4)).reshape(-1, 16, 16).astype(np.float32)
    return (scale[:, :, None] * values).reshape(-1, 256)


def _scales_and_mins(packed: Bytes) -> tuple[Bytes, Bytes]:
    """The 12 bytes of Q4_K / Q5_K: eight 6-bit scales and eight 6-bit mins, (B, 8) each."""
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 63, (third & 15) | ((first >> 6) << 4)], axis=1)
    mins = np.concatenate([second & 63, (third >> 4) | ((second >> 6) << 4)], axis=1)
    return scales, mins


def _scaled_with_min(blocks: Bytes, q: Bytes) -> Floats:
    """d f16, dmin f16, 12 bytes of scales and mins at the head; q (B, 8, 32): (d scale) q - (dmin min)."""
    scales, mins = _scales_and_mins(blocks[:, 4:16])
    scale = half(blocks, 0) * scales.astype(np.float32)
    low = half(blocks, 2) * mins.astype(np.float32)
    return (scale[:, :, None] * q.astype(np.float32) - low[:, :, None]).reshape(-1, 256)


def _nibble_rows(packed: Bytes) -> Bytes:
    """(B, 128) bytes of Q4_K / Q5_K to (B, 8, 32): each 32 bytes hold two groups, low nibbles first."""
    rows = packed.reshape(-1, 4, 1, 32)
    return np.concatenate([rows & 15, rows >> 4], axis=2).reshape(-1, 8, 32)


def _q4_k(blocks: Bytes) -> Floats:
    """Scales and mins as in `_scaled_with_min`, then 128 bytes of nibbles."""
    return _scaled_with_min(blocks, _nibble_rows(blocks[:, 16:144]))


def _q5_k(blocks: Bytes) -> Floats:
    """As Q4_K with 32 bytes of fifth bits before the nibbles: bit j of byte l belongs to group j, value l."""
    fifth = (blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8).reshape(8, 1)) & np.uint8(1)
    return _scaled_with_min(blocks, _nibble_rows(blocks[:, 48:176]) | (fifth << np.uint8(4)))


def _q6_k(blocks: Bytes) -> Floats:
    """128 bytes of low nibbles, 64 of upper bit pairs, 16 int8 scales, d f16: d scale (q - 32), 16 at a
    time.
    """
    low = blocks[:, :128].reshape(-1, 2, 1, 64)
    nibbles = np.concatenate([low & 15, low >> 4], axis=2).reshape(-1, 8, 32)
    q = nibbles | (_two_bits(blocks[:, 128:192]).reshape(-1, 8, 32) << 4)
    scale = half(blocks, 208) * np.ascontiguousarray(blocks[:, 192:208]).view(np.int8).astype(np.float32)
    values: Floats = (q.astype(np.int8) - np.int8(32)).reshape(-1, 16, 16).astype(np.float32)
    return (scale[:, :, None] * values).reshape(-1, 256)


K_FORMATS = (
    Format("Q2_K", 256, 84, _q2_k),
    Format("Q3_K", 256, 110, _q3_k),
    Format("Q4_K", 256, 144, _q4_k),
    Format("Q5_K", 256, 176, _q5_k),
    Format("Q6_K", 256, 210, _q6_k),
)
