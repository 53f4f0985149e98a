"""Codes packed without gaps into 32-bit words: little-endian streams, lowest bit first.

Two kernels unpack them. They are compiled, or loaded from the user's cache, when the first packed matrix is
read, and let the other threads that read a matrix go on.
"""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.int64]

_TOGETHER = 8
"""Streams that are unpacked at a time: those side by side in a file share the lines of its words."""
_compiling = threading.Lock()


def unpack_codes(words: Words, bits: int, count: int, order: Indices | None = None) -> Bytes:
    """The first `count` codes of each row of `words` (n, W), or of these those that `order` names, uint8.

    `bits` is 2, 3, 4, 5, 6 or 8; code i begins at bit i * `bits` of its row. W must be at least count * bits
    / 32, rounded up. The words may have any strides.
    """
    if bits == 8 and order is None and words.flags.c_contiguous:
        return words.view(np.uint8)[:, :count]
    eights = -(-count // 8)
    rows = len(words) if order is None else min(_TOGETHER, len(words))
    wide = np.empty((rows, eights), np.uint64)
    codes = wide.view(np.uint8)
    chosen = np.empty(0, np.int64) if order is None else np.ascontiguousarray(order, np.int64)
    out = np.empty((len(words) if order is not None else 0, chosen.size), np.uint8)
    _kernel("unpack")(np.require(words, "<u4", "A"), bits, chosen, wide, codes, out)
    return codes[:, :count] if order is None else out


def unpack_nibbles(words: Words, word: Indices, place: Indices) -> Bytes:
    """Codes of 4 bits at one place in a word for each row: (n, K) of `words` (K, W), uint8.

    Row i has code `place[i]` of the words `words[:, word[i]]`.
    """
    out = np.empty((len(word), len(words)), np.uint8)
    shifts = np.ascontiguousarray(4 * place, np.int64)
    _kernel("nibbles")(np.ascontiguousarray(words.T, "<u4"), np.ascontiguousarray(word), shifts, out)
    return out


def words_for(count: int, bits: int) -> int:
    """The number of words that `count` codes need."""
    return -(-count * bits // 32)


def _unpack(words: Any, bits: int, order: Any, wide: Any, codes: Any, out: Any) -> None:
    """Eight codes, which are `bits` bytes of a stream, become the eight bytes of a number in `wide`, three
    times by moving the upper half of each part up: to bit 32, 16 and 8. With an `order`, `wide` holds
    `_TOGETHER` rows, from which it picks; `codes` are its bytes.
    """
    four, two, one = np.uint64(32 - 4 * bits), np.uint64(16 - 2 * bits), np.uint64(8 - bits)
    fours = (np.uint64(1) << np.uint64(4 * bits)) - np.uint64(1)
    twos = ((np.uint64(1) << np.uint64(2 * bits)) - np.uint64(1)) * np.uint64(0x0000000100000001)
    ones = ((np.uint64(1) << np.uint64(bits)) - np.uint64(1)) * np.uint64(0x0001000100010001)
    for first in range(0, len(words), _TOGETHER):
        last = min(first + _TOGETHER, len(words))
        at = first if len(order) == 0 else 0
        for i in range(wide.shape[1]):
            word, shift = (i * bits) >> 2, np.uint64(8 * (i * bits & 3))
            more = word + 1 < words.shape[1]
            for row in range(first, last):
                eight = np.uint64(words[row, word])
                if more:
                    eight |= np.uint64(words[row, word + 1]) << np.uint64(32)
                eight >>= shift
                eight = (eight & fours) | ((eight << four) & (fours << np.uint64(32)))
                eight = (eight & twos) | ((eight << two) & (twos << np.uint64(16)))
                wide[at + row - first, i] = (eight & ones) | ((eight << one) & (ones << np.uint64(8)))
        if len(order) > 0:
            for row in range(first, last):
                for j in range(len(order)):
                    out[row, j] = codes[row - first, order[j]]


def _nibbles(words: Any, word: Any, shifts: Any, out: Any) -> None:
    """`out[i]` becomes 4 bits of the row `word[i]` of `words`, from bit `shifts[i]` on."""
    for i in range(len(word)):
        shift, row, codes = np.uint32(shifts[i]), words[word[i]], out[i]
        for k in range(len(codes)):
            codes[k] = (row[k] >> shift) & np.uint32(15)


def _kernel(name: str) -> Any:
    """The kernel, compiled by one of the threads that read."""
    with _compiling:
        return _compiled(name)


@functools.cache
def _compiled(name: str) -> Any:
    """The kernel, compiled, or kept in the user's cache if that is writable."""
    from numba import types

    from engine.platform import compiled
    from engine.platform.folders import code_folder

    def read(kind: Any, dimensions: int, layout: str = "C") -> Any:
        return types.Array(kind, dimensions, layout, readonly=True)

    numbers, made = read(types.int64, 1), types.uint8[:, ::1]
    source, arguments = {
        "unpack": (
            _unpack, (read(types.uint32, 2, "A"), types.int64, numbers, types.uint64[:, ::1], made, made),
        ),
        "nibbles": (_nibbles, (read(types.uint32, 2), numbers, numbers, made)),
    }[name]  # fmt: skip
    signature, options = types.void(*arguments), {"nogil": True, "error_model": "numpy"}
    folder = code_folder(f"codes-{compiled.sources_hash([Path(__file__)])}")
    with compiled.cached_in(folder):
        found = compiled.cached_function(source, signature, options) if folder is not None else None
        return found or compiled.function(source, signature, options, cache=folder is not None)
