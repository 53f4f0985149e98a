"""Rotary embeddings are those of one pair after another to the last bit, however many are rotated at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.base import AttentionShape, RotaryTable, Step
from engine.backends.cpu.backend import CpuBackend
from tests.engine.backends.kernel_oracles import Matrix

HEADS, PLACES = 3, 7


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("half", "dim"), [(8, 16), (16, 32), (24, 64), (6, 16)])
def test_pairs_are_rotated_alike(half: int, dim: int, interleaved: bool) -> None:
    table = Matrix("F32", (PLACES, HEADS * dim), 1)
    angles = np.random.default_rng(2).uniform(-3, 3, (PLACES, half))
    cos, sin = (f(angles).astype(np.float32) for f in (np.cos, np.sin))
    backend = CpuBackend(1)
    weight = backend.load_weight(table)

    def forward(ops: Any) -> Any:
        return ops.last_rows(ops.rope(ops.embed(weight), RotaryTable(cos, sin, interleaved), HEADS))

    x = table.values.reshape(PLACES, HEADS, dim)
    expected = x.copy()
    first, second = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
        if interleaved
        else (slice(half), slice(half, 2 * half))
    )
    a, b, c, s = x[..., first], x[..., second], cos[:, None], sin[:, None]
    expected[..., first], expected[..., second] = a * c - b * s, a * s + b * c
    program = backend.record(forward, backend.new_cache([AttentionShape(1, 1, 16, 1.0)], 1, "fp16"), 8)
    places = np.arange(PLACES, dtype=np.int32)
    actual = program.run(Step(places, places, np.zeros(1, np.int32), PLACES)).copy()
    program.close()
    assert np.array_equal(actual.reshape(expected.shape), expected)
