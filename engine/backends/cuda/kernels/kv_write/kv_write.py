"""Writes a step's keys and values into the paged cache: one warp for each row, head and side.

The layout is described in `kv_cache`; q4 and q8 keys use query-aware rounding (`kv_rounding`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from engine.backends.base import AttentionShape
from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    barrier,
    block_x,
    block_y,
    block_z,
    blocks_x,
    fma,
    ld_f32,
    ld_i32,
    let_others_start,
    pack_fp16,
    reciprocal,
    registers,
    rsqrt,
    shared,
    shfl_f32,
    st_f32,
    st_u8,
    st_u16,
    static,
    sts_f32,
    sts_f32x4,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64
from engine.backends.cuda.kernels.common import hadamard, run_of, warp_sum
from engine.backends.cuda.kernels.kv_write.codes import e4m3_byte, limited
from engine.backends.cuda.kernels.kv_write.mean import (
    key_mean_call,
    key_mean_kernel,
    mean_constants,
    mean_of_group,
)
from engine.backends.cuda.kernels.kv_write.query_aware import (
    ENTRY,
    keep_plain_q8,
    keep_q4,
    keep_query_aware_q8,
)
from engine.backends.cuda.kv_cache import KEYS, VALUES, Layout, touched
from engine.backends.cuda.lowering.call import Bound, Call, Operation, Runtime, TorchCall
from engine.backends.graph.buffers import Buffer
from engine.backends.kv_formats import QUANTISED, QUERY_ERROR_WEIGHT, WHOLE_KEYS, CacheType
from engine.core import PAGE_TOKENS

KEY_FORMAT = VALUE_FORMAT = ""
KEYS_Q8 = KEYS_Q4 = VALUES_Q4 = False
DIM = GROUPS = HEADS_AT_ONCE = SHARED = TAILS = WORDS = 1
K_BLOCK = K_ROW = K_SCALES = V_BLOCK = V_ROW = V_SCALES = MEAN = FIRST = V_FIRST = 0
SLACK = 1 / QUERY_ERROR_WEIGHT
TINY = 1e-30
"""Squared lengths up to this count as 0."""


def _element(vector: Any, dim: Any) -> Any:
    """Number `dim` of a head's vector, 0 past its end."""
    x = ld_f32(vector + int64(4 * (dim if dim < DIM else DIM - 1)))
    return x if dim < DIM else float32(0.0)


def _block(base: Any, pages: Any, number: Any, size: Any) -> Any:
    """The address of this warp's head's block in the page that is `number` in the block table."""
    page = int64(ld_i32(pages + int64(4 * number)))
    return base + (page * int64(blocks_x()) + int64(block_x())) * int64(size)


def _unit(length: Any) -> Any:
    """1 / sqrt(length) of a squared length, or 0 if it is at most TINY."""
    return rsqrt(length) if length > float32(TINY) else float32(0.0)


def _put_entry(at: Any, x: Any, direction: Any, rest: Any) -> Any:
    """Write a group's entries to shared memory; returns the squared length of the direction in the group.

    `rest` is the squared length of the later groups plus the slack.
    """
    lane = int32(thread() & 31)
    square = direction * direction
    behind = square  # lanes above are added
    for stage in static(range(5)):
        behind = behind + _above(behind, lane, 1 << stage)
    tail = rest + _above(behind, lane, 1)
    sts_f32x4(int32(at + ENTRY * lane), x, direction * reciprocal(tail + square), direction, direction * x)
    return shfl_f32(behind, 0)


def _above(x: Any, lane: Any, distance: Any) -> Any:
    """x of the lane `distance` above, or 0 if there is none."""
    other = shfl_f32(x, int32(lane + distance))
    return other if lane + distance < 32 else float32(0.0)


def _put_plain(at: Any, dim: Any, x: Any, format_bytes: Any) -> None:
    """Store one number in a plain format of 4, 2 or 1 bytes."""
    if dim < DIM:
        if format_bytes == 4:
            st_f32(at + int64(4 * dim), x)
        elif format_bytes == 2:
            st_u16(at + int64(2 * dim), pack_fp16(x, float32(0.0)))
        else:
            st_u8(at + int64(dim), e4m3_byte(x))


