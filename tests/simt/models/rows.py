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


MODELS: dict[str, Callable[..., None]] = {
    "rows.columns": columns,
    "rows.permute": permute,
    "rows.last_rows": last_rows,
}
