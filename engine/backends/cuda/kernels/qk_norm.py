"""RMS norm and layer norm of equal parts of a row (the qk norm of heads), one warp per part.

Sources: arXiv 1910.07467 (RMS norm), 1607.06450 (layer norm).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    block_x,
    block_y,
    fma,
    ld_f32,
    ldg_f32,
    reciprocal,
    sqrt,
    st_f32,
    static,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64
from engine.backends.cuda.kernels.common import warp_sum
from engine.backends.cuda.kernels.packed_activations_write import rows_first
from engine.backends.cuda.lowering.call import Call
from engine.backends.graph.buffers import Buffer

HEADS_AT_ONCE = 4
"""Warps of a block; each takes one head."""
WARPS = 4
VALUES = 4
"""Columns that a lane reads at once."""
CENTRED = False


def _qk_norm(
    x: int, x_stride: int, weight: int, bias: int, part_step: int, y: int, y_stride: int, parts: int,
    width: int, inverse: float, eps: float,
) -> None:  # fmt: skip
    """y = (x - mean) / sqrt(var + eps) * weight (+ bias) of each part; for RMS norm the mean is taken as 0.

    Rows: x, y float32 with strides in bytes; a row holds `parts` parts of `width` columns;
    `inverse` = 1 / width. Parameters: weight, bias float32 (width,), bias 0 for none; `part_step`
    is the bytes from a part's weights to the next part's, 0 if all share them. Grid (row, chunk of
    HEADS_AT_ONCE parts), one warp per part.
    """
    wait_for_others()
    row, lane = int64(block_x()), int32(int32(thread()) & 31)
    part = int32(block_y() * WARPS + (int32(thread()) >> 5))
    if part < parts:
        begin = 4 * (int64(part) * int64(width))
        source, target = x + row * x_stride + begin, y + row * y_stride + begin
        factors, adds = weight + int64(part) * int64(part_step), bias + int64(part) * int64(part_step)
        centre = float32(0.0)
        if CENTRED:
            total = float32(0.0)
            for start in range(0, width, 32 * VALUES):
                for k in static(range(VALUES)):
                    column = int32(start + lane + 32 * k)
                    if column < width:
                        total = total + ld_f32(source + 4 * int64(column))
            centre = warp_sum(total) * inverse
        squares = float32(0.0)
        for start in range(0, width, 32 * VALUES):
            for k in static(range(VALUES)):
                column = int32(start + lane + 32 * k)
                if column < width:
                    value = ld_f32(source + 4 * int64(column)) - centre
                    squares = fma(value, value, squares)
        times = reciprocal(sqrt(fma(warp_sum(squares), inverse, eps)))
        for start in range(0, width, 32 * VALUES):
            for k in static(range(VALUES)):
                column = int32(start + lane + 32 * k)
                if column < width:
                    at = 4 * int64(column)
                    value = (ld_f32(source + at) - centre) * times * ldg_f32(factors + at)
                    if bias != 0:
                        value = value + ldg_f32(adds + at)
                    st_f32(target + at, value)


@cache
def qk_norm_kernel(kind: str) -> Kernel:
    """The kernel `_qk_norm` for `kind` "rms" or "layer"."""
    assert kind in ("rms", "layer")
    constants = {"WARPS": HEADS_AT_ONCE, "VALUES": VALUES, "CENTRED": kind == "layer"}
    return Kernel(f"qk_{kind}_norm", _qk_norm, "llllllliiff", 32 * HEADS_AT_ONCE, 48, constants)


def qk_norm_call(
    norm: tuple[str, float], x: Buffer, weight: int, bias: int, y: Buffer, heads: int, shared_weight: bool
) -> Call:
    """The norm of each of `heads` equal parts of a row.

    `norm` is "rms" or "layer", and epsilon. weight, bias: addresses of float32 (x.width,), or of one part's
    length with `shared_weight`; a bias of 0 means none.
    """
    name, eps = norm
    assert (y.width, y.copies, y.on_logit_rows) == (x.width, x.copies, x.on_logit_rows)
    assert x.width % heads == 0
    assert name == "layer" or not bias
    width = x.width // heads
    step = 0 if shared_weight else 4 * width
    arguments = (x, x.stride, weight, bias, step, y, y.stride, heads, width, 1.0 / width, eps)
    blocks = rows_first(-(-heads // HEADS_AT_ONCE))
    return Call(qk_norm_kernel(name), blocks, arguments, (x,), (y,), x.on_logit_rows, x.copies)


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists."""
    yield qk_norm_kernel("rms")
    yield qk_norm_kernel("layer")
