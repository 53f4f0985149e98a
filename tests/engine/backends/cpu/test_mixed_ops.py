"""Random forward passes of all operations in any order, on the CPU and the reference: no value is overwritten
too early, whatever the places and stages.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from engine.backends.activations import ACTIVATIONS, GATES
from engine.backends.base import AttentionShape, RotaryTable, Step
from engine.backends.cpu.backend import CpuBackend
from engine.backends.reference.backend import ReferenceBackend
from engine.backends.routing import Routing
from tests.engine.backends.kernel_oracles import Matrix

Array = np.ndarray[Any, Any]
pytestmark = pytest.mark.usefixtures("memory_without_numbers")
WIDTH, HEADS, GROUPS, DIM = 120, 5, 1, 24
LAYERS = 3
SHAPE = AttentionShape(HEADS, GROUPS, DIM, 0.2)
PAGES = np.array([2, 0], np.int32)
STEPS = (5, 1, 9, 40, 200, 8, 1, 3, 20)


class Pass:
    """One random pass, the same for every backend: each draws its numbers from the same seed."""

    def __init__(self, seed: int, backend: Any) -> None:
        self._seed = seed
        kinds = {
            "table": (50, WIDTH),
            "square": (WIDTH, WIDTH),
            "key": (GROUPS * DIM, WIDTH),
            "wide": (200, WIDTH),
            "router": (6, WIDTH),
        }
        self._w = {
            name: backend.load_weight(Matrix("F32", size, i)) for i, (name, size) in enumerate(kinds.items())
        }
        self._experts = [backend.load_weight(Matrix("F16", (WIDTH, WIDTH), 50 + e)) for e in range(6)]
        angles = np.arange(512)[:, None] * 50.0 ** (-np.arange(10) / 10)
        self._tables = [
            RotaryTable(*(f(angles).astype(np.float32) for f in (np.cos, np.sin)), interleaved)
            for interleaved in (False, True)
        ]
        self._positions = np.random.default_rng(3).standard_normal((512, WIDTH)).astype(np.float32)
        self._ones = np.ones(WIDTH, np.float32)

    def __call__(self, ops: Any) -> Any:
        self._rng, self._ops, self._layer = np.random.default_rng(self._seed), ops, 0
        values = [self._normed(ops.embed(self._w["table"]))]
        makers: list[Callable[[Any, Any], Any]] = [
            self._norm, self._pointwise, self._two, self._linear, self._rotated, self._columns, self._mixture,
        ]  # fmt: skip
        for i in range(24):
            # Old values are used again, long after others took places.
            x, y = (values[int(self._rng.integers(max(0, len(values) - 6), len(values)))] for _ in range(2))
            made = self._attention(x, y) if i % 8 == 4 else makers[int(self._rng.integers(len(makers)))](x, y)
            values.append(self._normed(made))
        total = values[-1]
        for value in values[-4:-1]:
            total = ops.add(total, value, 0.5)
        return ops.soft_cap(ops.linear(ops.last_rows(total), self._w["table"]), 0.5, 40.0)

    def _normed(self, x: Any) -> Any:
        return self._ops.rms_norm(x, self._ones, 1e-5)

    def _norm(self, x: Any, y: Any) -> Any:
        heads = int(self._rng.choice([1, 3, 5, 8]))
        weight = self._rng.uniform(0.5, 2, WIDTH if self._rng.random() < 0.5 else WIDTH // heads).astype(
            np.float32
        )
        return (
            self._ops.layer_norm(x, weight, None, 1e-2, heads)
            if self._rng.random() < 0.5
            else self._ops.rms_norm(x, weight, 1e-2, heads)
        )

    def _pointwise(self, x: Any, y: Any) -> Any:
        if self._rng.random() < 0.3:
            return self._ops.soft_cap(x, 1.5, 2.0)
        return self._ops.add(self._ops.activate(x, str(self._rng.choice(ACTIVATIONS[:-1]))), y)

    def _two(self, x: Any, y: Any) -> Any:
        if self._rng.random() < 0.3:
            return self._ops.add(x, y, float(self._rng.uniform(-2, 2)))
        return self._ops.add(self._ops.gated(x, y, str(self._rng.choice(GATES))), x)

    def _linear(self, x: Any, y: Any) -> Any:
        bias = self._rng.standard_normal(WIDTH).astype(np.float32)
        return self._ops.linear(x, self._w["square"], bias, y if self._rng.random() < 0.5 else None)

    def _rotated(self, x: Any, y: Any) -> Any:
        """x itself must stay as it is, for later uses."""
        if self._rng.random() < 0.3:
            return self._ops.add_positions(x, self._positions)
        return self._ops.rope(x, self._tables[int(self._rng.integers(2))], HEADS)

    def _columns(self, x: Any, y: Any) -> Any:
        start = int(self._rng.integers(0, 80))
        return self._ops.columns(self._ops.linear(x, self._w["wide"]), start, WIDTH)

    def _mixture(self, x: Any, y: Any) -> Any:
        routes = self._ops.route(
            self._ops.linear(x, self._w["router"]), Routing(6, 2, bool(self._rng.integers(2)))
        )
        first = self._ops.expert_linear(self._ops.spread(y, routes), self._experts, routes)
        return self._ops.gather(self._ops.activate(first, "gelu"), routes, x)

    def _attention(self, x: Any, y: Any) -> Any:
        window, cap = ((0, 0.0), (60, 3.0), (7, 0.0))[self._layer]
        shape = AttentionShape(HEADS, GROUPS, DIM, 0.2, window, cap)
        k, v = self._ops.linear(x, self._w["key"]), self._ops.linear(y, self._w["key"])
        self._layer += 1
        return self._ops.attention(
            self._layer - 1,
            x,
            self._ops.rope(k, self._tables[0], GROUPS),
            v,
            shape,
            np.zeros(HEADS, np.float32),
        )


def run(backend: Any, seed: int, steps: tuple[int, ...]) -> Array:
    program = backend.record(Pass(seed, backend), backend.new_cache([SHAPE] * LAYERS, 3, "fp32"), max(STEPS))
    found, start = [], 0
    with closing(program):
        for rows in steps:
            ids = (np.arange(start, start + rows, dtype=np.int32) * 7 + seed) % 50
            found.append(
                program.run(Step(ids, np.arange(start, start + rows, dtype=np.int32), PAGES, rows)).copy()
            )
            start += rows
    return np.concatenate(found)


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("seed", range(6))
def test_random_passes(seed: int) -> None:
    found, expected = run(CpuBackend(2), seed, STEPS), run(ReferenceBackend(), seed, STEPS)
    assert np.abs(found - expected).max() <= 2e-3 * np.abs(expected).max()


@pytest.mark.parametrize("seed", range(6, 9))
def test_rows_of_small_batches_equal_those_of_single_steps(seed: int) -> None:
    """Across a page boundary."""
    alone = run(CpuBackend(2), seed, (200, 50, *(1,) * 24))
    assert np.array_equal(run(CpuBackend(1), seed, (200, 50, 8, 7, 6, 3)), alone)
    assert np.array_equal(run(CpuBackend(3), seed, (200, 50, 5, 4, 4, 8, 2, 1)), alone)
