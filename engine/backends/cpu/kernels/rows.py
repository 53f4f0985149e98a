"""Embeddings, learned positions, columns and permutations of rows, and the rows that need logits."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from engine.backends.cpu.codegen.memory_ops import ld_f32, ld_f64, ld_i32, ld_i64, st_f32
from engine.backends.cpu.codegen.simd import (
    F32,
    I64,
    VF32,
    counted_loop,
    fma,
    intrinsic_function,
    load,
    splat,
    store,
)
from engine.backends.cpu.codegen.specialise import specialise
from engine.backends.cpu.kernels.linear.linear import SCRATCH_PANEL
from engine.backends.cpu.kernels.linear.panels import unpack_blocks
from engine.backends.cpu.layouts.interleave import PANEL
from engine.backends.cpu.layouts.layout import WeightLayout
from engine.backends.cpu.lowering.call import Argument, Calls, Slice, Table
from engine.backends.cpu.runtime.step_block import KEPT, LOGIT_ROWS, POSITIONS, ROWS, TOKENS
from engine.backends.cpu.weight_spec import WeightSpec
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.linear import Permute
from engine.backends.graph.rows import AddPositions, Columns, Embed, Given, Join, Keep, LastRows, Mix

# --- embedding ----------------------------------------------------------------------------------------------

(
    E_WEIGHT, E_TILE_BYTES, E_BLOCKS, E_COLUMNS, E_Y, E_Y_STRIDE, E_SCALE, E_IDS, E_IDS_STRIDE, E_HEADS,
    E_TILES, E_INTERLEAVED,
) = range(12)  # fmt: skip
"""The ids of rows of the table, int32 (T, heads); 0: the step's tokens."""
unpack: Any = None
UNIT = BLOCK_BYTES = 0


