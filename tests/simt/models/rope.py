from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.simt.interpreter import Memory
from tests.simt.models.norms import normed


def rope(memory: Memory, blocks: Any, constants: Any, *arguments: Any) -> None:
    cos, sin, positions, half, width, inverse = arguments[20:]
    for part in (arguments[:10], arguments[10:20]):
        x, x_stride, y, y_stride, weight, bias, first, heads, step, eps = part
        for row in range(blocks[0] if heads else 0):
            place = int(memory.view(positions + 4 * row, np.int32, 1)[0])
            c, s = (memory.view(table + 4 * half * place, np.float32, half) for table in (cos, sin))
            values = memory.view(x + row * x_stride + 4 * first, np.float32, heads * width).reshape(
                heads, width
            )
            if constants["NORM"] != "none":
                count = heads if step else 1
                values = normed(values, constants["NORM"] == "layer", inverse, eps)
                values = values * memory.view(weight, np.float32, count * width).reshape(count, width)
                if bias:
                    values = values + memory.view(bias, np.float32, count * width).reshape(count, width)
            pairs = np.arange(half)
            one, other = (2 * pairs, 2 * pairs + 1) if constants["INTERLEAVED"] else (pairs, pairs + half)
            out = values.copy()
            out[:, one] = values[:, one] * c - values[:, other] * s
            out[:, other] = values[:, other] * c + values[:, one] * s
            memory.view(y + row * y_stride, np.float32, heads * width)[:] = out.reshape(-1)


MODELS: dict[str, Callable[..., None]] = {"rope.rope": rope}
