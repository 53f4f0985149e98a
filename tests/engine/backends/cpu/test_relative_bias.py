"""The bias that queries make by distance, in the CPU's attention: against exact arithmetic over what lies in
the store, and against the reference backend.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.base import AttentionShape, Backend
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.kv_cache import CpuCache
from engine.backends.cpu.lowering.lower import LoweredPass
from engine.backends.reference.backend import ReferenceBackend
from engine.backends.relative import RelativeBias
from tests.engine.backends.cpu.test_attention import IDS, Recorded, kept, step
from tests.engine.backends.kernel_oracles import Matrix

Array = np.ndarray[Any, Any]


class Layer(Recorded):
    """A layer of attention over tables of queries, keys, values, weights of `count` profiles and sinks, which
    count if it `has_sinks`.
    """

    def __init__(
        self,
        shape: AttentionShape,
        count: int,
        extent: int,
        dtype: str = "fp32",
        backend: Backend | None = None,
        has_sinks: bool = False,
    ) -> None:
        heads, groups, dim = shape.heads, shape.kv_heads, shape.head_dim
        widths = heads * dim, groups * dim, groups * dim, heads * count, heads
        self.shape, self.count, self.has_sinks = shape, count, has_sinks
        self.tables = [Matrix("F32", (97, width), 20 + i) for i, width in enumerate(widths)]
        self.tables[0].values *= np.float32(2)
        self.tables[3].values *= np.float32(8)
        self.tables[4].values *= np.float32(4)
        self.profiles = np.random.default_rng(7).standard_normal((count, extent)).astype(np.float32)
        self.backend = CpuBackend(2) if backend is None else backend
        packed = [self.backend.load_weight(each) for each in self.tables]

        def forward(ops: Any) -> Any:
            q, k, v, weights, sinks = (ops.embed(each) for each in packed)
            bias = RelativeBias(weights, self.profiles, sinks if has_sinks else None)
            return ops.last_rows(ops.attention(0, q, k, v, shape, relative=bias))

        self.forward = forward
        self.cache = self.backend.new_cache([shape], 6, dtype)

    def exact(self) -> Array:
        """The same by the formula, float64, over the keys and values in the store."""
        shape, rows = self.shape, len(IDS)
        assert isinstance(self.cache, CpuCache)
        keys, values = kept(self, 0, shape)
        q = self.tables[0].values[IDS].reshape(rows, shape.heads, -1).astype(np.float64)
        weights = self.tables[3].values[IDS].reshape(rows, shape.heads, self.count).astype(np.float64)
        back = np.arange(rows)[:, None] - np.arange(rows)
        extent = self.profiles.shape[1]
        of_distance = np.pad(self.profiles.astype(np.float64), ((0, 0), (0, 1)))
        profiles = of_distance[:, np.where((back >= 0) & (back < extent), back, extent)]  # (R, T, S)
        seen = (back >= 0) & (back < (shape.window or rows))
        out = np.zeros_like(q)
        for h in range(shape.heads):
            g = h // (shape.heads // shape.kv_heads)
            scores = q[:, h] @ keys[:, g].T * shape.scale + np.einsum("tj,jts->ts", weights[:, h], profiles)
            scores = np.exp(np.where(seen, scores, -np.inf))
            sink = np.exp(self.tables[4].values[IDS, h].astype(np.float64)) if self.has_sinks else 0.0
            out[:, h] = scores / (scores.sum(1) + sink)[:, None] @ values[:, g]
        return out.reshape(rows, -1)


CASES = [
    ("fp32", 4, 2, 32, 0, 4, 1024), ("fp32", 6, 3, 24, 0, 3, 9), ("fp16", 3, 1, 40, 0, 16, 300),
    ("fp32", 6, 2, 16, 300, 5, 300), ("fp16", 4, 4, 16, 6, 2, 6), ("fp32", 2, 1, 16, 0, 1, 1),
    ("fp32", 5, 1, 16, 100, 2, 400), ("fp32", 2, 2, 64, 0, 7, 257), ("fp8", 4, 2, 32, 70, 4, 70),
    ("q8", 4, 1, 64, 0, 16, 500), ("q4", 4, 2, 32, 0, 4, 256), ("q6", 3, 1, 32, 130, 3, 130),
    ("q8/q4", 2, 2, 40, 0, 4, 33), ("q4/fp16", 5, 1, 64, 0, 2, 512),
]  # fmt: skip
QUICK = ("fp32", "fp16")
"""The other cache types' kernels compile for long."""


