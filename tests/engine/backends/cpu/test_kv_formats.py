"""The cache types of the CPU backend: what is written against the reference's rounding, what attention reads
against exact arithmetic over the bytes that lie in the store.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.base import AttentionShape, Step
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.kv_cache import CpuCache
from engine.backends.kv_formats import cache_type
from engine.backends.reference.backend import ReferenceBackend
from tests.engine.backends.cache_oracle import stored
from tests.engine.backends.kernel_oracles import Matrix, causal_attention

Array = np.ndarray[Any, Any]
PAGES = (4, 1, 5)
STEPS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 33, 100, 70, 8, 33, 5, 1)
"""Rows of the steps: 295 positions, over a border of pages in the middle of a short step."""


def table(width: int, seed: int) -> Matrix:
    """97 rows of numbers like keys: normal ones, some far out, rows of zeros and rows too small for any
    scale.
    """
    m = Matrix("F32", (97, width), seed)
    rng = np.random.default_rng(seed)
    m.values[:, rng.integers(0, width, width // 16 + 1)] *= 30
    m.values[5] = 0
    m.values[6] *= np.float32(1e-9)
    m.values[7] *= np.float32(1e-3)
    m.data = m.values.reshape(-1).view(np.uint8)
    return m


class Setting:
    """One layer of attention whose queries, keys and values are rows of tables."""

    def __init__(
        self, backend: Any, shape: AttentionShape, dtype: str, wild: bool = False, offset: float = 0.0
    ) -> None:
        self.shape = shape
        sizes = (
            shape.heads * shape.head_dim,
            shape.kv_heads * shape.head_dim,
            shape.kv_heads * shape.head_dim,
        )
        self.tables = [table(size, seed) for seed, size in enumerate(sizes)]
        self.tables[0].values *= np.float32(0.2)
        for m in self.tables[1:]:
            m.values[0, :3] = (np.nan, np.inf, -np.inf) if wild else m.values[0, :3]
        self.tables[1].values += np.float32(offset) * np.sin(np.arange(sizes[1], dtype=np.float32))
        packed = [backend.load_weight(m) for m in self.tables]
        self.cache = backend.new_cache([shape], 6, dtype)

        def forward(ops: Any) -> Any:
            q, k, v = (ops.embed(w) for w in packed)
            return ops.last_rows(ops.attention(0, q, k, v, shape))

        self.program = backend.record(forward, self.cache, 128)

    def run(self, ids: Array) -> Array:
        found, start = [], 0
        for rows in STEPS:
            part = ids[start : start + rows].astype(np.int32)
            positions = np.arange(start, start + rows, dtype=np.int32)
            found.append(self.program.run(Step(part, positions, np.array(PAGES, np.int32), rows)).copy())
            start += rows
        assert start == len(ids)
        return np.concatenate(found).reshape(len(ids), self.shape.heads, -1)


IDS = np.random.default_rng(11).integers(0, 97, sum(STEPS))
SHAPES = [
    ("q8", 3, 1, 64), ("q4", 4, 1, 32), ("q8/q4", 7, 1, 80), ("q4/q8", 3, 3, 96), ("q8", 4, 2, 16),
    ("q4", 2, 1, 256), ("fp8", 9, 3, 24), ("fp16/q4", 6, 2, 128), ("q4/fp16", 4, 4, 20), ("fp8/q8", 7, 7, 40),
    ("q8/fp8", 4, 1, 100), ("fp32/q8", 3, 1, 48), ("q4/fp32", 2, 2, 64),
]  # fmt: skip


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(("dtype", "heads", "groups", "dim"), SHAPES)
def test_store_and_attention(dtype: str, heads: int, groups: int, dim: int) -> None:
    """Every format as keys and as values, odd head dimensions and ratios, short and long steps.

    What lies in the store is what the reference keeps, and what attention makes of it is exact.
    """
    shape = AttentionShape(heads, groups, dim, dim**-0.5)
    setting, reference = Setting(CpuBackend(2), shape, dtype), Setting(ReferenceBackend(), shape, dtype)
    found, near = setting.run(IDS), reference.run(IDS)
    setting.program.close()
    kind = cache_type(dtype)
    assert setting.cache.dtype == reference.cache.dtype == str(kind)
    sides = [part.reshape(-1, groups, dim)[_places()] for part in stored(setting.cache, 0, shape, PAGES[0])]
    kept = [
        part[0].double().numpy().reshape(-1, groups, dim)[_places()]
        for part in (reference.cache.keys, reference.cache.values)
    ]
    for side, expected, name, m in zip(
        sides, kept, (kind.keys, kind.values), setting.tables[1:], strict=True
    ):
        if name == "q4" and m is setting.tables[1]:
            assert_as_good(side, expected, m.values[IDS].reshape(expected.shape))
        else:
            assert_alike(side, expected, 0.0 if name.startswith("fp") else 0.02)
    q = setting.tables[0].values[IDS].reshape(-1, heads, dim)
    exact = causal_attention(q, *sides, shape.scale)
    assert np.abs(found - exact).max() <= 3e-5 * np.abs(exact).max()
    # Where attention is all on one key, a code that fell to the other side of a border can choose another:
    # not the worst, the usual.
    assert np.median(np.abs(found - near)) <= 1e-2 * np.abs(near).mean()


def _places() -> Array:
    positions = np.arange(len(IDS))
    return np.array(PAGES)[positions // 256] * 256 + positions % 256


def assert_alike(side: Array, expected: Array, share: float) -> None:
    """Equal to float32's precision, but for a share of vectors where a number on the border of two codes
    fell to the other.
    """
    scale = np.abs(expected).max(-1, keepdims=True) + 1e-30
    error = (np.abs(side - expected) / scale).max(-1)
    assert (error > 1e-5).mean() <= share
    assert error.max() <= 0.2


def assert_as_good(side: Array, expected: Array, keys: Array) -> None:
    """For q4 keys, where one number on a border moves all that follow, and one in the first sixteen the
    mean of a page.
    """
    assert_alike(side[:16], expected[:16], 0.15)
    assert_alike(side[:1], expected[:1], 0.0)
    errors = [np.sqrt(((part - keys) ** 2).mean()) for part in (side, expected)]
    assert errors[0] <= 1.03 * errors[1]


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "fp8", "q8/q4"])
def test_rows_over_the_border_of_later_pages(dtype: str) -> None:
    """The block table says where each page lies, the third and fourth as well."""
    shape, kind, rows, pages = AttentionShape(2, 1, 24, 0.2), cache_type(dtype), 20, (4, 1, 5, 0)
    setting = Setting(CpuBackend(2), shape, dtype)
    ids = IDS[:rows].astype(np.int32)
    for start in (500, 760):
        positions = np.arange(start, start + rows, dtype=np.int32)
        setting.program.run(Step(ids, positions, np.array(pages, np.int32), rows))
        sides = stored(setting.cache, 0, shape, pages[0])
        for side, name, m in zip(sides, (kind.keys, kind.values), setting.tables[1:], strict=True):
            found = np.stack([side[pages[at // 256], at % 256, 0] for at in positions])
            expected = m.values[ids].astype(np.float64)
            near = {"fp32": 0.0, "fp16": 1e-3, "fp8": 0.07, "q8": 0.02, "q4": 0.2}[name]
            assert np.abs(found - expected).max() <= near * np.abs(expected).max()
    setting.program.close()


def test_keys_that_have_much_in_common() -> None:
    """q4 stores differences from the mean of the page before, of which the first has two kinds of keys: of
    keys far from zero, each page is as near as the reference's.
    """
    shape, rows, pages = AttentionShape(2, 1, 40, 0.02), 800, (4, 1, 5, 0)
    ids = np.random.default_rng(3).integers(0, 97, rows).astype(np.int32)
    found = []
    for backend in (CpuBackend(1), ReferenceBackend()):
        setting = Setting(backend, shape, "q4/fp32", offset=20.0)
        for start in range(0, rows, 100):
            positions = np.arange(start, start + 100, dtype=np.int32)
            setting.program.run(Step(ids[start : start + 100], positions, np.array(pages, np.int32), 100))
        found.append(setting)
    side = stored(found[0].cache, 0, shape, pages[0])[0][pages, :, 0].reshape(-1, 40)[:rows]
    kept = found[1].cache.keys[0].double().numpy()[pages, :, 0].reshape(-1, 40)[:rows]
    keys = found[1].tables[1].values[ids]
    found[0].program.close()
    for first, last in ((0, 16), (16, 256), (256, 512), (512, 768), (768, rows)):
        errors = [np.sqrt(((part[first:last] - keys[first:last]) ** 2).mean()) for part in (side, kept)]
        assert errors[0] <= 1.03 * errors[1], (first, errors)
        assert np.abs((side - kept)[first:last].mean(0)).max() <= 0.2 * errors[1], first


@pytest.mark.parametrize("dtype", ["fp8", "q8", "q4"])
def test_wild_numbers_spoil_nothing_else(dtype: str) -> None:
    """NaN and infinity in one head's key and value, first and later: all stays finite, and the other head
    is as ever.
    """
    shape = AttentionShape(2, 2, 32, 0.1)
    setting, reference = (
        Setting(backend, shape, dtype, wild=True) for backend in (CpuBackend(1), ReferenceBackend())
    )
    step = Step(np.array([0, 9, 0, 11], np.int32), np.arange(4, dtype=np.int32), np.array([2], np.int32), 4)
    out, near = setting.program.run(step).copy(), reference.program.run(step)
    setting.program.close()
    assert np.isfinite(out).all()
    np.testing.assert_allclose(out[:, 32:], near[:, 32:], atol=1e-4 * np.abs(near[:, 32:]).max())
    for side, kept in zip(
        stored(setting.cache, 0, shape, 2), (reference.cache.keys, reference.cache.values), strict=True
    ):
        assert np.abs(side[2, :4, 0]).max() <= 65504 * 1.5
        assert_alike(side[2, :4, 1], kept[0][2, :4, 1].double().numpy(), 0.0)


@pytest.mark.parametrize("dtype", ["fp16", "fp32", "fp8", "q8/q4", "q4"])
def test_pages_can_be_copied_saved_and_put_back(dtype: str) -> None:
    shape = AttentionShape(2, 1, 48, 0.2)
    setting = Setting(CpuBackend(1), shape, dtype)
    cache = setting.cache
    assert isinstance(cache, CpuCache)
    ids = np.arange(40, dtype=np.int32)
    positions = np.arange(41, dtype=np.int32)

    def last(page: int) -> Array:
        one = Step(np.array([3], np.int32), positions[40:], np.array([page], np.int32), 1)
        return setting.program.run(one).copy()

    setting.program.run(Step(ids, positions[:40], np.array([1], np.int32), 1))
    expected = last(1)
    cache.copy_page(1, 3)
    assert np.array_equal(last(3), expected)
    saved = cache.read_page(1)
    assert saved.dtype == np.uint8
    assert saved.shape == (cache.page_bytes,)
    assert (
        cache.nbytes
        == cache.page_count * cache.page_bytes
        == sum(a.nbytes for a in [*cache._keys, *cache._values])
    )
    cache.write_page(1, np.zeros_like(saved))
    assert saved.any()
    assert not np.array_equal(last(1), expected)
    cache.write_page(5, saved)
    assert np.array_equal(last(5), expected)
    setting.program.close()
