"""Compiled parts of `quantize`: what its formulas do with each weight, for blocks of 32 (n, 32), float32.

Sums are taken in the order of the inputs, one block a vector lane, so that the results are those of NumPy's
`sum(0)` to the last bit.
"""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import Any

import numpy as np

from engine.weights.format import Bytes, Floats

BLOCK = 32
TOGETHER = 128
"""Blocks that are worked on at once; their weights stay in the first-level cache."""
SHRINKS_6 = (1.0, 0.98, 0.96, 0.94, 0.92, 0.9)
SHRINKS_4 = (1.0, 0.96, 0.92, 0.88, 0.84, 0.8)
"""Ranges tried, as multiples of the block's range."""


def largest(blocks: Floats, out: Floats) -> None:
    """The largest magnitude of each block, (n,); NaN if it has one."""
    for n in range(len(blocks)):
        most = np.float32(0)
        for i in range(BLOCK):
            size = abs(blocks[n, i])
            if size > most or np.isnan(size):  # nothing is larger than NaN
                most = size
        out[n] = most


def codes_8(blocks: Floats, inverse: Floats, out: Bytes) -> None:
    """int8 codes from byte 2 of each row of `out` (n, 34) on."""
    for n in range(len(blocks)):
        for i in range(BLOCK):
            code = np.rint(blocks[n, i] * inverse[n])
            code = min(max(code, np.float32(-127)), np.float32(127))
            out[n, 2 + i] = np.uint8(np.int32(code) & 255)


def search_6(blocks: Floats, best: Floats, zero: Floats, squares: Floats) -> None:
    """The d and zero of least squared error of each block, and the sum of its squares."""
    x = np.empty((BLOCK, TOGETHER), np.float32)
    each = np.empty((7, TOGETHER), np.float32)
    low, high, inverse, origin = each[0], each[1], each[2], each[3]
    products, powers, least = each[4], each[5], each[6]
    for first in range(0, len(blocks), TOGETHER):
        count = min(TOGETHER, len(blocks) - first)
        ends(blocks, first, count, x, low, high)
        for b in range(count):
            squares[first + b] = np.float32(0)
            best[first + b] = zero[first + b] = np.float32(0)
            least[b] = np.inf
        for i in range(BLOCK):
            for b in range(count):
                squares[first + b] += x[i, b] * x[i, b]
        for shrink in SHRINKS_6:
            for b in range(count):
                most = max(high[b], -low[b])
                step = max((high[b] - low[b]) / np.float32(63), most / np.float32(95)) * np.float32(shrink)
                inverse[b] = np.float32(1) / step if step != 0 else np.float32(0)
                middle = (low[b] + high[b]) / np.float32(2)
                place = np.rint(np.float32(31.5) - middle * inverse[b])
                origin[b] = min(max(place, np.float32(-64)), np.float32(127))
                products[b] = powers[b] = np.float32(0)
            for i in range(BLOCK):
                for b in range(count):
                    code = np.rint(x[i, b] * inverse[b])
                    code = min(max(code, -origin[b]), np.float32(63) - origin[b])
                    products[b] += code * x[i, b]
                    powers[b] += code * code
            for b in range(count):
                scale = products[b] * (np.float32(1) / powers[b] if powers[b] != 0 else np.float32(0))
                error = squares[first + b] - scale * products[b]
                if error < least[b]:
                    best[first + b], zero[first + b], least[b] = scale, origin[b], error


def codes_6(blocks: Floats, inverse: Floats, zero: Floats, out: Bytes) -> None:
    """Codes in the first 32 bytes of each row of `out` (n, 38)."""
    for n in range(len(blocks)):
        for i in range(BLOCK):
            code = np.rint(blocks[n, i] * inverse[n]) + zero[n]
            out[n, i] = np.uint8(min(max(code, np.float32(0)), np.float32(63)))


