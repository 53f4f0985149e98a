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


def route_scored(
    memory: Memory, blocks: Any, constants: Any, x: int, xs: int, bias: int, scales: int, ids: int,
    weights: int, stride: int, n: int, used: int, size: int, used_groups: int, group_best: int,
    normalise: int, factor: float,
) -> None:  # fmt: skip
    for row in range(blocks[0]):
        logits = memory.view(x + row * xs, np.float32, n)
        with np.errstate(all="ignore"):
            scores = scores_of(constants, logits)
            if not constants["SIGMOID"]:
                scores = np.exp(logits - np.fmax.reduce(logits))
                scores = scores / scores.sum()
            by_logit = constants["BY_LOGIT"]
            choice = logits if size == n or by_logit else scores
            compared = logits if by_logit else scores
            choice = compared + memory.view(bias, np.float32, n) if bias else choice
            # Of numbers that are none: less than all others.
            choice = np.where(np.isnan(choice), np.float32(-np.inf), choice).reshape(-1, size)
            groups = np.sort(choice, axis=1)[:, -group_best:].sum(axis=1)
            closed = np.argsort(-groups, kind="stable")[used_groups:]
        places = [e for e in np.argsort(-choice.reshape(-1), kind="stable") if e // size not in closed][:used]
        parts = scores[places]
        parts = parts / (parts.sum() + 1e-20) if normalise else parts
        parts = parts * memory.view(scales, np.float32, n)[places] if scales else parts
        memory.view(weights + row * stride, np.float32, used)[:] = parts * factor
        memory.view(ids + row * stride, np.int32, used)[:] = places


def scores_of(constants: Any, logits: Any) -> Any:
    """Those of logits alone: their sigmoid, or the root of their softplus."""
    if constants["score_of"].__name__ == "root_softplus":
        return np.sqrt(np.logaddexp(0, logits.astype(np.float64))).astype(np.float32)
    return 1 / (1 + np.exp(-logits))


def route_tabled(
    memory: Memory, blocks: Any, constants: Any, x: int, xs: int, tokens: int, table: int, scales: int,
    ids: int, weights: int, stride: int, n: int, used: int, normalise: int, factor: float,
) -> None:  # fmt: skip
    for row in range(blocks[0]):
        logits = memory.view(x + row * xs, np.float32, n)
        token = int(memory.view(tokens + 4 * row, np.int32, 1)[0])
        places = memory.view(table + 4 * used * token, np.int32, used)
        scores = scores_of(constants, logits)
        if not constants["SIGMOID"]:
            scores = np.exp(logits - logits.max())
            scores = scores / scores.sum()
        parts = scores[places]
        parts = parts / (parts.sum() + 1e-20) if normalise else parts
        parts = parts * memory.view(scales, np.float32, n)[places] if scales else parts
        memory.view(weights + row * stride, np.float32, used)[:] = parts * factor
        memory.view(ids + row * stride, np.int32, used)[:] = places


def route_near(
    memory: Memory, blocks: Any, constants: Any, x: int, xs: int, scales: int, ids: int, weights: int,
    stride: int, n: int, used: int, nearness: float, factor: float,
) -> None:  # fmt: skip
    for row in range(blocks[0]):
        logits = memory.view(x + row * xs, np.float32, n)
        chosen = np.argsort(-logits, kind="stable")[:used]
        parts = np.zeros(used, np.float32)
        for j, place in enumerate(chosen):
            top = logits[place]
            near = top - logits <= np.float32(nearness) * np.maximum(np.abs(logits), top)
            near[chosen[:j]] = False
            parts[j] = 1 / np.exp(logits[near] - top).sum()
        parts = parts * memory.view(scales, np.float32, n)[chosen] if scales else parts
        memory.view(weights + row * stride, np.float32, used)[:] = parts * np.float32(factor)
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
        total = np.zeros(width, np.float32)
        if residual:
            total += memory.view(residual + row * stride, np.float32, width)
        for j, weight in enumerate(memory.view(weights + row * ws, np.float32, used)):
            total += weight * memory.view(x + (row * used + j) * stride, np.float32, width)
        memory.view(y + row * stride, np.float32, width)[:] = total


MODELS: dict[str, Callable[..., None]] = {
    "moe.route": route,
    "moe.route_scored": route_scored,
    "routes.route_near": route_near,
    "routes.route_tabled": route_tabled,
    "moe.spread": spread,
    "moe.gather": gather,
}
