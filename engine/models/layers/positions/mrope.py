"""Multi-section rotary positions (M-RoPE, arXiv 2409.12191, section 2.1): tokens of pictures have a time, a
row and a column, by which different pairs of dimensions rotate; of a text's token all three are the same.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from engine.backends.base import RotaryTable
from engine.tensors import Floats, Ints

Axes = npt.NDArray[np.int64]


def axes_of_pairs(sections: tuple[int, ...], interleaved: bool) -> Axes:
    """By what each pair of dimensions rotates, (pairs,): 0 the time, 1 the row, 2 the column.

    `sections` are the pairs of time, rows and columns, in this order, or those of `counted_positions`. If
    `interleaved` (Qwen3-VL's technical report), pairs take turns as time, row, column, time and so on, as
    long as the sections of rows and columns last; the time has all others.
    """
    if not interleaved:
        return np.repeat(np.arange(len(sections)), sections)
    axes = np.zeros(sum(sections), np.int64)
    for axis in (1, 2):
        axes[axis : 3 * sections[axis] : 3] = axis
    return axes


def sequence_positions(spans: Iterable[tuple[int, int, int]], length: int) -> tuple[Ints, int]:
    """The time, row and column of each token of a sequence, (length, 3) int32, and the shift after it: by how
    much less than its position the next token of the text is rotated.

    `spans` are tokens of pictures, in rising order, all inside the sequence: the index of the first one, rows
    and columns. At a picture of h * w tokens that would begin at rotary position p as a text, all have the
    time p, and rows and columns begin at p; what follows goes on at p + max(h, w).
    """
    out: Ints = np.empty((length, 3), np.int32)
    at = shift = 0
    for first, rows, columns in spans:
        end = first + rows * columns
        assert at <= first < end <= length, "pictures that overlap, or go on past the end"
        out[at:first] = np.arange(at - shift, first - shift, dtype=np.int32)[:, None]
        row, column = np.divmod(np.arange(end - first, dtype=np.int32), np.int32(columns))
        out[first:end] = first - shift + np.stack([np.zeros_like(row), row, column], 1)
        at, shift = end, shift + rows * columns - max(rows, columns)
    out[at:] = np.arange(at - shift, length - shift, dtype=np.int32)[:, None]
    return out, shift


def counted_positions(spans: Iterable[tuple[int, int, int]], start: int, end: int, axes: int) -> Ints:
    """The positions of the tokens from `start` to `end` of a sequence with pictures of a `counted` model,
    (end - start, `axes`) int32: of texts the place in the sequence, three or four times; of pictures the last
    three are the column, the row and how many pictures are before.

    `spans` are as in `sequence_positions`, of all pictures from the sequence's beginning on; those of one
    token are as texts.
    """
    out: Ints = np.repeat(np.arange(start, end, dtype=np.int32)[:, None], axes, axis=1)
    number = 0
    for first, rows, columns in spans:
        if rows * columns == 1:
            continue
        low, high = max(first, start), min(first + rows * columns, end)
        if low < high:
            row, column = np.divmod(np.arange(low - first, high - first, dtype=np.int32), np.int32(columns))
            out[low - start : high - start, -3:] = np.stack([column, row, np.full_like(row, number)], 1)
        number += 1
    return out


def fill_table(target: RotaryTable, source: RotaryTable, positions: Ints, axes: Axes) -> None:
    """Write the angles of tokens to the first rows of a table: for each pair those that `source` has at the
    position of its axis, of `positions` (T, axes).
    """
    places = positions[:, axes]
    pairs = np.arange(len(axes))
    for into, numbers in ((target.cos, source.cos), (target.sin, source.sin)):
        rows: Floats = numbers[places, pairs]
        into[: len(rows)] = rows
