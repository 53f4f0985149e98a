"""What attention's scores of a page become: weights, of the positions that a row looks at alone."""

from __future__ import annotations

from typing import Any

from numba.core import types

from engine.backends.cpu.codegen.memory_ops import ld_f32, ld_f64, ld_i32, ld_i64
from engine.backends.cpu.codegen.specialise import Jit, specialise, words
from engine.backends.cpu.kernels.attention.arguments import (
    A_AHEAD,
    A_BESIDE,
    A_BLOCK,
    A_CAP,
    A_CHOSEN,
    A_CHOSEN_STRIDE,
    A_DISTANCES,
    A_EXTENT,
    A_FURTHEST,
    A_HEADS,
    A_KV_HEADS,
    A_LIST,
    A_LIST_HEADS,
    A_OUT_WIDTH,
    A_PROFILES,
    A_RELATIVE,
    A_RELATIVE_COUNT,
    A_RELATIVE_STRIDE,
    A_ROUNDED,
    A_SLOPES,
    A_WINDOW,
    EDGE,
)
from engine.backends.cpu.kernels.attention.chosen import chosen_functions
from engine.backends.cpu.kernels.attention.softmax import (
    row_by_distance,
    row_cap,
    row_distance,
    row_profiles,
    row_rounded_slope,
    row_slope,
    weigh_row,
)
from engine.backends.cpu.runtime.step_block import SMALL_BATCH
from engine.core import PAGE_TOKENS

# Filled in by `weigh_functions`.
seen_from: Any = None
change_scores: Any = None
add_relative: Any = None
weigh: Any = None
any_chosen: Any = None
keep_chosen: Any = None
keep_ends: Any = None
RELATIVE = False


def _sees_page_template(args: int, g: int, first_row: int, here: int, start: int, beside: int) -> int:
    """Whether a row looks at the page from position `start` on: any page, unless positions are chosen; of
    keys `beside` those alone are.
    """
    chosen, stride, listed = (
        ld_i64(args + 8 * A_CHOSEN), ld_i64(args + 8 * A_CHOSEN_STRIDE), ld_i64(args + 8 * A_LIST)
    )  # fmt: skip
    if not chosen or (ld_i64(args + 8 * A_BESIDE) and not beside):
        return 1
    ratio = ld_i64(args + 8 * A_HEADS) // ld_i64(args + 8 * A_KV_HEADS)
    sharing = ld_i64(args + 8 * A_LIST_HEADS)
    first, last = g * ratio // sharing, (g * ratio + ratio - 1) // sharing
    lists = chosen + first_row * stride + 4 * listed * first
    return int(any_chosen(lists, stride, here, listed, last - first + 1, start))