@pytest.mark.parametrize(
    ("dtype", "heads", "groups", "dim", "window", "count", "extent"),
    [pytest.param(*case, marks=[] if case[0] in QUICK else [pytest.mark.slow]) for case in CASES],
)
def test_biases_of_decoding_small_batches_and_prompts(
    dtype: str, heads: int, groups: int, dim: int, window: int, count: int, extent: int
) -> None:
    """Within the extent and beyond it, across pages, splits and tiles, in windows and without."""
    layer = Layer(AttentionShape(heads, groups, dim, 1 / dim, window), count, extent, dtype)
    found, expected = layer.run(), layer.exact()
    assert np.abs(found - expected).max() <= 3e-5 * np.abs(expected).max()
    layer.profiles[:] = 0.0  # the program has a copy; the formula shows that the bias matters
    assert np.abs(found - layer.exact()).max() > 1e-3 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("dtype", "heads", "groups", "window"), [("fp32", 6, 3, 0), ("fp16", 5, 1, 100), ("fp32", 4, 4, 300)]
)
def test_every_row_may_have_sinks_of_its_own(dtype: str, heads: int, groups: int, window: int) -> None:
    layer = Layer(AttentionShape(heads, groups, 32, 0.1, window), 3, 50, dtype, has_sinks=True)
    found, expected = layer.run(), layer.exact()
    assert np.abs(found - expected).max() <= 3e-5 * np.abs(expected).max()
    layer.has_sinks = False
    assert np.abs(found - layer.exact()).max() > 1e-2 * np.abs(expected).max()


@pytest.mark.parametrize(("window", "extent"), [(0, 9), (0, 600), (40, 40)])
def test_the_same_as_the_reference(window: int, extent: int) -> None:
    shape = AttentionShape(6, 2, 24, 0.1, window)
    found = Layer(shape, 4, extent).run()
    expected = Layer(shape, 4, extent, backend=ReferenceBackend()).run()
    assert np.abs(found - expected).max() <= 2e-5 * np.abs(expected).max()


@pytest.mark.parametrize("extent", [5, 300])
def test_rows_of_a_short_step_are_those_of_steps_of_one(extent: int) -> None:
    layer = Layer(AttentionShape(5, 1, 40, 0.1), 3, extent)
    with layer.program() as program:
        for begin in range(0, 640, 128):
            program.run(step(begin, 128))
        for start in (3, 249, 257, 506, 630):
            alone = np.concatenate([program.run(step(p, 1)).copy() for p in range(start, start + 16)])
            assert np.abs(alone).max() > 0
            for rows in (2, 3, 4, 5, 7, 8, 9, 14, 16):
                assert np.array_equal(program.run(step(start, rows)), alone[:rows]), (start, rows)


@pytest.mark.parametrize("rows", range(2, 17))
def test_steps_of_few_rows(rows: int) -> None:
    """They begin anywhere in a page, with the extent's end in the page before."""
    layer = Layer(AttentionShape(4, 2, 16, 0.1), 2, 30)
    expected = Layer(AttentionShape(4, 2, 16, 0.1), 2, 30, backend=ReferenceBackend())
    with layer.program() as program, expected.program() as reference:
        for start in range(0, 260, rows):
            one, other = (each.run(step(start, rows)) for each in (program, reference))
            assert np.abs(one - other).max() <= 2e-5 * np.abs(other).max(), start


def test_a_kernel_of_its_own_adds_the_bias() -> None:
    """Attention without it runs the kernel of before, whose code knows nothing of it."""
    layer = Layer(AttentionShape(4, 2, 16, 0.1), 2, 30)
    plain: Any = layer.backend.load_weight(layer.tables[1])

    def without(ops: Any) -> Any:
        k = ops.embed(plain)
        return ops.last_rows(ops.attention(0, k, k, k, AttentionShape(2, 2, 16, 0.1)))

    assert isinstance(layer.cache, CpuCache)
    biased, usual = (LoweredPass(each, layer.cache).kernels for each in (layer.forward, without))
    assert ("attention_relative_fp32_fp32" in biased, "attention_fp32_fp32" in biased) == (True, False)
    assert ("attention_relative_fp32_fp32" in usual, "attention_fp32_fp32" in usual) == (False, True)
