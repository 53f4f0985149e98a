"""Passes over large vocabularies, compiled: with NumPy alone they take a tenth of a small model's decode step.

Each is compiled at its first use (half a second, once for each machine: the code is kept in the user's cache). Small vocabularies
go without, so that nothing need be compiled for them. Which way is taken depends on the size alone, so results repeat.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.folders import cache_dir

LEAST = 1 << 16
"""Vocabularies of at least so many tokens use the kernels."""
SURVEY_LEAST = 1 << 14
"""From so many tokens on one compiled pass finds what nearly every draw asks of the logits."""
LONGEST_HEAD = 256
"""A survey tells of at most so many of the likeliest tokens."""

_BLOCK = 4096
_SCALED = ("contract", "nsz")
_SUMMED = ("contract", "nsz", "reassoc")
_INT, _FLOAT = np.int32, np.float32
_NOTHING = -8388608
"""The bits of float32 -inf, as int32."""


@dataclass(slots=True)
class Survey:
    """What one pass found in logits (V,); all of it is valid until the next survey into the same `SurveyRoom`.

    `total` and `inner` are the `softmax_sums`. `ids` (n,) int64 are the likeliest tokens, likeliest first, ties by lowest id, and
    `scores` (n,) float64 their logits: as many as were asked for, or all of them above -inf where those are fewer (`complete`).
    `maxima` (4096,) float32 are those of the columns, as in `engine.sampling.selection`.
    """

    largest: float
    total: float
    inner: float
    ids: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float64]
    complete: bool
    maxima: npt.NDArray[np.float32]


class SurveyRoom:
    """Where surveys write: the arrays are kept, for new ones cost more than filling them."""

    def __init__(self) -> None:
        self.maxima = np.empty(_BLOCK, np.float32)
        self.ids, self.scores = np.empty(LONGEST_HEAD, np.int64), np.empty(LONGEST_HEAD, np.float64)
        self.sums = np.empty(3, np.float64)
        self.kernel: Any = None


def survey(logits: npt.NDArray[np.float32], count: int, room: SurveyRoom) -> Survey | None:
    """One pass over logits (V,) for the `count` (at most `LONGEST_HEAD`) likeliest; None when they hold NaN or +inf or are all -inf."""
    if room.kernel is None:
        room.kernel = _survey_kernel()
    found = room.kernel(np.ascontiguousarray(logits), count, room.maxima, room.ids, room.scores, room.sums)
    if found < 0:
        return None
    largest, total, inner = room.sums.tolist()
    return Survey(largest, total, inner, room.ids[:found], room.scores[:found], found < count, room.maxima)


def softmax_sums(logits: npt.NDArray[np.float32], largest: np.float32) -> tuple[float, float]:
    """Sums over logits (V,) of w = exp(l - largest) and of w * (l - largest); differences below -87 count as -87."""
    total, inner = _softmax_kernel()(np.ascontiguousarray(logits), largest)
    return float(total), float(inner)


def moments(scores: npt.NDArray[np.float32], pivot: float) -> tuple[int, float, float, npt.NDArray[np.float32]]:
    """Of those of scores (V,) above -inf: number, sum of differences from `pivot`, sum of their squares; the column maxima."""
    maxima = np.empty(_BLOCK, np.float32)
    count, total, squares = _moments_kernel()(np.ascontiguousarray(scores), np.float32(pivot), maxima)
    return int(count), float(total), float(squares), maxima


def allow(scores: npt.NDArray[np.float32], words: npt.NDArray[np.uint32], out: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Write scores (V,) to `out`, -inf where the bit in words (ceil(V / 32),) is not set; returns (4096,) the column maxima."""
    maxima = np.empty(_BLOCK, np.float32)
    _allow_kernel()(np.ascontiguousarray(scores), words, out, maxima)
    return maxima


def prepare(vocabulary: int) -> None:
    """Have the passes that usual settings need for a vocabulary of this size, from the cache or compiled now."""
    if vocabulary >= SURVEY_LEAST:
        _survey_kernel()


# Each is made on its own, so that starting pays for no pass that is not used. Arrays that are only read may be read-only.


@functools.cache
def _survey_kernel() -> Any:
    from numba import types

    softmax = _softmax_kernel()
    function = FunctionType(_survey.__code__, {**globals(), "_softmax_sums": softmax}, "_survey")
    f32, written = types.float32[::1], types.float64[::1]
    return _compiled(function, types.int64(_read(types.float32), types.int64, f32, types.int64[::1], written, written), _SCALED)


@functools.cache
def _softmax_kernel() -> Any:
    from numba import types

    function = FunctionType(_softmax_sums.__code__, {**globals(), "_from_bits": _bits_to_float()}, "_softmax_sums")
    return _compiled(function, types.UniTuple(types.float64, 2)(_read(types.float32), types.float32), _SUMMED)


