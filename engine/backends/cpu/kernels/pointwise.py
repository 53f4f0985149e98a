"""Elementwise kernels: activations, gates, sums, soft caps.

All share one template: a tile is a chunk of a row of one or two inputs, with up to three constants. Each
kernel maps zeros to zero, so the padding of rows stays zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types

from engine.backends.activations import SHAPED
from engine.backends.cpu.codegen.memory_ops import ld_f64, ld_i64
from engine.backends.cpu.codegen.simd import (
    I64,
    VF32,
    const_vector,
    counted_loop,
    exp_vector,
    fma,
    intrinsic_function,
    load,
    splat,
    square_root,
    store,
    tanh_vector,
)
from engine.backends.cpu.codegen.specialise import specialise
from engine.backends.cpu.lowering.call import Calls, Table
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.rows import Activate, ActivateWith, Add, Gated, SoftCap

(P_X, P_OTHER, P_Y, P_STRIDE, P_CHUNKS, P_FIRST, P_SECOND, P_THIRD) = range(8)
"""Addresses of x, the other input and y; their stride in bytes; chunks of a row; three float64 constants."""
CHUNK_VECTORS = 64
"""Vectors of one tile: 1,024 values."""

Emit = Callable[[ir.IRBuilder, ir.Value], ir.Value]


def emit_sigmoid(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """1 / (1 + exp(-x)) of a vector."""
    positive = b.fcmp_ordered(">=", x, const_vector(0.0))
    # exp of minus |x| cannot overflow: sigmoid(x) is 1 / (1 + e) or e / (1 + e).
    e = exp_vector(b, b.select(positive, b.fsub(const_vector(0.0), x), x))
    return b.fdiv(b.select(positive, const_vector(1.0), e), b.fadd(const_vector(1.0), e))


def _polynomial(b: ir.IRBuilder, x: ir.Value, coefficients: tuple[float, ...]) -> ir.Value:
    """The polynomial with these coefficients, highest power first, by Horner's rule."""
    value: ir.Value = const_vector(coefficients[0])
    for c in coefficients[1:]:
        value = fma(b, value, x, const_vector(c))
    return value


_ERF = (
    7.853861353153693e-5, -8.010193625184903e-4, 5.188327685732524e-3, -2.685381193529856e-2,
    1.128358514861418e-1, -3.761262582423300e-1, 1.128379165726710e0,
)  # fmt: skip
_ERFC_BELOW_2 = (
    2.326819970068386e-2, -1.387039388740657e-1, 3.687424674597105e-1, -5.824733027278666e-1,
    6.210004621745983e-1, -4.944515323274145e-1, 3.404879937665872e-1, -2.741127028184656e-1,
    5.638259427386472e-1,
)  # fmt: skip
_ERFC_ABOVE_2 = (
    -1.047766399936249e1, 1.297719955372516e1, -7.495518717768503e0, 2.921019019210786e0,
    -1.015265279202700e0, 4.218463358204948e-1, -2.820767439740514e-1, 5.641895067754075e-1,
)  # fmt: skip


