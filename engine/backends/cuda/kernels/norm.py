"""RMS norm and layer norm: of whole rows by one block each, of the parts of a row (heads) by one warp each.

Sums are float32 and in an order that the width alone decides. What comes out are floats, or the record that
the next products take, or both. A whole row stays in registers up to `MOST_KEPT` columns; of a longer one the
passes read it again. Sources: arXiv 1910.07467 (RMS norm), 1607.06450 (layer norm).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    barrier,
    block_x,
    block_y,
    fma,
    ld_f32,
    ld_f32_now,
    lds_f32,
    reciprocal,
    registers,
    shared,
    sqrt,
    st_f32,
    static,
    sts_f32,
    thread,
    wait_for_others,
    xor_f,
)
from engine.backends.cuda.codegen.words import float32, int32, int64
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
from engine.backends.cuda.lowering.call import Call
from engine.backends.graph.buffers import Buffer

SIZES = ((256, 1), (512, 2), (1024, 2))
"""Threads of a block, and vectors of four columns that each of them keeps."""
MOST_KEPT = 4 * SIZES[-1][0] * SIZES[-1][1]
HEADS_AT_ONCE = 4
"""Warps of a block that norms parts of rows."""

THREADS = 256
WARPS = 8
VECTORS = 1
VALUES = 4
"""Columns of a part that a lane reads at once."""
CENTRED = False
RECORD = "none"


def warp_sum(value: float) -> Any:
    """The sum of all lanes' numbers, the same in each."""
    value = value + xor_f(value, int32(16))
    value = value + xor_f(value, int32(8))
    value = value + xor_f(value, int32(4))
    value = value + xor_f(value, int32(2))
    return value + xor_f(value, int32(1))


def block_sum(value: float, memory: int) -> Any:
    """The sum of all threads' numbers, the same in each; WARPS float32 of shared memory, which nothing
    else uses.
    """
    me = int32(thread())
    value = warp_sum(value)
    if (me & 31) == 0:
        sts_f32(int32(memory + 4 * (me >> 5)), value)
    barrier()
    part = float32(0.0)
    if (me & 31) < WARPS:
        part = lds_f32(int32(memory + 4 * (me & 31)))
    return warp_sum(part)


