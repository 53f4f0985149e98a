"""A product for each head: equal parts of a row, each times its own matrix.

The products are those of `linear.py`, for all heads in one call. Large batches take float32 activations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.backends.cpu.codegen.memory_ops import ld_i64, st_i64
from engine.backends.cpu.codegen.specialise import Jit, specialise
from engine.backends.cpu.kernels.linear.linear import (
    A_BLOCKS,
    A_GROUP,
    A_TILES,
    A_WEIGHT,
    A_X,
    A_Y,
    ARGUMENTS,
    LARGE_ROWS,
    LARGE_TILES,
    SCRATCH_PACKED,
    row_parts,
    scratch_bytes,
)
from engine.backends.cpu.kernels.packed_activations import FEATURES as PACKED_FEATURES
from engine.backends.cpu.kernels.packed_activations import PACKED_BYTES
from engine.backends.cpu.kernels.rows import add_zeros, leave_out
from engine.backends.cpu.layouts.layout import READ_AHEAD, WeightLayout
from engine.backends.cpu.lowering.call import TAG_BITS, Argument, Calls, Table
from engine.backends.cpu.runtime.step_block import ROWS, SERIAL, SMALL_BATCH
from engine.backends.cpu.weight_spec import WeightSpec
from engine.backends.graph.linear import HeadLinear

(H_HEADS, H_CHUNKS, H_X_BYTES, H_Y_BYTES, H_TAG) = range(ARGUMENTS, ARGUMENTS + 5)
"""After the arguments of `linear.py`, of which the weight is the address of a table of addresses: heads, a
small batch's tiles for each, bytes of a head's part of x and of y, and the first head's tag.
"""
FLOATS = 32
"""Bits of the activations that large batches take."""

# Filled in for each weight layout by `heads_kernel`.
small_batch: Any = None
large_batch: Any = None
UNIT = 0


def _heads_template(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile: a head, a group of its weight tiles and, in a large batch, a part of the rows."""
    rows, tiles = ld_i64(step + 8 * ROWS), ld_i64(args + 8 * A_TILES)
    heads, chunks, group = ld_i64(args + 8 * H_HEADS), ld_i64(args + 8 * H_CHUNKS), ld_i64(args + 8 * A_GROUP)
    if rows > SMALL_BATCH:
        chunks, group = (tiles + LARGE_TILES - 1) // LARGE_TILES, LARGE_TILES
    head, start = tile // chunks % heads, tile // (chunks * heads) * LARGE_ROWS
    first = tile % chunks * group
    last = min(first + group, tiles)
    # After the packed rows, see `linear.scratch_bytes`.
    packed = PACKED_BYTES * (ld_i64(args + 8 * A_BLOCKS) * UNIT // PACKED_FEATURES + 1)
    block = scratch + SCRATCH_PACKED + SMALL_BATCH * packed
    for i in range(ARGUMENTS):
        st_i64(block + 8 * i, ld_i64(args + 8 * i))
    st_i64(block + 8 * A_WEIGHT, ld_i64(ld_i64(args + 8 * A_WEIGHT) + 8 * head))
    st_i64(block + 8 * A_X, ld_i64(args + 8 * A_X) + head * ld_i64(args + 8 * H_X_BYTES))
    st_i64(block + 8 * A_Y, ld_i64(args + 8 * A_Y) + head * ld_i64(args + 8 * H_Y_BYTES))
    if rows <= SMALL_BATCH:
        # All heads pack their input to the same place; the number says whose is there.
        number = (ld_i64(step + 8 * SERIAL) << TAG_BITS) + ld_i64(args + 8 * H_TAG) + head
        small_batch(block, number, rows, first, last, scratch)
    else:
        large_batch(block, start, min(LARGE_ROWS, rows - start), first, last, scratch)


def heads_kernel(weight_layout: WeightLayout, jit: Jit) -> Any:
    """The kernel for matrices of this weight layout; `jit(function, signature)` compiles its parts."""
    parts = row_parts(weight_layout, jit, FLOATS)
    return specialise(_heads_template, f"heads_{weight_layout.name}", UNIT=weight_layout.unit, **parts)


# --- lowering -----------------------------------------------------------------------------------------------

_TILE_TARGET = 24 << 10
"""As that of `lowering.linear`."""


def _heads(calls: Calls, node: HeadLinear) -> None:
    """Parts of rows that are no whole vectors, or that end within a weight's block, are padded."""
    first, heads = node.weights[0], len(node.weights)
    weights = [each for each in node.weights if isinstance(each, WeightSpec)]
    assert isinstance(first, WeightSpec)
    assert len(weights) == heads
    assert len({each.weight_layout.name for each in weights}) == 1
    rows, columns = first.shape
    wide, high = first.blocks * first.weight_layout.unit, 16 * first.tiles
    x = node.x if wide == columns else add_zeros(calls, node.x, heads, wide)
    y = node.y if high == rows else node.y.like(heads * high)
    calls.scratch = max(calls.scratch, scratch_bytes(wide))
    least = max(2, first.interleaved)
    group = max(least, _TILE_TARGET // first.tile_bytes // least * least)
    chunks = -(-first.tiles // group)
    arguments: list[Argument] = [
        calls.constants.integers(np.array([each.address for each in weights], np.int64)), first.tile_bytes,
        first.tiles, first.blocks, x, x.stride, y, y.stride, 0, 0, group, 0, columns, 0, 0, 0,
        first.interleaved, READ_AHEAD, 0, heads, chunks, 4 * wide, 4 * high, calls.expert_tags,
    ]  # fmt: skip
    calls.expert_tags += heads
    assert calls.expert_tags < 1 << TAG_BITS
    calls.add(
        f"heads_{first.weight_layout.name}",
        arguments,
        [x],
        [y],
        tiles=(heads * chunks, SMALL_BATCH, heads * -(-first.tiles // LARGE_TILES), LARGE_ROWS),
        bytes=sum(each.nbytes for each in weights),
        shape=first.shape,
        prefetches=True,
    )
    if y is not node.y:
        leave_out(calls, y, node.y, heads)


LOWER: Table = {HeadLinear: _heads}
