"""Elementwise functions with numbers of their own: xIELU, the limits of a clamp, a scaled sigmoid, roots.
Each thread holds four adjacent columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from engine.backends.activations import SHAPED
from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    block_x,
    block_y,
    fma,
    maximum,
    minimum,
    registers,
    sqrt,
    static,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64
from engine.backends.cuda.kernels.packed_activations_write import chunks, load_four, rows_first, store_four
from engine.backends.cuda.kernels.pointwise import THREADS, alike, exponential, sigmoid
from engine.backends.cuda.lowering.call import Call
from engine.backends.cuda.lowering.context import Table
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.rows import ActivateWith

ACTIVATION = "xielu"


def xielu(x: float, above: float, below: float, slope: float) -> Any:
    """above x^2 for x > 0, below (e^x - 1 - x) for others, and slope x more.

    The series of e^x - 1 - x above -1/2, where the difference would lose digits.
    """
    low = minimum(x, float32(0.0))
    series = fma(low, float32(1 / 40320), float32(1 / 5040))
    series = fma(low, fma(low, series, float32(1 / 720)), float32(1 / 120))
    series = low * low * fma(low, fma(low, fma(low, series, float32(1 / 24)), float32(1 / 6)), float32(0.5))
    rest = series if low > float32(-0.5) else exponential(low) - float32(1.0) - low
    return fma(slope, x, above * x * x if x > float32(0.0) else below * rest)


def _activate_with(
    x: int, x_stride: int, y: int, y_stride: int, width: int, first: float, second: float, third: float
) -> None:
    """y = the function ACTIVATION of x and its numbers. Grid (row, chunk of 4 THREADS columns)."""
    wait_for_others()
    row = int64(block_x())
    column = int32(4 * int32(block_y() * THREADS + thread()))
    if column < width:
        out = registers(float32(0.0), 4)
        out[0], out[1], out[2], out[3] = load_four(x + row * x_stride, column, width)
        for i in static(range(4)):
            if ACTIVATION == "xielu":
                out[i] = xielu(out[i], first, second, third)
            elif ACTIVATION == "sigmoid":
                out[i] = fma(first, sigmoid(out[i]), second)
            elif ACTIVATION == "root":
                root = sqrt(maximum(maximum(out[i], -out[i]), first))
                out[i] = root if out[i] > float32(0.0) else -root if out[i] < float32(0.0) else float32(0.0)
            elif ACTIVATION == "between":
                out[i] = maximum(minimum(out[i], second), first)
            else:
                out[i] = maximum(minimum(out[i], first), -first)
        store_four(y + row * y_stride, column, width, out[0], out[1], out[2], out[3])


@cache
def activate_with_kernel(function: str) -> Kernel:
    assert function in SHAPED
    constants = {"THREADS": THREADS, "ACTIVATION": function}
    return Kernel(f"activate_with_{function}", _activate_with, "llllifff", THREADS, 36, constants)


def activate_with_call(x: Buffer, y: Buffer, function: str, numbers: tuple[float, ...]) -> Call:
    """y = the function of x and its numbers."""
    alike(x, y)
    first, second, third = (*numbers, 0.0, 0.0, 0.0)[:3]
    arguments = (x, x.stride, y, y.stride, x.width, first, second, third)
    grid = rows_first(chunks(x.width))
    return Call(activate_with_kernel(function), grid, arguments, (x,), (y,), x.on_logit_rows, x.copies)


LOWER: Table = {
    ActivateWith: lambda _, node: (activate_with_call(node.x, node.y, node.function, node.numbers),)
}


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists: nothing that needs the others runs on GPUs yet."""
    for function in SHAPED:
        if function not in ("root", "between"):
            yield activate_with_kernel(function)
