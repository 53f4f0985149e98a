"""Attention to a window and, in one softmax, to keys of blocks of positions: see `Beside`.

As in `chosen`, a block is one warp, here with positions at equal distances: those of the window, and if none
are chosen the last ones of all whole blocks. The window has the first half of the splits, blocks have the
other one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.backends.base import AttentionShape
from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    block_x,
    block_y,
    block_z,
    blocks_x,
    ld_i32,
    ldg_u32x4,
    registers,
    st_f32,
    st_f32x2,
    static,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64
from engine.backends.cuda.kernels.attention import chosen
from engine.backends.cuda.kernels.attention.attention import MOST_SPLITS, split_numbers
from engine.backends.cuda.kernels.attention.chosen import THREADS, _queries, _take
from engine.backends.cuda.kernels.attention.parts import HEAD, LOWEST
from engine.backends.cuda.kernels.common import run_of
from engine.backends.cuda.kv_cache import touched
from engine.backends.cuda.lowering.call import Call, Runtime
from engine.backends.graph.attention import Attention
from engine.backends.graph.buffers import Buffer
from engine.backends.indexer import UNUSED
from engine.backends.kv_formats import CacheType

STEP, CHUNK, COLUMNS, GROUPS, VGROUPS, DP, SIDE = 1, 32, 2, 16, 16, 512, 0
"""Positions from one to the next; the others as in `chosen`."""
AT_ONCE = 1


def _attend_spaced(
    keys: int, q: int, q_stride: int, partial: int, partial_stride: int, pages: int, runs: int, table: int,
    positions: int, heads: int, window: int, kv_heads: int, scale: float, cap: float,
) -> None:  # fmt: skip
    """Maximum, sum and output of each head over a split's positions. Grid (split, block of heads, row).

    The positions are every STEP-th up to the row's own: of the last `window` ones, or if that is 0 of all,
    from STEP - 1 on. `table` int32 has all of these. Values are in the keys; the rest is as in
    `chosen._attend_chosen`.
    """
    wait_for_others()
    lane, row, begin, begins = int32(thread()), int32(block_z()), int32(0), int32(0)
    first, count, group, _ = ldg_u32x4(heads + 16 * int64(block_y()))
    first, count, group = int32(first), int32(count), int32(group)
    places = int32(int32(ld_i32(positions + 4 * int64(row))) + int32(1))
    if window > 0 and places > window:
        begin = int32(places - window)
    places = int32(int32(places - begin) // STEP)
    if runs != 0:
        _, _, begins = run_of(runs, row)
    table = table + 4 * int64(begin)
    x = registers(float32(0.0), COLUMNS * GROUPS)
    out = registers(float32(0.0), COLUMNS * VGROUPS)
    top = registers(float32(LOWEST), COLUMNS)
    total = registers(float32(0.0), COLUMNS)
    _queries(x, q + int64(row) * q_stride, first, count, lane)
    at = int32(CHUNK * block_x())
    while at < places:
        stop = int32(min(int32(at + CHUNK), places))
        while at < stop:
            # As in `chosen`: where no branch depends on a load, the compiler loads more than registers hold.
            here = table + 4 * int64(at)
            if int32(ld_i32(here)) < int32(UNUSED):
                _take(
                    x, out, top, total, keys, keys, pages, begins, here, int32(stop - at), lane, kv_heads,
                    group, scale, cap,
                )  # fmt: skip
                at = int32(at + AT_ONCE)
            else:
                at, stop = places, places
        at = int32(stop + int32(CHUNK * int32(blocks_x() - 1))) if stop < places else places
    for c in static(range(COLUMNS)):
        if c < count:
            split = int32(int32(int32(int32(2 * int32(first + c)) + SIDE) * blocks_x()) + block_x())
            target = partial + int64(row) * partial_stride + int64(split) * int64(4 * (DP + HEAD))
            if lane == 0:
                st_f32x2(target, top[c], total[c])
            for i in static(range(VGROUPS)):
                st_f32(target + 4 * HEAD + 4 * int64(lane + 32 * i), out[c * VGROUPS + i])


@cache
def spaced_kernel(kind: CacheType, shape: AttentionShape, step: int, side: int) -> Kernel:
    """The kernel `_attend_spaced`, for the first or the second set of positions (`side` 0 or 1)."""
    assert shape.latent
    own: dict[str, Any] = {"STEP": step, "SIDES": 2, "SIDE": side}
    name = f"attend_every_{step}_{chosen.chosen_name(kind, shape)}{('', '_second')[side]}"
    constants = {**chosen.chosen_constants(kind, shape), **own}
    return Kernel(name, _attend_spaced, "l" * 10 + "iiff", THREADS, 255, constants)


@cache
def every(step: int, positions: int) -> npt.NDArray[np.int32]:
    """int32, the last of each `step` of this many positions; layers share it."""
    return np.arange(step - 1, positions, step, dtype=np.int32)


def splits_for(node: Attention, positions: int, sm_count: int) -> int:
    """The splits of each of both sets, in contexts of up to `positions`."""
    blocks = len(chosen.head_blocks(node.shape, node.lists))
    width = positions // node.block if node.chosen is None else node.chosen.width // node.lists
    return min(chosen.splits_for(blocks, max(width, node.shape.window), sm_count), MOST_SPLITS // 2)


def beside_calls(
    node: Attention, kind: CacheType, window: tuple[int, int], blocks: tuple[int, int],
    tables: tuple[int, int], heads: int, sinks: int, splits: int,
) -> tuple[Call, Call, Call]:  # fmt: skip
    """Attention to the keys at the addresses of the layer of the `window` and of that of the `blocks`, for
    any number of rows. `tables` are the addresses of `every` of one position and of those of a block; the
    rest is as in `chosen.chosen_calls`, with this many `splits` for each set.
    """
    shape = node.shape
    assert shape.window
    assert not shape.slopes
    partial = node.q.like(split_numbers(shape, 2 * splits))
    near = _spaced_call(node, kind, window, (1, 0, tables[0]), heads, partial, splits)
    if node.chosen is None:
        far = _spaced_call(node, kind, blocks, (node.block, 1, tables[1]), heads, partial, splits)
    else:
        far = chosen.chosen_call(node, kind, blocks, heads, partial, splits, second=True)
    return near, far, chosen.whole_call(node, kind, partial, sinks, 2 * splits)


def _spaced_call(
    node: Attention, kind: CacheType, addresses: tuple[int, int], step: tuple[int, int, int], heads: int,
    partial: Buffer, splits: int,
) -> Call:  # fmt: skip
    """`step` has that of positions, the number of the set, and the table's address."""
    q, shape, blocks = node.q, node.shape, len(chosen.head_blocks(node.shape, node.lists))
    between, side, table = step
    arguments = (
        addresses[0], q, q.stride, partial, partial.stride, Runtime.PAGES, Runtime.RUNS, table,
        Runtime.POSITIONS, heads, 0 if side else shape.window, shape.kv_heads, shape.scale, shape.soft_cap,
    )  # fmt: skip
    return Call(
        spaced_kernel(kind, shape, between, side), lambda rows: (splits, blocks, rows), arguments,
        (q, *touched(addresses)), (partial,),
    )  # fmt: skip


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists: DeepSeek V4's."""
    kind, shape = CacheType("fp16", "fp16"), AttentionShape(64, 1, 512, 1.0, window=128, latent=512)
    yield spaced_kernel(kind, shape, 1, 0)
    yield spaced_kernel(kind, shape, 128, 1)
    yield chosen.chosen_kernel(kind, shape, second=True)
