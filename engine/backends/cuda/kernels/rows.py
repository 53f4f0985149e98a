"""Kernels that move rows and columns of 4-byte numbers of any type, without changing their bits, and sums of
rows with weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    block_x,
    block_y,
    block_z,
    fma,
    ld_f32,
    ld_u32,
    ldg_i32,
    registers,
    st_u32,
    static,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64
from engine.backends.cuda.kernels.packed_activations_write import load_four, rows_first, store_four
from engine.backends.cuda.lowering.call import Argument, Call, Runtime
from engine.backends.cuda.lowering.context import Calls, Context, Table
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.linear import Permute
from engine.backends.graph.rows import Columns, Given, Join, Keep, LastRows, Mix

THREADS = 128
PARTS = 4
"""Rows that `_mix` adds at once."""


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


def _join(
    x: int, x_stride: int, x_width: int, z: int, z_stride: int, z_width: int, y: int, y_stride: int
) -> None:
    """Each head's columns of x, then those of z; the widths are a head's.

    Grid (row, head, chunk of THREADS columns).
    """
    wait_for_others()
    row, head = int64(block_x()), int32(block_y())
    column = int32(block_z() * THREADS + thread())
    width = int32(x_width + z_width)
    if column < width:
        source = x + row * x_stride + 4 * int64(int32(int32(head * x_width) + column))
        if column >= x_width:
            source = z + row * z_stride + 4 * int64(int32(int32(head * z_width) + int32(column - x_width)))
        st_u32(y + row * y_stride + 4 * int64(int32(int32(head * width) + column)), ld_u32(source))


def _keep(x: int, stride: int, y: int, target: int, width: int) -> None:
    """y = x, and so are the rows at `target`, which lie without gaps in the host's memory.

    Grid (row, chunk of THREADS columns).
    """
    wait_for_others()
    row = int64(block_x())
    column = int32(block_y() * THREADS + thread())
    if column < width:
        value = ld_u32(x + row * stride + 4 * int64(column))
        st_u32(y + row * stride + 4 * int64(column), value)
        st_u32(target + 4 * (row * int64(width) + int64(column)), value)


def _given(rows: int, y: int, stride: int, width: int) -> None:
    """y = the rows at an address, which lie without gaps in the host's memory.

    Grid (row, chunk of THREADS columns).
    """
    wait_for_others()
    row = int64(block_x())
    column = int32(block_y() * THREADS + thread())
    if column < width:
        st_u32(y + row * stride + 4 * int64(column), ld_u32(rows + 4 * (row * int64(width) + int64(column))))


def _mix(
    first: int, second: int, third: int, fourth: int, stride: int, weights: int, weights_stride: int,
    residual: int, y: int, width: int, count: int, column: int,
) -> None:  # fmt: skip
    """y = residual (address 0: none) + the first `count` of four parts, each times a column of the weights.

    Parts, residual and y: float32 with rows of `stride` bytes; `column` is that of the first part. The sum is
    taken in order. Grid (row, chunk of 4 THREADS columns).
    """
    wait_for_others()
    row = int64(block_x())
    at = int32(4 * int32(block_y() * THREADS + thread()))
    if at < width:
        a, b, c, d = float32(0.0), float32(0.0), float32(0.0), float32(0.0)
        if residual != 0:
            a, b, c, d = load_four(residual + row * stride, at, width)
        value = registers(float32(0.0), 4)
        for i in static(range(PARTS)):
            if i < count:
                part = first if i == 0 else second if i == 1 else third if i == 2 else fourth
                times = ld_f32(weights + row * weights_stride + 4 * int64(int32(column + i)))
                value[0], value[1], value[2], value[3] = load_four(part + row * stride, at, width)
                a, b = fma(times, value[0], a), fma(times, value[1], b)
                c, d = fma(times, value[2], c), fma(times, value[3], d)
        store_four(y + row * stride, at, width, a, b, c, d)


@cache
def columns_kernel() -> Kernel:
    return Kernel("columns", _columns, "llilli", THREADS, 16, {"THREADS": THREADS})


@cache
def permute_kernel() -> Kernel:
    return Kernel("permute", _permute, "llllli", THREADS, 16, {"THREADS": THREADS})


@cache
def last_rows_kernel() -> Kernel:
    return Kernel("last_rows", _last_rows, "lllii", THREADS, 16, {"THREADS": THREADS})


@cache
def join_kernel() -> Kernel:
    return Kernel("join", _join, "llillill", THREADS, 24, {"THREADS": THREADS})


@cache
def keep_kernel() -> Kernel:
    return Kernel("keep", _keep, "lllli", THREADS, 24, {"THREADS": THREADS})


@cache
def given_kernel() -> Kernel:
    return Kernel("given", _given, "llli", THREADS, 24, {"THREADS": THREADS})


@cache
def mix_kernel() -> Kernel:
    return Kernel("mix", _mix, "lllllllll" + "iii", THREADS, 40, {"THREADS": THREADS, "PARTS": PARTS})


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


def join_call(x: Buffer, z: Buffer, y: Buffer, heads: int) -> Call:
    """Each of `heads` equal parts of rows of x, then that of z."""
    assert x.width % heads == z.width % heads == 0
    assert y.width == x.width + z.width
    assert len({(b.copies, b.on_logit_rows) for b in (x, z, y)}) == 1
    arguments = (x, x.stride, x.width // heads, z, z.stride, z.width // heads, y, y.stride)
    chunks = -(-(y.width // heads) // THREADS)
    return Call(
        join_kernel(), lambda rows: (rows, heads, chunks), arguments, (x, z), (y,), x.on_logit_rows, x.copies
    )


def keep_call(x: Buffer, y: Buffer, target: int) -> Call:
    """y = x, and the rows (T, x.width) float32 at `target`, which the device reaches in the host's memory."""
    assert (x.width, x.copies, x.on_logit_rows) == (y.width, 1, False)
    arguments = (x, x.stride, y, target, x.width)
    return Call(keep_kernel(), rows_first(-(-x.width // THREADS)), arguments, (x,), (y,))


def given_call(rows: int, y: Buffer) -> Call:
    """y = the rows (T, y.width) float32 at the address `rows` in the host's memory."""
    assert (y.copies, y.on_logit_rows) == (1, False)
    return Call(given_kernel(), rows_first(-(-y.width // THREADS)), (rows, y, y.stride, y.width), (), (y,))


def mix_calls(
    parts: Sequence[Buffer], weights: Buffer, first: int, residual: Buffer | None, y: Buffer
) -> Iterator[Call]:
    """y = residual (None: 0) + the sum of the parts, each times a column of `weights` from `first` on."""
    assert {(b.width, b.copies, b.on_logit_rows) for b in (*parts, residual or y)} == {
        (y.width, 1, y.on_logit_rows)
    }
    blocks = rows_first(-(-y.width // (4 * THREADS)))
    for start in range(0, len(parts), PARTS):
        some = parts[start : start + PARTS]
        addresses: tuple[Argument, ...] = (*some, *(0,) * (PARTS - len(some)))
        numbers = (y.width, len(some), first + start)
        arguments = (*addresses, y.stride, weights, weights.stride, 0 if residual is None else residual, y)
        reads = (*some, weights, *(() if residual is None else (residual,)))
        yield Call(mix_kernel(), blocks, (*arguments, *numbers), reads, (y,), y.on_logit_rows)
        residual = y


def _permute_calls(context: Context, node: Permute) -> Calls:
    return (permute_call(node.x, context.constants.array(node.order, node.device), node.y),)


def _keep_calls(context: Context, node: Keep) -> Calls:
    return (keep_call(node.x, node.y, context.constants.kept_rows(node.out, node.device)),)


def _given_calls(context: Context, node: Given) -> Calls:
    return (given_call(context.constants.given_rows(node.rows, node.device), node.y),)


LOWER: Table = {
    Keep: _keep_calls,
    Given: _given_calls,
    Columns: lambda _, node: (columns_call(node.x, node.first, node.y),),
    Permute: _permute_calls,
    Join: lambda _, node: (join_call(node.x, node.z, node.y, node.heads),),
    Mix: lambda _, node: tuple(mix_calls(node.parts, node.weights, node.first, node.residual, node.y)),
    LastRows: lambda _, node: (last_rows_call(node.x, node.y),),
}


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists."""
    yield columns_kernel()
    yield permute_kernel()
    yield join_kernel()
    yield mix_kernel()
    yield keep_kernel()
    yield given_kernel()
    yield last_rows_kernel()
