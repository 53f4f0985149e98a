"""Latent attention, products head by head, and joined rows: the CPU's kernels and the reference against exact
arithmetic.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.base import AttentionShape, Ops, Step
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.kernels.attention.attention import head_groups
from engine.backends.cpu.kv_cache import CpuCache
from engine.backends.cpu.runtime.step_block import SMALL_BATCH
from engine.backends.reference.backend import ReferenceBackend
from tests.engine.backends.cache_oracle import stored_keys
from tests.engine.backends.kernel_oracles import INTEGER, Matrix, sixteen_bits

pytestmark = pytest.mark.usefixtures("memory_without_numbers")

Array = np.ndarray[Any, Any]
PAGES = np.array([4, 1, 5, 0], np.int32)
STEPS = (1, 2, 60, 128, 70, 7, 16, 17, 1, 128, 100, 3, 128, 120, 1, 8)
"""Rows of the steps: 774 positions in four pages."""
IDS = np.random.default_rng(11).integers(0, 97, sum(STEPS)).astype(np.int32)
SHAPES = {
    "whole": AttentionShape(4, 1, 80, 0.1, latent=64),
    "odd": AttentionShape(5, 1, 28, 0.2, latent=24),
    "odder": AttentionShape(3, 1, 47, 0.15, window=300, soft_cap=20.0, latent=41),
    "many heads": AttentionShape(40, 1, 36, 0.2, latent=32),
}


class Layer:
    """One layer of latent attention whose queries and keys are rows of tables."""

    def __init__(self, backend: Any, shape: AttentionShape, dtype: str) -> None:
        self.shape = shape
        self.tables = [Matrix("F32", (97, n * shape.head_dim), n) for n in (shape.heads, 1)]
        packed = [backend.load_weight(table) for table in self.tables]
        self.cache = backend.new_cache([shape], 6, dtype)

        def forward(ops: Ops) -> Any:
            q, k = (ops.embed(table) for table in packed)
            return ops.last_rows(ops.attention(0, q, k, None, shape))

        self.program = backend.record(forward, self.cache, 128)

    def step(self, start: int, rows: int) -> Array:
        """The results of rows from position `start` on."""
        positions = np.arange(start, start + rows, dtype=np.int32)
        found: Array = self.program.run(Step(IDS[start : start + rows], positions, PAGES, rows)).copy()
        return found

    def run(self) -> Array:
        starts = np.cumsum([0, *STEPS[:-1]]).tolist()
        return np.concatenate([self.step(start, rows) for start, rows in zip(starts, STEPS, strict=True)])

    def expected(self, keys: Array) -> Array:
        """Exact attention over keys (T, D)."""
        shape = self.shape
        q = self.tables[0].values[IDS].reshape(-1, shape.heads, shape.head_dim).astype(np.float64)
        scores = np.einsum("thd,sd->hts", q, keys) * shape.scale
        if shape.soft_cap:
            scores = shape.soft_cap * np.tanh(scores / shape.soft_cap)
        places = np.arange(len(IDS))
        seen = places[None] <= places[:, None]
        if shape.window:
            seen &= places[None] > places[:, None] - shape.window
        weights = np.where(seen, np.exp(scores), 0)
        out = weights / weights.sum(-1, keepdims=True) @ keys[:, : shape.latent]
        found: Array = out.transpose(1, 0, 2).reshape(len(IDS), -1)
        return found


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("name", SHAPES)
def test_reference(name: str) -> None:
    layer = Layer(ReferenceBackend(), SHAPES[name], "fp32")
    found, expected = layer.run(), layer.expected(layer.tables[1].values[IDS].astype(np.float64))
    assert np.abs(found - expected).max() <= 3e-5 * np.abs(expected).max()


QUICK = ("fp32", "fp16")
"""The other cache types' kernels compile for long."""
DTYPES = [
    pytest.param(kind, marks=[] if kind in QUICK else [pytest.mark.slow])
    for kind in ("fp32", "fp16", "fp8", "q8", "q4")
]
EARLY = (
    ("whole", "fp16"),
    ("whole", "fp32"),
    ("odd", "fp32"),
    ("odder", "fp32"),
    ("odder", "q8"),  # values of two groups
    ("odder", "q4"),
)
CASES = [
    pytest.param(name, kind.values[0], marks=[] if (name, kind.values[0]) in EARLY else [pytest.mark.slow])
    for name in SHAPES
    for kind in DTYPES
]


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_every_cache_type(name: str, dtype: str) -> None:
    """Values are what the cache says of the keys, also for the first key and the means of q4."""
    layer = Layer(CpuBackend(2), SHAPES[name], dtype)
    found = layer.run()
    layer.program.close()
    assert isinstance(layer.cache, CpuCache)
    places = PAGES[np.arange(len(IDS)) // 256] * 256 + np.arange(len(IDS)) % 256
    keys = stored_keys(layer.cache, 0, layer.shape, int(PAGES[0])).reshape(-1, layer.shape.head_dim)[places]
    expected = layer.expected(keys)
    assert np.abs(found - expected).max() <= 3e-5 * np.abs(expected).max()
    near = keys - layer.tables[1].values[IDS]
    assert np.sqrt((near**2).mean()) < {"fp32": 1e-9, "fp16": 1e-3, "fp8": 0.05, "q8": 0.02, "q4": 0.2}[dtype]


@pytest.mark.slow
def test_formats_of_values_do_not_matter() -> None:
    found = []
    for dtype in ("q8", "q8/q4"):
        layer = Layer(CpuBackend(1), SHAPES["odd"], dtype)
        found.append(layer.run())
        layer.program.close()
        assert layer.cache.page_bytes == 256 * 34  # one group of 32 codes with a scale
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_a_short_step_are_those_of_steps_of_one(dtype: str) -> None:
    layer = Layer(CpuBackend(2), SHAPES["odder"], dtype)
    for begin in range(0, 640, 128):
        layer.step(begin, 128)
    for start in (3, 249, 298, 506, 630):
        alone = np.concatenate([layer.step(p, 1) for p in range(start, start + 16)])
        assert np.abs(alone).max() > 0
        for rows in (2, 3, 4, 5, 7, 8, 9, 14, 16):
            np.testing.assert_array_equal(layer.step(start, rows), alone[:rows])
    layer.program.close()


def test_a_page_is_copied_and_written() -> None:
    for backend in (CpuBackend(1), ReferenceBackend()):
        layer = Layer(backend, SHAPES["odd"], "fp16")
        layer.run()
        page = layer.cache.read_page(4)
        assert page.nbytes == layer.cache.page_bytes
        layer.cache.copy_page(4, 2)
        np.testing.assert_array_equal(layer.cache.read_page(2), page)
        layer.cache.write_page(3, page)
        np.testing.assert_array_equal(layer.cache.read_page(3), page)
        layer.program.close()


def test_heads_are_divided_evenly() -> None:
    for heads in range(1, 130):
        groups = head_groups(heads)
        assert heads % groups == 0
        assert heads // groups <= 12
    assert [head_groups(heads) for heads in (5, 16, 20, 40, 64, 128)] == [1, 2, 2, 4, 8, 16]


PRODUCTS = [
    # With one head, each step finds the packed rows of the one before it in scratch memory.
    ("F32", 3, 24, 10), ("Q8_0", 4, 24, 32), ("Q8_0", 1, 24, 32), ("F32", 4, 64, 32), ("F16", 4, 64, 32),
    ("BF16", 5, 7, 6), ("Q8_0", 2, 48, 64), ("Q4_0", 3, 40, 96), ("Q4_K", 2, 16, 256),
]  # fmt: skip


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(("kind", "heads", "rows", "columns"), PRODUCTS)
@pytest.mark.parametrize("name", ["cpu", "reference"])
def test_products_head_by_head(name: str, kind: str, heads: int, rows: int, columns: int) -> None:
    backend: Any = CpuBackend(2) if name == "cpu" else ReferenceBackend()
    table = Matrix("F32", (97, heads * columns), 1)
    matrices = [Matrix(kind, (rows, columns), 2 + h) for h in range(heads)]
    packed, weights = backend.load_weight(table), [backend.load_weight(each) for each in matrices]

    def forward(ops: Ops) -> Any:
        return ops.last_rows(ops.head_linear(ops.embed(packed), weights))

    cache = backend.new_cache([AttentionShape(1, 1, 16, 1.0)], 1, "auto")
    program = backend.record(forward, cache, 250)
    for count in (1, 3, 8, 9, 140, 250):
        ids = IDS[:count]
        step = Step(ids, np.arange(count, dtype=np.int32), np.zeros(1, np.int32), count)
        x = table.values[ids].reshape(count, heads, columns)
        if name == "cpu" and kind in INTEGER and count <= SMALL_BATCH:
            x = np.stack([sixteen_bits(np.ascontiguousarray(x[:, h])) for h in range(heads)], 1)
        expected = np.concatenate(
            [x[:, h].astype(np.float64) @ each.values.T for h, each in enumerate(matrices)], 1
        )
        np.testing.assert_allclose(program.run(step), expected, atol=2e-5 * np.abs(expected).max())
    program.close()


@pytest.mark.parametrize(("heads", "wide", "more"), [(1, 24, 8), (3, 5, 7), (4, 32, 16), (2, 1, 40)])
@pytest.mark.parametrize("name", ["cpu", "reference"])
def test_joined_rows(name: str, heads: int, wide: int, more: int) -> None:
    backend: Any = CpuBackend(2) if name == "cpu" else ReferenceBackend()
    tables = [Matrix("F32", (97, heads * width), width) for width in (wide, more)]
    packed = [backend.load_weight(table) for table in tables]

    def forward(ops: Ops) -> Any:
        return ops.last_rows(ops.join(*(ops.embed(table) for table in packed), heads))

    cache = backend.new_cache([AttentionShape(1, 1, 16, 1.0)], 1, "auto")
    program = backend.record(forward, cache, 64)
    step = Step(IDS[:30], np.arange(30, dtype=np.int32), np.zeros(1, np.int32), 30)
    x, z = (table.values[IDS[:30]].reshape(30, heads, -1) for table in tables)
    np.testing.assert_array_equal(program.run(step), np.concatenate([x, z], 2).reshape(30, -1))
    program.close()
