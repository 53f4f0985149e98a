"""Attention to positions that an indexer chose, in float32 and in every format of the cache.

A block is one warp. It takes up to four heads, or two wide ones, that read the same keys at the same list of
positions, and of this list the chunks of 32 that its split has; lanes divide the dimensions among them. So
the time is that of the positions in the list, however long the text is, and the order of a head's sums
depends on its row alone.
"""

from __future__ import annotations

import math
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
    exp2,
    ld_f32,
    ld_i32,
    ldg_u32x4,
    maximum,
    registers,
    st_f32,
    st_f32x2,
    static,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64
from engine.backends.cuda.kernels.attention.attention import (
    MOST_SPLITS,
    WIDE,
    combine_call,
    combine_kernel,
    form_of,
    split_numbers,
)
from engine.backends.cuda.kernels.attention.kv_read import element_fp32
from engine.backends.cuda.kernels.attention.parts import HEAD, LOWEST
from engine.backends.cuda.kernels.attention.plain import _key, _value, no_transform
from engine.backends.cuda.kernels.attention.stage import base_two
from engine.backends.cuda.kernels.common import hadamard, run_of, warp_sum
from engine.backends.cuda.kv_cache import touched
from engine.backends.cuda.lowering.call import Call, Runtime
from engine.backends.graph.attention import Attention
from engine.backends.graph.buffers import Buffer
from engine.backends.indexer import UNUSED
from engine.backends.kv_formats import GROUP, QUANTISED, CacheType

THREADS, COLUMNS, CHUNK = 32, 4, 32
"""Threads and heads of a block, and positions of a chunk."""
D, GROUPS = 64, 2
VGROUPS, DP = 2, 64
AT_ONCE = 4
"""As in `plain`."""
SIDES, SIDE = 1, 0
"""In attention to two sets of positions, the splits of one half are those of the first, the others of the
second: how many sets there are, and the number of this one.
"""
K_BLOCK = K_ROW = K_SCALES = K_LIMIT = V_BLOCK = V_ROW = V_SCALES = V_LIMIT = 0
K_number: Any = element_fp32
V_number: Any = element_fp32
Q_transform: Any = hadamard


def _queries(x: Any, q: int, first: int, count: int, lane: int) -> None:
    """The lane's numbers of the block's queries, transformed where keys are; the last head's for those past
    it.
    """
    for c in static(range(COLUMNS)):
        head = int32(first + min(int32(c), int32(count - 1)))
        for i in static(range(GROUPS)):
            dim, number = int32(lane + 32 * i), float32(0.0)
            if dim < D:
                number = ld_f32(q + 4 * int64(int32(int32(head * D) + dim)))
            x[c * GROUPS + i] = Q_transform(number, lane)


def _block(pages: int, table: int, position: int, kv_heads: int, group: int) -> int:
    """The index of the cache block with a position's keys of a key/value head."""
    page = ld_i32(pages + 4 * int64(int32(table + int32(position >> 8))))
    return int64(int32(page * kv_heads) + group)


def _take(
    x: Any, out: Any, top: Any, total: Any, keys: int, values: int, pages: int, table: int, listed: int,
    left: int, lane: int, kv_heads: int, group: int, scale: float, cap: float,
) -> None:  # fmt: skip
    """Add the next AT_ONCE positions of a list that has `left`; the first of them is one."""
    k = registers(float32(0.0), AT_ONCE * GROUPS)
    v = registers(float32(0.0), AT_ONCE * VGROUPS)
    s = registers(float32(0.0), AT_ONCE)
    places = registers(int32(0), AT_ONCE)
    for u in static(range(AT_ONCE)):
        places[u] = int32(ld_i32(listed + 4 * int64(int32(min(int32(u), int32(left - 1))))))
        there = places[u] if places[u] < int32(UNUSED) else places[0]
        block = _block(pages, table, there, kv_heads, group)
        for i in static(range(GROUPS)):
            k[u * GROUPS + i] = _key(keys + block * K_BLOCK, there, int32(lane + 32 * i))
        for i in static(range(VGROUPS)):
            v[u * VGROUPS + i] = _value(values + block * V_BLOCK, there, int32(lane + 32 * i))
    for c in static(range(COLUMNS)):
        new = top[c]
        for u in static(range(AT_ONCE)):
            s[u] = float32(0.0)
            for i in static(range(GROUPS)):
                s[u] = s[u] + x[c * GROUPS + i] * k[u * GROUPS + i]
            s[u] = base_two(warp_sum(s[u]), scale, cap)
            s[u] = s[u] if int32(u) < left and places[u] < int32(UNUSED) else float32(LOWEST)
            new = maximum(new, s[u])
        less = exp2(top[c] - new)
        top[c], total[c] = new, total[c] * less
        for i in static(range(VGROUPS)):
            out[c * VGROUPS + i] = out[c * VGROUPS + i] * less
        for u in static(range(AT_ONCE)):
            weight = exp2(s[u] - new) if s[u] > float32(LOWEST) else float32(0.0)
            total[c] = total[c] + weight
            for i in static(range(VGROUPS)):
                out[c * VGROUPS + i] = out[c * VGROUPS + i] + weight * v[u * VGROUPS + i]


