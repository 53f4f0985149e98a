"""The choice of the positions that attention looks at: see `IndexerShape`.

`_choose` finds the lowest score that is chosen digit by digit (a radix select), then lists the blocks with
higher ones, and of those with the same as many as are missing, in rising order. Counts are integers, so rows
have the same bits in every batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    adds_i32,
    ballot,
    barrier,
    block_x,
    block_y,
    float_bits,
    ld_f32,
    ld_i32,
    lds_i32,
    maximum,
    popcount,
    shared,
    shfl_up_i32,
    st_i32,
    static,
    sts_i32,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64, uint32
from engine.backends.cuda.kernels.attention.key_scores import score_kernel, step_of
from engine.backends.cuda.kv_cache import touched
from engine.backends.cuda.lowering.call import Bound, Call, Runtime, ScratchSize, TorchCall
from engine.backends.graph.attention import TopKeys
from engine.backends.graph.buffers import Buffer
from engine.backends.indexer import UNUSED, IndexerShape
from engine.lazy_dataclass import dataclass

CHOOSERS, BINS, DIGIT = 512, 2048, 11
"""Threads of `_choose`, and its digits: 11 bits, 11 bits, and the last 10."""
HIGHEST = 3.0e38
"""The score of blocks that are chosen in any case."""
ROWS_AT_ONCE = 32
"""Rows of a large batch whose scores are in memory at once."""
PLACE = 16
"""Their place of scratch memory."""

BLOCK, POOLED, TAIL, LISTED = 1, 0, 0, 1
"""Positions of a block; whether keys are pooled; whether the positions after the last whole block are listed;
how many positions of a block are, from the last one back.
"""
TOTALS, EDGE, SHARED = 4 * BINS, 4 * BINS + 128, 4 * BINS + 144
"""Offsets in shared memory: totals of warps, the edge's bin and what lies before it, after the counts."""


