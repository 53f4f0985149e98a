"""RMS norm and layer norm of whole rows, one block per row, alone or after adding the residual.

Sums are float32, in an order that depends only on the width. The output is float32, packed activations, or
both. A row of up to `MOST_KEPT` columns stays in registers; a longer one is read again in each pass. Sources:
arXiv 1910.07467 (RMS norm), 1607.06450 (layer norm).
"""

from __future__ import annotations

from collections.abc import Iterator
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
from engine.backends.cuda.kernels.common import block_sum
from engine.backends.cuda.kernels.packed_activations_write import (
    capability_for,
    load_four,
    load_four_fixed,
    output_arguments,
    rows_first,
    store_four,
    write_four,
)
from engine.backends.cuda.kernels.qk_norm import qk_norm_call
from engine.backends.cuda.lowering.call import Argument, Call
from engine.backends.cuda.lowering.context import Calls, Context, Table
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.rows import AddNorm, Norm, NormParams
from engine.lazy_dataclass import dataclass

SIZES = ((256, 1), (512, 2), (1024, 2))
"""Threads of a block, and how many vectors of four columns each keeps in registers."""
MOST_KEPT = 4 * SIZES[-1][0] * SIZES[-1][1]

THREADS = 256
WARPS = 8
VECTORS = 1
CENTRED = False
POST = True
FORM = "none"


@dataclass(frozen=True)
class RowNorm:
    """A norm: "rms" or "layer", epsilon, addresses of weight and bias (0 for none), float32 (width,)."""

    kind: str
    eps: float
    weight: int
    bias: int = 0


def _load(value: Any, row: int, me: int, width: int) -> None:
    """Load a thread's columns of an activation's row."""
    for k in static(range(VECTORS)):
        value[4 * k], value[4 * k + 1], value[4 * k + 2], value[4 * k + 3] = load_four(
            row, int32(4 * (me + THREADS * k)), width
        )


def _load_fixed(value: Any, row: int, me: int, width: int) -> None:
    """Load a thread's columns of a weight."""
    for k in static(range(VECTORS)):
        value[4 * k], value[4 * k + 1], value[4 * k + 2], value[4 * k + 3] = load_four_fixed(
            row, int32(4 * (me + THREADS * k)), width
        )


def _inverse_rms(value: Any, memory: int, inverse: float, eps: float) -> Any:
    """1 / sqrt(mean square of the row + eps)."""
    squares = float32(0.0)
    for i in static(range(4 * VECTORS)):
        squares = fma(value[i], value[i], squares)
    return reciprocal(sqrt(fma(block_sum(squares, memory), inverse, eps)))


