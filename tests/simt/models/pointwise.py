from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.simt.interpreter import Memory
from tests.simt.models.packed_activations import write_packed

_erf = np.vectorize(math.erf, otypes=[np.float64])


def activation(name: str, x: Any) -> Any:
    """float64, by the formulas of `Ops.activate`."""
    x = x.astype(np.float64)
    if name == "silu":
        return x / (1 + np.exp(-x))
    if name == "gelu":
        return x * 0.5 * (1 + _erf(x / math.sqrt(2)))
    if name == "gelu_tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    if name == "softplus":
        return np.logaddexp(0.0, x)
    if name in ("sigmoid", "identity"):
        return 1 / (1 + np.exp(-x)) if name == "sigmoid" else x
    assert name in ("relu", "relu2")
    return np.maximum(x, 0) if name == "relu" else np.maximum(x, 0) ** 2


def gated(
    memory: Memory,
    blocks: Any,
    constants: Any,
    gate: int,
    gs: int,
    up: int,
    us: int,
    y: int,
    ys: int,
    packed: int,
    rs: int,
    width: int,
) -> None:
    name = constants["ACTIVATION"]
    for row in range(blocks[0]):
        a = memory.view(gate + row * gs, np.float32, width)
        b = memory.view(up + row * us, np.float32, width) if constants["GATED"] else 1
        with np.errstate(all="ignore"):
            if name == "clamped_swiglu":
                a, b = np.minimum(a.astype(np.float64), 7), np.clip(b, -7, 7)
                out = (b + 1) * a / (1 + np.exp(-1.702 * a))
            elif name == "smaller":
                out = np.where(np.abs(a) <= np.abs(b), a, b)
            else:
                out = activation(name, a) * b
            out = out.astype(np.float32)
        if y:
            memory.view(y + row * ys, np.float32, width)[:] = out
        write_packed(memory, packed + row * rs, constants["FORM"], out)


def add(
    memory: Memory,
    blocks: Any,
    constants: Any,
    x: int,
    xs: int,
    o: int,
    os: int,
    y: int,
    ys: int,
    width: int,
    s: float,
) -> None:
    for row in range(blocks[0]):
        a, b = (memory.view(base + row * stride, np.float32, width) for base, stride in ((x, xs), (o, os)))
        memory.view(y + row * ys, np.float32, width)[:] = a + np.float32(s) * b


def soft_cap(
    memory: Memory,
    blocks: Any,
    constants: Any,
    x: int,
    xs: int,
    y: int,
    ys: int,
    width: int,
    scale: float,
    cap: float,
) -> None:
    for row in range(blocks[0]):
        a = memory.view(x + row * xs, np.float32, width) * np.float32(scale)
        out = np.float32(cap) * np.tanh(a) if constants["CAPPED"] else a
        memory.view(y + row * ys, np.float32, width)[:] = out


def activate_with(
    memory: Memory,
    blocks: Any,
    constants: Any,
    x: int,
    xs: int,
    y: int,
    ys: int,
    width: int,
    first: float,
    second: float,
    third: float,
) -> None:
    for row in range(blocks[0]):
        a = memory.view(x + row * xs, np.float32, width).astype(np.float64)
        if constants["ACTIVATION"] == "clamp":
            out = np.clip(a, -np.float32(first), np.float32(first))
        elif constants["ACTIVATION"] == "between":
            out = np.clip(a, np.float32(first), np.float32(second))
        elif constants["ACTIVATION"] == "sigmoid":
            out = first / (1 + np.exp(-a)) + second
        elif constants["ACTIVATION"] == "root":
            out = np.sign(a) * np.sqrt(np.maximum(np.abs(a), np.float32(first)))
        else:
            out = np.where(a > 0, first * a * a, second * (np.expm1(np.minimum(a, 0)) - a)) + third * a
        memory.view(y + row * ys, np.float32, width)[:] = out


def add_positions(
    memory: Memory,
    blocks: Any,
    constants: Any,
    x: int,
    xs: int,
    table: int,
    y: int,
    ys: int,
    width: int,
    positions: int,
) -> None:
    for row in range(blocks[0]):
        place = int(memory.view(positions + 4 * row, np.int32, 1)[0])
        learned = memory.view(table + 4 * width * place, np.float32, width)
        memory.view(y + row * ys, np.float32, width)[:] = (
            memory.view(x + row * xs, np.float32, width) + learned
        )


def balance(
    memory: Memory, blocks: Any, constants: Any, x: int, xs: int, y: int, ys: int, rows: int, rounds: int,
    eps: float, added: float,
) -> None:  # fmt: skip
    size = constants["SIZE"]
    for row in range(rows):
        made = memory.view(x + row * xs, np.float32, size * size).reshape(size, size).astype(np.float64)
        made = np.exp(made - made.max(0))
        made = made / made.sum(0) + added
        for axis in (1, *(0, 1) * (rounds - 1)):
            made = made / (made.sum(axis, keepdims=True) + eps)
        memory.view(y + row * ys, np.float32, size * size)[:] = made.reshape(-1)


def column_softmax(
    memory: Memory, blocks: Any, constants: Any, x: int, xs: int, y: int, ys: int, size: int, columns: int,
    added: float,
) -> None:  # fmt: skip
    assert blocks[1] == columns
    for row in range(blocks[0]):
        made = memory.view(x + row * xs, np.float32, size * columns).reshape(size, columns).astype(np.float64)
        made = np.exp(made - made.max(0))
        memory.view(y + row * ys, np.float32, size * columns)[:] = (made / made.sum(0) + added).reshape(-1)


MODELS: dict[str, Callable[..., None]] = {
    "balance.balance": balance,
    "balance.column_softmax": column_softmax,
    "pointwise.gated": gated,
    "pointwise.add": add,
    "pointwise.soft_cap": soft_cap,
    "shaped.activate_with": activate_with,
    "pointwise.add_positions": add_positions,
}
