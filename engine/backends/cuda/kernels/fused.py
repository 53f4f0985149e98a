"""Between two halves of a layer in one launch: the norm of what a half gave, its sum with the residual,
and the next half's norm.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    block_x,
    fma,
    reciprocal,
    registers,
    shared,
    sqrt,
    static,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64
from engine.backends.cuda.kernels.norm import MOST_KEPT, SIZES, block_sum
from engine.backends.cuda.kernels.packed_activations_write import (
    least,
    load_four,
    load_four_fixed,
    rows_first,
    store_four,
    wanted,
    write_halves,
    write_pairs,
)
from engine.backends.cuda.lowering.call import Argument, Call
from engine.backends.graph.buffers import Buffer

THREADS = 256
WARPS = 8
VECTORS = 1
POST = True
CENTRED = False
RECORD = "none"


@dataclass(frozen=True)
class RowNorm:
    """ "rms" or "layer", epsilon, and the addresses of weight and bias (0: none), float32 of a row's
    width.
    """

    kind: str
    eps: float
    weight: int
    bias: int = 0


def _write(
    value: Any, factor: Any, times: float, bias: int, y: int, record: int, me: int, width: int
) -> None:
    """A row's numbers, times `times` and the norm's weights, to where they are wanted; `y`, unless it is
    0, and `record` are the row's.
    """
    for k in static(range(VECTORS)):
        column = int32(4 * (me + THREADS * k))
        for i in static(range(4)):
            value[4 * k + i] = value[4 * k + i] * times * factor[4 * k + i]
        if CENTRED and bias != 0:
            b0, b1, b2, b3 = load_four_fixed(bias, column, width)
            value[4 * k] = value[4 * k] + b0
            value[4 * k + 1] = value[4 * k + 1] + b1
            value[4 * k + 2] = value[4 * k + 2] + b2
            value[4 * k + 3] = value[4 * k + 3] + b3
        if y != 0:
            store_four(y, column, width, value[4 * k], value[4 * k + 1], value[4 * k + 2], value[4 * k + 3])
        if RECORD == "halves":
            write_halves(
                record, width, column, value[4 * k], value[4 * k + 1], value[4 * k + 2], value[4 * k + 3]
            )
        elif RECORD == "pairs":
            write_pairs(
                record, width, column, value[4 * k], value[4 * k + 1], value[4 * k + 2], value[4 * k + 3]
            )


def _sum_norm(
    z: int, z_stride: int, post: int, x: int, x_stride: int, total: int, total_stride: int, weight: int,
    bias: int, y: int, y_stride: int, record: int, record_stride: int, width: int, inverse: float,
    scale: float, post_eps: float, eps: float,
) -> None:  # fmt: skip
    """total = x + scale * z, with POST x + scale * (RMS norm of z); y and the record are the norm of that.

    A row is a block.

    At most 4 THREADS VECTORS columns; `inverse` is 1 / width. `post` are the weights of z's norm. y is not
    written where it is 0.
    """
    row, me, memory = int64(block_x()), int32(thread()), int32(shared(384))
    value = registers(float32(0.0), 4 * VECTORS)
    before = registers(float32(0.0), 4 * VECTORS)
    first = registers(float32(1.0), 4 * VECTORS)
    factor = registers(float32(0.0), 4 * VECTORS)
    for k in static(range(VECTORS)):
        column = int32(4 * (me + THREADS * k))
        factor[4 * k], factor[4 * k + 1], factor[4 * k + 2], factor[4 * k + 3] = load_four_fixed(
            weight, column, width
        )
        if POST:
            first[4 * k], first[4 * k + 1], first[4 * k + 2], first[4 * k + 3] = load_four_fixed(
                post, column, width
            )
    wait_for_others()
    for k in static(range(VECTORS)):
        column = int32(4 * (me + THREADS * k))
        value[4 * k], value[4 * k + 1], value[4 * k + 2], value[4 * k + 3] = load_four(
            z + row * z_stride, column, width
        )
        before[4 * k], before[4 * k + 1], before[4 * k + 2], before[4 * k + 3] = load_four(
            x + row * x_stride, column, width
        )
    if POST:
        own = float32(0.0)
        for i in static(range(4 * VECTORS)):
            own = fma(value[i], value[i], own)
        shrink = reciprocal(sqrt(fma(block_sum(own, int32(memory + 256)), inverse, post_eps)))
        for i in static(range(4 * VECTORS)):
            value[i] = value[i] * shrink * first[i]
    for i in static(range(4 * VECTORS)):
        value[i] = fma(scale, value[i], before[i])
    for k in static(range(VECTORS)):
        column = int32(4 * (me + THREADS * k))
        store_four(
            total + row * total_stride,
            column,
            width,
            value[4 * k],
            value[4 * k + 1],
            value[4 * k + 2],
            value[4 * k + 3],
        )
    if CENTRED:
        of_all = float32(0.0)
        for i in static(range(4 * VECTORS)):
            of_all = of_all + value[i]
        centre = block_sum(of_all, memory) * inverse
        for i in static(range(4 * VECTORS)):
            if int32(4 * (me + THREADS * (i // 4)) + i % 4) < width:
                value[i] = value[i] - centre
    squares = float32(0.0)
    for i in static(range(4 * VECTORS)):
        squares = fma(value[i], value[i], squares)
    times = reciprocal(sqrt(fma(block_sum(squares, int32(memory + 128)), inverse, eps)))
    _write(
        value,
        factor,
        times,
        bias,
        y + row * y_stride if y != 0 else int64(0),
        record + row * record_stride,
        me,
        width,
    )


@cache
def sum_norm_kernel(kind: str, width: int, post: bool, record: str = "none") -> Kernel:
    """See `_sum_norm`; `kind` of the norm of the sum is "rms" or "layer"; rows of at most `MOST_KEPT`
    columns.
    """
    assert kind in ("rms", "layer")
    threads, vectors = next((t, v) for t, v in SIZES if width <= 4 * t * v)
    name = f"{'norm_' if post else ''}add_{kind}_norm_{4 * threads * vectors}_{record}"
    constants = {
        "THREADS": threads,
        "WARPS": threads // 32,
        "VECTORS": vectors,
        "POST": post,
        "CENTRED": kind == "layer",
        "RECORD": record,
    }
    most = {256: 48, 512: 64}.get(threads, 64)
    return Kernel(
        name,
        _sum_norm,
        "lllllllllllll" + "iffff",
        threads,
        most,
        constants,
        least=least(record),
        model="sum_norm",
    )


def sum_norm_call(
    z: Buffer, post: RowNorm | None, x: Buffer, scale: float, total: Buffer, norm: RowNorm,
    y: Buffer | None, kind: str = "none", record: Buffer | None = None,
) -> Call:  # fmt: skip
    """total = x + scale * (z, or the norm `post` of z, "rms" alone); its `norm` into y and, or, into a record
    of that `kind`.

    All are of one width, at most `MOST_KEPT`.
    """
    assert (
        len({(b.width, b.copies, b.on_logit_rows) for b in (z, x, total, *(() if y is None else (y,)))}) == 1
    )
    assert x.width <= MOST_KEPT
    assert post is None or (post.kind, post.bias) == ("rms", 0)
    assert norm.kind == "layer" or not norm.bias
    outs, written = wanted(kind, y, record)
    arguments: tuple[Argument, ...] = (
        z, z.stride, 0 if post is None else post.weight, x, x.stride, total, total.stride, norm.weight,
        norm.bias, *outs, x.width, 1.0 / x.width, scale, 0.0 if post is None else post.eps, norm.eps,
    )  # fmt: skip
    kernel = sum_norm_kernel(norm.kind, x.width, post is not None, kind)
    return Call(kernel, rows_first(), arguments, (z, x), (total, *written), x.on_logit_rows, x.copies)


def forms() -> Iterator[Kernel]:
    """For the registry: models with a norm behind each half, and those that scale what a half adds."""
    for record in ("none", "halves", "pairs"):
        for width in (4096, MOST_KEPT):
            yield sum_norm_kernel("rms", width, True, record)
        yield sum_norm_kernel("rms", 4096, False, record)
