"""Kernels that take one element after the other."""

from __future__ import annotations

from functools import cache

from engine.backends.arena import Buffer
from engine.backends.cuda.call import Call, each_row
from engine.backends.cuda.kernel import Kernel
from engine.backends.cuda.ptx import block_x, block_y, fma, ld_f32_now, st_f32, thread, wait_for_others
from engine.backends.cuda.words import int32, int64

THREADS = 256


def _add(x: int, x_stride: int, other: int, other_stride: int, y: int, y_stride: int, width: int, scale: float) -> None:
    """y = x + scale * other. Block (chunk of THREADS columns, row)."""
    wait_for_others()
    column, row = int32(block_x() * THREADS + thread()), int64(block_y())
    if column < width:
        at = 4 * int64(column)
        st_f32(y + row * y_stride + at, fma(scale, ld_f32_now(other + row * other_stride + at), ld_f32_now(x + row * x_stride + at)))


@cache
def add_kernel() -> Kernel:
    """See `_add`."""
    return Kernel("add", _add, "llllllif", THREADS, 24, {"THREADS": THREADS}, model="add")


def add_call(x: Buffer, other: Buffer, y: Buffer, scale: float) -> Call:
    """y = x + scale * other, all of one width."""
    chunks = -(-x.width // THREADS)
    arguments = (x, x.stride, other, other.stride, y, y.stride, x.width, scale)
    return Call(add_kernel(), each_row(chunks), arguments, (x, other), (y,), x.on_logit_rows, x.copies)