def _bits_to_float() -> Any:
    """The float32 of 32 bits, for compiled code, where arrays would need a pass of their own."""
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    def make(context: Any, bits: Any) -> Any:
        return types.float32(types.int32), lambda context, builder, signature, arguments: builder.bitcast(arguments[0], ir.FloatType())

    return intrinsic(make)


@functools.cache
def _moments_kernel() -> Any:
    from numba import types

    return _compiled(_moments, types.UniTuple(types.float64, 3)(_read(types.float32), types.float32, types.float32[::1]), _SUMMED)


@functools.cache
def _allow_kernel() -> Any:
    from numba import types

    written = types.float32[::1]
    return _compiled(_allow, types.void(_read(types.float32), _read(types.uint32), written, written), _SCALED)


def _read(kind: Any) -> Any:
    """A contiguous array that is not written."""
    from numba import types

    return types.Array(kind, 1, "C", readonly=True)


def _compiled(function: Any, signature: Any, flags: tuple[str, ...]) -> Any:
    """The compiled function, kept in the user's cache where that can be written."""
    from numba import config

    from engine import compiled

    folder, before, kept = cache_dir() / "sampling", config.CACHE_DIR, True
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        kept = False
    try:
        config.CACHE_DIR = str(folder) if kept else before
        return compiled.function(function, signature, {"nogil": True, "error_model": "numpy", "fastmath": set(flags)}, kept=kept)
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


def _from_bits(bits: Any) -> Any:
    raise AssertionError("only compiled code calls this")  # which gets `_bits_to_float` in its place


def _softmax_sums(logits: Any, largest: Any) -> tuple[float, float]:
    # exp d = 2^n exp r with n = round(d / ln 2): n goes straight into the exponent, exp r is a polynomial (Cephes, expf).
    total: Any = 0.0
    inner: Any = 0.0
    for start in range(0, logits.shape[0], _BLOCK):
        part = logits[start : start + _BLOCK]
        first, second = _FLOAT(0), _FLOAT(0)
        for j in range(part.shape[0]):
            depth = max(part[j] - largest, _FLOAT(-87))
            exponent = _INT(depth * _FLOAT(1.44269504) + _FLOAT(127.5))
            power = _FLOAT(exponent - _INT(127))
            r = depth - power * _FLOAT(0.693147181)
            value = _FLOAT(1.9875691500e-4) * r + _FLOAT(1.3981999507e-3)
            value = value * r + _FLOAT(8.3334519073e-3)
            value = value * r + _FLOAT(4.1665795894e-2)
            value = value * r + _FLOAT(1.6666665459e-1)
            value = value * r + _FLOAT(5.0000001201e-1)
            weight = (value * r * r + r + _FLOAT(1)) * _from_bits(exponent << _INT(23))
            first += weight
            second += weight * depth
        total += first
        inner += second
    return total, inner


def _survey(logits: Any, count: Any, maxima: Any, ids: Any, scores: Any, sums: Any) -> int:
    # Returns how many of the likeliest were found, -1 for logits that are no numbers.
    maxima[:] = -np.inf
    bits, wrong = logits.view(_INT), _INT(0)
    for start in range(0, logits.shape[0], _BLOCK):
        part, raw = logits[start : start + _BLOCK], bits[start : start + _BLOCK]
        for j in range(part.shape[0]):
            maxima[j] = max(part[j], maxima[j])
        for j in range(raw.shape[0]):  # NaN and the infinities but -inf
            wrong |= _INT((raw[j] & _INT(0x7FFFFFFF)) >= _INT(0x7F800000)) & _INT(raw[j] != _INT(_NOTHING))
    largest = _FLOAT(-np.inf)
    for j in range(_BLOCK):
        largest = max(maxima[j], largest)
    if wrong != 0 or largest == -np.inf:
        return -1
    sums[0] = largest
    sums[1], sums[2] = _softmax_sums(logits, largest)
    if count <= 0:
        return 0
    # The count-th largest maximum of a column bounds the count-th largest number from below.
    for i in range(count):
        scores[i] = -np.inf
    for j in range(_BLOCK):
        value = np.float64(maxima[j])
        if value > scores[count - 1]:
            i = count - 1
            while i > 0 and scores[i - 1] < value:
                scores[i] = scores[i - 1]
                i -= 1
            scores[i] = value
    bound, found = scores[count - 1], 0
    for j in range(_BLOCK):
        if maxima[j] >= bound:
            for place in range(j, logits.shape[0], _BLOCK):
                value = np.float64(logits[place])
                if value < bound or value == -np.inf:
                    continue
                if found == count:
                    last = scores[count - 1]
                    if value < last or (value == last and place > ids[count - 1]):
                        continue
                else:
                    found += 1
                i = found - 1
                while i > 0 and (scores[i - 1] < value or (scores[i - 1] == value and ids[i - 1] > place)):
                    scores[i], ids[i] = scores[i - 1], ids[i - 1]
                    i -= 1
                scores[i], ids[i] = value, place
    return found
