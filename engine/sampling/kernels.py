"""Passes over large vocabularies, compiled: with NumPy alone they take a tenth of a small model's decode step.

Compiled at the first use (about two seconds, once for each machine: the code is kept in the user's cache). Small vocabularies
go without, so that nothing need be compiled for them. Which way is taken depends on the size alone, so results repeat.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.folders import cache_dir

LEAST = 1 << 16
"""Vocabularies of at least so many tokens use the kernels."""

_BLOCK = 4096
_SCALED = ("contract", "nsz")
_SUMMED = ("contract", "nsz", "reassoc")
_INT, _FLOAT = np.int32, np.float32
_NOTHING = -8388608
"""The bits of float32 -inf, as int32."""


@dataclass(frozen=True)
class Kernels:
    """Compiled functions; all arrays are contiguous, float32 unless said otherwise, and inputs may be read-only.

    `allow(scores (V,), words (ceil(V / 32),) uint32, out (V,), maxima (4096,))`: scores whose bit is set, else -inf, and the
    maxima of the columns of `out` as in `engine.sampling.selection`. `moments(scores (V,), pivot, maxima (4096,))`: of those
    above -inf the number, the sum of their differences from `pivot` and of the squares of these; and the maxima of the columns.
    `softmax_sums(logits (V,), largest, buffer (4096,))`: the sums of w = exp(l - largest) and of w * (l - largest); differences
    below -87 count as -87.
    """

    allow: Callable[[Any, Any, Any, Any], None]
    moments: Callable[[Any, Any, Any], tuple[float, float, float]]
    softmax_sums: Callable[[Any, Any, Any], tuple[float, float]]


def softmax_sums(logits: npt.NDArray[np.float32], largest: np.float32) -> tuple[float, float]:
    """Sums over logits (V,) as `Kernels.softmax_sums` says."""
    total, inner = kernels().softmax_sums(np.ascontiguousarray(logits), largest, np.empty(_BLOCK, np.float32))
    return float(total), float(inner)


def moments(scores: npt.NDArray[np.float32], pivot: float) -> tuple[int, float, float, npt.NDArray[np.float32]]:
    """Of those of scores (V,) above -inf: number, sum of differences from `pivot`, sum of their squares; the column maxima."""
    maxima = np.empty(_BLOCK, np.float32)
    count, total, squares = kernels().moments(np.ascontiguousarray(scores), np.float32(pivot), maxima)
    return int(count), float(total), float(squares), maxima


def allow(scores: npt.NDArray[np.float32], words: npt.NDArray[np.uint32], out: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Write scores (V,) to `out`, -inf where the bit in words (ceil(V / 32),) is not set; returns (4096,) the column maxima."""
    maxima = np.empty(_BLOCK, np.float32)
    kernels().allow(np.ascontiguousarray(scores), words, out, maxima)
    return maxima


@functools.cache
def kernels() -> Kernels:
    """The compiled functions, from the cache or compiled now."""
    import numba
    from numba import config, types

    def jit(function: Any, signature: Any, flags: tuple[str, ...]) -> Any:
        return numba.njit(signature, nogil=True, cache=kept, error_model="numpy", fastmath=set(flags))(function)

    def read(kind: Any) -> Any:
        return types.Array(kind, 1, "C", readonly=True)

    folder, before, kept = cache_dir() / "sampling", config.CACHE_DIR, True
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        kept = False
    f32, u32, f64, written = types.float32, types.uint32, types.float64, types.float32[::1]
    try:
        config.CACHE_DIR = str(folder) if kept else before
        return Kernels(
            jit(_allow, types.void(read(f32), read(u32), written, written), _SCALED),
            jit(_moments, types.UniTuple(f64, 3)(read(f32), f32, written), _SUMMED),
            jit(_softmax_sums, types.UniTuple(f64, 2)(read(f32), f32, written), _SUMMED),
        )
    finally:
        config.CACHE_DIR = before


# Written for the compiler's vectoriser: no branches in the inner loops, and every number and index of 32 bits.


def _allow(scores: Any, words: Any, out: Any, maxima: Any) -> None:
    maxima[:] = -np.inf
    bits, out_bits = scores.view(_INT), out.view(_INT)
    for start in range(0, scores.shape[0], _BLOCK):
        source, target, values = bits[start : start + _BLOCK], out_bits[start : start + _BLOCK], out[start : start + _BLOCK]
        for k in range(source.shape[0] // 32):
            word, part, result = _INT(words[start // 32 + k]), source[32 * k : 32 * k + 32], target[32 * k : 32 * k + 32]
            for b in range(32):
                keep = -((word >> _INT(b)) & _INT(1))
                result[b] = (part[b] & keep) | (_INT(_NOTHING) & ~keep)
        for j in range(source.shape[0] // 32 * 32, source.shape[0]):
            keep = -((_INT(words[(start + j) // 32]) >> _INT(j % 32)) & _INT(1))
            target[j] = (source[j] & keep) | (_INT(_NOTHING) & ~keep)
        for j in range(values.shape[0]):
            maxima[j] = max(values[j], maxima[j])


def _moments(scores: Any, pivot: Any, maxima: Any) -> tuple[float, float, float]:
    maxima[:] = -np.inf
    count: Any = 0.0
    total: Any = 0.0
    squares: Any = 0.0
    bits = scores.view(_INT)
    for start in range(0, scores.shape[0], _BLOCK):
        values, part = scores[start : start + _BLOCK], bits[start : start + _BLOCK]
        number, first, second = _INT(0), _FLOAT(0), _FLOAT(0)
        for j in range(values.shape[0]):
            keep = _INT(part[j] != _INT(_NOTHING))
            value = _FLOAT(keep) * max(values[j] - pivot, _FLOAT(-3.4e38))
            first += value
            second += value * value
            number += keep
        for j in range(values.shape[0]):
            maxima[j] = max(values[j], maxima[j])
        count += number
        total += first
        squares += second
    return count, total, squares


def _softmax_sums(logits: Any, largest: Any, buffer: Any) -> tuple[float, float]:
    # exp d = 2^n exp r with n = round(d / ln 2): n goes straight into the exponent, exp r is a polynomial (Cephes, expf).
    total: Any = 0.0
    inner: Any = 0.0
    bits = buffer.view(_INT)
    for start in range(0, logits.shape[0], _BLOCK):
        part = logits[start : start + _BLOCK]
        exponents, scales = bits[: part.shape[0]], buffer[: part.shape[0]]
        for j in range(part.shape[0]):
            depth = max(part[j] - largest, _FLOAT(-87))
            exponents[j] = _INT(depth * _FLOAT(1.44269504) + _FLOAT(127.5)) << _INT(23)
        first, second = _FLOAT(0), _FLOAT(0)
        for j in range(part.shape[0]):
            depth = max(part[j] - largest, _FLOAT(-87))
            power = _FLOAT(_INT(depth * _FLOAT(1.44269504) + _FLOAT(127.5)) - _INT(127))
            r = depth - power * _FLOAT(0.693147181)
            value = _FLOAT(1.9875691500e-4) * r + _FLOAT(1.3981999507e-3)
            value = value * r + _FLOAT(8.3334519073e-3)
            value = value * r + _FLOAT(4.1665795894e-2)
            value = value * r + _FLOAT(1.6666665459e-1)
            value = value * r + _FLOAT(5.0000001201e-1)
            weight = (value * r * r + r + _FLOAT(1)) * scales[j]
            first += weight
            second += weight * depth
        total += first
        inner += second
    return total, inner
