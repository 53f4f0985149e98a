"""Nearly doubly stochastic matrices, and softmaxes down columns alone: see `Ops.balance`.

A lane holds a row of a matrix, and as many lanes as its rows, rounded up to a power of two, its columns. Of
a softmax alone, a warp has a column.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    block_x,
    block_y,
    ld_f32,
    maximum,
    reciprocal,
    registers,
    shfl_xor_f32,
    st_f32,
    static,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64
from engine.backends.cuda.kernels.common import warp_max, warp_sum
from engine.backends.cuda.kernels.packed_activations_write import rows_first
from engine.backends.cuda.kernels.pointwise import exponential
from engine.backends.cuda.lowering.call import Call, Runtime
from engine.backends.cuda.lowering.context import Calls, Context, Table
from engine.backends.graph.rows import Balance

THREADS = 32
SIZE, STEPS, ROWS = 4, 2, 8
"""Rows of a matrix, the power of two for the lanes of one, and matrices of a block."""


def _column_sum(x: float) -> float:
    """The sum over a matrix's lanes, which all get."""
    for i in static(range(STEPS)):
        x = x + shfl_xor_f32(x, int32(1 << i))
    return x


def _column_maximum(x: float) -> float:
    """The maximum over a matrix's lanes, which all get."""
    for i in static(range(STEPS)):
        x = maximum(x, shfl_xor_f32(x, int32(1 << i)))
    return x


def _balance(
    x: int, x_stride: int, y: int, y_stride: int, rows: int, rounds: int, eps: float, added: float
) -> None:  # fmt: skip
    """y = the matrices (SIZE, SIZE) of x's rows: a softmax down each column, plus `added`; then rows, and in
    each further round columns and rows, divided by their sums plus eps. Grid (chunk of ROWS rows).
    """
    wait_for_others()
    lane = int32(thread() & int32((1 << STEPS) - 1))
    row = int32(int32(block_x() * ROWS) + int32(thread() >> STEPS))
    own = registers(float32(0.0), SIZE)
    here = int64(int32(min(row, int32(rows - 1))))
    if lane < SIZE:
        for j in static(range(SIZE)):
            own[j] = ld_f32(x + here * x_stride + 4 * int64(int32(int32(lane * SIZE) + j)))
    # Lanes past the last row hold zeros.
    for j in static(range(SIZE)):
        top = _column_maximum(own[j] if lane < SIZE else float32(-1e30))
        own[j] = exponential(own[j] - top) if lane < SIZE else float32(0.0)
        own[j] = own[j] * reciprocal(_column_sum(own[j]))
        own[j] = own[j] + added if lane < SIZE else float32(0.0)
    turn = int32(0)
    while turn < rounds:
        if turn > 0:
            for j in static(range(SIZE)):
                own[j] = own[j] * reciprocal(_column_sum(own[j]) + eps)
        total = eps if lane < SIZE else float32(1.0)
        for j in static(range(SIZE)):
            total = total + own[j]
        total = reciprocal(total)
        for j in static(range(SIZE)):
            own[j] = own[j] * total
        turn = int32(turn + 1)
    if lane < SIZE and row < rows:
        for j in static(range(SIZE)):
            st_f32(y + int64(row) * y_stride + 4 * int64(int32(int32(lane * SIZE) + j)), own[j])


def _column_softmax(
    x: int, x_stride: int, y: int, y_stride: int, size: int, columns: int, added: float
) -> None:  # fmt: skip
    """y = the softmax down each column of the matrices (`size`, `columns`) of x's rows, plus `added`. Grid
    (row, column), one warp.
    """
    wait_for_others()
    row, lane, step = int64(block_x()), int32(thread()), 4 * int64(columns)
    source = x + row * x_stride + 4 * int64(block_y())
    top, total = float32(-1e30), float32(0.0)
    for i in range(lane, size, 32):
        top = maximum(top, ld_f32(source + int64(i) * step))
    top = warp_max(top)
    for i in range(lane, size, 32):
        total = total + exponential(ld_f32(source + int64(i) * step) - top)
    times = reciprocal(warp_sum(total))
    for i in range(lane, size, 32):
        share = exponential(ld_f32(source + int64(i) * step) - top) * times
        st_f32(y + row * y_stride + 4 * int64(block_y()) + int64(i) * step, share + added)


@cache
def column_softmax_kernel() -> Kernel:
    return Kernel("column_softmax", _column_softmax, "llll" + "ii" + "f", THREADS, 40)


@cache
def balance_kernel(size: int) -> Kernel:
    steps = (size - 1).bit_length()
    constants = {"SIZE": size, "STEPS": steps, "ROWS": THREADS >> steps}
    return Kernel(f"balance_{size}", _balance, "llll" + "ii" + "ff", THREADS, 64, constants)


def _lower(context: Context, node: Balance) -> Calls:
    x, y = node.x, node.y
    if node.rounds == 0:
        columns = x.width // node.size
        numbers = (x, x.stride, y, y.stride, node.size, columns, node.added)
        return (
            Call(
                column_softmax_kernel(), rows_first(columns), numbers, (x,), (y,), x.on_logit_rows, x.copies
            ),
        )
    kernel = balance_kernel(node.size)
    chunk = kernel.constants["ROWS"]
    arguments = (x, x.stride, y, y.stride, Runtime.ROWS, node.rounds, node.eps, node.added)
    return (
        Call(
            kernel, lambda rows: (-(-rows // chunk), 1, 1), arguments, (x,), (y,), x.on_logit_rows, x.copies
        ),
    )


LOWER: Table = {Balance: _lower}


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists."""
    yield balance_kernel(4)
    yield column_softmax_kernel()
