from __future__ import annotations

from typing import Any

import numpy as np

from tests.simt.interpreter import Memory


def add(memory: Memory, blocks: Any, constants: Any, x: int, xs: int, o: int, os: int, y: int, ys: int, width: int, s: float) -> None:
    for row in range(blocks[1]):
        a, b = (memory.view(base + row * stride, np.float32, width) for base, stride in ((x, xs), (o, os)))
        memory.view(y + row * ys, np.float32, width)[:] = a + np.float32(s) * b


MODELS = {"add": add}
