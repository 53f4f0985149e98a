"""Device functions that kernels share: sums over a warp and a block, the Walsh-Hadamard transform, runs and
their states.
"""

from __future__ import annotations

import math
from typing import Any

from engine.backends.cuda.codegen.ptx import (
    barrier,
    ld_i32,
    ld_u32x4,
    lds_f32,
    maximum,
    shfl_xor_f32,
    static,
    sts_f32,
    thread,
)
from engine.backends.cuda.codegen.words import float32, int32, int64
from engine.backends.kv_formats import GROUP

LOG2_E = math.log2(math.e)
WARPS = 8
HADAMARD_SCALE = 1 / math.sqrt(GROUP)


def warp_sum(x: Any) -> Any:
    """The sum over the 32 lanes, bit-identical in all of them."""
    for stage in static(range(5)):
        x = x + shfl_xor_f32(x, int32(16 >> stage))
    return x


def warp_max(x: Any) -> Any:
    """The maximum over the 32 lanes."""
    for stage in static(range(5)):
        x = maximum(x, shfl_xor_f32(x, int32(16 >> stage)))
    return x


def block_sum(x: Any, memory: Any) -> Any:
    """The sum over the block's 32 WARPS threads, the same in each.

    `memory` is the address of `WARPS` float32 of shared memory that nothing else uses.
    """
    me = int32(thread())
    x = warp_sum(x)
    if (me & 31) == 0:
        sts_f32(int32(memory + 4 * (me >> 5)), x)
    barrier()
    part = float32(0.0)
    if (me & 31) < WARPS:
        part = lds_f32(int32(memory + 4 * (me & 31)))
    return warp_sum(part)


def hadamard(x: Any, lane: Any) -> Any:
    """The orthonormal Walsh-Hadamard transform of 32 numbers, one per lane; it is its own inverse."""
    for stage in static(range(5)):
        other = shfl_xor_f32(x, int32(1 << stage))
        x = other - x if (lane & (1 << stage)) != 0 else other + x
    return x * float32(HADAMARD_SCALE)


def run_of(runs: int, row: int) -> Any:
    """The first row of a row's run, the row after its last, and where its block table begins."""
    first, stop, table, _ = ld_u32x4(runs + 16 * int64(row))
    return int32(first), int32(stop), int32(table)


def state_before(states: int, positions: int, row: int) -> Any:
    """The number of the state before a run that begins at this row, see `Runtime.STATES`."""
    place = int32(ld_i32(positions + 4 * int64(row)))
    return int32(ld_i32(states + 32 * int64(row) + 4 * int64(place & 3)))


def state_after(states: int, positions: int, row: int, count: int) -> Any:
    """The number of the state after the `count` rows of such a run."""
    place = int32(int32(ld_i32(positions + 4 * int64(row))) + count)
    return int32(ld_i32(states + 32 * int64(row) + 16 + 4 * int64(place & 3)))
