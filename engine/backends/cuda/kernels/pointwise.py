"""Elementwise kernels: activations, sums, scales. Each thread holds four adjacent columns.

Activations follow their formulas for every finite input: an exponential may become infinite, but it is then
never subtracted or multiplied in a way that gives NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from engine.backends.activations import ACTIVATIONS, GATES
from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    absolute,
    block_x,
    block_y,
    exp2,
    fma,
    ld_f32,
    ld_i32,
    ldg_f32,
    maximum,
    minimum,
    near_reciprocal,
    reciprocal,
    registers,
    st_f32,
    static,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64
from engine.backends.cuda.kernels.common import LOG2_E
from engine.backends.cuda.kernels.packed_activations_write import (
    capability_for,
    chunks,
    load_four,
    output_arguments,
    rows_first,
    store_four,
    write_four,
)
from engine.backends.cuda.lowering.call import Call, Runtime
from engine.backends.cuda.lowering.context import Calls, Context, Table
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.rows import Activate, Add, AddPositions, Gated, SoftCap

THREADS = 128
ACTIVATION = "silu"
GATED = True
CAPPED = True
FORM = "none"

# --- functions of one number --------------------------------------------------------------------------------


def exponential(x: float) -> Any:
    """e^x with a relative error of about 2^-22 for small |x|; underflows to 0 and overflows to infinity."""
    return exp2(float32(LOG2_E) * x)


def softplus(x: float) -> Any:
    """log(1 + e^x) = max(x, 0) + 2 artanh(e / (2 + e)), e = e^-|x|, as a series."""
    e = exponential(-absolute(x))
    z = e * near_reciprocal(float32(2.0) + e)
    square = z * z
    series = fma(square, float32(1.0 / 13.0), float32(1.0 / 11.0))
    series = fma(square, fma(square, series, float32(1.0 / 9.0)), float32(1.0 / 7.0))
    series = fma(square, fma(square, series, float32(1.0 / 5.0)), float32(1.0 / 3.0))
    return fma(float32(2.0) * z, fma(square, series, float32(1.0)), maximum(x, float32(0.0)))


def sigmoid(x: float) -> Any:
    """1 / (1 + e^-x)."""
    return reciprocal(float32(1.0) + exponential(-x))


def tanh(x: float) -> Any:
    """tanh(x) with a relative error of about 1e-6.

    The series up to |x| = 1/4 (Abramowitz and Stegun, 4.5.64), else from e^(-2 |x|), which is at most 1.
    """
    size = absolute(x)
    near = minimum(size, float32(0.25))  # the series would overflow for large numbers
    square = near * near
    series = fma(
        square,
        fma(square, fma(square, float32(-17.0 / 315.0), float32(2.0 / 15.0)), float32(-1.0 / 3.0)),
        float32(1.0),
    )
    e = exponential(float32(-2.0) * size)
    far = (float32(1.0) - e) * reciprocal(float32(1.0) + e)
    if size < float32(0.25):
        return x * series
    return far if x > float32(0.0) else -far


def gelu(x: float) -> Any:
    """x Phi(x), with an error of 2e-7 in Phi.

    erfc(z) = (a1 t + .. + a5 t^5) e^(-z^2), t = 1 / (1 + p z), z >= 0. Source: Abramowitz and Stegun, 7.1.26.
    """
    z = absolute(x) * float32(0.7071067811865476)
    t = reciprocal(fma(float32(0.3275911), z, float32(1.0)))
    p = fma(t, float32(1.061405429), float32(-1.453152027))
    p = fma(t, fma(t, fma(t, p, float32(1.421413741)), float32(-0.284496736)), float32(0.254829592))
    half_tail = float32(0.5) * t * p * exponential(-(z * z))
    return x * (half_tail if x < float32(0.0) else float32(1.0) - half_tail)


def gelu_tanh(x: float) -> Any:
    """x (1 + tanh u) / 2 = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3)."""
    return x * sigmoid(float32(1.5957691216057308) * fma(float32(0.044715) * x * x, x, x))


def silu(x: float) -> Any:
    """x sigmoid(x)."""
    return x * sigmoid(x)


def clamped_swiglu(gate: float, up: float) -> Any:
    """(up + 1) gate sigmoid(1.702 gate), with gate at most 7 and up clamped to -7 .. 7."""
    gate = minimum(gate, float32(7.0))
    up = maximum(minimum(up, float32(7.0)), float32(-7.0))
    return (up + float32(1.0)) * gate * sigmoid(float32(1.702) * gate)


# --- kernels ------------------------------------------------------------------------------------------------


def _gated(
    gate: int,
    gate_stride: int,
    up: int,
    up_stride: int,
    y: int,
    y_stride: int,
    packed: int,
    packed_stride: int,
    width: int,
) -> None:
    """activation(gate) * up, without GATED activation(gate): as float32 unless y is 0, and packed as FORM.

    Strides in bytes, rows of `width` columns. Grid (row, chunk of 4 THREADS columns).
    """
    wait_for_others()
    row = int64(block_x())
    column = int32(4 * int32(block_y() * THREADS + thread()))
    out = registers(float32(0.0), 4)
    other = registers(float32(0.0), 4)
    out[0], out[1], out[2], out[3] = load_four(gate + row * gate_stride, column, width)
    if GATED:
        other[0], other[1], other[2], other[3] = load_four(up + row * up_stride, column, width)
    for i in static(range(4)):
        if ACTIVATION == "clamped_swiglu":
            out[i] = clamped_swiglu(out[i], other[i])
        elif ACTIVATION == "smaller":
            if maximum(out[i], -out[i]) > maximum(other[i], -other[i]):
                out[i] = other[i]
        elif ACTIVATION == "silu":
            out[i] = silu(out[i])
        elif ACTIVATION == "gelu":
            out[i] = gelu(out[i])
        elif ACTIVATION == "gelu_tanh":
            out[i] = gelu_tanh(out[i])
        elif ACTIVATION == "sigmoid":
            out[i] = sigmoid(out[i])
        elif ACTIVATION == "softplus":
            out[i] = softplus(out[i])
        elif ACTIVATION != "identity":
            out[i] = maximum(out[i], float32(0.0))
            if ACTIVATION == "relu2":
                out[i] = out[i] * out[i]
        if GATED and ACTIVATION not in ("clamped_swiglu", "smaller"):
            out[i] = out[i] * other[i]
    write_four(y, y_stride, packed, packed_stride, row, width, column, out[0], out[1], out[2], out[3])


def _add(
    x: int, x_stride: int, other: int, other_stride: int, y: int, y_stride: int, width: int, scale: float
) -> None:
    """y = x + scale * other. Grid (row, chunk of 4 THREADS columns)."""
    wait_for_others()
    row = int64(block_x())
    column = int32(4 * int32(block_y() * THREADS + thread()))
    if column < width:
        a, b, c, d = load_four(x + row * x_stride, column, width)
        e, f, g, h = load_four(other + row * other_stride, column, width)
        a, b, c, d = fma(scale, e, a), fma(scale, f, b), fma(scale, g, c), fma(scale, h, d)
        store_four(y + row * y_stride, column, width, a, b, c, d)


def _soft_cap(x: int, x_stride: int, y: int, y_stride: int, width: int, scale: float, cap: float) -> None:
    """y = cap tanh(scale x), or scale x without CAPPED. Grid (row, chunk of 4 THREADS columns)."""
    wait_for_others()
    row = int64(block_x())
    column = int32(4 * int32(block_y() * THREADS + thread()))
    if column < width:
        out = registers(float32(0.0), 4)
        out[0], out[1], out[2], out[3] = load_four(x + row * x_stride, column, width)
        for i in static(range(4)):
            out[i] = out[i] * scale
            if CAPPED:
                out[i] = cap * tanh(out[i])
        store_four(y + row * y_stride, column, width, out[0], out[1], out[2], out[3])


def _add_positions(
    x: int, x_stride: int, table: int, y: int, y_stride: int, width: int, positions: int
) -> None:
    """y = x + the table's row at each row's position. Grid (row, chunk of THREADS columns).

    x, y: float32, strides in bytes; table: float32 (positions, width);
    `positions`: address of the rows' positions.
    """
    wait_for_others()
    row = int64(block_x())
    column = int32(block_y() * THREADS + thread())
    if column < width:
        place = int64(ld_i32(positions + 4 * row))
        at = 4 * int64(column)
        st_f32(
            y + row * y_stride + at,
            ld_f32(x + row * x_stride + at) + ldg_f32(table + 4 * (place * int64(width)) + at),
        )


@cache
def gated_kernel(activation: str, form: str = "none", gated: bool = True) -> Kernel:
    """The kernel `_gated`. `form` is the form of packed activations, or "none".

    Without `gated` the second input is not read.
    """
    assert activation in (GATES if gated else ACTIVATIONS)
    assert gated or activation != "clamped_swiglu"
    constants = {"THREADS": THREADS, "ACTIVATION": activation, "FORM": form, "GATED": gated}
    name = f"{'gated' if gated else 'activate'}_{activation}_{form}"
    return Kernel(name, _gated, "lllllllli", THREADS, 36, constants, min_capability=capability_for(form))


@cache
def add_kernel() -> Kernel:
    return Kernel("add", _add, "llllllif", THREADS, 20, {"THREADS": THREADS})


@cache
def soft_cap_kernel(capped: bool) -> Kernel:
    constants = {"THREADS": THREADS, "CAPPED": capped}
    return Kernel("soft_cap" if capped else "times", _soft_cap, "lllliff", THREADS, 30, constants)


@cache
def add_positions_kernel() -> Kernel:
    return Kernel("add_positions", _add_positions, "lllllil", THREADS, 20, {"THREADS": THREADS})


# --- calls --------------------------------------------------------------------------------------------------


def alike(*buffers: Buffer | None) -> None:
    assert len({(b.width, b.copies, b.on_logit_rows) for b in buffers if b is not None}) == 1


def gated_call(
    activation: str,
    gate: Buffer,
    up: Buffer,
    y: Buffer | None,
    kind: str = "none",
    packed: Buffer | None = None,
) -> Call:
    """activation(gate) * up, into y, into packed activations of the form `kind`, or both."""
    alike(gate, up, y)
    outs, written = output_arguments(kind, y, packed)
    arguments = (gate, gate.stride, up, up.stride, *outs, gate.width)
    return Call(
        gated_kernel(activation, kind),
        rows_first(chunks(gate.width)),
        arguments,
        (gate, up),
        written,
        gate.on_logit_rows,
        gate.copies,
    )


def activate_call(
    activation: str, x: Buffer, y: Buffer | None, kind: str = "none", packed: Buffer | None = None
) -> Call:
    """activation(x), into y, into packed activations of the form `kind`, or both."""
    alike(x, y)
    outs, written = output_arguments(kind, y, packed)
    kernel = gated_kernel(activation, kind, False)
    return Call(
        kernel,
        rows_first(chunks(x.width)),
        (x, x.stride, 0, 0, *outs, x.width),
        (x,),
        written,
        x.on_logit_rows,
        x.copies,
    )


def add_call(x: Buffer, other: Buffer, y: Buffer, scale: float) -> Call:
    """y = x + scale * other, all of the same width."""
    alike(x, other, y)
    arguments = (x, x.stride, other, other.stride, y, y.stride, x.width, scale)
    return Call(
        add_kernel(), rows_first(chunks(x.width)), arguments, (x, other), (y,), x.on_logit_rows, x.copies
    )


def soft_cap_call(x: Buffer, y: Buffer, scale: float, cap: float) -> Call:
    """y = cap tanh(scale x / cap), or scale x if `cap` is 0."""
    alike(x, y)
    arguments = (x, x.stride, y, y.stride, x.width, scale / cap if cap else scale, cap)
    return Call(
        soft_cap_kernel(bool(cap)),
        rows_first(chunks(x.width)),
        arguments,
        (x,),
        (y,),
        x.on_logit_rows,
        x.copies,
    )


def add_positions_call(x: Buffer, table: int, y: Buffer) -> Call:
    """y = x plus the table's row at each row's position; `table`: address of float32 (positions, width)."""
    alike(x, y)
    assert (x.copies, x.on_logit_rows) == (1, False)
    arguments = (x, x.stride, table, y, y.stride, x.width, Runtime.POSITIONS)
    return Call(add_positions_kernel(), rows_first(-(-x.width // THREADS)), arguments, (x,), (y,))


def _gated_calls(_: Context, node: Gated) -> Calls:
    out = node.y if node.floats else None
    return (gated_call(node.activation, node.gate, node.up, out, node.form, node.packed),)


def _activate_calls(_: Context, node: Activate) -> Calls:
    out = node.y if node.floats else None
    return (activate_call(node.activation, node.x, out, node.form, node.packed),)


def _add_positions_calls(context: Context, node: AddPositions) -> Calls:
    table = context.constants.table(node.table, node.device)
    return (add_positions_call(node.x, table, node.y),)


LOWER: Table = {
    Gated: _gated_calls,
    Activate: _activate_calls,
    Add: lambda _, node: (add_call(node.x, node.z, node.y, node.scale),),
    SoftCap: lambda _, node: (soft_cap_call(node.x, node.y, node.scale, node.cap),),
    AddPositions: _add_positions_calls,
}


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists."""
    for form in ("none", "fp16", "bf16x2"):
        for activation in ("silu", "gelu_tanh", "clamped_swiglu"):
            yield gated_kernel(activation, form)
        for activation in ("gelu", "gelu_tanh", "relu", "relu2"):
            yield gated_kernel(activation, form, False)
    yield add_kernel()
    yield soft_cap_kernel(True)
    yield soft_cap_kernel(False)
    yield add_positions_kernel()
