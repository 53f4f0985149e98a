"""Simple quantisers for GGUF types that the `gguf` package can only decode: round to nearest, without search.

Each packs (B, 256) float32 into (B, block bytes) uint8 by the format's description, independently of the
engine's decoders.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from tests.tiny_iquants import IQ_QUANTISERS

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def quantise(values: Floats, type_name: str) -> npt.NDArray[Any]:
    """(N, K) float32 in the form of `GGUFWriter.add_tensor`: bytes (N, row bytes) of quantised types, else
    numbers.
    """
    kind = gguf.GGMLQuantizationType[type_name]
    own = _QUANTISERS.get(type_name)
    if own is None:
        packed: npt.NDArray[Any] = gguf.quants.quantize(values, kind)
        return packed
    blocks = values.reshape(-1, 256)
    return own(blocks).reshape(len(values), -1)


def dequantise(data: npt.NDArray[np.generic], type_name: str) -> Floats:
    """Decode with the `gguf` package."""
    with np.errstate(all="ignore"):
        values: Floats = gguf.quants.dequantize(data, gguf.GGMLQuantizationType[type_name])
    return values


def _halves(values: Floats) -> Bytes:
    """(B,) numbers as float16 bytes (B, 2)."""
    return values.astype(np.float16).reshape(-1, 1).view(np.uint8)


def _rounded(values: Floats, step: Floats, low: int, high: int) -> npt.NDArray[np.int32]:
    """values / step, rounded and limited to low .. high; 0 where the step is 0."""
    quotient = np.divide(values, step, out=np.zeros_like(values), where=step != 0)
    return np.clip(np.rint(quotient), low, high).astype(np.int32)


def _unit(peaks: Floats, levels: int) -> Floats:
    """The float16-rounded unit (B, 1) in which the largest peak of each block is `levels`."""
    highest: Floats = peaks.max(axis=1, keepdims=True)
    return (highest / levels).astype(np.float16).astype(np.float32)


def _symmetric(
    blocks: Floats, most: int, levels: int
) -> tuple[Floats, npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """16 groups of 16: unit d (B, 1), whole scales (B, 16) up to `levels`, q (B, 16, 16) in -most .. most
    - 1.
    """
    groups = blocks.reshape(-1, 16, 16)
    steps = np.abs(groups).max(axis=2) / (most - 1)
    d = _unit(steps, levels)
    scales = _rounded(steps, np.broadcast_to(d, steps.shape), 0, levels)
    return (
        d,
        scales,
        _rounded(
            groups,
            np.broadcast_to((d * scales)[:, :, None], groups.shape).astype(np.float32),
            -most,
            most - 1,
        ),
    )


def _with_minimum(
    blocks: Floats, groups: int, most: int, levels: int
) -> tuple[Floats, Floats, npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """d, dmin (B, 1), scales and mins (B, groups) up to `levels`, q (B, groups, n) in 0 .. most."""
    parts = blocks.reshape(len(blocks), groups, -1)
    lows = np.maximum(-parts.min(axis=2), 0)
    steps = (np.maximum(parts.max(axis=2), 0) + lows) / most
    d, dmin = _unit(steps, levels), _unit(lows, levels)
    scales = _rounded(steps, np.broadcast_to(d, steps.shape), 0, levels)
    mins = _rounded(lows, np.broadcast_to(dmin, lows.shape), 0, levels)
    step = np.broadcast_to((d * scales)[:, :, None], parts.shape).astype(np.float32)
    return (
        d,
        dmin,
        scales,
        mins,
        _rounded((parts + (dmin * mins)[:, :, None]).astype(np.float32), step, 0, most),
    )


def _pairs(q: npt.NDArray[np.int32]) -> Bytes:
    """(B, 2, 4, 32) two-bit numbers to (B, 64): byte l of a half holds the four numbers at l, l + 32, l +
    64, l + 96.
    """
    return (q[:, :, 0] | q[:, :, 1] << 2 | q[:, :, 2] << 4 | q[:, :, 3] << 6).astype(np.uint8).reshape(-1, 64)


def _q2_k(blocks: Floats) -> Bytes:
    d, dmin, scales, mins, q = _with_minimum(blocks, 16, 3, 15)
    return np.concatenate(
        [(scales | mins << 4).astype(np.uint8), _pairs(q.reshape(-1, 2, 4, 32)), _halves(d), _halves(dmin)],
        axis=1,
    )


def _q3_k(blocks: Floats) -> Bytes:
    d, scales, q = _symmetric(blocks, 4, 31)
    q, scales = q.reshape(-1, 2, 4, 32) + 4, scales + 32
    high = np.zeros((len(blocks), 32), np.int32)
    for group in range(8):
        high |= (q.reshape(-1, 8, 32)[:, group] >> 2) << group
    low = scales[:, :8] & 15 | (scales[:, 8:] & 15) << 4
    top = sum((scales[:, 4 * i : 4 * i + 4] >> 4) << 2 * i for i in range(4))
    packed = np.concatenate([low, top], axis=1).astype(np.uint8)
    return np.concatenate([high.astype(np.uint8), _pairs(q & 3), packed, _halves(d)], axis=1)


def _six_bits(scales: npt.NDArray[np.int32], mins: npt.NDArray[np.int32]) -> Bytes:
    """Eight scales and eight mins below 64 in 12 bytes."""
    first = scales[:, :4] | (scales[:, 4:] >> 4) << 6
    second = mins[:, :4] | (mins[:, 4:] >> 4) << 6
    return np.concatenate([first, second, scales[:, 4:] & 15 | (mins[:, 4:] & 15) << 4], axis=1).astype(
        np.uint8
    )


def _nibbles(q: npt.NDArray[np.int32]) -> Bytes:
    """(B, 8, 32) to (B, 128): groups 2c and 2c + 1 share 32 bytes, the first in the low nibbles."""
    return (q[:, 0::2] & 15 | (q[:, 1::2] & 15) << 4).astype(np.uint8).reshape(-1, 128)


def _q4_k(blocks: Floats) -> Bytes:
    d, dmin, scales, mins, q = _with_minimum(blocks, 8, 15, 63)
    return np.concatenate([_halves(d), _halves(dmin), _six_bits(scales, mins), _nibbles(q)], axis=1)


def _q5_k(blocks: Floats) -> Bytes:
    d, dmin, scales, mins, q = _with_minimum(blocks, 8, 31, 63)
    high = sum((q[:, group] >> 4) << group for group in range(8))
    return np.concatenate(
        [_halves(d), _halves(dmin), _six_bits(scales, mins), np.asarray(high, np.uint8), _nibbles(q)], axis=1
    )


def _q6_k(blocks: Floats) -> Bytes:
    d, scales, q = _symmetric(blocks, 32, 127)
    q = q.reshape(-1, 2, 4, 32) + 32
    low = np.concatenate(
        [q[:, :, 0] & 15 | (q[:, :, 2] & 15) << 4, q[:, :, 1] & 15 | (q[:, :, 3] & 15) << 4], axis=2
    )
    parts = [
        low.astype(np.uint8).reshape(-1, 128),
        _pairs(q >> 4),
        scales.astype(np.int8).view(np.uint8),
        _halves(d),
    ]
    return np.concatenate(parts, axis=1)


_QUANTISERS: dict[str, Callable[[Floats], Bytes]] = {
    "Q2_K": _q2_k, "Q3_K": _q3_k, "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k, **IQ_QUANTISERS,
}  # fmt: skip
