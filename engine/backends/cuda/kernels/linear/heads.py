"""A product for each head: equal parts of a row, each times its own matrix.

Small batches take the kernels of experts: head h of a row is a row of its own, whose expert is h. Where a
head's columns are no whole vectors, heads are first moved apart, and results together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import cast

import numpy as np

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    block_x,
    block_y,
    block_z,
    ld_u32,
    st_u32,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import int32, int64
from engine.backends.cuda.kernels.linear import gemm
from engine.backends.cuda.kernels.linear.gemm_rows import after_kernel, fp16_rows_kernel, row_blocks
from engine.backends.cuda.kernels.linear.variants import experts_variant, unpack_kernel
from engine.backends.cuda.kernels.packed_activations import packed_buffer
from engine.backends.cuda.kernels.packed_activations_write import chunks, pack_kernel, rows_first
from engine.backends.cuda.lowering.call import Argument, Bound, Call, TorchCall
from engine.backends.cuda.lowering.context import Calls, Context
from engine.backends.cuda.weight import ExpertTable, WeightSpec
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.linear import HeadLinear

THREADS = 128


def _move_heads(x: int, x_stride: int, x_head: int, y: int, y_stride: int, y_head: int, width: int) -> None:
    """Copy `width` columns of each head. Grid (row, head, chunk of THREADS columns).

    Rows are `x_stride` and `y_stride` bytes apart, the heads of one `x_head` and `y_head`.
    """
    wait_for_others()
    row, head = int64(block_x()), int64(block_y())
    column = int32(block_z() * THREADS + thread())
    if column < width:
        value = ld_u32(x + row * x_stride + head * x_head + 4 * int64(column))
        st_u32(y + row * y_stride + head * y_head + 4 * int64(column), value)


@cache
def move_heads_kernel() -> Kernel:
    return Kernel("move_heads", _move_heads, "lllllli", THREADS, 24, {"THREADS": THREADS})


def move_heads_call(x: Buffer, y: Buffer) -> Call:
    """Each head of x as a row of its own in y, or the other way round: one of both has a copy for each."""
    heads = max(x.copies, y.copies)
    width = y.width if y.copies == heads else x.width
    assert {x.width * x.copies, y.width * y.copies} == {width * heads}
    places = [
        (each, each.row_bytes, each.stride if each.copies == heads > 1 else 4 * width) for each in (x, y)
    ]
    arguments = (*places[0], *places[1], width)
    blocks = -(-width // THREADS)
    return Call(
        move_heads_kernel(), lambda rows: (rows, heads, blocks), arguments, (x,), (y,), x.on_logit_rows
    )


def _is_whole(width: int) -> bool:
    """Whether rows of this width begin on cache lines without gaps, so that heads lie as rows would."""
    return width % 16 == 0


def head_calls(table: ExpertTable, numbers: int, x: Buffer, y: Buffer, sm_count: int) -> Iterator[Call]:
    """y = each head of x times its matrix, at most `SMALL_BATCH` rows; `numbers` is the address of the int32
    0, 1 and so on of the heads.
    """
    first, heads = table.first, len(table.weights)
    outputs, columns = first.shape
    apart, made = Buffer(columns, x.on_logit_rows, heads), Buffer(outputs, y.on_logit_rows, heads)
    source, target = (x, y)
    if not _is_whole(columns):
        yield move_heads_call(x, apart)
        source = apart
    if not _is_whole(outputs):
        target = made
    form = first.weight_layout.activations
    packed: tuple[Buffer, int] = source, apart.stride
    if form != "fp32":
        room = packed_buffer(form, apart)
        packed = room, room.stride
        yield Call(
            pack_kernel(form), rows_first(chunks(columns)),
            (source, apart.stride, room, room.stride, columns), (source,), (room,), x.on_logit_rows, heads,
        )  # fmt: skip
    variant = experts_variant(first.weight_layout, first.tiles * heads, columns, sm_count)
    arguments: tuple[Argument, ...] = (
        table.address, outputs, target, made.stride, 0, 0, numbers, 0, heads, *packed, columns,
    )  # fmt: skip
    blocks = -(-first.tiles // variant.tiles)
    yield Call(
        variant.kernel, lambda rows: (blocks, rows, 1), arguments, (packed[0], table), (target,),
        x.on_logit_rows, heads,
    )  # fmt: skip
    if target is not y:
        yield move_heads_call(target, y)


def head_product_call(weights: Sequence[WeightSpec], x: Buffer, y: Buffer) -> TorchCall:
    """The same for a large batch: one product of torch's for each head."""
    outputs, columns = weights[0].shape
    kind = gemm.dense_type(weights[0])

    def run(bound: Bound) -> None:
        rows = gemm.converted(bound, x, kind, bound.rows)
        with bound.device.torch_work():
            target = bound.tensor(y)
        for head, weight in enumerate(weights):
            part = rows.rows[:, head * columns : (head + 1) * columns]
            gemm.product(bound, weight, part, target[:, head * outputs : (head + 1) * outputs], False)
        if rows.factors is not None:
            arguments = (y, y.stride, rows.factors.data_ptr(), y.width)
            bound.launch(Call(after_kernel(), row_blocks(bound.rows), arguments, (), (y,)))

    unpack = unpack_kernel(weights[0].weight_layout)
    kernels = [fp16_rows_kernel(), after_kernel()] if kind == "fp16" else []
    sizes = gemm.scratch_sizes(weights[:1], x.width)
    reads = (x, *weights)
    return TorchCall(
        run, reads, (y,), (*kernels, *(() if unpack is None else (unpack,))), x.on_logit_rows, 1, sizes
    )


def small_heads(context: Context, node: HeadLinear) -> Calls:
    """The calls of a small batch."""
    constants, device = context.constants, node.device
    table = constants.head_table(node)
    numbers = constants.array(head_numbers(len(node.weights)), device)
    return tuple(head_calls(table, numbers, node.x, node.y, constants.sm_count(device)))


def large_heads(context: Context, node: HeadLinear) -> Calls:
    """Those of a large one."""
    return (head_product_call(cast(Sequence[WeightSpec], node.weights), node.x, node.y),)


@cache
def head_numbers(heads: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """0 .. `heads` - 1, one array for all layers."""
    return np.arange(heads, dtype=np.int32)


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists."""
    yield move_heads_kernel()