def _write_normed(
    value: Any, factor: Any, bias: int, y: int, y_stride: int, packed: int, packed_stride: int, row: int,
    me: int, memory: int, width: int, inverse: float, eps: float,
) -> None:  # fmt: skip
    """Write the norm of the row `value`, with weights `factor`, to y and the packed activations."""
    if CENTRED:
        total = float32(0.0)
        for i in static(range(4 * VECTORS)):
            total = total + value[i]
        centre = block_sum(total, memory) * inverse
        for i in static(range(4 * VECTORS)):
            if int32(4 * (me + THREADS * (i // 4)) + i % 4) < width:
                value[i] = value[i] - centre
    times = _inverse_rms(value, int32(memory + 128), inverse, eps)
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
        write_four(
            y, y_stride, packed, packed_stride, row, width, column,
            value[4 * k], value[4 * k + 1], value[4 * k + 2], value[4 * k + 3],
        )  # fmt: skip


def _norm(
    x: int, x_stride: int, weight: int, bias: int, y: int, y_stride: int, packed: int, packed_stride: int,
    width: int, inverse: float, eps: float,
) -> None:  # fmt: skip
    """y = (x - mean) / sqrt(var + eps) * weight (+ bias); for RMS norm the mean is taken as 0. Grid (row).

    x, y: float32 (rows, width), strides in bytes, width <= 4 THREADS VECTORS; `inverse` = 1 / width. weight,
    bias: float32 (width,), bias 0 for none. With y 0 only the packed activations are written.
    """
    row, me, memory = int64(block_x()), int32(thread()), int32(shared(256))
    value = registers(float32(0.0), 4 * VECTORS)
    factor = registers(float32(0.0), 4 * VECTORS)
    # No kernel writes weights, so they are read while the previous kernel may still run.
    _load_fixed(factor, weight, me, width)
    wait_for_others()
    _load(value, x + row * x_stride, me, width)
    _write_normed(
        value, factor, bias, y, y_stride, packed, packed_stride, row, me, memory, width, inverse, eps
    )


def _sum_norm(
    z: int, z_stride: int, post: int, x: int, x_stride: int, total: int, total_stride: int, weight: int,
    bias: int, y: int, y_stride: int, packed: int, packed_stride: int, width: int, inverse: float,
    scale: float, post_eps: float, eps: float,
) -> None:  # fmt: skip
    """total = x + scale * z; y and the packed activations are the norm of total. Grid (row).

    With POST, z is replaced by its RMS norm with weights `post` and
    `post_eps`. Other arguments as in `_norm`.
    """
    row, me, memory = int64(block_x()), int32(thread()), int32(shared(384))
    value = registers(float32(0.0), 4 * VECTORS)
    before = registers(float32(0.0), 4 * VECTORS)
    first = registers(float32(1.0), 4 * VECTORS)
    factor = registers(float32(0.0), 4 * VECTORS)
    _load_fixed(factor, weight, me, width)
    if POST:
        _load_fixed(first, post, me, width)
    wait_for_others()
    _load(value, z + row * z_stride, me, width)
    _load(before, x + row * x_stride, me, width)
    if POST:
        shrink = _inverse_rms(value, int32(memory + 256), inverse, post_eps)
        for i in static(range(4 * VECTORS)):
            value[i] = value[i] * shrink * first[i]
    for i in static(range(4 * VECTORS)):
        value[i] = fma(scale, value[i], before[i])
    for k in static(range(VECTORS)):
        store_four(
            total + row * total_stride, int32(4 * (me + THREADS * k)), width,
            value[4 * k], value[4 * k + 1], value[4 * k + 2], value[4 * k + 3],
        )  # fmt: skip
    _write_normed(
        value, factor, bias, y, y_stride, packed, packed_stride, row, me, memory, width, inverse, eps
    )


def _long_norm(
    x: int, x_stride: int, weight: int, bias: int, y: int, y_stride: int, packed: int, packed_stride: int,
    width: int, inverse: float, eps: float,
) -> None:  # fmt: skip
    """`_norm` for any width: each pass reads the row again, 4 THREADS columns at a time."""
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
            # Past the width the weight is 0, and so is the result.
            value[i] = fma((value[i] - centre) * times, factor[i], add[i])
        write_four(
            y, y_stride, packed, packed_stride, row, width, column, value[0], value[1], value[2], value[3]
        )


@cache
def norm_kernel(kind: str, width: int, form: str = "none") -> Kernel:
    """The kernel `_norm`, or `_long_norm` for wide rows. `kind` is "rms" or "layer".

    `form` is the form of packed activations, or "none".
    """
    assert kind in ("rms", "layer")
    kept = [(threads, vectors) for threads, vectors in SIZES if width <= 4 * threads * vectors]
    threads, vectors = kept[0] if kept else SIZES[-1]
    name = f"{kind}_norm_{4 * threads * vectors if kept else 'long'}_{form}"
    constants = {
        "THREADS": threads,
        "WARPS": threads // 32,
        "VECTORS": vectors,
        "CENTRED": kind == "layer",
        "FORM": form,
    }
    body, most = _norm if kept else _long_norm, {256: 40, 512: 48}.get(threads, 60)
    return Kernel(name, body, "lllllllliff", threads, most, constants, min_capability=capability_for(form))


@cache
def sum_norm_kernel(kind: str, width: int, post: bool, form: str = "none") -> Kernel:
    """The kernel `_sum_norm` for rows of at most `MOST_KEPT` columns.

    `kind` is that of the norm of the sum, "rms" or "layer"; `form` as in `norm_kernel`.
    """
    assert kind in ("rms", "layer")
    threads, vectors = next((t, v) for t, v in SIZES if width <= 4 * t * v)
    name = f"{'norm_' if post else ''}add_{kind}_norm_{4 * threads * vectors}_{form}"
    constants = {
        "THREADS": threads,
        "WARPS": threads // 32,
        "VECTORS": vectors,
        "POST": post,
        "CENTRED": kind == "layer",
        "FORM": form,
    }
    most = {256: 48, 512: 64}.get(threads, 64)
    return Kernel(
        name,
        _sum_norm,
        "lllllllllllll" + "iffff",
        threads,
        most,
        constants,
        min_capability=capability_for(form),
    )


def norm_call(
    norm: tuple[str, float],
    x: Buffer,
    weight: int,
    bias: int,
    y: Buffer | None,
    kind: str = "none",
    packed: Buffer | None = None,
) -> Call:
    """The norm of whole rows, into y, into packed activations of the form `kind`, or both.

    `norm` is "rms" or "layer", and epsilon. weight, bias: addresses of float32
    (x.width,); a bias of 0 means none.
    """
    name, eps = norm
    assert y is None or (y.width, y.copies, y.on_logit_rows) == (x.width, x.copies, x.on_logit_rows)
    assert name == "layer" or not bias
    outs, written = output_arguments(kind, y, packed)
    arguments = (x, x.stride, weight, bias, *outs, x.width, 1.0 / x.width, eps)
    return Call(
        norm_kernel(name, x.width, kind), rows_first(), arguments, (x,), written, x.on_logit_rows, x.copies
    )


def sum_norm_call(
    z: Buffer, post: RowNorm | None, x: Buffer, scale: float, total: Buffer, norm: RowNorm,
    y: Buffer | None, kind: str = "none", packed: Buffer | None = None,
) -> Call:  # fmt: skip
    """total = x + scale * z, and its `norm` into y, into packed activations of the form `kind`, or both.

    With `post`, z is replaced by that norm of it, which must be "rms". All rows have
    the same width, at most `MOST_KEPT`.
    """
    assert (
        len({(b.width, b.copies, b.on_logit_rows) for b in (z, x, total, *(() if y is None else (y,)))}) == 1
    )
    assert x.width <= MOST_KEPT
    assert post is None or (post.kind, post.bias) == ("rms", 0)
    assert norm.kind == "layer" or not norm.bias
    outs, written = output_arguments(kind, y, packed)
    arguments: tuple[Argument, ...] = (
        z, z.stride, 0 if post is None else post.weight, x, x.stride, total, total.stride, norm.weight,
        norm.bias, *outs, x.width, 1.0 / x.width, scale, 0.0 if post is None else post.eps, norm.eps,
    )  # fmt: skip
    kernel = sum_norm_kernel(norm.kind, x.width, post is not None, kind)
    return Call(kernel, rows_first(), arguments, (z, x), (total, *written), x.on_logit_rows, x.copies)


def _row_norm(context: Context, params: NormParams, device: int) -> RowNorm:
    weight, bias = context.vector(params.weight, device), context.vector(params.bias, device)
    return RowNorm(params.kind, params.eps, weight, bias)


def _norm_calls(context: Context, node: Norm) -> Calls:
    x, y, heads = node.x, node.y, node.heads
    norm = _row_norm(context, node.params, node.device)
    kind = norm.kind, norm.eps
    if heads > 1:
        shared_weight = node.params.weight.size == x.width // heads
        return (qk_norm_call(kind, x, norm.weight, norm.bias, y, heads, shared_weight),)
    out = y if node.floats else None
    return (norm_call(kind, x, norm.weight, norm.bias, out, node.form, node.packed),)


def _sum_norm_calls(context: Context, node: AddNorm) -> Calls:
    post = None if node.post is None else _row_norm(context, node.post, node.device)
    norm, out = _row_norm(context, node.params, node.device), node.y if node.floats else None
    call = sum_norm_call(node.z, post, node.x, node.scale, node.total, norm, out, node.form, node.packed)
    return (call,)


LOWER: Table = {Norm: _norm_calls, AddNorm: _sum_norm_calls}


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists."""
    for kind in ("rms", "layer"):
        for form in ("none", "fp16", "bf16x2"):
            # Layer norms of rows beyond 4096 columns are rare.
            for threads, vectors in SIZES if kind == "rms" or form == "none" else SIZES[:2]:
                yield norm_kernel(kind, 4 * threads * vectors, form)
        yield norm_kernel(kind, MOST_KEPT + 1)
    yield norm_kernel("rms", MOST_KEPT + 1, "fp16")
    # For models with a norm after each block, and for those that scale a block's output.
    for form in ("none", "fp16", "bf16x2"):
        for width in (4096, MOST_KEPT):
            yield sum_norm_kernel("rms", width, True, form)
        yield sum_norm_kernel("rms", 4096, False, form)