def _attend_chosen(
    keys: int, values: int, q: int, q_stride: int, partial: int, partial_stride: int, pages: int, runs: int,
    chosen: int, chosen_stride: int, heads: int, width: int, kv_heads: int, scale: float, cap: float,
) -> None:  # fmt: skip
    """Maximum, sum and output of each head over a split's positions. Grid (split, block of heads, row).

    q float32 (rows, H D), chosen int32 (rows, lists, `width`), output `partial` as `plain._attend_plain`
    writes it, but of all splits, strides in bytes; `runs` as `Runtime.RUNS`. `heads` are four int32 for each
    block: its first head, its heads, their key/value head, and the number of their list.
    """
    wait_for_others()
    lane, row, table = int32(thread()), int32(block_z()), int32(0)
    first, count, group, number = ldg_u32x4(heads + 16 * int64(block_y()))
    first, count, group, number = int32(first), int32(count), int32(group), int32(number)
    if runs != 0:
        _, _, table = run_of(runs, row)
    listed = chosen + int64(row) * chosen_stride + 4 * int64(int32(number * width))
    x = registers(float32(0.0), COLUMNS * GROUPS)
    out = registers(float32(0.0), COLUMNS * VGROUPS)
    top = registers(float32(LOWEST), COLUMNS)
    total = registers(float32(0.0), COLUMNS)
    _queries(x, q + int64(row) * q_stride, first, count, lane)
    at = int32(CHUNK * block_x())
    while at < width:
        stop = int32(min(int32(at + CHUNK), width))
        while at < stop:
            here = listed + 4 * int64(at)
            if int32(ld_i32(here)) < int32(UNUSED):
                _take(
                    x, out, top, total, keys, values, pages, table, here, int32(stop - at), lane, kv_heads,
                    group, scale, cap,
                )  # fmt: skip
                at = int32(at + AT_ONCE)
            else:
                at, stop = width, width
        at = int32(stop + int32(CHUNK * int32(blocks_x() - 1))) if stop < width else width
    for c in static(range(COLUMNS)):
        if c < count:
            split = int32(int32(int32(first + c) * blocks_x()) + block_x())
            if SIDES == 2:
                split = int32(split + int32(int32(int32(first + c) + SIDE) * blocks_x()))
            target = partial + int64(row) * partial_stride + int64(split) * int64(4 * (DP + HEAD))
            if lane == 0:
                st_f32x2(target, top[c], total[c])
            for i in static(range(VGROUPS)):
                st_f32(target + 4 * HEAD + 4 * int64(lane + 32 * i), out[c * VGROUPS + i])


def _columns(shape: AttentionShape) -> int:
    """Heads of a block."""
    return COLUMNS if shape.head_dim <= WIDE else 2


