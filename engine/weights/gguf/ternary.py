"""GGUF types of three levels, -d, 0 and d, in blocks of 256: TQ1_0 and TQ2_0.

Source of the layouts: the ggml project's `ggml-common.h` (facts only).
"""

from __future__ import annotations

import numpy as np

from engine.weights.format import Bytes, Floats, Format, half

_POWERS = np.array([1, 3, 9, 27, 81], np.uint8)


def _trits(packed: Bytes, count: int) -> Bytes:
    """(B, n) bytes to (B, count * n): the first digits of all, then the second ones, each 0, 1 or 2.

    A byte is a fraction of 256 in base 3; multiplying by 3^i modulo 256 brings digit i to the front.
    """
    front = packed[:, None, :] * _POWERS[:count, None]
    return ((front.astype(np.uint16) * 3) >> 8).astype(np.uint8).reshape(len(packed), -1)


def _levels(d: Floats, q: Bytes) -> Floats:
    return d * (q.astype(np.int8) - np.int8(1)).astype(np.float32)


def _tq1_0(blocks: Bytes) -> Floats:
    """32 and 16 bytes of five digits, 4 bytes of four, d f16: d (q - 1)."""
    q = np.concatenate(
        [_trits(blocks[:, :32], 5), _trits(blocks[:, 32:48], 5), _trits(blocks[:, 48:52], 4)], axis=1
    )
    return _levels(half(blocks, 52), q)


def _tq2_0(blocks: Bytes) -> Floats:
    """64 bytes of 2-bit q, d f16: d (q - 1); byte l of each 32 has the values l, l + 32, l + 64, l + 96."""
    q = blocks[:, :64].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8).reshape(4, 1) & np.uint8(3)
    return _levels(half(blocks, 64), q.reshape(-1, 256))


TERNARY_FORMATS = (Format("TQ1_0", 256, 54, _tq1_0), Format("TQ2_0", 256, 66, _tq2_0))