def _normal_share(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Phi(x), the standard normal distribution function, by the polynomials of Cephes' erff and erfcf."""
    negative = b.fcmp_ordered("<", x, const_vector(0.0))
    z = b.fmul(b.select(negative, b.fsub(const_vector(0.0), x), x), const_vector(math.sqrt(0.5)))
    square = b.fmul(z, z)
    small = b.fcmp_ordered("<", z, const_vector(1.0))
    erf = b.fmul(z, _polynomial(b, square, _ERF))
    inverse = b.fdiv(const_vector(1.0), b.select(small, const_vector(1.0), z))
    inverse_square = b.fmul(inverse, inverse)
    below = b.fcmp_ordered("<", z, const_vector(2.0))
    tail = b.select(
        below, _polynomial(b, inverse_square, _ERFC_BELOW_2), _polynomial(b, inverse_square, _ERFC_ABOVE_2)
    )
    erfc = b.fmul(b.fmul(exp_vector(b, b.fsub(const_vector(0.0), square)), inverse), tail)
    erfc = b.select(small, b.fsub(const_vector(1.0), erf), erfc)
    half = b.fmul(const_vector(0.5), erfc)
    return b.select(negative, half, b.fsub(const_vector(1.0), half))


def _gelu_tanh(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    # (1 + tanh u) / 2 is the sigmoid of 2 u.
    inner = fma(b, b.fmul(x, x), const_vector(0.044715), const_vector(1.0))
    return b.fmul(x, emit_sigmoid(b, b.fmul(b.fmul(x, inner), const_vector(2 * math.sqrt(2 / math.pi)))))


def _relu(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return b.select(b.fcmp_ordered(">", x, const_vector(0.0)), x, const_vector(0.0))


def _relu2(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    positive = _relu(b, x)
    return b.fmul(positive, positive)


def _softplus(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """log(1 + e^x) = max(x, 0) + 2 artanh(e / (2 + e)) with e = e^-|x|: artanh z by its series, z <= 1/3."""
    positive = b.fcmp_ordered(">", x, const_vector(0.0))
    e = exp_vector(b, b.select(positive, b.fsub(const_vector(0.0), x), x))
    z = b.fdiv(e, b.fadd(const_vector(2.0), e))
    series = _polynomial(b, b.fmul(z, z), tuple(1 / n for n in range(13, 0, -2)))
    return b.fadd(_relu(b, x), b.fmul(b.fmul(const_vector(2.0), z), series))


_ACTIVATIONS: dict[str, Emit] = {
    "silu": lambda b, x: b.fmul(x, emit_sigmoid(b, x)),
    "gelu": lambda b, x: b.fmul(x, _normal_share(b, x)),
    "gelu_tanh": _gelu_tanh,
    "relu": _relu,
    "relu2": _relu2,
}
_GATES: dict[str, Emit] = {
    **_ACTIVATIONS,
    "sigmoid": emit_sigmoid,
    "softplus": _softplus,
    "identity": lambda b, x: x,
}


def _clamped_swiglu(b: ir.IRBuilder, gate: ir.Value, up: ir.Value) -> ir.Value:
    top, bottom = const_vector(7.0), const_vector(-7.0)
    gate = b.select(b.fcmp_ordered(">", gate, top), top, gate)
    up = b.select(b.fcmp_ordered(">", up, top), top, b.select(b.fcmp_ordered("<", up, bottom), bottom, up))
    swish = b.fmul(gate, emit_sigmoid(b, b.fmul(gate, const_vector(1.702))))
    return b.fmul(b.fadd(up, const_vector(1.0)), swish)


def _smaller(b: ir.IRBuilder, gate: ir.Value, up: ir.Value) -> ir.Value:
    first, second = (b.select(b.fcmp_ordered("<", x, b.fneg(x)), b.fneg(x), x) for x in (gate, up))
    return b.select(b.fcmp_ordered("<=", first, second), gate, up)


def _expm1_minus(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """e^x - 1 - x for x <= 0: by its series above -1/2, where the difference would lose digits."""
    series = b.fmul(b.fmul(x, x), _polynomial(b, x, tuple(1 / math.factorial(n) for n in range(9, 1, -1))))
    plain = b.fsub(b.fsub(exp_vector(b, x), const_vector(1.0)), x)
    return b.select(b.fcmp_ordered(">", x, const_vector(-0.5)), series, plain)


def _xielu(b: ir.IRBuilder, x: ir.Value, above: ir.Value, below: ir.Value, slope: ir.Value) -> ir.Value:
    positive = b.fcmp_ordered(">", x, const_vector(0.0))
    negative = b.fmul(below, _expm1_minus(b, b.select(positive, const_vector(0.0), x)))
    return fma(b, slope, x, b.select(positive, b.fmul(above, b.fmul(x, x)), negative))


def _between(b: ir.IRBuilder, x: ir.Value, least: ir.Value, most: ir.Value) -> ir.Value:
    x = b.select(b.fcmp_ordered(">", x, most), most, x)
    return b.select(b.fcmp_ordered("<", x, least), least, x)


def _root(b: ir.IRBuilder, x: ir.Value, least: ir.Value) -> ir.Value:
    zero, down = const_vector(0.0), b.fneg(x)
    size = b.select(b.fcmp_ordered(">", x, down), x, down)
    size = b.select(b.fcmp_ordered(">", size, least), size, least)
    root = square_root(b, size)
    negative = b.select(b.fcmp_ordered("<", x, zero), b.fneg(root), zero)
    return b.select(b.fcmp_ordered(">", x, zero), root, negative)


def _emitter(name: str) -> Callable[..., ir.Value]:
    """The function (builder, x, other, the three constants) -> y of the kernel `name`."""
    if name == "add":
        return lambda b, x, other, first, second, third: fma(b, first, other, x)
    if name == "times":
        return lambda b, x, other, first, second, third: b.fmul(first, x)
    if name == "soft_cap":
        return lambda b, x, other, first, second, third: b.fmul(second, tanh_vector(b, b.fmul(first, x)))
    if name == "xielu":
        return lambda b, x, other, first, second, third: _xielu(b, x, first, second, third)
    if name == "clamp":
        return lambda b, x, other, first, second, third: _between(b, x, b.fneg(first), first)
    if name == "between":
        return lambda b, x, other, first, second, third: _between(b, x, first, second)
    if name == "sigmoid":
        return lambda b, x, other, first, second, third: fma(b, first, emit_sigmoid(b, x), second)
    if name == "root":
        return lambda b, x, other, first, second, third: _root(b, x, first)
    kind, _, activation = name.partition("_")
    if kind == "gated" and activation == "clamped_swiglu":
        return lambda b, x, other, first, second, third: _clamped_swiglu(b, x, other)
    if kind == "gated" and activation == "smaller":
        return lambda b, x, other, first, second, third: _smaller(b, x, other)
    act = _GATES[activation]
    if kind == "gated":
        return lambda b, x, other, first, second, third: b.fmul(act(b, x), other)
    return lambda b, x, other, first, second, third: act(b, x)


POINTWISE = (
    "add",
    "times",
    "soft_cap",
    *SHAPED,
    "gated_clamped_swiglu",
    "gated_smaller",
    *(f"gated_{name}" for name in _GATES),
    *(f"activate_{name}" for name in _ACTIVATIONS),
)
"""The kernels' names. "add": x + first * other. "times": first * x. "soft_cap": second * tanh(first * x)."""

vectors_of: Any = None


def _pointwise_template(args: int, step: int, tile: int, scratch: int) -> None:
    chunks, stride = ld_i64(args + 8 * P_CHUNKS), ld_i64(args + 8 * P_STRIDE)
    begin = (tile % chunks) * CHUNK_VECTORS
    offset = (tile // chunks) * stride + 64 * begin
    vectors = min(CHUNK_VECTORS, stride // 64 - begin)
    x, other, y = (
        ld_i64(args + 8 * P_X) + offset,
        ld_i64(args + 8 * P_OTHER) + offset,
        ld_i64(args + 8 * P_Y) + offset,
    )
    first, second, third = (
        ld_f64(args + 8 * P_FIRST),
        ld_f64(args + 8 * P_SECOND),
        ld_f64(args + 8 * P_THIRD),
    )
    vectors_of(x, other, y, vectors, first, second, third)


def pointwise_kernel(name: str) -> Any:
    """The kernel `name`, one of `POINTWISE`."""
    value_of = _emitter(name)

    def emit(b: ir.IRBuilder, x: Any, other: Any, y: Any, vectors: Any, *numbers: Any) -> None:
        constants = [splat(b, number) for number in numbers]
        with counted_loop(b, vectors) as i:
            offset = b.mul(i, ir.Constant(I64, 64))
            store(
                b,
                value_of(b, load(b, b.add(x, offset), VF32), load(b, b.add(other, offset), VF32), *constants),
                b.add(y, offset),
            )

    signature = (*(types.int64,) * 4, *(types.float32,) * 3)
    return specialise(
        _pointwise_template,
        name,
        vectors_of=intrinsic_function(f"vectors_{name}", types.void, signature, emit),
    )


# --- lowering -----------------------------------------------------------------------------------------------


def _pointwise(calls: Calls, kernel: str, x: Buffer, other: Buffer, y: Buffer, *numbers: float) -> None:
    assert (x.width, x.copies, x.on_logit_rows) == (other.width, other.copies, other.on_logit_rows)
    chunks = -(-(y.stride // 64) // CHUNK_VECTORS)
    constants = (*numbers, 0.0, 0.0, 0.0)[:3]
    calls.each_row(kernel, [x, other, y, y.stride, chunks, *constants], [x, other], y, chunks)


def _gated(calls: Calls, node: Gated) -> None:
    _pointwise(calls, f"gated_{node.activation}", node.gate, node.up, node.y)


def _activate(calls: Calls, node: Activate) -> None:
    _pointwise(calls, f"activate_{node.activation}", node.x, node.x, node.y)


def _activate_with(calls: Calls, node: ActivateWith) -> None:
    _pointwise(calls, node.function, node.x, node.x, node.y, *node.numbers)


def _add(calls: Calls, node: Add) -> None:
    _pointwise(calls, "add", node.x, node.z, node.y, node.scale)


def _soft_cap(calls: Calls, node: SoftCap) -> None:
    x, y = node.x, node.y
    if node.cap:
        _pointwise(calls, "soft_cap", x, x, y, node.scale / node.cap, node.cap)
    else:
        _pointwise(calls, "times", x, x, y, node.scale)


LOWER: Table = {
    Gated: _gated, Activate: _activate, ActivateWith: _activate_with, Add: _add, SoftCap: _soft_cap,
}  # fmt: skip
