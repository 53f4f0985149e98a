"""Every cache type in whole models on the CUDA backend: logits, and pages that are copied, saved and taken
up again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.kv_cache.lease import Lease
from engine.models.base import Model
from engine.models.paged import PagedCache
from engine.models.saved import restore_cache, save_cache
from engine.settings import CacheSettings
from tests.engine.models.oracle import load, logits
from tests.simt.fake import FakeDevice
from tests.simt.whole import Floats, on_gpu, share
from tests.tiny import TINY, write_gguf

IDS = np.random.default_rng(1).integers(3, 300, 560).tolist()
CUTS = (250, 254, 255, 260, 265, 508, 512, 513, 520)
"""Steps that end before, at and after the borders of pages, of few rows and of many."""
TYPES = ("fp32", "fp16", "fp8", "q8", "q6", "q4", "q8/q4", "fp16/q8", "q4/fp8")
LONG_STEPS, BORDERS = 2e-3, 0.3
"""How far logits may be from the reference's with a cache of the same type, as `whole.share`: by the fp16 in
which long steps multiply queries, keys and values; and, of what the type's own rounding does, by numbers near
its borders that fall to the other side.
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gpu") / "m.gguf", TINY.but(layers=1), "F32")


def some(names: tuple[str, ...], *quick: str) -> list[Any]:
    return [pytest.param(name, marks=[] if name in quick else [pytest.mark.slow]) for name in names]


@pytest.mark.parametrize("dtype", some(TYPES, "fp32", "q8/q4"))
def test_types(path: Path, dtype: str) -> None:
    exact, kept = logits(load(path), IDS), logits(load(path), IDS, CUTS, dtype=dtype)
    model = on_gpu(path)
    found = logits(model, IDS, CUTS, dtype=dtype)
    model.close()
    if dtype == "fp32":
        assert share(found, kept) < 1e-5
    rounding = share(kept, exact)
    assert share(found, kept) < LONG_STEPS + BORDERS * rounding
    assert share(found, exact) < LONG_STEPS + 1.05 * rounding


START = 264
"""Tokens that all texts begin with, run in one step; behind them steps have at most eight rows, whose
results are theirs alone.
"""


def new_cache(model: Model, dtype: str) -> PagedCache:
    keys, _, values = dtype.partition("/")
    return PagedCache(
        model, CacheSettings(context_length=600, dtype=keys, value_dtype=values or "same", memory=1)
    )


def read(cache: PagedCache, lease: Lease, ids: list[int], rows: int) -> Floats:
    """The logits after `ids`, of which only what the lease lacks is run."""
    while lease.length < len(ids):
        logits = cache.run(lease, ids[lease.length : START if lease.length < START else lease.length + rows])
    return logits[-1].copy()


def alone(cache: PagedCache, ids: list[int]) -> Floats:
    """The logits after a text of which nothing is cached."""
    cache.table.forget()
    with cache.open(ids) as lease:
        assert not lease.length
        return read(cache, lease, ids, 7)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", some(("fp32", "fp16", "fp8", "q8", "q6", "q4"), "q4"))
@pytest.mark.parametrize("devices", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_everything_equals_the_text_alone(path: Path, tmp_path: Path, dtype: str, devices: int) -> None:
    """Bit for bit: a page that two texts begin alike, drafts that are taken back, and pages that come from
    the disk.
    """
    if devices > 1:
        path = write_gguf(tmp_path / "two.gguf", TINY, "F32")
    model = on_gpu(path, [FakeDevice(index=index) for index in range(devices)])
    cache, fresh, texts = new_cache(model, dtype), new_cache(model, dtype), {}
    for name, tail in (
        ("first", IDS[300:330]),
        ("edited", IDS[300:310] + IDS[330:350]),
        ("further", IDS[300:352]),
    ):
        texts[name] = ids = IDS[:START] + tail
        with cache.open(ids) as lease:
            assert lease.length == {"first": 0, "edited": START + 10, "further": START + 30}[name]
            np.testing.assert_array_equal(read(cache, lease, ids, 8), alone(fresh, ids))
            drafts = IDS[400:407]
            np.testing.assert_array_equal(
                cache.run(lease, drafts, logit_rows=7)[6], alone(fresh, ids + drafts)
            )
            lease.truncate(len(ids))
            np.testing.assert_array_equal(read(cache, lease, [*ids, 11], 8), alone(fresh, [*ids, 11]))
        cache.table.check()
    assert save_cache(cache, "model", tmp_path) == ""
    cache.close()
    cache = new_cache(model, dtype)
    assert restore_cache(cache, "model", tmp_path) == ""
    for ids in texts.values():
        with cache.open([*ids, 5]) as lease:
            assert lease.length >= len(ids)
            np.testing.assert_array_equal(read(cache, lease, [*ids, 5], 8), alone(fresh, [*ids, 5]))
    cache.close()
    fresh.close()
    model.close()


def test_another_type_finds_nothing_of_it(path: Path, tmp_path: Path) -> None:
    model = on_gpu(path)
    for dtype, found in (("q8", 0), ("q8", 1), ("q4", 0)):
        cache = new_cache(model, dtype)
        assert restore_cache(cache, "model", tmp_path) == ""
        assert cache.table.cached == found
        with cache.open(IDS[:5]) as lease:
            cache.run(lease, IDS[lease.length : 5])
        save_cache(cache, "model", tmp_path)
        cache.close()
    model.close()
