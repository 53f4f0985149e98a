"""Attention to the positions that an indexer chooses: the CPU's kernels and the reference against plain
formulas.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.base import AttentionShape, Ops, Step
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cuda.backend import CudaBackend
from engine.backends.indexer import IndexerShape
from engine.backends.indexer_keys import cached_keys
from engine.backends.reference.backend import ReferenceBackend
from tests.engine.backends.cache_oracle import stored_keys
from tests.engine.backends.kernel_oracles import Matrix
from tests.simt.fake import FakeDevice

Array = np.ndarray[Any, Any]
PAGES = np.array([3, 1, 0], np.int32)
STEPS = (1, 2, 60, 128, 70, 7, 8, 9, 1, 128, 100, 3, 8)
"""Rows of the steps: 525 positions in three pages."""
LENGTH = sum(STEPS)
IDS = np.arange(LENGTH, dtype=np.int32)
LATENT, GROUPED = AttentionShape(5, 1, 40, 0.3, latent=24), AttentionShape(6, 2, 24, 0.4)
SHAPES = {
    "positions": (IndexerShape(7, 24, 9), LATENT),
    "more than there are": (IndexerShape(7, 24, 2048), LATENT),
    "one": (IndexerShape(9, 40, 1), GROUPED),
    "blocks whose keys are pooled": (IndexerShape(6, 32, 5, block=6, pooled=True), LATENT),
    "sums of equal weight": (IndexerShape(9, 24, 2, block=20, pooled=True), GROUPED),
    "blocks of each head": (IndexerShape(2, 24, 4, block=7, each=True, local=1), GROUPED),
    "more heads than groups": (IndexerShape(3, 24, 4, block=128, each=True, local=2), GROUPED),
}


class Layer:
    """A layer of attention whose rows are those of tables, each position a row."""

    def __init__(self, backend: Any, name: str, dtype: str = "fp32") -> None:
        self.own, self.shape = SHAPES[name]
        self.weighed = not self.own.each and name != "sums of equal weight"
        own, shape = self.own, self.shape
        widths = [
            own.heads * own.head_dim, own.head_dim, own.heads, shape.heads * shape.head_dim,
            shape.kv_heads * shape.head_dim, shape.kv_heads * shape.head_dim,
        ]  # fmt: skip
        self.tables = [Matrix("F32", (LENGTH, width), seed) for seed, width in enumerate(widths)]
        packed = [backend.load_weight(table) for table in self.tables]
        self.cache = backend.new_cache([shape, cached_keys(own)], 4, dtype)

        def forward(ops: Ops) -> Any:
            index_q, index_k, weights, q, k, v = (ops.embed(table) for table in packed)
            chosen = ops.top_keys(1, index_q, index_k, weights if self.weighed else None, own)
            y = ops.attention(0, q, k, None if shape.latent else v, shape, chosen=chosen)
            return ops.last_rows(y)

        self.program = backend.record(forward, self.cache, 128)

    def step(self, start: int, rows: int) -> Array:
        """The results of rows from position `start` on."""
        ids = IDS[start : start + rows]
        found: Array = self.program.run(Step(ids, ids, PAGES, rows)).copy()
        return found

    def run(self) -> Array:
        starts = np.cumsum([0, *STEPS[:-1]]).tolist()
        found = np.concatenate([self.step(start, rows) for start, rows in zip(starts, STEPS, strict=True)])
        self.program.close()
        return found

    def chosen(self, own: int, index_keys: Array) -> list[list[int]]:
        """The positions that the query at `own` looks at, a list for as many heads each."""
        kind = self.own
        q = self.tables[0].values[own].reshape(kind.heads, -1)
        scores = q @ index_keys[: own + 1].T
        if not kind.each:
            weights = self.tables[2].values[own][:, None] if self.weighed else 1.0
            scores = (np.maximum(scores, 0) * weights).sum(0, keepdims=True)
        lists = []
        for row in scores:
            best = {}
            for block in range(-(-(own + 1) // kind.block)):
                mine = row[block * kind.block : (block + 1) * kind.block]
                if not kind.pooled:
                    best[block] = np.inf if own // kind.block - block < kind.local else mine.max()
                elif len(mine) == kind.block:
                    best[block] = mine[-1]
            blocks = sorted(best, key=lambda each: (-best[each], each))[: kind.count]
            if kind.pooled:
                blocks.append((own + 1) // kind.block)
            every = [kind.block * each + i for each in sorted(blocks) for i in range(kind.block)]
            lists.append([position for position in every if position <= own])
        return lists

    def expected(self, keys: Array, index_keys: Array) -> Array:
        """Attention to the chosen positions alone, over cached keys (T, G, D)."""
        shape, rows = self.shape, []
        values = keys[..., : shape.latent] if shape.latent else self.tables[5].values.reshape(keys.shape)
        for own in range(LENGTH):
            q, lists = self.tables[3].values[own].reshape(shape.heads, -1), self.chosen(own, index_keys)
            for head in range(shape.heads):
                group, seen = head * shape.kv_heads // shape.heads, lists[head * len(lists) // shape.heads]
                scores = np.exp(keys[seen, group] @ q[head] * shape.scale)
                rows.append(scores @ values[seen, group] / scores.sum())
        return np.stack(rows).reshape(LENGTH, -1)


BACKENDS: dict[str, Any] = {
    "cpu": lambda: CpuBackend(2),
    "reference": ReferenceBackend,
    "cuda": lambda: CudaBackend([FakeDevice()]),
}
"""The GPU is a fake one, see `tests.simt.fake`."""
QUICK = {"cpu": len(SHAPES), "reference": len(SHAPES), "cuda": 2}
"""How many shapes of each are fast."""
CASES = [
    pytest.param(backend, name, marks=[] if number < QUICK[backend] else [pytest.mark.slow])
    for number, name in enumerate(SHAPES)
    for backend in BACKENDS
]


@pytest.mark.parametrize(("backend", "name"), CASES)
def test_all_backends_choose_what_the_formulas_say(backend: str, name: str) -> None:
    layer = Layer(BACKENDS[backend](), name)
    index_keys, keys = (layer.tables[i].values.astype(np.float64) for i in (1, 4))
    expected = layer.expected(keys.reshape(LENGTH, layer.shape.kv_heads, -1), index_keys)
    assert np.abs(layer.run() - expected).max() <= 3e-5 * np.abs(expected).max()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp16", "fp8", "q8", "q4"])
def test_every_cache_type(dtype: str) -> None:
    """Keys are chosen as the cache has them."""
    layer = Layer(CpuBackend(2), "positions", dtype)
    found, places = layer.run(), PAGES[IDS // 256] * 256 + IDS % 256
    keys, index_keys = (
        stored_keys(layer.cache, i, shape, int(PAGES[0])).reshape(-1, 1, shape.head_dim)[places]
        for i, shape in enumerate((layer.shape, cached_keys(layer.own)))
    )
    expected = layer.expected(keys.astype(np.float64), index_keys[:, 0].astype(np.float64))
    # A rounding may choose the other one of two nearly equal keys.
    far = np.abs(found - expected).max(1) > 3e-5 * np.abs(expected).max()
    assert far.sum() <= 2


def test_rows_of_a_short_step_are_those_of_steps_of_one() -> None:
    """Bit for bit, so that drafts are checked as they would be written."""
    for name in ("positions", "blocks of each head"):
        layer = Layer(CpuBackend(2), name)
        layer.step(0, 128)
        layer.step(128, 128)
        together = layer.step(256, 8)
        alone = np.concatenate([layer.step(256 + i, 1) for i in range(8)])
        layer.program.close()
        np.testing.assert_array_equal(together, alone)