def _norm(
    x: int, x_stride: int, weight: int, bias: int, y: int, y_stride: int, record: int, record_stride: int,
    width: int, inverse: float, eps: float,
) -> None:  # fmt: skip
    """A row (block) of at most 4 THREADS VECTORS columns; `inverse` is 1 / width.

    Floats unless y is 0; a bias unless that is 0.
    """
    row, me, memory = int64(block_x()), int32(thread()), int32(shared(256))
    value = registers(float32(0.0), 4 * VECTORS)
    factor = registers(float32(0.0), 4 * VECTORS)
    for k in static(range(VECTORS)):
        # Weights come from nobody's kernel: they are read while the one before this may still run.
        factor[4 * k], factor[4 * k + 1], factor[4 * k + 2], factor[4 * k + 3] = load_four_fixed(
            weight, int32(4 * (me + THREADS * k)), width
        )
    wait_for_others()
    for k in static(range(VECTORS)):
        value[4 * k], value[4 * k + 1], value[4 * k + 2], value[4 * k + 3] = load_four(
            x + row * x_stride, int32(4 * (me + THREADS * k)), width
        )
    if CENTRED:
        total = float32(0.0)
        for i in static(range(4 * VECTORS)):
            total = total + value[i]
        centre = block_sum(total, memory) * inverse
        for i in static(range(4 * VECTORS)):
            if int32(4 * (me + THREADS * (i // 4)) + i % 4) < width:
                value[i] = value[i] - centre
    squares = float32(0.0)
    for i in static(range(4 * VECTORS)):
        squares = fma(value[i], value[i], squares)
    times = reciprocal(sqrt(fma(block_sum(squares, int32(memory + 128)), inverse, eps)))
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
            store_four(
                y + row * y_stride,
                column,
                width,
                value[4 * k],
                value[4 * k + 1],
                value[4 * k + 2],
                value[4 * k + 3],
            )
        if RECORD == "halves":
            write_halves(
                record + row * record_stride,
                width,
                column,
                value[4 * k],
                value[4 * k + 1],
                value[4 * k + 2],
                value[4 * k + 3],
            )
        elif RECORD == "pairs":
            write_pairs(
                record + row * record_stride,
                width,
                column,
                value[4 * k],
                value[4 * k + 1],
                value[4 * k + 2],
                value[4 * k + 3],
            )


def _long_norm(
    x: int, x_stride: int, weight: int, bias: int, y: int, y_stride: int, record: int, record_stride: int,
    width: int, inverse: float, eps: float,
) -> None:  # fmt: skip
    """The same of any width: every pass reads the row, 4 THREADS columns at a time."""
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
    times = reciprocal(sqrt(fma(block_sum(squares, int32(memory + 128)), inverse, eps)))
    for start in range(0, width, 4 * THREADS):
        column = int32(start + 4 * me)
        value = registers(float32(0.0), 4)
        factor = registers(float32(0.0), 4)
        add = registers(float32(0.0), 4)
        value[0], value[1], value[2], value[3] = load_four(source, column, width)
        factor[0], factor[1], factor[2], factor[3] = load_four_fixed(weight, column, width)
        if bias != 0:
            add[0], add[1], add[2], add[3] = load_four_fixed(bias, column, width)
        for i in static(range(4)):
            # Past the width the weight is 0 and so is what comes out.
            value[i] = fma((value[i] - centre) * times, factor[i], add[i])
        if y != 0:
            store_four(y + row * y_stride, column, width, value[0], value[1], value[2], value[3])
        if RECORD == "halves":
            write_halves(record + row * record_stride, width, column, value[0], value[1], value[2], value[3])
        elif RECORD == "pairs":
            write_pairs(record + row * record_stride, width, column, value[0], value[1], value[2], value[3])


def _heads_norm(
    x: int, x_stride: int, weight: int, bias: int, part_step: int, y: int, y_stride: int, parts: int,
    width: int, inverse: float, eps: float,
) -> None:  # fmt: skip
    """Each of `parts` parts, `width` columns long.

    Block (row, chunk of HEADS_AT_ONCE parts), a warp each; 32 VALUES columns at once.

    `part_step`: bytes from a part's weights to those of the next, 0 where all share them. Floats only.
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
                        total = total + ld_f32_now(source + 4 * int64(column))
            centre = warp_sum(total) * inverse
        squares = float32(0.0)
        for start in range(0, width, 32 * VALUES):
            for k in static(range(VALUES)):
                column = int32(start + lane + 32 * k)
                if column < width:
                    value = ld_f32_now(source + 4 * int64(column)) - centre
                    squares = fma(value, value, squares)
        times = reciprocal(sqrt(fma(warp_sum(squares), inverse, eps)))
        for start in range(0, width, 32 * VALUES):
            for k in static(range(VALUES)):
                column = int32(start + lane + 32 * k)
                if column < width:
                    at = 4 * int64(column)
                    value = (ld_f32_now(source + at) - centre) * times * ld_f32(factors + at)
                    if bias != 0:
                        value = value + ld_f32(adds + at)
                    st_f32(target + at, value)


@cache
def norm_kernel(kind: str, width: int, record: str = "none") -> Kernel:
    """See `_norm` and `_long_norm`; `kind` is "rms" or "layer", `record` "none", "halves" or "pairs"."""
    assert kind in ("rms", "layer")
    kept = [(threads, vectors) for threads, vectors in SIZES if width <= 4 * threads * vectors]
    threads, vectors = kept[0] if kept else SIZES[-1]
    name = f"{kind}_norm_{4 * threads * vectors if kept else 'long'}_{record}"
    constants = {
        "THREADS": threads,
        "WARPS": threads // 32,
        "VECTORS": vectors,
        "CENTRED": kind == "layer",
        "RECORD": record,
    }
    body, most = _norm if kept else _long_norm, {256: 40, 512: 48}.get(threads, 60)
    return Kernel(name, body, "lllllllliff", threads, most, constants, least=least(record), model="norm")


@cache
def heads_norm_kernel(kind: str) -> Kernel:
    """See `_heads_norm`; `kind` is "rms" or "layer"."""
    assert kind in ("rms", "layer")
    constants = {"WARPS": HEADS_AT_ONCE, "VALUES": VALUES, "CENTRED": kind == "layer"}
    return Kernel(
        f"{kind}_norm_heads",
        _heads_norm,
        "llllllliiff",
        32 * HEADS_AT_ONCE,
        48,
        constants,
        model="heads_norm",
    )


def norm_call(
    norm: tuple[str, float],
    x: Buffer,
    weight: int,
    bias: int,
    y: Buffer | None,
    kind: str = "none",
    record: Buffer | None = None,
) -> Call:
    """The norm of whole rows, into y and, or, into a record of that `kind`.

    `norm`: "rms" or "layer", and epsilon. `weight` and `bias` are addresses of float32 (x.width,); a bias of
    0 is none.
    """
    name, eps = norm
    assert y is None or (y.width, y.copies, y.on_logit_rows) == (x.width, x.copies, x.on_logit_rows)
    assert name == "layer" or not bias
    outs, written = wanted(kind, y, record)
    arguments = (x, x.stride, weight, bias, *outs, x.width, 1.0 / x.width, eps)
    return Call(
        norm_kernel(name, x.width, kind), rows_first(), arguments, (x,), written, x.on_logit_rows, x.copies
    )


def heads_norm_call(
    norm: tuple[str, float], x: Buffer, weight: int, bias: int, y: Buffer, heads: int, shared_weight: bool
) -> Call:
    """The norm of each of `heads` equal parts of a row; with `shared_weight` all have the same weight and
    bias, of a part's length.
    """
    name, eps = norm
    assert (y.width, y.copies, y.on_logit_rows) == (x.width, x.copies, x.on_logit_rows)
    assert x.width % heads == 0
    assert name == "layer" or not bias
    width = x.width // heads
    step = 0 if shared_weight else 4 * width
    arguments = (x, x.stride, weight, bias, step, y, y.stride, heads, width, 1.0 / width, eps)
    blocks = rows_first(-(-heads // HEADS_AT_ONCE))
    return Call(heads_norm_kernel(name), blocks, arguments, (x,), (y,), x.on_logit_rows, x.copies)


def forms() -> Iterator[Kernel]:
    """For the registry."""
    for kind in ("rms", "layer"):
        for record in ("none", "halves", "pairs"):
            # Layer norms of rows beyond 4096 columns are all but gone.
            for threads, vectors in SIZES if kind == "rms" or record == "none" else SIZES[:2]:
                yield norm_kernel(kind, 4 * threads * vectors, record)
        yield norm_kernel(kind, MOST_KEPT + 1)
        yield heads_norm_kernel(kind)
    yield norm_kernel("rms", MOST_KEPT + 1, "halves")
