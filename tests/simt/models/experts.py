from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.simt.interpreter import Memory


def route(
    memory: Memory,
    blocks: Any,
    constants: Any,
    x: int,
    xs: int,
    ids: int,
    weights: int,
    stride: int,
    n: int,
    used: int,
) -> None:
    for row in range(blocks[0]):
        logits = memory.view(x + row * xs, np.float32, n)
        chosen = np.argsort(np.where(np.isnan(logits), np.inf, -logits), kind="stable")[:used]
        with np.errstate(all="ignore"):
            parts = np.exp(logits - logits[chosen[0]])
            total = parts[chosen].sum() if constants["NORMALISE"] else parts.sum()
            memory.view(weights + row * stride, np.float32, used)[:] = parts[chosen] / total
        memory.view(ids + row * stride, np.int32, used)[:] = chosen


def spread(
    memory: Memory, blocks: Any, constants: Any, x: int, stride: int, y: int, width: int, used: int
) -> None:
    for row in range(blocks[0]):
        for j in range(used):
            memory.view(y + (row * used + j) * stride, np.uint32, width)[:] = memory.view(
                x + row * stride, np.uint32, width
            )


def gather(
    memory: Memory,
    blocks: Any,
    constants: Any,
    x: int,
    stride: int,
    weights: int,
    ws: int,
    residual: int,
    y: int,
    width: int,
    used: int,
) -> None:
    for row in range(blocks[0]):
        total = memory.view(residual + row * stride, np.float32, width).copy()
        for j, weight in enumerate(memory.view(weights + row * ws, np.float32, used)):
            total += weight * memory.view(x + (row * used + j) * stride, np.float32, width)
        memory.view(y + row * stride, np.float32, width)[:] = total


MODELS: dict[str, Callable[..., None]] = {"moe.route": route, "moe.spread": spread, "moe.gather": gather}
