"""Nearly doubly stochastic matrices: see `Ops.balance`."""

from __future__ import annotations

from engine.backends.cpu.codegen.memory_ops import ld_f32, ld_f64, ld_i64, st_f32
from engine.backends.cpu.kernels.attention.softmax import exp_scalar
from engine.backends.cpu.lowering.call import Calls, Table
from engine.backends.graph.rows import Balance

(B_X, B_Y, B_STRIDE, B_SIZE, B_COLUMNS, B_ROUNDS, B_EPS, B_ADDED) = range(8)


def balance(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile for each row, a matrix; number (i, j) of it is at i columns + j."""
    size, columns = ld_i64(args + 8 * B_SIZE), ld_i64(args + 8 * B_COLUMNS)
    stride, eps, added = (
        ld_i64(args + 8 * B_STRIDE), ld_f64(args + 8 * B_EPS), ld_f64(args + 8 * B_ADDED)
    )  # fmt: skip
    x, y = ld_i64(args + 8 * B_X) + tile * stride, ld_i64(args + 8 * B_Y) + tile * stride
    row = 4 * columns
    for j in range(columns):
        top, total = ld_f32(x + 4 * j), 0.0
        for i in range(1, size):
            top = max(top, ld_f32(x + i * row + 4 * j))
        for i in range(size):
            share = exp_scalar(ld_f32(x + i * row + 4 * j) - top)
            st_f32(y + i * row + 4 * j, share)
            total += share
        for i in range(size):
            st_f32(y + i * row + 4 * j, ld_f32(y + i * row + 4 * j) / total + added)
    # Rows, then columns and rows: in odd turns columns, a row's numbers apart.
    for turn in range(2 * ld_i64(args + 8 * B_ROUNDS) - 1):
        along, across = (row, 4) if turn % 2 else (4, row)
        for i in range(size):
            total = eps
            for j in range(size):
                total += ld_f32(y + i * across + j * along)
            for j in range(size):
                place = y + i * across + j * along
                st_f32(place, ld_f32(place) / total)
    for k in range(size * columns, stride // 4):
        st_f32(y + 4 * k, 0.0)


def _balance(calls: Calls, node: Balance) -> None:
    x, y = node.x, node.y
    columns = x.width // node.size
    calls.each_row("balance", [x, y, y.stride, node.size, columns, node.rounds, node.eps, node.added], [x], y)


LOWER: Table = {Balance: _balance}