def search_4(blocks: Floats, best: Floats, offset: Floats, middle: Floats, squares: Floats) -> None:
    """The d and m of least squared error of each block, m from 7.5 d below its middle, and the sum of the
    squares around that.
    """
    x = np.empty((BLOCK, TOGETHER), np.float32)
    each = np.empty((8, TOGETHER), np.float32)
    low, high, inverse, sums = each[0], each[1], each[2], each[3]
    total, powers, products, least = each[4], each[5], each[6], each[7]
    for first in range(0, len(blocks), TOGETHER):
        count = min(TOGETHER, len(blocks) - first)
        ends(blocks, first, count, x, low, high)
        for b in range(count):
            middle[first + b] = (low[b] + high[b]) / np.float32(2)
            squares[first + b] = sums[b] = np.float32(0)
            best[first + b] = offset[first + b] = np.float32(0)
            least[b] = np.inf
        for i in range(BLOCK):
            for b in range(count):
                x[i, b] -= middle[first + b]
                sums[b] += x[i, b]
                squares[first + b] += x[i, b] * x[i, b]
        for shrink in SHRINKS_4:
            for b in range(count):
                step = (high[b] - low[b]) * np.float32(shrink / 15)
                inverse[b] = np.float32(1) / step if step != 0 else np.float32(0)
                total[b] = powers[b] = products[b] = np.float32(0)
            for i in range(BLOCK):
                for b in range(count):
                    code = min(max(np.floor(x[i, b] * inverse[b]), np.float32(-8)), np.float32(7))
                    code += np.float32(0.5)  # codes minus 7.5, so that sums stay small and exact
                    total[b] += code
                    powers[b] += code * code
                    products[b] += code * x[i, b]
            for b in range(count):
                spread = powers[b] * np.float32(BLOCK) - total[b] * total[b]
                times = np.float32(1) / spread if spread != 0 else np.float32(0)
                scale = (products[b] * np.float32(BLOCK) - total[b] * sums[b]) * times
                shift = (sums[b] - scale * total[b]) / np.float32(BLOCK)
                error = squares[first + b] - scale * products[b] - shift * sums[b]
                if error < least[b]:
                    best[first + b], offset[first + b], least[b] = scale, shift, error


def codes_4(blocks: Floats, inverse: Floats, minimum: Floats, out: Bytes) -> None:
    """Codes i (low) and i + 16 from byte 4 of each row of `out` (n, 20) on."""
    for n in range(len(blocks)):
        for i in range(BLOCK // 2):
            one = np.rint((blocks[n, i] - minimum[n]) * inverse[n])
            other = np.rint((blocks[n, i + BLOCK // 2] - minimum[n]) * inverse[n])
            low = np.uint8(min(max(one, np.float32(0)), np.float32(15)))
            high = np.uint8(min(max(other, np.float32(0)), np.float32(15)))
            out[n, 4 + i] = low | high << np.uint8(4)


def ends(blocks: Floats, first: int, count: int, x: Floats, low: Floats, high: Floats) -> None:
    """x (32, TOGETHER) becomes `count` blocks, one a column; their least and largest weights."""
    for b in range(count):
        for i in range(BLOCK):
            x[i, b] = blocks[first + b, i]
        low[b] = high[b] = x[0, b]
    for i in range(1, BLOCK):
        for b in range(count):
            low[b] = min(low[b], x[i, b])
            high[b] = max(high[b], x[i, b])


_KERNELS = {
    "largest": largest, "codes_8": codes_8, "search_6": search_6, "codes_6": codes_6, "search_4": search_4,
    "codes_4": codes_4,
}  # fmt: skip
_LOCK = threading.Lock()


def kernel(name: str) -> Any:
    """A function of this module, compiled, or kept in the user's cache if that is writable."""
    with _LOCK:  # several threads quantise at once
        return _compiled(name)


@functools.cache
def _compiled(name: str) -> Any:
    from types import FunctionType

    from numba import types

    from engine.platform import compiled
    from engine.platform.folders import code_folder

    source = _KERNELS[name]
    numbers = source.__code__.co_argcount - 1
    floats, vector = types.Array(types.float32, 2, "C", readonly=True), types.float32[::1]
    codes = types.uint8[:, ::1] if name.startswith("codes") else vector
    signature = types.void(floats, *[vector] * (numbers - 1), codes)
    options = {"nogil": True, "error_model": "numpy"}
    folder = code_folder(f"quantise-{compiled.sources_hash([Path(__file__)])}")
    with compiled.cached_in(folder):
        found = compiled.cached_function(source, signature, options) if folder is not None else None
        if found is not None:
            return found
        helper = types.void(floats, types.int64, types.int64, types.float32[:, ::1], vector, vector)
        parts = {"ends": compiled.part(ends, helper, options)}
        made = FunctionType(source.__code__, {**globals(), **parts}, source.__name__)
        return compiled.function(made, signature, options, cache=folder is not None)
