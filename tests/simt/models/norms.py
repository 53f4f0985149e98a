from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.simt.interpreter import Memory
from tests.simt.models.packed_activations import write_packed


def normed(x: Any, centred: bool, inverse: float, eps: float) -> Any:
    """Parts (..., width), not yet weighted."""
    if centred:
        x = x - x.sum(-1, keepdims=True) * np.float32(inverse)
    return x / np.sqrt((x * x).sum(-1, keepdims=True) * np.float32(inverse) + np.float32(eps))


def norm(
    memory: Memory, blocks: Any, constants: Any, x: int, xs: int, weight: int, bias: int, y: int, ys: int,
    packed: int, rs: int, width: int, inverse: float, eps: float,
) -> None:  # fmt: skip
    w = memory.view(weight, np.float32, width)
    for row in range(blocks[0]):
        out = normed(memory.view(x + row * xs, np.float32, width), constants["CENTRED"], inverse, eps) * w
        if bias:
            out = out + memory.view(bias, np.float32, width)
        if y:
            memory.view(y + row * ys, np.float32, width)[:] = out
        write_packed(memory, packed + row * rs, constants["FORM"], out)


def qk_norm(
    memory: Memory, blocks: Any, constants: Any, x: int, xs: int, weight: int, bias: int, step: int, y: int,
    ys: int, parts: int, width: int, inverse: float, eps: float,
) -> None:  # fmt: skip
    for row in range(blocks[0]):
        out = normed(
            memory.view(x + row * xs, np.float32, parts * width).reshape(parts, width),
            constants["CENTRED"],
            inverse,
            eps,
        )
        count = parts if step else 1
        out = out * memory.view(weight, np.float32, count * width).reshape(count, width)
        if bias:
            out = out + memory.view(bias, np.float32, count * width).reshape(count, width)
        memory.view(y + row * ys, np.float32, parts * width)[:] = out.reshape(-1)


def magnitude(
    memory: Memory, blocks: Any, constants: Any, x: int, xs: int, y: int, ys: int, width: int, inverse: float
) -> None:
    for row in range(blocks[0]):
        a = memory.view(x + row * xs, np.float32, width).astype(np.float64)
        a = a - a.mean() if constants["CENTRED"] else a
        memory.view(y + row * ys, np.float32, 1)[:] = np.sqrt((a * a).sum() * inverse)


MODELS: dict[str, Callable[..., None]] = {
    "norm.long_norm": norm,
    "norm.norm": norm,
    "qk_norm.qk_norm": qk_norm,
    "magnitude.magnitude": magnitude,
}
