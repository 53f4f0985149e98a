from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.simt.interpreter import Memory


def columns(
    memory: Memory, blocks: Any, constants: Any, x: int, xs: int, start: int, y: int, ys: int, width: int
) -> None:
    for row in range(blocks[0]):
        memory.view(y + row * ys, np.uint32, width)[:] = memory.view(
            x + row * xs + 4 * start, np.uint32, width
        )


def permute(
    memory: Memory, blocks: Any, constants: Any, x: int, xs: int, order: int, y: int, ys: int, width: int
) -> None:
    places = memory.view(order, np.int32, width)
    for row in range(blocks[0]):
        memory.view(y + row * ys, np.uint32, width)[:] = memory.view(x + row * xs, np.uint32, xs // 4)[places]


def last_rows(
    memory: Memory, blocks: Any, constants: Any, x: int, y: int, stride: int, width: int, first: int
) -> None:
    for row in range(blocks[0]):
        memory.view(y + row * stride, np.uint32, width)[:] = memory.view(
            x + (first + row) * stride, np.uint32, width
        )


def join(
    memory: Memory, blocks: Any, constants: Any, x: int, xs: int, xw: int, z: int, zs: int, zw: int, y: int,
    ys: int,
) -> None:  # fmt: skip
    rows, heads, _ = blocks
    for row in range(rows):
        one, other = (
            memory.view(at + row * stride, np.uint32, heads * width).reshape(heads, width)
            for at, stride, width in ((x, xs, xw), (z, zs, zw))
        )
        memory.view(y + row * ys, np.uint32, heads * (xw + zw))[:] = np.hstack([one, other]).reshape(-1)


def mix(
    memory: Memory, blocks: Any, constants: Any, first: int, second: int, third: int, fourth: int,
    stride: int, weights: int, ws: int, residual: int, y: int, width: int, count: int, column: int,
) -> None:  # fmt: skip
    for row in range(blocks[0]):
        total = np.zeros(width, np.float32)
        if residual:
            total += memory.view(residual + row * stride, np.float32, width)
        factors = memory.view(weights + row * ws + 4 * column, np.float32, count)
        for part, factor in zip((first, second, third, fourth), factors, strict=False):
            total += factor * memory.view(part + row * stride, np.float32, width)
        memory.view(y + row * stride, np.float32, width)[:] = total


def keep(
    memory: Memory, blocks: Any, constants: Any, x: int, stride: int, y: int, target: int, width: int
) -> None:
    for row in range(blocks[0]):
        values = memory.view(x + row * stride, np.uint32, width)
        memory.view(y + row * stride, np.uint32, width)[:] = values
        memory.view(target + 4 * row * width, np.uint32, width)[:] = values


def given(memory: Memory, blocks: Any, constants: Any, rows: int, y: int, stride: int, width: int) -> None:
    for row in range(blocks[0]):
        memory.view(y + row * stride, np.uint32, width)[:] = memory.view(
            rows + 4 * row * width, np.uint32, width
        )


def move_heads(
    memory: Memory, blocks: Any, constants: Any, x: int, xs: int, xh: int, y: int, ys: int, yh: int,
    width: int,
) -> None:  # fmt: skip
    for row in range(blocks[0]):
        for head in range(blocks[1]):
            memory.view(y + row * ys + head * yh, np.uint32, width)[:] = memory.view(
                x + row * xs + head * xh, np.uint32, width
            )


MODELS: dict[str, Callable[..., None]] = {
    "rows.columns": columns,
    "rows.permute": permute,
    "rows.last_rows": last_rows,
    "rows.join": join,
    "heads.move_heads": move_heads,
    "rows.mix": mix,
    "rows.keep": keep,
    "rows.given": given,
}