def _weigh_all_template(
    args: int, g: int, first_row: int, queries: int, positions: int, last: int, start: int, beside: int,
    scores: int, out: int, state: int,
) -> None:  # fmt: skip
    """`weigh` the scores of a page, from position `start` on, of each query of a tile, whose first row is
    `first_row`; `last` is the last position that one sees. The keys may be those `beside`, which have no
    window.
    """
    ratio = ld_i64(args + 8 * A_HEADS) // ld_i64(args + 8 * A_KV_HEADS)
    window, beyond = ld_i64(args + 8 * A_WINDOW), ld_i64(args + 8 * A_AHEAD)
    changed = ld_f64(args + 8 * A_CAP) > 0.0 or ld_i64(args + 8 * A_SLOPES) != 0
    changed = changed or ld_i64(args + 8 * A_DISTANCES) != 0
    chosen, listed = ld_i64(args + 8 * A_CHOSEN), ld_i64(args + 8 * A_LIST)
    chosen = 0 if ld_i64(args + 8 * A_BESIDE) and not beside else chosen
    vectors, width = (min(PAGE_TOKENS, last - start + 1) + 15) // 16, ld_i64(args + 8 * A_OUT_WIDTH)
    spare = scores + 4 * SMALL_BATCH * ratio * PAGE_TOKENS
    for i in range(queries):
        own, head = ld_i32(positions + 4 * (i // ratio)), g * ratio + i % ratio
        seen = seen_from(own, window)
        until = seen + beyond if beyond and window < 0 else own + beyond
        valid = min(until, last) - start + 1
        low = 0 if beside else seen - start
        row = scores + 4 * PAGE_TOKENS * i
        if changed:
            change_scores(args, row, vectors, head, start, own - start)
        if RELATIVE:
            add_relative(args, row, vectors, first_row + i // ratio, head, own - start)
        if low >= PAGE_TOKENS:
            valid = 0
        if chosen:
            mine = chosen + (first_row + i // ratio) * ld_i64(args + 8 * A_CHOSEN_STRIDE)
            mine += 4 * listed * (head // ld_i64(args + 8 * A_LIST_HEADS))
            if not keep_chosen(row, vectors, mine, listed, start, spare):
                valid = 0
        elif beside and not keep_ends(row, min(valid, PAGE_TOKENS), start, ld_i64(args + 8 * A_BLOCK)):
            valid = 0
        weigh(row, vectors, low, valid, state + 8 * i, out + 4 * width * i, width // 16)


def _seen_from(position: int, window: int) -> int:
    """The first position that a query at `position` attends to; `window` as in `A_WINDOW`."""
    if window < 0:
        return position - position % -window
    return max(0, position - window + 1)


def _change_scores(args: int, row: int, vectors: int, head: int, start: int, place: int) -> None:
    """Cap a page's scores of a query of `head`, and add ALiBi's slope or what its distances have.

    `row` has `vectors` vectors of scores of keys from position `start` on; the query is `place` after it.
    """
    cap, slopes = ld_f64(args + 8 * A_CAP), ld_i64(args + 8 * A_SLOPES)
    if cap > 0.0:
        row_cap(row, vectors, cap)
    if slopes:
        slope, rounded = ld_f32(slopes + 4 * head), ld_f64(args + 8 * A_ROUNDED)
        if rounded > 0.0:
            row_rounded_slope(row, vectors, slope, start, rounded)
        elif ld_i64(args + 8 * A_AHEAD):
            row_distance(row, vectors, slope, -place)
        else:
            row_slope(row, vectors, slope, -place)
    distances, furthest = ld_i64(args + 8 * A_DISTANCES), ld_i64(args + 8 * A_FURTHEST)
    if distances:
        own = distances + 4 * ((2 * head + 1) * (furthest + EDGE))
        row_by_distance(row, vectors, own, -place, furthest)


def _add_relative(args: int, row: int, vectors: int, query: int, head: int, place: int) -> None:
    """Add a `RelativeBias` to a page's scores of `head` of the step's row `query`, to the vectors of keys
    that its profiles reach; `row`, `vectors` and `place` are as in `change_scores`.
    """
    count, extent = ld_i64(args + 8 * A_RELATIVE_COUNT), ld_i64(args + 8 * A_EXTENT)
    first, end = max(0, (place - extent + 1) // 16), min(vectors, place // 16 + 1)
    if first >= end:
        return
    weights = ld_i64(args + 8 * A_RELATIVE) + query * ld_i64(args + 8 * A_RELATIVE_STRIDE) + 4 * count * head
    table = ld_i64(args + 8 * A_PROFILES) + 4 * (EDGE + extent - 1 - place + 16 * first)
    row_profiles(row + 64 * first, end - first, table, 4 * (extent + 2 * EDGE), weights, count)


def weigh_functions(jit: Jit, relative: bool = False) -> dict[str, Any]:
    """`seen_from`, `sees_page` and `weigh_all`, which adds a bias if `relative`, compiled by `jit`."""
    int64 = types.int64
    parts = {
        "seen_from": jit(_seen_from, int64(int64, int64)),
        "change_scores": jit(_change_scores, words(6)),
        "weigh": jit(weigh_row, words(7)),
        **chosen_functions(jit),
    }
    if relative:
        parts |= {"add_relative": jit(_add_relative, words(6)), "RELATIVE": True}
    weigh_all = specialise(_weigh_all_template, "weigh_all_relative" if relative else "weigh_all", **parts)
    return {
        "seen_from": parts["seen_from"],
        "sees_page": jit(specialise(_sees_page_template, "sees_page", **parts), int64(*(int64,) * 6)),
        "weigh_all": jit(weigh_all, words(11)),
    }