def chosen_constants(kind: CacheType, shape: AttentionShape) -> dict[str, Any]:
    """Those of kernels for layers of this shape."""
    if shape.latent:
        kind = CacheType(kind.keys, kind.keys)
    form = form_of(shape)
    groups, value_groups = -(-form.head_dim // GROUP), -(-form.value_dim // GROUP)
    return {
        **form.constants(kind, False),
        "DP": GROUP * value_groups,
        "VGROUPS": value_groups,
        "COLUMNS": _columns(shape),
        "CHUNK": CHUNK,
        "UNUSED": UNUSED,
        "AT_ONCE": 1 if groups > 4 else 2,
        "Q_transform": hadamard if kind.keys in QUANTISED else no_transform,
        "SIDES": 1,
        "SIDE": 0,
    }


def chosen_name(kind: CacheType, shape: AttentionShape) -> str:
    """The end of such kernels' names."""
    form = form_of(shape)
    return f"{kind.keys}_{kind.keys if shape.latent else kind.values}_{form.head_dim}{form.suffix}"


@cache
def chosen_kernel(kind: CacheType, shape: AttentionShape, second: bool = False) -> Kernel:
    """The kernel `_attend_chosen` for layers of this shape; its positions may be the `second` of two sets."""
    constants = chosen_constants(kind, shape) | ({"SIDES": 2, "SIDE": 1} if second else {})
    name = f"attend_chosen_{chosen_name(kind, shape)}{'_second' * second}"
    return Kernel(name, _attend_chosen, "l" * 11 + "iiff", THREADS, 255, constants)


@cache
def head_blocks(shape: AttentionShape, lists: int) -> npt.NDArray[np.int32]:
    """int32 (blocks, 4), as `_attend_chosen` reads them: no block has heads of two lists or two key/value
    heads.
    """
    each, ratio, most = shape.heads // lists, shape.heads // shape.kv_heads, _columns(shape)
    alike = math.gcd(each, ratio)
    return np.array(
        [
            (first, min(most, start + alike - first), first // ratio, first // each)
            for start in range(0, shape.heads, alike)
            for first in range(start, start + alike, most)
        ],
        np.int32,
    )


def splits_for(blocks: int, width: int, sm_count: int) -> int:
    """Blocks for a list: a power of two, about 16 blocks a multiprocessor."""
    most, splits = min(16 * sm_count // blocks, -(-width // CHUNK), MOST_SPLITS), 1
    while 2 * splits <= most:
        splits *= 2
    return splits


def chosen_calls(
    node: Attention, kind: CacheType, addresses: tuple[int, int], heads: int, sinks: int, splits: int
) -> tuple[Call, Call]:
    """Attention to chosen positions, for any number of rows; `heads` is the address of `head_blocks`, `sinks`
    that of H float32, or 0.
    """
    assert node.shape.window == 0
    assert not node.shape.slopes
    partial = node.q.like(split_numbers(node.shape, splits))
    attend = chosen_call(node, kind, addresses, heads, partial, splits)
    return attend, whole_call(node, kind, partial, sinks, splits)


def whole_call(node: Attention, kind: CacheType, partial: Buffer, sinks: int, splits: int) -> Call:
    """What combines all splits."""
    packed = None if node.packed is None else (node.form, node.packed)
    out = node.y if node.floats else None
    return combine_call(kind, partial, out, packed, node.shape, sinks, splits, whole=True)


def chosen_call(
    node: Attention, kind: CacheType, addresses: tuple[int, int], heads: int, partial: Buffer, splits: int,
    second: bool = False,
) -> Call:  # fmt: skip
    """The call of `chosen_kernel`, over this many splits."""
    shape, chosen = node.shape, node.chosen
    assert chosen is not None
    blocks, width = len(head_blocks(shape, node.lists)), chosen.width // node.lists
    return Call(
        chosen_kernel(kind, shape, second), lambda rows: (splits, blocks, rows),
        (
            *addresses, node.q, node.q.stride, partial, partial.stride, Runtime.PAGES, Runtime.RUNS, chosen,
            chosen.stride, heads, width, shape.kv_heads, shape.scale, shape.soft_cap,
        ),
        (node.q, chosen, *touched(addresses)), (partial,),
    )  # fmt: skip


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists: DeepSeek's, and MiniMax-M3's."""
    kind = CacheType("fp16", "fp16")
    yield chosen_kernel(kind, AttentionShape(128, 1, 576, 1.0, latent=512))
    yield chosen_kernel(kind, AttentionShape(64, 4, 128, 1.0))
    yield combine_kernel(512, False, True, "", whole=True)
