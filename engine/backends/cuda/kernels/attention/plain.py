"""Small-batch attention in float32, for float32 caches and for head sizes that do not fit wide loads.

A block is one warp. It takes four columns over a split's positions, a few positions at a time; lanes divide
the dimensions among them. Positions, splits and partial results are described in `parts`.
"""

from __future__ import annotations

from typing import Any

from engine.backends.cuda.codegen.ptx import (
    block_x,
    block_y,
    block_z,
    blocks_x,
    exp2,
    ld_f32,
    ld_i32,
    maximum,
    registers,
    st_f32,
    st_f32x2,
    static,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64
from engine.backends.cuda.kernels.attention.kv_read import element_fp32
from engine.backends.cuda.kernels.attention.parts import (
    HEAD,
    LOWEST,
    leaning,
    row_of,
    run_columns,
    slope_of,
    unseen,
)
from engine.backends.cuda.kernels.attention.stage import base_two, block_of, own_index, own_position
from engine.backends.cuda.kernels.common import hadamard, warp_sum

THREADS = 32
COLUMNS = 4
AT_ONCE = 4
D, GROUPS = 64, 2
VGROUPS, DP = 2, 64
"""Groups of a value's columns, and these columns."""
HADAMARD = 0
ALIBI = CHUNKED = 0
"""See `parts`."""
SEVERAL = 0
"""1 for steps over several sequences; otherwise `runs` and `row_shift` are not used."""
K_BLOCK = K_ROW = K_SCALES = K_LIMIT = V_BLOCK = V_ROW = V_SCALES = V_LIMIT = 0
K_number: Any = element_fp32
V_number: Any = element_fp32


def _query(q: int, q_stride: int, index: int, ratio: int, dim: int) -> float:
    """One number of a column's query, transformed if keys are; 0 past the head."""
    row = row_of(index, ratio)
    head = int32(int32(block_y() * ratio) + int32(index - int32(row * ratio)))
    x = float32(0.0)
    if dim < D:
        x = ld_f32(q + int64(row) * q_stride + 4 * int64(int32(int32(head * D) + dim)))
    return Q_transform(x, int32(dim & 31))


def no_transform(x: float, lane: int) -> float:
    """The identity, for keys in plain formats."""
    return x


Q_transform: Any = hadamard


def _key(block: int, position: int, dim: int) -> float:
    """One number of a key; 0 for dimensions past the format's."""
    return (
        K_number(block, position, dim, int32(K_ROW), int32(K_SCALES), int32(GROUPS))
        if dim < K_LIMIT
        else float32(0.0)
    )


def _value(block: int, position: int, dim: int) -> float:
    """One number of a value; 0 for dimensions past the format's."""
    return (
        V_number(block, position, dim, int32(V_ROW), int32(V_SCALES), int32(GROUPS))
        if dim < V_LIMIT
        else float32(0.0)
    )


def _store(partial: int, partial_stride: int, index: int, ratio: int) -> int:
    """The address of a column's partial results."""
    row = row_of(index, ratio)
    head = int32(int32(block_y() * ratio) + int32(index - int32(row * ratio)))
    return (
        partial
        + int64(row) * partial_stride
        + int64(int32(int32(head * blocks_x()) + block_x())) * int64(4 * (DP + HEAD))
    )


def _attend_plain(
    keys: int, values: int, q: int, q_stride: int, partial: int, partial_stride: int, positions: int,
    pages: int, runs: int, slopes: int, rows: int, ratio: int, scale: float, cap: float, window: int,
    row_shift: int,
) -> None:  # fmt: skip
    """Maximum, sum and output of each column over a split's positions. Grid (split, key/value head, columns).

    Cache: addresses of keys, values, the rows' positions and the block table; `runs` as `Runtime.RUNS`; with
    ALIBI `slopes` are float32 (H, 2), see `slope_of`. Input q float32 (rows, H D) and output `partial`,
    strides in bytes. Numbers: rows, `ratio` query heads per
    key/value head, scale, soft cap (0 for none), window (0 for none), `row_shift` (see `parts`).
    """
    wait_for_others()
    lane, table = thread(), int32(0)
    if SEVERAL == 0:
        start, first, stop = ld_i32(positions), int32(block_z() * COLUMNS), rows
    else:
        start, first, stop, table = run_columns(positions, runs, ratio, row_shift, int32(COLUMNS))
    count = int32(min(int32(int32(stop * ratio) - first), int32(COLUMNS)))
    last = int32(start + int32(stop - 1))
    chunk = int32(int32(unseen(own_position(int32(0), first, count, start, ratio), window) + 1) >> 6)
    chunk = int32(chunk + int32(int32(block_x() - chunk) & int32(blocks_x() - 1)))
    end = int32(own_position(int32(COLUMNS), first, count, start, ratio) >> 6)
    if SEVERAL == 1:
        end = end if count > 0 else int32(-1)
    x = registers(float32(0.0), COLUMNS * GROUPS)
    out = registers(float32(0.0), COLUMNS * VGROUPS)
    top = registers(float32(LOWEST), COLUMNS)
    total = registers(float32(0.0), COLUMNS)
    k = registers(float32(0.0), AT_ONCE * GROUPS)
    v = registers(float32(0.0), AT_ONCE * VGROUPS)
    s = registers(float32(0.0), AT_ONCE)
    if chunk <= end:
        for c in static(range(COLUMNS)):
            for i in static(range(GROUPS)):
                x[c * GROUPS + i] = _query(
                    q, q_stride, int32(first + min(int32(count - 1), int32(c))), ratio, int32(lane + 32 * i)
                )
        while chunk <= end:
            place, tile = block_of(pages, table, chunk), int32(chunk << 6)
            stop = int32(min(int32(tile + 63), last))
            while tile <= stop:
                for u in static(range(AT_ONCE)):
                    for i in static(range(GROUPS)):
                        k[u * GROUPS + i] = _key(
                            keys + place * K_BLOCK, int32(min(int32(tile + u), stop)), int32(lane + 32 * i)
                        )
                    for i in static(range(VGROUPS)):
                        v[u * VGROUPS + i] = _value(
                            values + place * V_BLOCK, int32(min(int32(tile + u), stop)), int32(lane + 32 * i)
                        )
                for c in static(range(COLUMNS)):
                    own = own_position(int32(c), first, count, start, ratio)
                    low, new = unseen(own, window), top[c]
                    slope, rounded = slope_of(
                        slopes, own_index(int32(c), first, count), ratio, int32(block_y() * ratio)
                    )
                    for u in static(range(AT_ONCE)):
                        s[u] = float32(0.0)
                        for i in static(range(GROUPS)):
                            s[u] = s[u] + x[c * GROUPS + i] * k[u * GROUPS + i]
                        s[u] = base_two(warp_sum(s[u]), scale, cap)
                        s[u] = leaning(s[u], slope, rounded, int32(tile + u), own)
                        s[u] = s[u] if int32(tile + u) > low and int32(tile + u) <= own else float32(LOWEST)
                        new = maximum(new, s[u])
                    less = exp2(top[c] - new)
                    top[c], total[c] = new, total[c] * less
                    for i in static(range(VGROUPS)):
                        out[c * VGROUPS + i] = out[c * VGROUPS + i] * less
                    for u in static(range(AT_ONCE)):
                        weight = (
                            exp2(s[u] - new)
                            if int32(tile + u) > low and int32(tile + u) <= own
                            else float32(0.0)
                        )
                        total[c] = total[c] + weight
                        for i in static(range(VGROUPS)):
                            out[c * VGROUPS + i] = out[c * VGROUPS + i] + weight * v[u * VGROUPS + i]
                tile = int32(tile + AT_ONCE)
            chunk = int32(chunk + blocks_x())
        for c in static(range(COLUMNS)):
            if c < count:
                target = _store(partial, partial_stride, int32(first + c), ratio)
                if lane == 0:
                    st_f32x2(target, top[c], total[c])
                for i in static(range(VGROUPS)):
                    st_f32(target + 4 * HEAD + 4 * int64(lane + 32 * i), out[c * VGROUPS + i])
