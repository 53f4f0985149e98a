"""GGUF types in blocks of 32: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.

Source of the layouts: the ggml project's `ggml-common.h` and `docs/gguf.md` (facts only).
"""

from __future__ import annotations

import numpy as np

from engine.weights.format import Bytes, Floats, Format, half, nibbles


def _high_bits(packed: Bytes) -> Bytes:
    """(B, 4) bytes, a little-endian mask of 32 bits: (B, 32) of 0 or 16, the fifth bit of each value."""
    return np.unpackbits(packed, axis=1, bitorder="little") << np.uint8(4)


def _q4_0(blocks: Bytes) -> Floats:
    """d f16, 16 bytes of nibbles: d (q - 8)."""
    return half(blocks, 0) * (nibbles(blocks[:, 2:18]).astype(np.int8) - np.int8(8)).astype(np.float32)


def _q4_1(blocks: Bytes) -> Floats:
    """d f16, m f16, 16 bytes of nibbles: d q + m."""
    return half(blocks, 0) * nibbles(blocks[:, 4:20]).astype(np.float32) + half(blocks, 2)


def _q5_0(blocks: Bytes) -> Floats:
    """d f16, 32 fifth bits, 16 bytes of nibbles: d (q - 16)."""
    q = nibbles(blocks[:, 6:22]) | _high_bits(blocks[:, 2:6])
    return half(blocks, 0) * (q.astype(np.int8) - np.int8(16)).astype(np.float32)


def _q5_1(blocks: Bytes) -> Floats:
    """d f16, m f16, 32 fifth bits, 16 bytes of nibbles: d q + m."""
    q = nibbles(blocks[:, 8:24]) | _high_bits(blocks[:, 4:8])
    return half(blocks, 0) * q.astype(np.float32) + half(blocks, 2)


def _q8_0(blocks: Bytes) -> Floats:
    """d f16, 32 int8: d q."""
    return half(blocks, 0) * np.ascontiguousarray(blocks[:, 2:34]).view(np.int8).astype(np.float32)


BLOCK_FORMATS = (
    Format("Q4_0", 32, 18, _q4_0),
    Format("Q4_1", 32, 20, _q4_1),
    Format("Q5_0", 32, 22, _q5_0),
    Format("Q5_1", 32, 24, _q5_1),
    Format("Q8_0", 32, 34, _q8_0),
)