def _depth(scores: int, block: int, own: int, local: int) -> Any:
    """A number that is the lower, the higher the score of a block is."""
    best = float32(HIGHEST)
    if int32(int32(own // BLOCK) - block) >= local:
        first = int32(block * BLOCK) if POOLED == 0 else block
        best = ld_f32(scores + 4 * int64(first))
        if POOLED == 0 and BLOCK > 1:
            for place in range(int32(first + 1), int32(min(int32(first + BLOCK), int32(own + 1)))):
                best = maximum(best, ld_f32(scores + 4 * int64(place)))
    bits = uint32(float_bits(best))
    return bits if bits >= uint32(0x80000000) else uint32(bits ^ uint32(0x7FFFFFFF))


def _find_edge(room: int, want: int) -> None:
    """Store the first bin up to which at least `want` are counted, and what is counted before it."""
    me = int32(thread())
    lane, warp, mine = int32(me & 31), int32(me >> 5), int32(0)
    for i in static(range(BINS // CHOOSERS)):
        mine = int32(mine + lds_i32(int32(room + int32(4 * int32(int32(me * (BINS // CHOOSERS)) + i)))))
    sums = mine
    for step in static(range(5)):
        below = shfl_up_i32(sums, int32(1 << step))
        if lane >= (1 << step):
            sums = int32(sums + below)
    if lane == 31:
        sts_i32(int32(room + TOTALS + int32(4 * warp)), sums)
    barrier()
    for other in range(warp):
        sums = int32(sums + lds_i32(int32(room + TOTALS + int32(4 * other))))
    before = int32(sums - mine)
    if before < want and sums >= want:
        for i in static(range(BINS // CHOOSERS)):
            place = int32(int32(me * (BINS // CHOOSERS)) + i)
            counted = lds_i32(int32(room + int32(4 * place)))
            if before < want and int32(before + counted) >= want:
                sts_i32(int32(room + EDGE), place)
                sts_i32(int32(room + EDGE + 4), before)
            before = int32(before + counted)
    barrier()


def _edge_depth(room: int, scores: int, blocks: int, own: int, local: int, want: int) -> Any:
    """The depth of the lowest score that is chosen, and how many blocks of it are, if `want` are in all."""
    edge = uint32(0)
    for i in static(range(3)):
        for place in range(int32(thread()), BINS, CHOOSERS):
            sts_i32(int32(room + int32(4 * place)), int32(0))
        if thread() == 0:
            sts_i32(int32(room + EDGE), int32(0))
            sts_i32(int32(room + EDGE + 4), int32(0))
        barrier()
        for block in range(int32(thread()), blocks, CHOOSERS):
            depth = uint32(_depth(scores, int32(block), own, local))
            if i == 0:
                adds_i32(int32(room + int32(4 * int32(uint32(depth >> uint32(21))))), int32(1))
            elif i == 1:
                if uint32(depth >> uint32(21)) == edge:
                    digit = uint32(uint32(depth >> uint32(10)) & uint32(0x7FF))
                    adds_i32(int32(room + int32(4 * int32(digit))), int32(1))
            elif uint32(depth >> uint32(10)) == edge:
                digit = uint32(depth & uint32(0x3FF))
                adds_i32(int32(room + int32(4 * int32(digit))), int32(1))
        barrier()
        _find_edge(room, want)
        found = uint32(lds_i32(int32(room + EDGE)))
        want = int32(want - lds_i32(int32(room + EDGE + 4)))
        edge = uint32(uint32(edge << uint32(DIGIT if i < 2 else 10)) | found)
        barrier()
    return edge, want


def _write_block(y: int, rank: int, block: int, own: int) -> None:
    """The positions of the chosen block with this many before it."""
    place, target = int32(int32(block * BLOCK) + (BLOCK - LISTED)), y + 4 * int64(int32(rank * LISTED))
    for i in range(LISTED):
        if int32(place + i) <= own:
            st_i32(target + 4 * int64(i), int32(place + i))


def _choose(
    scores: int, scores_stride: int, list_stride: int, y: int, y_stride: int, positions: int, width: int,
    most: int, local: int,
) -> None:  # fmt: skip
    """List the positions of the `most` best blocks of each row. Grid (row, list).

    scores as `_score_keys` writes them; y: int32 (rows, lists, `width`), the stride in bytes. The latest
    `local` blocks come first.
    """
    wait_for_others()
    room, me, row = int32(shared(SHARED)), int32(thread()), int64(block_x())
    lane, warp, own = int32(me & 31), int32(me >> 5), int32(ld_i32(positions + 4 * row))
    scores = scores + row * scores_stride + int64(block_y()) * list_stride
    y = y + row * y_stride + 4 * int64(int32(block_y() * width))
    blocks = int32(int32(own + 1) // BLOCK) if POOLED == 1 else int32(int32(own // BLOCK) + 1)
    want = int32(min(most, blocks))
    for place in range(me, width, CHOOSERS):
        st_i32(y + 4 * int64(place), int32(UNUSED))
    edge, ties = _edge_depth(room, scores, blocks, own, local, want)
    # Each warp has a part of the blocks: first it counts what it will write, so that the next know where.
    share = int32(int32(int32(blocks + int32(CHOOSERS - 1)) // CHOOSERS) << 5)
    begin = int32(warp * share)
    stop = int32(min(int32(begin + share), blocks))
    lower, equal = int32(0), int32(0)
    for base in range(begin, stop, 32):
        depth, there = uint32(0), int32(base + lane) < stop
        if there:
            depth = uint32(_depth(scores, int32(base + lane), own, local))
        lower = int32(lower + popcount(ballot(int32(1) if there and depth < edge else int32(0))))
        equal = int32(equal + popcount(ballot(int32(1) if there and depth == edge else int32(0))))
    if lane == 0:
        sts_i32(int32(room + int32(8 * warp)), lower)
        sts_i32(int32(room + int32(int32(8 * warp) + 4)), equal)
    barrier()
    lower, equal = int32(0), int32(0)
    for other in range(warp):
        lower = int32(lower + lds_i32(int32(room + int32(8 * other))))
        equal = int32(equal + lds_i32(int32(room + int32(int32(8 * other) + 4))))
    before = uint32(uint32(uint32(1) << uint32(lane)) - uint32(1))
    for base in range(begin, stop, 32):
        depth, there = uint32(0), int32(base + lane) < stop
        if there:
            depth = uint32(_depth(scores, int32(base + lane), own, local))
        is_lower, is_equal = there and depth < edge, there and depth == edge
        lowers = ballot(int32(1) if is_lower else int32(0))
        equals = ballot(int32(1) if is_equal else int32(0))
        tied = int32(equal + popcount(uint32(equals & before)))
        rank = int32(int32(lower + popcount(uint32(lowers & before))) + int32(min(tied, ties)))
        if is_lower or (is_equal and tied < ties):
            _write_block(y, rank, int32(base + lane), own)
        lower, equal = int32(lower + popcount(lowers)), int32(equal + popcount(equals))
    if TAIL == 1:
        y = y + 4 * int64(int32(int32(want - blocks) * BLOCK))
        for place in range(int32(int32(blocks * BLOCK) + me), int32(own + 1), CHOOSERS):
            st_i32(y + 4 * int64(place), int32(place))


# --- calls --------------------------------------------------------------------------------------------------


@cache
def choose_kernel(shape: IndexerShape) -> Kernel:
    """The kernel `_choose`."""
    constants = {
        "BLOCK": shape.block, "POOLED": int(shape.pooled), "BINS": BINS, "CHOOSERS": CHOOSERS, "DIGIT": DIGIT,
        "TOTALS": TOTALS, "EDGE": EDGE, "SHARED": SHARED, "UNUSED": UNUSED, "HIGHEST": HIGHEST,
        "TAIL": int(shape.pooled and not shape.ends), "LISTED": 1 if shape.ends else shape.block,
    }  # fmt: skip
    name = f"choose_{shape.block}{'_pooled' * shape.pooled}{'_ends' * shape.ends}"
    return Kernel(name, _choose, "llllll" + "iii", CHOOSERS, 80, constants)


@dataclass(eq=False)
class ScoreRows(Buffer):
    """Scores of a small batch: `bytes_per_position` in each row."""

    bytes_per_position: float = 0.0


def _calls(
    node: TopKeys, keys: str, addresses: tuple[int, int], scores: Any, stride: int, each: int, splits: int
) -> tuple[Call, Call]:
    """The two calls; `scores` is the address or the buffer of rows of scores, `stride` bytes apart, as those
    of a list are `each`.
    """
    shape, q, weights, y = node.shape, node.q, node.weights, node.y
    weighed = (0, 0) if weights is None else (weights, weights.stride)
    given = (Runtime.POSITIONS, Runtime.PAGES, Runtime.RUNS)
    score = Call(
        score_kernel(keys, shape), lambda rows: (splits, rows, 1),
        (addresses[0], q, q.stride, *weighed, scores, stride, each, *given, shape.heads),
        (*node.reads, touched(addresses)[0]), (scores,),
    )  # fmt: skip
    choose = Call(
        choose_kernel(shape), lambda rows: (rows, shape.lists, 1),
        (scores, stride, each, y, y.stride, Runtime.POSITIONS, shape.width, shape.count, shape.local),
        (scores,), (y,),
    )  # fmt: skip
    return score, choose


def small_calls(
    node: TopKeys, keys: str, addresses: tuple[int, int], positions: int, sm_count: int
) -> tuple[Call, Call]:
    """The calls of `node` over keys of the format `keys` at `addresses`, in contexts of up to `positions`."""
    lists, each = node.shape.lists, -(-positions // step_of(node.shape))
    scores = ScoreRows(lists * each, device=node.y.device, bytes_per_position=4 * lists / step_of(node.shape))
    return _calls(node, keys, addresses, scores, scores.stride, 4 * each, 2 * sm_count)


def large_call(node: TopKeys, keys: str, addresses: tuple[int, int], sm_count: int) -> TorchCall:
    """The same for a large batch, some rows after the others."""
    shape, (score, choose) = node.shape, _calls(node, keys, addresses, 0, 0, 0, max(1, sm_count // 8))

    # Rows from `first` on: what has a row for each of the step's begins there.
    strides: dict[object, int] = {Runtime.POSITIONS: 4}
    strides |= {each: each.stride for each in (node.q, node.weights, node.y) if each is not None}

    def run(bound: Bound) -> None:
        each = 4 * (-(-(bound.position + bound.rows) // step_of(shape)))
        for first in range(0, bound.rows, ROWS_AT_ONCE):
            rows = min(ROWS_AT_ONCE, bound.rows - first)
            room = bound.scratch(rows * shape.lists * each, PLACE).data_ptr()
            for call, at in ((score, 5), (choose, 0)):
                values = [bound.address(value) + first * strides.get(value, 0) for value in call.arguments]
                values[at : at + 3] = room, shape.lists * each, each
                bound.launch(replace(call, blocks=partial(_grid, call, rows), arguments=tuple(values)))

    size = -(-4 * shape.lists * ROWS_AT_ONCE // step_of(shape))
    return TorchCall(
        run, score.reads, choose.writes, (score.kernel, choose.kernel),
        scratch_sizes={PLACE: ScratchSize(4 * shape.lists * ROWS_AT_ONCE, position=size)},
    )  # fmt: skip


def _grid(call: Call, rows: int, _all: int) -> tuple[int, int, int]:
    return call.blocks(rows)


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists: DeepSeek's, MiniMax-M3's, and DeepSeek V4's."""
    m3 = IndexerShape(4, 128, 16, block=128, each=True, local=1)
    v4 = IndexerShape(64, 128, 512, block=4, pooled=True, ends=True)
    for shape in (IndexerShape(64, 128, 2048), m3, v4):
        yield score_kernel("fp16", shape)
        yield choose_kernel(shape)
