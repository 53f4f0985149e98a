"""Attention over chosen positions: what is left of a page's scores."""

from __future__ import annotations

from typing import Any

from numba.core import types

from engine.backends.cpu.codegen.memory_ops import ld_f32, ld_i32, st_f32
from engine.backends.cpu.codegen.specialise import Jit, specialise
from engine.backends.cpu.kernels.attention.softmax import MINUS_INFINITY, row_fill
from engine.core import PAGE_TOKENS

# Filled in by `chosen_functions`.
place_in: Any = None


def _place_in(listed: int, width: int, start: int) -> int:
    """The place of the first position from `start` on in a list of `width`."""
    low, high = 0, width
    while low < high:
        middle = (low + high) // 2
        if ld_i32(listed + 4 * middle) < start:
            low = middle + 1
        else:
            high = middle
    return low


def _any_chosen_template(first: int, stride: int, rows: int, width: int, lists: int, start: int) -> int:
    """Whether one of the `lists` of each of `rows`, `stride` bytes apart, has positions of the page from
    `start` on.
    """
    for r in range(rows):
        for n in range(lists):
            listed = first + r * stride + 4 * width * n
            place = place_in(listed, width, start)
            if place < width and ld_i32(listed + 4 * place) < start + PAGE_TOKENS:
                return 1
    return 0


def _keep_chosen_template(row: int, vectors: int, listed: int, width: int, start: int, spare: int) -> int:
    """How many positions of the page from `start` on a list has; the scores of all others become minus
    infinity, if it has any. `spare` are 256 float32.
    """
    first, count = place_in(listed, width, start), 0
    while first + count < width:
        place = ld_i32(listed + 4 * (first + count)) - start
        if place >= PAGE_TOKENS:
            break
        st_f32(spare + 4 * count, ld_f32(row + 4 * place))
        count += 1
    if count:
        row_fill(row, vectors, MINUS_INFINITY)
    for n in range(count):
        st_f32(row + 4 * (ld_i32(listed + 4 * (first + n)) - start), ld_f32(spare + 4 * n))
    return count


def _keep_ends(row: int, valid: int, start: int, block: int) -> int:
    """How many blocks of positions end among the first `valid` of the page from `start` on; the scores of
    other positions become minus infinity.
    """
    count = 0
    for i in range(valid):
        if (start + i + 1) % block:
            st_f32(row + 4 * i, MINUS_INFINITY)
        else:
            count += 1
    return count


def chosen_functions(jit: Jit) -> dict[str, Any]:
    """`any_chosen`, `keep_chosen` and `keep_ends`, compiled by `jit`."""
    int64 = types.int64
    made = {"place_in": jit(_place_in, int64(*(int64,) * 3))}
    return {
        "any_chosen": jit(specialise(_any_chosen_template, "any_chosen", **made), int64(*(int64,) * 6)),
        "keep_chosen": jit(specialise(_keep_chosen_template, "keep_chosen", **made), int64(*(int64,) * 6)),
        "keep_ends": jit(_keep_ends, int64(*(int64,) * 4)),
    }