def _take_key(q: Any, k: Any, block: Any, position: Any, ratio: Any, entries: Any) -> None:
    """One key at k: plain formats go to the cache, q8 and q4 become entries in shared memory.

    Its `ratio` query heads are adjacent at q. `block` is the address of the
    cache block that holds `position`.
    """
    lane = int32(thread() & 31)  # which says to the compiler that whole groups lie within a vector
    x = registers(float32(0.0), GROUPS)
    for j in static(range(GROUPS)):
        x[j] = _element(k, int32(32 * j + lane))
    if KEY_FORMAT not in ("q8", "q4"):
        for j in static(range(GROUPS)):
            _put_plain(block + int64(int32(position & 255) * K_ROW), int32(32 * j + lane), x[j], K_ROW // DIM)
    else:
        directions = registers(float32(0.0), GROUPS)
        heads = registers(float32(0.0), GROUPS * HEADS_AT_ONCE)
        for start in range(0, ratio, HEADS_AT_ONCE):
            for h in static(range(HEADS_AT_ONCE)):
                head = int32(start + h) if start + h < ratio else int32(ratio - 1)
                for j in static(range(GROUPS)):
                    heads[h * GROUPS + j] = _element(q + int64(4 * DIM * head), int32(32 * j + lane))
            for h in static(range(HEADS_AT_ONCE)):
                length = float32(0.0)
                for j in static(range(GROUPS)):
                    length = fma(heads[h * GROUPS + j], heads[h * GROUPS + j], length)
                unit = _unit(warp_sum(length))
                unit = unit if start + h < ratio else float32(0.0)
                for j in static(range(GROUPS)):
                    directions[j] = fma(heads[h * GROUPS + j], unit, directions[j])
        whole = float32(0.0)
        for j in static(range(GROUPS)):
            x[j] = hadamard(limited(x[j]), lane)
            directions[j] = hadamard(limited(directions[j]), lane)
            whole = fma(directions[j], directions[j], whole)
        if KEY_FORMAT == "q4":
            for j in static(range(GROUPS)):
                at = block + int64(4 * (32 * j + lane))
                if position == 0:
                    st_f32(at + int64(FIRST), x[j])
                if position >= WHOLE_KEYS:
                    x[j] = x[j] - ld_f32(at + int64(MEAN))
        unit, rest = _unit(warp_sum(whole)), float32(SLACK)
        for j in static(range(GROUPS - 1, -1, -1)):
            if lane == 0:
                sts_f32(int32(entries + TAILS + ENTRY * j), rest)
            rest = rest + _put_entry(int32(entries + 32 * ENTRY * j), x[j], directions[j] * unit, rest)


def _take_value(v: Any, block: Any, position: Any, entries: Any) -> None:
    """One value at v: q4 becomes entries in shared memory, other formats go to the cache."""
    lane, slot = int32(thread() & 31), int32(position & 255)
    x = registers(float32(0.0), GROUPS)
    for j in static(range(GROUPS)):
        x[j] = _element(v, int32(32 * j + lane))
    if VALUE_FORMAT not in ("q8", "q4"):
        for j in static(range(GROUPS)):
            _put_plain(block + int64(slot * V_ROW), int32(32 * j + lane), x[j], V_ROW // DIM)
    else:
        for j in static(range(GROUPS)):
            x[j] = hadamard(limited(x[j]), lane)
    if VALUE_FORMAT == "q8":
        codes, scales = block + int64(slot * V_ROW), block + int64(V_SCALES + 2 * GROUPS * slot)
        for j in static(range(GROUPS)):
            keep_plain_q8(x[j], codes + int64(32 * j), scales + int64(2 * j))
    if VALUE_FORMAT == "q4":
        for j in static(range(GROUPS)):
            if position == 0:
                st_f32(block + int64(V_FIRST + 4 * (32 * j + lane)), x[j])
            sts_f32x4(
                int32(entries + ENTRY * (32 * j + lane)), x[j], float32(0.0), float32(0.0), float32(0.0)
            )
            if lane == 0:
                sts_f32(int32(entries + TAILS + ENTRY * j), float32(1.0))


def _means(keys: Any, pages: Any, table: Any, position: Any, groups: Any) -> None:
    """Compute the mean for the page of `position` from the page before it, with this block alone.

    `table` is where the block table begins in `pages`.
    """
    page = int32(position >> 8)
    here = _block(keys, pages, int32(table + page), K_BLOCK)
    before = _block(keys, pages, int32(table + page - 1), K_BLOCK) if page > 0 else here
    for group in range(groups):
        mean_of_group(before, here, int32(group), page)


def _kv_write(
    q: int, q_stride: int, k: int, k_stride: int, v: int, v_stride: int, keys: int, values: int,
    positions: int, pages: int, runs: int, ratio: int, groups: int, first: int, alone: int,
) -> None:  # fmt: skip
    """Write keys and values of a step's rows from `first` on. Grid (head, row, side), one warp each.

    Inputs: q, k, v float32, strides in bytes. Cache: addresses of the layer's keys and values,
    of the rows' positions and of the block table; `runs` as `Runtime.RUNS`. Sizes: `ratio` query
    heads per key/value head, `groups` of 32 dimensions.

    `alone`: no other launch has computed the mean that this step's q4 keys may need. A row past a page's
    start then first takes its run's rows before that start again and computes the mean. All blocks that do
    so write the same bytes to the same places.
    """
    wait_for_others()
    let_others_start()
    row, head, side = int32(first + block_y()), int64(block_x()), block_z()
    position, entries = ld_i32(positions + 4 * int64(row)), shared(SHARED)
    own, later = row, int32(-1)  # the next row to write, and the first that needs a mean
    if KEYS_Q4:  # noqa: SIM102 - the outer condition is constant
        if side == 0 and alone != 0 and position >= WHOLE_KEYS:
            since = int32(WHOLE_KEYS) if position < PAGE_TOKENS else int32(position & ~255)
            later, run = int32(row - int32(position - since)), int32(0)
            if runs != 0:
                run, _, _ = run_of(runs, row)
            own = run if later >= run else row
    last = False
    while not last:
        table = int32(0)
        if runs != 0:
            _, _, table = run_of(runs, row)
        if KEYS_Q4:  # noqa: SIM102 - the outer condition is constant
            if own == later:
                barrier()
                _means(keys, pages, table, position, groups)
                barrier()
                own = row
        last = own == row if KEYS_Q4 else True
        place = int32(position - int32(row - own))
        number = int32(table + int32(place >> 8))
        block = _block(values if side else keys, pages, number, V_BLOCK if side else K_BLOCK)
        if side:
            _take_value(v + int64(own) * v_stride + head * int64(4 * DIM), block, place, entries)
        else:
            of = int64(own) * q_stride + head * int64(ratio) * int64(4 * DIM)
            _take_key(q + of, k + int64(own) * k_stride + head * int64(4 * DIM), block, place, ratio, entries)
        barrier()
        codes = block + int64(int32(place & 255) * (V_ROW if side else K_ROW))
        scales = block + int64((V_SCALES if side else K_SCALES) + 2 * GROUPS * int32(place & 255))
        if KEYS_Q8:
            aware = not side
            if aware:
                keep_query_aware_q8(entries, groups, codes, scales)
        if KEYS_Q4 or VALUES_Q4:
            turns = (KEYS_Q4 and not side) or (VALUES_Q4 and side)
            if turns:
                keep_q4(entries, groups, int32(entries + TAILS), int32(entries + WORDS), codes, scales)
        own = int32(own + 1)


@cache
def kv_write_kernel(keys: str, values: str, head_dim: int) -> Kernel:
    """The kernel `_kv_write` for formats of `kv_formats` and heads of `head_dim` columns."""
    k, v = Layout(KEYS, keys, head_dim), Layout(VALUES, values, head_dim)
    entries = 32 * ENTRY * k.groups
    constants = {
        **(mean_constants(head_dim) if keys == "q4" else {}), "KEY_FORMAT": keys, "VALUE_FORMAT": values,
        "KEYS_Q8": keys == "q8", "KEYS_Q4": keys == "q4", "VALUES_Q4": values == "q4", "DIM": head_dim,
        "GROUPS": k.groups, "HEADS_AT_ONCE": max(1, 8 // k.groups), "TAILS": entries,
        "WORDS": entries + ENTRY * k.groups, "SHARED": entries + ENTRY * k.groups + 32 * 16,
        "K_BLOCK": k.block, "K_ROW": k.row, "K_SCALES": k.scales, "V_BLOCK": v.block, "V_ROW": v.row,
        "V_SCALES": v.scales, "V_FIRST": v.first,
    }  # fmt: skip
    most, blocks = (128, 16) if keys in QUANTISED or values == "q4" else (64, 32)
    if k.groups > 4 and most > 64:
        most, blocks = (168, 12) if k.groups <= 8 else (255, 8)
    return Kernel(
        f"kv_write_{keys}_{values}_{head_dim}", _kv_write, "l" * 11 + "iiii", 32, most, constants, blocks
    )


def kv_write_calls(
    kind: CacheType, addresses: tuple[int, int], q: Buffer, k: Buffer, v: Buffer | None, shape: AttentionShape
) -> Operation:
    """Write k, v (T, G D) into a layer's cache at `addresses`; q (T, H D) guides the rounding of keys. Latent
    attention has no v.
    """
    kernel = kv_write_kernel(kind.keys, "fp16" if v is None else kind.values, shape.head_dim)
    reads, writes = (q, k) if v is None else (q, k, v), touched(addresses)
    values = (0, 0) if v is None else (v, v.stride)
    sides = 1 if v is None else 2
    groups = Layout(KEYS, kind.keys, shape.head_dim).groups

    def call(first: int, count: int | None) -> Call:
        """All rows of a small batch, or `count` rows of a large one from `first` on."""
        arguments = (q, q.stride, k, k.stride, *values, *addresses, Runtime.POSITIONS, Runtime.PAGES)
        numbers = (shape.heads // shape.kv_heads, groups, first, int(count is None))
        return Call(
            kernel,
            lambda rows: (shape.kv_heads, rows if count is None else count, sides),
            (*arguments, Runtime.RUNS, *numbers),
            reads,
            writes,
        )

    def run(bound: Bound) -> None:
        for first, count, page in segments(bound.position, bound.rows):
            if page >= 0:
                bound.launch(key_mean_call(addresses, shape.kv_heads, shape.head_dim, page))
            bound.launch(call(first, count))

    if kind.keys != "q4":
        return Operation((call(0, None),))
    return Operation(
        (call(0, None),), (TorchCall(run, reads, writes, (kernel, key_mean_kernel(shape.head_dim))),)
    )


def segments(position: int, rows: int) -> Iterator[tuple[int, int, int]]:
    """Runs of rows whose q4 keys share a mean: first row, rows, and the page of a mean to compute or -1."""
    first = 0
    while first < rows:
        place = position + first
        end = WHOLE_KEYS if place < WHOLE_KEYS else (place // PAGE_TOKENS + 1) * PAGE_TOKENS
        begins = place == WHOLE_KEYS or (place % PAGE_TOKENS == 0 and place > 0)
        yield first, min(rows - first, end - place), place // PAGE_TOKENS if begins else -1
        first += min(rows - first, end - place)


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists."""
    yield kv_write_kernel("fp16", "fp16", 64)
    for keys, values in (("fp16", "fp16"), ("fp8", "fp8"), ("q8", "q8"), ("q8", "q4"), ("q4", "q4")):
        yield kv_write_kernel(keys, values, 128)
    yield key_mean_kernel(128)