def _embed_template(args: int, step: int, tile: int, scratch: int) -> None:
    ids, heads = ld_i64(args + 8 * E_IDS), ld_i64(args + 8 * E_HEADS)
    row, head = tile // heads, tile % heads
    token = ld_i32(
        (ids if ids else ld_i64(step + 8 * TOKENS)) + row * ld_i64(args + 8 * E_IDS_STRIDE) + 4 * head
    )
    interleaved, tile_number = ld_i64(args + 8 * E_INTERLEAVED), token // 16
    first = tile_number // interleaved * interleaved
    together = min(interleaved, ld_i64(args + 8 * E_TILES) - first)
    source = ld_i64(args + 8 * E_WEIGHT) + first * ld_i64(args + 8 * E_TILE_BYTES)
    blocks, columns = ld_i64(args + 8 * E_BLOCKS), ld_i64(args + 8 * E_COLUMNS)
    stride = ld_i64(args + 8 * E_Y_STRIDE)
    y = ld_i64(args + 8 * E_Y) + row * stride + 4 * columns * head
    scale = ld_f64(args + 8 * E_SCALE)
    panel = scratch + SCRATCH_PANEL
    lane = panel + 4 * (token % 16)
    for start in range(0, blocks, PANEL // UNIT):
        count = min(PANEL // UNIT, blocks - start)
        place = start * together + (tile_number - first) * count
        unpack(source + place * BLOCK_BYTES, count, panel)
        for k in range(min(count * UNIT, columns - start * UNIT)):
            st_f32(y + 4 * (start * UNIT + k), ld_f32(lane + 64 * k) * scale)
    if head == heads - 1:
        for k in range(columns, stride // 4 - columns * head):
            st_f32(y + 4 * k, 0.0)


def embed_kernel(weight_layout: WeightLayout) -> Any:
    """One tile for each id: scale * table[id], unpacked from the table's tile of 16 rows."""
    sizes = {"UNIT": weight_layout.unit, "BLOCK_BYTES": weight_layout.block_bytes}
    return specialise(
        _embed_template, f"embed_{weight_layout.name}", unpack=unpack_blocks(weight_layout), **sizes
    )


# --- rows that need logits ----------------------------------------------------------------------------------

(L_X, L_Y, L_STRIDE) = range(3)


def last_rows(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile for each row: copy row T - logit_rows + tile."""
    stride = ld_i64(args + 8 * L_STRIDE)
    row = ld_i64(step + 8 * ROWS) - ld_i64(step + 8 * LOGIT_ROWS) + tile
    x, y = ld_i64(args + 8 * L_X) + row * stride, ld_i64(args + 8 * L_Y) + tile * stride
    for k in range(stride // 4):
        st_f32(y + 4 * k, ld_f32(x + 4 * k))


# --- columns and learned positions --------------------------------------------------------------------------

(O_X, O_X_STRIDE, O_Y, O_Y_STRIDE, O_START, O_WIDTH) = range(6)
(J_X, J_X_STRIDE, J_X_PITCH, J_X_WIDTH, J_Z, J_Z_STRIDE, J_Z_PITCH, J_Z_WIDTH, J_Y, J_Y_STRIDE, J_HEADS) = (
    range(11)
)
(T_X, T_STRIDE, T_Y, T_TABLE, T_WIDTH) = range(5)
(M_X, M_X_STRIDE, M_Y, M_Y_STRIDE, M_ORDER, M_WIDTH, M_CHUNKS) = range(7)
PERMUTED_AT_ONCE = 1024
"""Values of one tile."""


def _emit_copy(b: ir.IRBuilder, x: Any, y: Any, vectors: Any) -> None:
    with counted_loop(b, vectors) as i:
        offset = b.mul(i, ir.Constant(I64, 64))
        store(b, load(b, b.add(x, offset), VF32), b.add(y, offset))


def _emit_sum(b: ir.IRBuilder, x: Any, other: Any, y: Any, vectors: Any) -> None:
    with counted_loop(b, vectors) as i:
        offset = b.mul(i, ir.Constant(I64, 64))
        store(
            b, b.fadd(load(b, b.add(x, offset), VF32), load(b, b.add(other, offset), VF32)), b.add(y, offset)
        )


def _emit_copy_floats(b: ir.IRBuilder, x: Any, y: Any, count: Any) -> None:
    whole = b.ashr(count, ir.Constant(I64, 4))
    _emit_copy(b, x, y, whole)
    done = b.shl(whole, ir.Constant(I64, 4))
    with counted_loop(b, b.sub(count, done)) as i:
        offset = b.shl(b.add(done, i), ir.Constant(I64, 2))
        store(b, load(b, b.add(x, offset), F32), b.add(y, offset))


copy_floats = intrinsic_function("copy_floats", types.void, (types.int64,) * 3, _emit_copy_floats)
copy_vectors = intrinsic_function("copy_vectors", types.void, (types.int64,) * 3, _emit_copy)
sum_vectors = intrinsic_function("sum_vectors", types.void, (types.int64,) * 4, _emit_sum)


def columns(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile for each row: copy columns to a row of their own, padded with zeros to whole vectors."""
    width, stride = ld_i64(args + 8 * O_WIDTH), ld_i64(args + 8 * O_Y_STRIDE)
    x = ld_i64(args + 8 * O_X) + tile * ld_i64(args + 8 * O_X_STRIDE) + 4 * ld_i64(args + 8 * O_START)
    y = ld_i64(args + 8 * O_Y) + tile * stride
    copy_vectors(x, y, width // 16)
    for k in range(width // 16 * 16, width):
        st_f32(y + 4 * k, ld_f32(x + 4 * k))
    for k in range(width, stride // 4):
        st_f32(y + 4 * k, 0.0)


def join(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile for each row: for each head, the first `J_X_WIDTH` columns of its part of x, then those of z.

    Parts begin a pitch (columns) apart. The end of the row is padded with zeros.
    """
    wide, more = ld_i64(args + 8 * J_X_WIDTH), ld_i64(args + 8 * J_Z_WIDTH)
    stride, heads = ld_i64(args + 8 * J_Y_STRIDE), ld_i64(args + 8 * J_HEADS)
    x, z = (
        ld_i64(args + 8 * J_X) + tile * ld_i64(args + 8 * J_X_STRIDE),
        ld_i64(args + 8 * J_Z) + tile * ld_i64(args + 8 * J_Z_STRIDE),
    )
    y = ld_i64(args + 8 * J_Y) + tile * stride
    at = y
    for _ in range(heads):
        copy_floats(x, at, wide)
        copy_floats(z, at + 4 * wide, more)
        at += 4 * (wide + more)
        x += 4 * ld_i64(args + 8 * J_X_PITCH)
        z += 4 * ld_i64(args + 8 * J_Z_PITCH)
    for k in range(heads * (wide + more), stride // 4):
        st_f32(y + 4 * k, 0.0)


def permute(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile: y[k] = x[order[k]] in a chunk of a row, padded with zeros; `order` is int32."""
    width, chunks, stride = (
        ld_i64(args + 8 * M_WIDTH),
        ld_i64(args + 8 * M_CHUNKS),
        ld_i64(args + 8 * M_Y_STRIDE),
    )
    row, first = tile // chunks, (tile % chunks) * PERMUTED_AT_ONCE
    x, y = ld_i64(args + 8 * M_X) + row * ld_i64(args + 8 * M_X_STRIDE), ld_i64(args + 8 * M_Y) + row * stride
    order = ld_i64(args + 8 * M_ORDER)
    for k in range(first, min(first + PERMUTED_AT_ONCE, width)):
        st_f32(y + 4 * k, ld_f32(x + 4 * ld_i32(order + 4 * k)))
    if first + PERMUTED_AT_ONCE >= width:
        for k in range(width, stride // 4):
            st_f32(y + 4 * k, 0.0)


def add_positions(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile for each row: y = x + table[position]; the table (positions, width) float32 has no padding."""
    width, stride = ld_i64(args + 8 * T_WIDTH), ld_i64(args + 8 * T_STRIDE)
    x, y = ld_i64(args + 8 * T_X) + tile * stride, ld_i64(args + 8 * T_Y) + tile * stride
    added = ld_i64(args + 8 * T_TABLE) + 4 * width * ld_i32(ld_i64(step + 8 * POSITIONS) + 4 * tile)
    sum_vectors(x, added, y, width // 16)
    for k in range(width // 16 * 16, width):
        st_f32(y + 4 * k, ld_f32(x + 4 * k) + ld_f32(added + 4 * k))
    for k in range(width, stride // 4):
        st_f32(y + 4 * k, 0.0)


(K_X, K_X_STRIDE, K_OUT, K_WIDTH, K_Y) = range(5)
(G_ROWS, G_WIDTH, G_Y, G_Y_STRIDE) = range(4)


def keep(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile for each row: y = x; out[first + row] = x, without padding, where `first` is the step's."""
    width, stride = ld_i64(args + 8 * K_WIDTH), ld_i64(args + 8 * K_X_STRIDE)
    x, row = ld_i64(args + 8 * K_X) + tile * stride, ld_i64(step + 8 * KEPT) + tile
    copy_vectors(x, ld_i64(args + 8 * K_Y) + tile * stride, stride // 64)
    copy_floats(x, ld_i64(args + 8 * K_OUT) + 4 * width * row, width)


def given(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile for each row: y = the row of an array without padding; y is padded with zeros."""
    width, stride = ld_i64(args + 8 * G_WIDTH), ld_i64(args + 8 * G_Y_STRIDE)
    y = ld_i64(args + 8 * G_Y) + tile * stride
    copy_floats(ld_i64(args + 8 * G_ROWS) + 4 * width * tile, y, width)
    for k in range(width, stride // 4):
        st_f32(y + 4 * k, 0.0)


# --- sums with weights of rows ------------------------------------------------------------------------------

(X_Y, X_STRIDE, X_WEIGHTS, X_WEIGHTS_STRIDE, X_RESIDUAL, X_COUNT, X_PARTS) = range(7)
MOST_PARTS = 16
"""The parts that a block of arguments has room for."""


def _emit_add_scaled(b: ir.IRBuilder, x: Any, y: Any, vectors: Any, factor: Any) -> None:
    times = splat(b, factor)
    with counted_loop(b, vectors) as i:
        offset = b.mul(i, ir.Constant(I64, 64))
        target = b.add(y, offset)
        store(b, fma(b, times, load(b, b.add(x, offset), VF32), load(b, target, VF32)), target)


add_scaled = intrinsic_function(
    "add_scaled", types.void, (*(types.int64,) * 3, types.float32), _emit_add_scaled
)


def mix(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile for each row: y = residual + the sum of parts, each times its weight of the row."""
    stride = ld_i64(args + 8 * X_STRIDE)
    y, residual = ld_i64(args + 8 * X_Y) + tile * stride, ld_i64(args + 8 * X_RESIDUAL)
    weights = ld_i64(args + 8 * X_WEIGHTS) + tile * ld_i64(args + 8 * X_WEIGHTS_STRIDE)
    if residual:
        copy_vectors(residual + tile * stride, y, stride // 64)
    else:
        for k in range(stride // 4):
            st_f32(y + 4 * k, 0.0)
    for i in range(ld_i64(args + 8 * X_COUNT)):
        part = ld_i64(args + 8 * (X_PARTS + i)) + tile * stride
        add_scaled(part, y, stride // 64, ld_f32(weights + 4 * i))


# --- lowering -----------------------------------------------------------------------------------------------


def _embed(calls: Calls, node: Embed) -> None:
    table, y = node.table, node.y
    assert isinstance(table, WeightSpec)
    arguments: list[Argument] = [
        table.address, table.tile_bytes, table.blocks, table.shape[1], y, y.stride, node.scale,
        *((0, 4) if node.ids is None else (node.ids, node.ids.stride)), node.heads,
        table.tiles, table.interleaved,
    ]  # fmt: skip
    kernel, row_bytes = f"embed_{table.weight_layout.name}", node.heads * table.nbytes // table.shape[0]
    calls.add(
        kernel, arguments, list(node.reads), [y], bytes=table.nbytes, row_bytes=row_bytes, shape=table.shape,
        tiles=(node.heads, 1, node.heads, 1),
    )  # fmt: skip


def _add_positions(calls: Calls, node: AddPositions) -> None:
    x, y = node.x, node.y
    calls.each_row("add_positions", [x, x.stride, y, calls.constants.table(node.table), x.width], [x], y)


def _columns(calls: Calls, node: Columns) -> None:
    x, y = node.x, node.y
    calls.each_row("columns", [x, x.stride, y, y.stride, node.first, y.width], [x], y)


def _join(calls: Calls, node: Join) -> None:
    x, z, y, heads = node.x, node.z, node.y, node.heads
    widths = x.width // heads, z.width // heads
    arguments: list[Argument] = [x, x.stride, widths[0], widths[0], z, z.stride, widths[1], widths[1]]
    calls.each_row("join", [*arguments, y, y.stride, heads], [x, z], y)


def add_zeros(calls: Calls, x: Buffer, heads: int, width: int) -> Buffer:
    """x with zeros after each of `heads` equal parts of a row, which are `width` columns wide then."""
    y, own = x.like(heads * width), x.width // heads
    zeros: list[Argument] = [calls.constants.zeros(width - own), 0, 0, width - own]
    calls.each_row("join", [x, x.stride, own, own, *zeros, y, y.stride, heads], [x], y)
    return y


def leave_out(calls: Calls, x: Buffer, y: Buffer, heads: int) -> None:
    """y = the first columns of each of `heads` equal parts of rows of x."""
    own, width = x.width // heads, y.width // heads
    calls.each_row("join", [x, x.stride, own, width, x, 0, 0, 0, y, y.stride, heads], [x], y)


def _permute(calls: Calls, node: Permute) -> None:
    x, y = node.x, node.y
    chunks, order = -(-y.width // PERMUTED_AT_ONCE), calls.constants.integers(node.order)
    calls.each_row("permute", [x, x.stride, y, y.stride, order, y.width, chunks], [x], y, chunks)


def _mix(calls: Calls, node: Mix) -> None:
    y, weights, residual = node.y, node.weights, node.residual
    assert len(node.parts) <= MOST_PARTS
    arguments: list[Argument] = [
        y, y.stride, Slice(weights, node.first), weights.stride, 0 if residual is None else residual,
        len(node.parts), *node.parts,
    ]  # fmt: skip
    calls.each_row("mix", arguments, list(node.reads), y)


def _last_rows(calls: Calls, node: LastRows) -> None:
    calls.add("last_rows", [node.x, node.y, node.x.stride], [node.x], [node.y], on_logit_rows=True)


def _keep(calls: Calls, node: Keep) -> None:
    x, y = node.x, node.y
    calls.each_row("keep", [x, x.stride, calls.constants.shared(node.out), x.width, y], [x], y)


def _given(calls: Calls, node: Given) -> None:
    y = node.y
    calls.each_row("given", [calls.constants.shared(node.rows), y.width, y, y.stride], [], y)


LOWER: Table = {
    Embed: _embed,
    AddPositions: _add_positions,
    Columns: _columns,
    Join: _join,
    Permute: _permute,
    Mix: _mix,
    LastRows: _last_rows,
    Keep: _keep,
    Given: _given,
}
