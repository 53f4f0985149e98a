"""Simple quantisers for GGUF's IQ types and NVFP4: scales by the largest value, codebook rows by least
squares.

Each packs (B, 256) float32 into (B, bytes) uint8. The codebooks are those of the `gguf` package; the packing
follows the format's description, independently of the engine's decoders.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import quants

Array = npt.NDArray[Any]


def _codebook(name: str) -> Array:
    table = getattr(quants, name)
    table.init_grid()
    return np.asarray(table.grid, np.float32).reshape(table.grid_shape)


def _halves(values: Array) -> Array:
    return values.astype(np.float16).reshape(-1, 1).view(np.uint8)


def _steps(values: Array, groups: int, units: Array, top: float) -> tuple[Array, Array, Array]:
    """d float16-rounded (B, 1), the index into `units` of each group (B, groups), and each group's step
    (B, groups).
    """
    peaks = np.abs(values.reshape(len(values), groups, -1)).max(2)
    d = (peaks.max(1, keepdims=True) / (top * units[-1])).astype(np.float16).astype(np.float32)
    expected = np.divide(peaks, top * d, out=np.zeros_like(peaks), where=d != 0)
    codes = np.abs(expected[:, :, None] - units).argmin(2)
    return d, codes, d * units[codes]


def _nearest(values: Array, steps: Array, table: Array) -> Array:
    """The row of `table` (E, w) nearest to each group of w values: (B, 256 / w)."""
    step = np.repeat(steps, 256 // steps.shape[1], axis=1)
    scaled = np.divide(values, step, out=np.zeros_like(values), where=step != 0).reshape(-1, table.shape[1])
    return ((table**2).sum(1) - 2 * scaled @ table.T).argmin(1).reshape(len(values), -1)


def _signs(values: Array, even: bool) -> Array:
    """A byte of signs for each 8 values (B, 32); `even`: the sign of the smallest value is flipped if their
    number is odd.
    """
    groups = values.reshape(len(values), 32, 8)
    negative = groups < 0
    if even:
        odd = negative.sum(2) % 2 == 1
        smallest = np.abs(groups).argmin(2)
        negative ^= (np.arange(8) == smallest[:, :, None]) & odd[:, :, None]
    return np.packbits(negative, axis=2, bitorder="little")[:, :, 0]


def _digits(values: Array, bits: int, count: int, dtype: str) -> Array:
    """Each `count` numbers as digits of one number, lowest first: (B, n) to bytes."""
    packed = (values.reshape(len(values), -1, count).astype(np.int64) << bits * np.arange(count)).sum(2)
    return packed.astype(dtype).view(np.uint8).reshape(len(values), -1)


def _bytes(*parts: Array) -> Array:
    return np.concatenate([np.ascontiguousarray(part).astype(np.uint8) for part in parts], axis=1)


_QUARTERS = (np.arange(16, dtype=np.float32) + 0.5) / 4
_HALVES = (np.arange(16, dtype=np.float32) + 0.5) / 2
_ODD = 2 * np.arange(16, dtype=np.float32) + 1


def _tail(values: Array, codes: Array) -> Array:
    """8 u32 of four 7-bit sign patterns under the scale, (B, 8)."""
    signs = (_signs(values, True) & 127).reshape(-1, 8, 4).astype(np.int64)
    return ((signs << 7 * np.arange(4)).sum(2) | codes.astype(np.int64) << 28).astype("<u4")


def _iq2_xxs(values: Array) -> Array:
    d, codes, steps = _steps(values, 8, _QUARTERS, 43)
    index = _nearest(np.abs(values), steps, _codebook("IQ2_XXS")).reshape(-1, 8, 4).astype(np.uint8)
    tail = _tail(values, codes).view(np.uint8).reshape(-1, 8, 4)
    return _bytes(_halves(d), np.concatenate([index, tail], axis=2).reshape(-1, 64))


def _iq2_xs(values: Array) -> Array:
    d, codes, steps = _steps(values, 16, _QUARTERS, 43)
    index = _nearest(np.abs(values), steps, _codebook("IQ2_XS")).astype(np.int64)
    words = (index | (_signs(values, True) & 127).astype(np.int64) << 9).astype("<u2")
    return _bytes(_halves(d), words.view(np.uint8), _digits(codes, 4, 2, "u1"))


def _iq2_s(values: Array) -> Array:
    d, codes, steps = _steps(values, 16, _QUARTERS, 43)
    index = _nearest(np.abs(values), steps, _codebook("IQ2_S"))
    return _bytes(
        _halves(d),
        index & 255,
        _signs(values, False),
        _digits(index >> 8, 2, 4, "u1"),
        _digits(codes, 4, 2, "u1"),
    )


def _iq3_xxs(values: Array) -> Array:
    d, codes, steps = _steps(values, 8, _HALVES, 62)
    return _bytes(
        _halves(d), _nearest(np.abs(values), steps, _codebook("IQ3_XXS")), _tail(values, codes).view(np.uint8)
    )


def _iq3_s(values: Array) -> Array:
    d, codes, steps = _steps(values, 8, _ODD, 15)
    index = _nearest(np.abs(values), steps, _codebook("IQ3_S"))
    return _bytes(
        _halves(d),
        index & 255,
        _digits(index >> 8, 1, 8, "u1"),
        _signs(values, False),
        _digits(codes, 4, 2, "u1"),
    )


def _shifted(values: Array, steps: Array, groups: int) -> tuple[Array, Array]:
    """IQ1: whether delta is negative in each of `groups` (B, groups), and the indices (B, 32)."""
    below = values.reshape(len(values), groups, -1).mean(2) < 0
    delta = np.repeat(np.where(below, -0.125, 0.125), 256 // groups, axis=1) * np.repeat(
        steps, 256 // steps.shape[1], axis=1
    )
    return below, _nearest((values - delta).astype(np.float32), steps, _codebook("IQ1_S"))


def _iq1_s(values: Array) -> Array:
    d, codes, steps = _steps(values, 8, _ODD[:8], 1)
    below, index = _shifted(values, steps, 8)
    high = (index >> 8).reshape(-1, 8, 4)
    words = (high << 3 * np.arange(4)).sum(2) | codes << 12 | below.astype(np.int64) << 15
    return _bytes(_halves(d), index & 255, words.astype("<u2").view(np.uint8))


def _iq1_m(values: Array) -> Array:
    d, codes, steps = _steps(values, 16, _ODD[:8], 1)
    below, index = _shifted(values, steps, 32)
    quarters = d.astype(np.float16).view(np.uint16).astype(np.int64) >> 4 * np.arange(4) & 15
    words = (codes.reshape(-1, 4, 4) << 3 * np.arange(4)).sum(2) | quarters << 12
    return _bytes(
        index & 255,
        _digits(index >> 8 | below.astype(np.int64) << 3, 4, 2, "u1"),
        words.astype("<u2").view(np.uint8),
    )


def _levels(values: Array, steps: Array) -> Array:
    return _nearest(values, steps, np.array(quants.IQ4_NL.kvalues, np.float32)[:, None])


def _split_nibbles(q: Array, size: int) -> Array:
    """Pack `size` values into size / 2 bytes: the first half in the low nibbles."""
    halves = q.reshape(len(q), -1, 2, size // 2)
    return (halves[:, :, 0] | halves[:, :, 1] << 4).reshape(len(q), -1)


def _iq4_nl(values: Array) -> Array:
    d = (np.abs(values.reshape(-1, 8, 32)).max(2) / 127).astype(np.float16)
    packed = _split_nibbles(_levels(values, d.astype(np.float32)), 32).reshape(-1, 8, 16).astype(np.uint8)
    return np.concatenate([d[:, :, None].view(np.uint8), packed], axis=2).reshape(len(values), -1)


def _iq4_xs(values: Array) -> Array:
    d, codes, steps = _steps(values, 8, np.arange(32, dtype=np.float32), 127)
    codes = codes + 32
    return _bytes(
        _halves(d), _digits(codes >> 4, 2, 8, "<u2"), _digits(codes & 15, 4, 2, "u1"),
        _split_nibbles(_levels(values, steps), 32)
    )  # fmt: skip


def _nvfp4(values: Array) -> Array:
    scales = quants.NVFP4.ue4m3_to_fp32(np.arange(127, dtype=np.uint8)).astype(np.float32)
    peaks = np.abs(values.reshape(len(values), 16, 16)).max(2) / 12
    codes = np.abs(peaks[:, :, None] - scales).argmin(2)
    q = _nearest(values, scales[codes], np.array(quants.NVFP4.kvalues, np.float32)[:, None])
    packed = _split_nibbles(q, 16).reshape(len(values), 4, 32)
    return _bytes(np.concatenate([codes.reshape(-1, 4, 4), packed], axis=2).reshape(len(values), -1))


IQ_QUANTISERS: dict[str, Callable[[Array], Array]] = {
    "IQ4_NL": _iq4_nl, "IQ4_XS": _iq4_xs, "IQ3_S": _iq3_s, "IQ3_XXS": _iq3_xxs, "IQ2_S": _iq2_s,
    "IQ2_XS": _iq2_xs, "IQ2_XXS": _iq2_xxs, "IQ1_M": _iq1_m, "IQ1_S": _iq1_s, "NVFP4": _nvfp4,
}  # fmt: skip
