"""Kernels that move rows and columns of 4-byte numbers of any type, without changing their bits."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    block_x,
    block_y,
    ld_u32,
    ldg_i32,
    st_u32,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import int32, int64
from engine.backends.cuda.kernels.packed_activations_write import load_four, rows_first, store_four
from engine.backends.cuda.lowering.call import Call, Runtime
from engine.backends.cuda.lowering.context import Calls, Context, Table
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.linear import Permute
from engine.backends.graph.rows import Columns, LastRows

THREADS = 128


def _columns(x: int, x_stride: int, start: int, y: int, y_stride: int, width: int) -> None:
    """Copy the `width` columns from `start` on. Grid (row, chunk of THREADS columns)."""
    wait_for_others()
    row = int64(block_x())
    column = int32(block_y() * THREADS + thread())
    if column < width:
        value = ld_u32(x + row * x_stride + 4 * (int64(column) + int64(start)))
        st_u32(y + row * y_stride + 4 * int64(column), value)


def _permute(x: int, x_stride: int, order: int, y: int, y_stride: int, width: int) -> None:
    """Column c of y is column order[c] of x, order int32 (width,). Grid (row, chunk of THREADS columns)."""
    row = int64(block_x())
    column = int32(block_y() * THREADS + thread())
    source = int32(0)
    if column < width:
        source = ldg_i32(order + 4 * int64(column))
    wait_for_others()
    if column < width:
        st_u32(y + row * y_stride + 4 * int64(column), ld_u32(x + row * x_stride + 4 * int64(source)))


def _last_rows(x: int, y: int, stride: int, width: int, first_row: int) -> None:
    """Copy the rows from `first_row` on. Grid (row, chunk of 4 THREADS columns)."""
    wait_for_others()
    row = int64(block_x())
    column = int32(4 * int32(block_y() * THREADS + thread()))
    if column < width:
        a, b, c, d = load_four(x + (row + int64(first_row)) * stride, column, width)
        store_four(y + row * stride, column, width, a, b, c, d)


@cache
def columns_kernel() -> Kernel:
    return Kernel("columns", _columns, "llilli", THREADS, 16, {"THREADS": THREADS})


@cache
def permute_kernel() -> Kernel:
    return Kernel("permute", _permute, "llllli", THREADS, 16, {"THREADS": THREADS})


@cache
def last_rows_kernel() -> Kernel:
    return Kernel("last_rows", _last_rows, "lllii", THREADS, 16, {"THREADS": THREADS})


def columns_call(x: Buffer, start: int, y: Buffer) -> Call:
    """Copy y.width columns of x, from `start` on, into y."""
    assert 0 <= start <= start + y.width <= x.width
    assert (x.copies, x.on_logit_rows) == (y.copies, y.on_logit_rows)
    arguments = (x, x.stride, start, y, y.stride, y.width)
    return Call(
        columns_kernel(), rows_first(-(-y.width // THREADS)), arguments, (x,), (y,), x.on_logit_rows, x.copies
    )


def permute_call(x: Buffer, order: int, y: Buffer) -> Call:
    """Column c of y is column order[c] of x; `order` is the address of int32 (y.width,), below x.width."""
    assert (x.copies, x.on_logit_rows) == (y.copies, y.on_logit_rows)
    arguments = (x, x.stride, order, y, y.stride, y.width)
    return Call(
        permute_kernel(), rows_first(-(-y.width // THREADS)), arguments, (x,), (y,), x.on_logit_rows, x.copies
    )


def last_rows_call(x: Buffer, y: Buffer) -> Call:
    """Copy the rows of x that need logits into y."""
    assert (x.width, x.copies, x.on_logit_rows) == (y.width, 1, False)
    assert (y.copies, y.on_logit_rows) == (1, True)
    arguments = (x, y, x.stride, x.width, Runtime.FIRST_ROW)
    return Call(last_rows_kernel(), rows_first(-(-x.width // (4 * THREADS))), arguments, (x,), (y,), True)


def _permute_calls(context: Context, node: Permute) -> Calls:
    return (permute_call(node.x, context.constants.array(node.order, node.device), node.y),)


LOWER: Table = {
    Columns: lambda _, node: (columns_call(node.x, node.first, node.y),),
    Permute: _permute_calls,
    LastRows: lambda _, node: (last_rows_call(node.x, node.y),),
}


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists."""
    yield columns_kernel()
    yield permute_kernel()
    yield last_rows_kernel()
