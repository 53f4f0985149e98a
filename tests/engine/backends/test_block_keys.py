"""Keys of blocks of positions, and attention that looks at them beside a window, for which GPUs have no
kernels: kernels and the reference against plain formulas.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import pytest

from engine.backends.base import AttentionShape, Ops, Step
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cuda.backend import CudaBackend
from engine.backends.indexer import Beside, IndexerShape
from engine.backends.indexer_keys import cached_keys
from engine.backends.reference.backend import ReferenceBackend
from engine.backends.states import PoolShape, States
from tests.engine.backends.cache_oracle import stored_keys
from tests.engine.backends.kernel_oracles import Matrix
from tests.simt.fake import FakeDevice

Array = np.ndarray[Any, Any]
PAGES = np.array([3, 1, 0], np.int32)
STEPS = (1, 2, 60, 128, 70, 7, 8, 9, 1, 128, 100, 3, 8)
"""Rows of the steps: 525 positions in three pages."""
LENGTH = sum(STEPS)
IDS = np.arange(LENGTH, dtype=np.int32)
BACKENDS = {"cpu": lambda: CpuBackend(2), "reference": ReferenceBackend}
POOLING: dict[str, Any] = {**BACKENDS, "cuda": lambda: CudaBackend([FakeDevice()])}
POOLS = {"alone": PoolShape(40, 6), "overlapping": PoolShape(72, 5, overlapping=True)}


class Pooled:
    """`Ops.pool` of rows of tables."""

    def __init__(self, backend: Any, shape: PoolShape) -> None:
        self.shape = shape
        seeds = range(2 * shape.series)
        self.tables = [Matrix("F32", (LENGTH, shape.dim), seed) for seed in seeds]
        for table in self.tables[shape.series :]:
            table.values *= 3
            table.data = table.values.reshape(-1).view(np.uint8)
        size = (shape.series, shape.block, shape.dim)
        self.bias = np.random.default_rng(5).standard_normal(size).astype(np.float32)
        weights = [backend.load_weight(table) for table in self.tables]
        cache = backend.new_cache([AttentionShape(1, 1, 16, 1.0)], 4, "fp32", States((shape,), 4))

        def forward(ops: Ops) -> Any:
            rows = [ops.embed(each) for each in weights]
            values, gates = rows[: shape.series], rows[shape.series :]
            return ops.last_rows(ops.pool(0, values, gates, self.bias, shape))

        self.program = backend.record(forward, cache, 128)

    def run(self, start: int, rows: int, states: tuple[int, int]) -> Array:
        ids = IDS[start : start + rows]
        found: Array = self.program.run(Step(ids, ids, PAGES, rows, states=[states])).copy()
        return found

    def expected(self) -> Array:
        """Softmax over the positions of each block so far, and of the one before for it."""
        shape, out = self.shape, np.empty((LENGTH, self.shape.dim))
        values, gates = (
            np.stack([table.values.astype(np.float64) for table in part])
            for part in (self.tables[: shape.series], self.tables[shape.series :])
        )
        gates = gates + self.bias[:, IDS % shape.block]
        for own in range(LENGTH):
            first = own // shape.block * shape.block
            parts = [(0, first, own + 1)]
            if shape.overlapping and first:
                parts.append((1, first - shape.block, first))
            given = np.concatenate([values[series, low:high] for series, low, high in parts])
            weights = np.exp(np.concatenate([gates[series, low:high] for series, low, high in parts]))
            out[own] = (given * weights).sum(0) / weights.sum(0)
        return out


@pytest.mark.parametrize("backend", POOLING)
@pytest.mark.parametrize("name", POOLS)
def test_keys_of_blocks_in_any_cut(backend: str, name: str) -> None:
    """Also from a state that a later pass has not changed, as when a text is rewound."""
    layer = Pooled(POOLING[backend](), POOLS[name])
    expected = layer.expected()
    starts = [0, *accumulate(STEPS)][:-1]
    for number, (start, rows) in enumerate(zip(starts, STEPS, strict=True)):
        found = layer.run(start, rows, (number % 2 if start else -1, 1 - number % 2))
        assert np.abs(found - expected[start : start + rows]).max() <= 1e-5 * np.abs(expected).max()
    layer.run(0, 63, (-1, 2))
    first, again = (layer.run(63, rows, (2, 3))[:20] for rows in (20, 40))
    np.testing.assert_array_equal(first, again)
    layer.program.close()


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_texts_of_one_pass_have_their_own_states(backend: str) -> None:
    layer, alone = Pooled(POOLING[backend](), POOLS["overlapping"]), []
    for start, state in ((0, 1), (30, 2)):
        ids = IDS[start : start + 6]
        layer.program.run(Step(ids, ids - start, PAGES, 6, states=[(-1, state)]))
        ids = IDS[start + 6 : start + 9]
        alone.append(layer.program.run(Step(ids, ids - start, PAGES, 3, states=[(state, 3)])).copy())
    both = np.concatenate([IDS[6:9], IDS[36:39]])
    places = np.concatenate([IDS[6:9], IDS[6:9]])
    runs, states = [(3, 1), (3, 1)], [(1, 0), (2, 3)]
    together = layer.program.run(Step(both, places, PAGES[:2], 6, runs, states))
    np.testing.assert_array_equal(together, np.concatenate(alone))
    layer.program.close()


class Layer:
    """Attention to a window and to keys of blocks, whose rows are those of tables, each position a row."""

    shape = AttentionShape(5, 1, 40, 0.3, window=9, latent=40)

    def __init__(self, backend: Any, choosing: IndexerShape | None, block: int, dtype: str = "fp32") -> None:
        self.own, self.block, shape = choosing, block, self.shape
        widths = [shape.heads * shape.head_dim, shape.head_dim, shape.head_dim]
        if choosing:
            widths += [choosing.heads * choosing.head_dim, choosing.head_dim, choosing.heads]
        self.tables = [Matrix("F32", (LENGTH, width), seed) for seed, width in enumerate(widths)]
        packed = [backend.load_weight(table) for table in self.tables]
        keys = [cached_keys(choosing)] if choosing else []
        self.cache = backend.new_cache([shape, shape, *keys], 4, dtype)
        self.sinks = np.linspace(-1, 2, shape.heads, dtype=np.float32)

        def forward(ops: Ops) -> Any:
            q, k, further, *index = (ops.embed(table) for table in packed)
            chosen = ops.top_keys(2, *index, choosing) if choosing else None
            beside = Beside(1, further, block)
            return ops.last_rows(ops.attention(0, q, k, None, shape, self.sinks, None, chosen, beside))

        self.program = backend.record(forward, self.cache, 128)

    def step(self, start: int, rows: int) -> Array:
        """The results of rows from position `start` on."""
        ids = IDS[start : start + rows]
        found: Array = self.program.run(Step(ids, ids, PAGES, rows)).copy()
        return found

    def run(self) -> Array:
        starts = [0, *accumulate(STEPS)][:-1]
        return np.concatenate([self.step(start, rows) for start, rows in zip(starts, STEPS, strict=True)])

    def chosen(self, own: int) -> list[int]:
        """The last positions of the blocks that the query at `own` looks at."""
        ends = range(self.block - 1, own + 1, self.block)
        if self.own is None:
            return list(ends)
        q = self.tables[3].values[own].reshape(self.own.heads, -1)
        scores = np.maximum(q @ self.tables[4].values[: own + 1].T, 0) * self.tables[5].values[own][:, None]
        total = scores.sum(0)
        return sorted(sorted(ends, key=lambda end: (-total[end], end))[: self.own.count])

    def expected(self, keys: Array, further: Array) -> Array:
        shape, rows = self.shape, []
        for own in range(LENGTH):
            seen = np.concatenate([keys[max(0, own - shape.window + 1) : own + 1], further[self.chosen(own)]])
            scores = np.exp(self.tables[0].values[own].reshape(shape.heads, -1) @ seen.T * shape.scale)
            rows.append((scores @ seen / (scores.sum(1) + np.exp(self.sinks))[:, None]).reshape(-1))
        return np.stack(rows)


CHOOSING = {"all blocks": (None, 7), "chosen blocks": (IndexerShape(6, 24, 5, 6, pooled=True, ends=True), 6)}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CHOOSING)
def test_attention_beside_a_window(backend: str, name: str) -> None:
    layer = Layer(BACKENDS[backend](), *CHOOSING[name])
    keys, further = (layer.tables[i].values.astype(np.float64) for i in (1, 2))
    expected = layer.expected(keys, further)
    assert np.abs(layer.run() - expected).max() <= 3e-5 * np.abs(expected).max()
    layer.program.close()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp16", "fp8", "q8", "q4"])
def test_every_cache_type(dtype: str) -> None:
    layer = Layer(CpuBackend(2), *CHOOSING["all blocks"], dtype)
    found, places = layer.run(), PAGES[IDS // 256] * 256 + IDS % 256
    keys, further = (
        stored_keys(layer.cache, i, layer.shape, int(PAGES[0])).reshape(-1, layer.shape.head_dim)[places]
        for i in range(2)
    )
    expected = layer.expected(keys.astype(np.float64), further.astype(np.float64))
    assert np.abs(found - expected).max() <= 3e-5 * np.abs(expected).max()
    layer.program.close()


def test_rows_of_a_short_step_are_those_of_steps_of_one() -> None:
    """Bit for bit, so that drafts are checked as they would be written."""
    for name in CHOOSING:
        layer = Layer(CpuBackend(2), *CHOOSING[name])
        layer.step(0, 128)
        layer.step(128, 128)
        together = layer.step(256, 8)
        alone = np.concatenate([layer.step(256 + i, 1) for i in range(8)])
        layer.program.close()
        np.testing.assert_array_equal(together, alone)
