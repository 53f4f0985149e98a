"""A step of one to sixteen rows gives every row, to the last bit, the logits it has in a step of its own:
checking a draft changes no greedy choice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.base import AttentionShape, RotaryTable, Step
from engine.backends.cpu.backend import CpuBackend
from tests.engine.backends.kernel_oracles import WEIGHT_CASES, Matrix, unit_of

PAGES = np.array([3, 0, 2], np.int32)
STARTS = (0, 5, 12, 249, 251, 511)
"""Positions at which the compared rows begin: the first ones, odd ones (in q4, over the sixteenth, where a
mean begins), and several ways over a border of pages.
"""


class Layer:
    """One decoder layer and a head, every matrix of one weight type, with random values."""

    def __init__(self, backend: CpuBackend, kind: str, heads: int, groups: int, dim: int) -> None:
        self.width = 256 if unit_of(kind) == 256 else {"F32": 75, "F16": 37, "BF16": 130}.get(kind, 96)
        self.shape = AttentionShape(heads, groups, dim, dim**-0.5)
        inner = 256 if unit_of(kind) == 256 else 160
        sizes = {
            "table": (61, self.width), "q": (heads * dim, self.width), "k": (groups * dim, self.width),
            "v": (groups * dim, self.width), "gate": (inner, self.width), "up": (inner, self.width),
            "down": (self.width, inner),
        }  # fmt: skip
        self.w = {
            name: backend.load_weight(Matrix(kind, size, seed))
            for seed, (name, size) in enumerate(sizes.items())
        }
        self.w["o"] = backend.load_weight(Matrix("F32", (self.width, heads * dim), 9))
        angles = np.arange(1024)[:, None] * 100.0 ** (-np.arange(dim // 2) / (dim // 2))
        self.rotary = RotaryTable(np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32), False)
        self.norm = np.random.default_rng(5).uniform(0.5, 2, self.width).astype(np.float32)

    def __call__(self, ops: Any) -> Any:
        x = ops.embed(self.w["table"], 0.3)
        h = ops.rms_norm(x, self.norm, 1e-5)
        q, k, v = (ops.linear(h, self.w[name]) for name in "qkv")
        q, k = ops.rope(q, self.rotary, self.shape.heads), ops.rope(k, self.rotary, self.shape.kv_heads)
        x = ops.linear(ops.attention(0, q, k, v, self.shape), self.w["o"], residual=x)
        h = ops.rms_norm(x, self.norm, 1e-5)
        x = ops.linear(
            ops.gated(ops.linear(h, self.w["gate"]), ops.linear(h, self.w["up"]), "silu"),
            self.w["down"],
            residual=x,
        )
        return ops.linear(ops.last_rows(x), self.w["table"])


def step(ids: np.ndarray[Any, Any], first: int) -> Step:
    return Step(ids, np.arange(first, first + len(ids), dtype=np.int32), PAGES, len(ids))


def assert_rows_alike(kind: str, heads: int, groups: int, dim: int, dtype: str) -> None:
    """Steps of 1 .. 16 rows against steps of one row, the same tokens at the same positions."""
    backend = CpuBackend(2)
    layer = Layer(backend, kind, heads, groups, dim)
    program = backend.record(layer, backend.new_cache([layer.shape], 4, dtype), 64)
    ids = np.random.default_rng(3).integers(0, 61, 600).astype(np.int32)
    try:
        for start in STARTS:
            for first in range(0, start, 64):
                program.run(step(ids[first : min(first + 64, start)], first))
            alone = np.concatenate(
                [program.run(step(ids[p : p + 1], p)).copy() for p in range(start, start + 16)]
            )
            assert np.isfinite(alone).all()
            assert np.abs(alone).max() > 0
            for rows in (2, 3, 4, 5, 7, 8, 9, 14, 16):
                together = program.run(step(ids[start : start + rows], start))
                assert np.array_equal(together, alone[:rows]), (
                    start,
                    rows,
                    float(np.abs(together - alone[:rows]).max()),
                )
    finally:
        program.close()


@pytest.mark.slow_after(4)
@pytest.mark.parametrize("kind", WEIGHT_CASES)
def test_every_weight_type(kind: str) -> None:
    assert_rows_alike(kind, 4, 2, 16, "fp16")


@pytest.mark.parametrize(
    ("heads", "groups", "dim", "dtype"),
    [
        (3, 3, 24, "fp16"),
        (7, 1, 80, "fp32"),
        (9, 3, 64, "fp16"),
        (6, 2, 80, "q4"),
        (3, 1, 48, "q8"),
        (4, 4, 24, "fp8"),
        (8, 1, 64, "q8/q4"),
    ],
)
def test_head_shapes_and_cache_types(heads: int, groups: int, dim: int, dtype: str) -> None:
    assert_rows_alike("F32", heads, groups, dim, dtype)
