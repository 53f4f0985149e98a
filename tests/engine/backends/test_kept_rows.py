"""`Ops.keep` and `Ops.given`: rows that leave a pass, and rows that come into it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.base import Backend, Step
from engine.backends.cpu.backend import CpuBackend
from engine.backends.reference.backend import ReferenceBackend
from engine.weights.tensor import FileTensor

WIDTH, ROWS = 37, 24


def tensor(values: Any) -> FileTensor:
    return FileTensor("w", "F32", values.shape, np.ascontiguousarray(values).view(np.uint8).reshape(-1))


def step(rows: int, kept: int = 0, runs: Any = ()) -> Step:
    ids = np.arange(rows, dtype=np.int32) % 11
    pages = np.array([0, 1], np.int32)[: max(1, len(runs))]
    return Step(ids, np.arange(rows, dtype=np.int32), pages, 1, runs, kept=kept)


@pytest.mark.parametrize(
    "backend",
    [ReferenceBackend(), CpuBackend(threads=2), CpuBackend(threads=1, prompt_bits=8)],
    ids=["reference", "cpu", "cpu with 8 bits"],
)
def test_rows_leave_and_enter(backend: Backend) -> None:
    draw = np.random.default_rng(3)
    table = draw.standard_normal((11, WIDTH)).astype(np.float32)
    embedding = backend.load_weight(tensor(table))
    out, inside = np.zeros((ROWS, WIDTH), np.float32), np.zeros((ROWS, WIDTH), np.float32)
    cache = backend.new_cache([], 2, "fp32")

    def forward(ops: Any) -> Any:
        x = ops.add(ops.embed(embedding), ops.given(inside))
        return ops.last_rows(ops.keep(x, out))

    program = backend.record(forward, cache, ROWS)
    for rows in (1, 5, 17):
        inside[:] = draw.standard_normal(inside.shape)
        out[:] = 0
        last = program.run(step(rows))
        expected = table[np.arange(rows) % 11] + inside[:rows]
        np.testing.assert_allclose(out[:rows], expected, rtol=0, atol=2e-6)
        np.testing.assert_array_equal(out[rows:], 0)
        np.testing.assert_array_equal(last[0], out[rows - 1])
    out[:] = 0
    program.run(step(3, kept=4))
    np.testing.assert_array_equal(out[[0, 1, 2, 3, 7]], 0)
    assert np.abs(out[4:7]).min(axis=1).max() > 0
    program.run(step(4, runs=((3, 1), (1, 1))))
    np.testing.assert_allclose(out[:3], table[:3] + inside[:3], rtol=0, atol=2e-6)
    program.close()
    cache.close()
