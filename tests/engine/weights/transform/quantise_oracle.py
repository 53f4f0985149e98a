"""The formulas of `engine.weights.transform.quantize` in NumPy: x (32, B) to rows of bytes, a block each."""

from __future__ import annotations

import numpy as np

from engine.weights.format import Bytes, Floats

BLOCK = 32
SHRINKS_6 = (1.0, 0.98, 0.96, 0.94, 0.92, 0.9)
SHRINKS_4 = (1.0, 0.96, 0.92, 0.88, 0.84, 0.8)


def _half(values: Floats) -> tuple[Floats, bool]:
    """`values` rounded to fp16, as float32, and whether all are finite."""
    rounded = values.astype(np.float16).astype(np.float32)
    return rounded, bool(np.isfinite(rounded).all())


def _inverse(scale: Floats) -> Floats:
    return np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)


def _fp16_bytes(values: Floats) -> Bytes:
    return values.astype("<f2").view(np.uint8).reshape(-1, 2)


def encode_8(x: Floats, out: Bytes) -> bool:
    """x (32, B) to Q8_0: d, 32 int8."""
    scale, fine = _half(np.abs(x).max(0) / np.float32(127))
    codes = np.clip(np.rint(x * _inverse(scale)), -127, 127).astype(np.int8)
    out[:, :2], out[:, 2:] = _fp16_bytes(scale), codes.T.view(np.uint8)
    return fine


def encode_6(x: Floats, out: Bytes) -> bool:
    """x (32, B) to 32 codes, a float32 d and an int16 zero."""
    low, high = x.min(0), x.max(0)
    middle, most = (low + high) / 2, np.maximum(high, -low)
    # For numbers far from 0 the step is so large that the zero stays near the codes, within -64 .. 127.
    step = np.maximum((high - low) / np.float32(63), most / np.float32(95))
    best, zero, least = np.zeros_like(low), np.zeros_like(low), np.full_like(low, np.inf)
    squares = (x * x).sum(0)
    for shrink in SHRINKS_6:
        inverse = _inverse(step * np.float32(shrink))
        origin = np.clip(np.rint(np.float32(31.5) - middle * inverse), -64, 127)
        codes = np.minimum(np.maximum(np.rint(x * inverse), -origin), 63 - origin)
        products, powers = (codes * x).sum(0), (codes * codes).sum(0)
        scale = products * _inverse(powers)
        error = squares - scale * products
        better = error < least
        best, zero, least = (
            np.where(better, scale, best),
            np.where(better, origin, zero),
            np.where(better, error, least),
        )
    scale, fine = _half(best)
    codes = np.clip(np.rint(x * _inverse(scale)) + zero, 0, 63)
    fine = fine and bool(np.isfinite(squares).all())
    if fine:
        out[:, :BLOCK] = codes.astype(np.uint8).T
        out[:, BLOCK : BLOCK + 4] = scale[:, None].view(np.uint8)
        out[:, BLOCK + 4 :] = zero.astype("<i2")[:, None].view(np.uint8)
    return fine


def encode_4(x: Floats, out: Bytes) -> bool:
    """x (32, B) to Q4_1: d, m, 16 bytes of code i (low) and i + 16."""
    low, high = x.min(0), x.max(0)
    middle, width = (low + high) / 2, high - low
    centred = x - middle
    sums, squares = centred.sum(0), (centred * centred).sum(0)
    best, offset, least = np.zeros_like(low), np.zeros_like(low), np.full_like(low, np.inf)
    for shrink in SHRINKS_4:
        # Codes minus 7.5, so that sums stay small and exact.
        codes = np.clip(np.floor(centred * _inverse(width * np.float32(shrink / 15))), -8, 7) + np.float32(
            0.5
        )
        total, powers, products = codes.sum(0), (codes * codes).sum(0), (codes * centred).sum(0)
        spread = powers * BLOCK - total * total
        scale = (products * BLOCK - total * sums) * _inverse(spread)
        shift = (sums - scale * total) / BLOCK
        error = squares - scale * products - shift * sums
        better = error < least
        best, offset, least = (
            np.where(better, scale, best),
            np.where(better, shift, offset),
            np.where(better, error, least),
        )
    scale, fine = _half(best)
    minimum, also = _half(middle + offset - np.float32(7.5) * scale)
    codes = np.clip(np.rint((x - minimum) * _inverse(scale)), 0, 15).astype(np.uint8)
    out[:, :2], out[:, 2:4] = _fp16_bytes(scale), _fp16_bytes(minimum)
    out[:, 4:] = (codes[:16] | codes[16:] << np.uint8(4)).T
    return fine and also and bool(np.isfinite(squares).all())
