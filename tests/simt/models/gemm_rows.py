from __future__ import annotations

from typing import Any

import numpy as np

from tests.simt.interpreter import Memory


def fp16(
    memory: Memory,
    blocks: Any,
    constants: Any,
    x: int,
    xs: int,
    target: int,
    ts: int,
    factors: int,
    columns: int,
) -> None:
    for row in range(blocks[0]):
        values = memory.view(x + row * xs, np.float32, columns)
        top = float(np.nanmax(np.abs(values), initial=0))
        factor = 1.0
        if top and not 2.0**-10 <= top <= 2.0**15:
            factor = 2.0 ** min(126, max(-100, np.frexp(top)[1] - 1)) if np.isfinite(top) else 2.0**126
        memory.view(factors + 4 * row, np.float32, 1)[0] = factor
        out = memory.view(target + row * ts, np.float16, (columns + 3) // 4 * 4)
        out[columns:] = 0
        out[:columns] = values / np.float32(factor)


def before(
    memory: Memory,
    blocks: Any,
    constants: Any,
    y: int,
    ys: int,
    r: int,
    rs: int,
    bias: int,
    factors: int,
    width: int,
) -> None:
    for row in range(blocks[0]):
        total = memory.view(r + row * rs, np.float32, width).copy() if r else np.zeros(width, np.float32)
        total += memory.view(bias, np.float32, width) if bias else 0
        memory.view(y + row * ys, np.float32, width)[:] = total / (
            memory.view(factors + 4 * row, np.float32, 1)[0] if factors else 1
        )


def after(memory: Memory, blocks: Any, constants: Any, y: int, ys: int, factors: int, width: int) -> None:
    for row in range(blocks[0]):
        memory.view(y + row * ys, np.float32, width)[:] *= memory.view(factors + 4 * row, np.float32, 1)[0]


def expert_biases(
    memory: Memory,
    blocks: Any,
    constants: Any,
    y: int,
    ys: int,
    ids: int,
    stride: int,
    used: int,
    biases: int,
    bs: int,
    width: int,
    table: int,
) -> None:
    for row in range(blocks[0]):
        expert = int(memory.view(ids + row // used * stride, np.int32, used)[row % used])
        if memory.view(table + 8 * expert, np.int64, 1)[0]:
            memory.view(y + row * ys, np.float32, width)[:] += memory.view(
                biases + expert * bs, np.float32, width
            )


MODELS = {
    "gemm_rows.fp16_rows": fp16,
    "gemm_rows.before": before,
    "gemm_rows.after": after,
    "gemm_rows.expert_biases": expert_biases,
}
