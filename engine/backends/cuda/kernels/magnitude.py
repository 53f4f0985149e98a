"""The root mean square of each row, one block per row."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    block_x,
    fma,
    registers,
    shared,
    sqrt,
    st_f32,
    static,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64
from engine.backends.cuda.kernels.common import block_sum
from engine.backends.cuda.kernels.packed_activations_write import load_four, rows_first
from engine.backends.cuda.lowering.call import Call
from engine.backends.cuda.lowering.context import Table
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.rows import Magnitude

THREADS = 256
WARPS = 8
CENTRED = False


def _magnitude(x: int, x_stride: int, y: int, y_stride: int, width: int, inverse: float) -> None:
    """y = sqrt(mean((x - c)^2)), where c is the row's mean with CENTRED, otherwise 0. Grid (row).

    x: float32 (rows, width), y: float32 (rows, 1), strides in bytes; `inverse` = 1 / width. Sums are in an
    order that depends only on the width.
    """
    row, me, memory = int64(block_x()), int32(thread()), int32(shared(256))
    source = x + row * x_stride
    wait_for_others()
    centre = float32(0.0)
    if CENTRED:
        total = float32(0.0)
        for start in range(0, width, 4 * THREADS):
            a, b, c, d = load_four(source, int32(start + 4 * me), width)
            total = total + (a + b + (c + d))
        centre = block_sum(total, memory) * inverse
    squares = float32(0.0)
    for start in range(0, width, 4 * THREADS):
        value = registers(float32(0.0), 4)
        value[0], value[1], value[2], value[3] = load_four(source, int32(start + 4 * me), width)
        for i in static(range(4)):
            if int32(start + 4 * me + i) < width:
                squares = fma(value[i] - centre, value[i] - centre, squares)
    squares = block_sum(squares, int32(memory + 128))
    if me == 0:
        st_f32(y + row * y_stride, sqrt(squares * inverse))


@cache
def magnitude_kernel(centred: bool) -> Kernel:
    constants = {"THREADS": THREADS, "WARPS": WARPS, "CENTRED": centred}
    name = "magnitude_centred" if centred else "magnitude"
    return Kernel(name, _magnitude, "llllif", THREADS, 48, constants)


def magnitude_call(x: Buffer, y: Buffer, centred: bool) -> Call:
    """Each row's root mean square, or that of its differences from its mean if `centred`."""
    assert (y.width, y.copies, y.on_logit_rows) == (1, x.copies, x.on_logit_rows)
    arguments = (x, x.stride, y, y.stride, x.width, 1.0 / x.width)
    return Call(magnitude_kernel(centred), rows_first(), arguments, (x,), (y,), x.on_logit_rows, x.copies)


LOWER: Table = {Magnitude: lambda _, node: (magnitude_call(node.x, node.y, node.centred),)}


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists."""
    yield magnitude_kernel(False)
    yield magnitude_kernel(True)
