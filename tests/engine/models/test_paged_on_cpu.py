"""The CPU's cache over conversations, rewinds and a restart: logits equal those of each text alone, bit for
bit.

Steps have at most eight rows, as checks of drafts do; up to there the logits of a row do not depend on the
other rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.kernels.linear.panel_format import PAIRS
from engine.kv_cache.lease import Lease
from engine.models.base import Model
from engine.models.paged import PagedCache
from engine.models.saved import restore_cache, save_cache
from engine.settings import CacheSettings
from engine.tensors import Floats
from tests.engine.models.architectures import Case, write_checkpoint
from tests.engine.models.cases.recurrent import RECURRENT_CASES
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.families import rwkv6_files, rwkv_files
from tests.engine.models.oracle import load
from tests.tiny import TINY, write_gguf

CONTEXT, ROWS = 700, 8
LONG = {"max_position_embeddings": CONTEXT}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    model = load(write_gguf(tmp_path_factory.mktemp("cpu") / "m.gguf", TINY, "Q8_0"), CpuBackend(threads=2))
    yield model
    model.close()


def with_long_context(name: str) -> Case:
    """A case whose text model has a context of `CONTEXT` tokens."""
    case = BY_NAME[name]
    text = case.settings.get("text_config")
    longer = {**case.settings, **LONG} if text is None else {**case.settings, "text_config": text | LONG}
    return replace(case, settings=longer)


FURTHER = ("Qwen 4, n-grams", "DeepSeek V4", "GLM-5 next")
STATEFUL = [
    *(case.name for case in RECURRENT_CASES),
    *(pytest.param(name, marks=pytest.mark.slow) for name in FURTHER),
]


@pytest.fixture(scope="module", params=STATEFUL)
def recurrent(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    case = with_long_context(request.param)
    model = load(write_checkpoint(case, tmp_path_factory.mktemp("cpu") / "m"), CpuBackend(threads=2))
    yield model
    model.close()


OTHERS = [
    "MiniCPM 3",
    pytest.param("DeepSeek V3", marks=pytest.mark.slow),
    pytest.param("Mistral Large 4", marks=pytest.mark.slow),
    "Gemma 4, a second embedding and shared layers",
]


@pytest.fixture(scope="module", params=OTHERS)
def other_cache(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """Models whose layers do not all have keys and values of one shape."""
    case = with_long_context(request.param)
    model = load(write_checkpoint(case, tmp_path_factory.mktemp("cpu") / "m"), CpuBackend(threads=2))
    yield model
    model.close()


def new_cache(model: Model, dtype: str, values: str) -> PagedCache:
    return PagedCache(model, CacheSettings(context_length=CONTEXT, dtype=dtype, value_dtype=values, memory=1))


def read(cache: PagedCache, lease: Lease, ids: list[int], rows: int = ROWS) -> Floats:
    """The logits after `ids`; only what the lease lacks is run."""
    while lease.length < len(ids):
        logits = cache.run(lease, ids[lease.length : lease.length + rows])
    return logits[-1].copy()


class Alone:
    """Logits of texts that each ran alone, token by token."""

    def __init__(self, cache: PagedCache) -> None:
        self.cache = cache
        self.known: dict[tuple[int, ...], Floats] = {}

    def after(self, ids: list[int]) -> Floats:
        key = tuple(ids)
        if key not in self.known:
            self.cache.table.forget()
            with self.cache.open(ids) as lease:
                assert not lease.length
                self.known[key] = read(self.cache, lease, ids, rows=7)
        return self.known[key]


@pytest.mark.slow_after(2)
def test_everything_equals_the_text_alone_with_states(recurrent: Model, tmp_path: Path) -> None:
    everything_equals_the_text_alone(recurrent, tmp_path, "auto", "same")


@pytest.mark.slow
@pytest.mark.parametrize("version", [6, 7])
def test_everything_equals_the_text_alone_with_token_shifts(version: int, tmp_path: Path) -> None:
    """RWKV, whose states are matrices and the rows before."""
    if version == 6:
        small = rwkv6_files.Shape(layers=2)
        path = rwkv6_files.write_gguf(tmp_path / "m.gguf", small, rwkv6_files.tensors(small))
    else:
        shape = rwkv_files.Shape(layers=2)
        path = rwkv_files.write_folder(tmp_path / "m", shape, rwkv_files.tensors(shape))
    model = load(path, CpuBackend(threads=2))
    everything_equals_the_text_alone(model, tmp_path, "auto", "same")
    model.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype", ["auto", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("q8", "q4"))]
)
def test_everything_equals_the_text_alone_in_other_caches(
    other_cache: Model, tmp_path: Path, dtype: str
) -> None:
    everything_equals_the_text_alone(other_cache, tmp_path, dtype, "same")


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("dtype", "values"), [("auto", "same"), ("fp32", "fp8"), ("q8", "same"), ("q6", "same"), ("q4", "fp16")]
)
def test_everything_equals_the_text_alone(model: Model, tmp_path: Path, dtype: str, values: str) -> None:
    everything_equals_the_text_alone(model, tmp_path, dtype, values)


def everything_equals_the_text_alone(model: Model, tmp_path: Path, dtype: str, values: str) -> None:
    cache, fresh, rng = (
        new_cache(model, dtype, values),
        new_cache(model, dtype, values),
        np.random.default_rng(3),
    )
    alone = Alone(fresh)
    start = rng.integers(3, 307, 270).tolist()  # a page and a bit that all begin with
    texts = [start + rng.integers(3, 307, count).tolist() for count in (5, 60, 290)]
    for visit in range(14):
        which = int(rng.integers(3))
        ids = texts[which]
        match visit % 4:
            case 0:  # an edit
                ids = ids[: int(rng.integers(200, len(ids)))] + rng.integers(3, 307, 9).tolist()
            case 1:  # a further message
                ids = (
                    (ids + rng.integers(3, 307, 40).tolist())[-CONTEXT + 20 :]
                    if len(ids) < CONTEXT - 80
                    else ids[:400]
                )
        texts[which] = ids
        with cache.open(ids) as lease:
            np.testing.assert_array_equal(read(cache, lease, ids), alone.after(ids))
            drafts = rng.integers(3, 307, 7).tolist()
            logits = cache.run(lease, drafts, logit_rows=7)  # of which some stay
            kept = int(rng.integers(0, 8))
            np.testing.assert_array_equal(logits[6], alone.after(ids + drafts))
            lease.truncate(len(ids) + kept)
            more = [*ids, *drafts[:kept], 11]
            np.testing.assert_array_equal(read(cache, lease, more), alone.after(more))
        cache.table.check()
        if visit == 7:  # the program is closed and opened again
            assert save_cache(cache, "model", tmp_path) == ""
            cache.close()
            cache = new_cache(model, dtype, values)
            assert restore_cache(cache, "model", tmp_path) == ""
            with cache.open(more) as lease:
                # With states, as far as the latest one that was kept.
                assert lease.length == len(more) - 1 or (cache.recurrent and lease.length >= 200)
    cache.close()
    fresh.close()


@pytest.mark.skipif(not PAIRS, reason="without pairs long steps take activations in float32")
def test_texts_of_quantised_models_have_the_same_logits_in_short_and_long_steps(model: Model) -> None:
    """While keys and values fill one page: short steps join those of several in another order."""
    cache, ids = new_cache(model, "auto", "same"), np.random.default_rng(4).integers(3, 307, 250).tolist()
    found = []
    for rows in (250, 31, 7, 1):
        cache.table.forget()
        with cache.open(ids) as lease:
            steps = [ids[at : at + rows] for at in range(0, len(ids), rows)]
            found.append(np.concatenate([cache.run(lease, s, logit_rows=len(s)).copy() for s in steps]))
    for rows in found[1:]:
        np.testing.assert_array_equal(rows, found[0])
    cache.close()


@pytest.mark.slow
def test_another_cache_type_finds_nothing(model: Model, tmp_path: Path) -> None:
    cache = new_cache(model, "q8", "same")
    with cache.open([5, 6, 7]) as lease:
        read(cache, lease, [5, 6, 7])
    save_cache(cache, "model", tmp_path)
    cache.close()
    for dtype, values, found in (("q8", "same", 1), ("q8", "q8", 1), ("q8", "q4", 0), ("auto", "same", 0)):
        cache = new_cache(model, dtype, values)
        assert restore_cache(cache, "model", tmp_path) == ""
        assert cache.table.cached == found
        cache.close()
