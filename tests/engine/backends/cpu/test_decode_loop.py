"""Decoding ahead on a CPU: which steps run, when, and with what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engine.backends.cpu import decode_loop as ahead
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.decode_loop import CpuDecodeLoop, decode_loop_of
from engine.backends.cpu.kernels import sample
from engine.backends.decode_loop import KEPT_LOGITS, SamplingPlan
from engine.core import PAGE_TOKENS
from engine.models.base import Model
from engine.models.paged import PagedCache
from engine.sampling import passes
from engine.sampling.sampler import Sampler
from engine.settings import CacheSettings, SamplerSettings
from engine.tensors import Floats, Ints
from tests.engine.backends.cpu.host_sampling import HostSampling
from tests.engine.models.architectures import write_checkpoint
from tests.engine.models.cases.recurrent import RECURRENT_CASES
from tests.engine.models.oracle import load
from tests.tiny import TINY, write_gguf

SIZE = 600
GREEDY = SamplingPlan(SIZE, greedy=True)
WARM = SamplingPlan(SIZE, ((passes.KEEP_TOP, 40.0), (passes.SCALE, 0.8)))
PAGES = np.arange(3, dtype=np.int32)


class Rows(HostSampling):
    """Answers as a function of the token and its place, after `seconds` of a clock that stands else."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[tuple[int, int]] = []
        self.shifts = set[int]()
        self.now, self.seconds, self.broken = 0.0, 0.001, -1
        self.pages: Any = None

    def set_pages(self, pages: Ints) -> None:
        self.pages = pages

    def run_row(self, token: int, place: int, shift: int = 0) -> Floats:
        self.ran.append((token, place))
        self.shifts.add(shift)
        self.now += self.seconds
        logits = np.random.default_rng([token, place]).normal(0, 3, SIZE).astype(np.float32)
        if place == self.broken:
            logits[5] = np.nan
        return logits


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Rows:
    rows = Rows()
    monkeypatch.setattr(ahead, "time", SimpleNamespace(perf_counter=lambda: rows.now))
    return rows


def begun(rows: Rows, plan: SamplingPlan = GREEDY, ids: tuple[int, ...] = (3, 4)) -> CpuDecodeLoop:
    loop = decode_loop_of(rows, rows.sampling, plan, SIZE)
    assert loop is not None
    loop.start(ids, PAGES, lambda place: place % 7 / 7)
    return loop


def said(count: int, sampler: Sampler | None = None) -> list[int]:
    """What follows 3 and 4 if the host samples."""
    ids, rows = [3, 4], Rows()
    sampler = sampler or Sampler(SamplerSettings(temperature=0.0), 0)
    for _ in range(count):
        ids.append(sampler.sample(rows.run_row(ids[-1], len(ids) - 1), ids).id)
    return ids[2:]


def take(loop: CpuDecodeLoop, count: int) -> list[int]:
    """So many tokens, with as many steps ahead as the loop would begin."""
    drawn = [loop.next(loop.ahead) for _ in range(count)]
    return [sampled.id for sampled in drawn if sampled is not None]


def test_the_first_step_tells_how_many_take_two_frames_and_the_others_run_in_a_row(rows: Rows) -> None:
    loop = begun(rows)
    assert (loop.ahead, loop.under_way) == (1, 1)
    assert take(loop, 1) == said(1)
    assert (len(rows.ran), loop.ahead, loop.under_way) == (1, 8, 1)
    assert take(loop, 1) == said(2)[1:]
    assert (len(rows.ran), loop.ahead, loop.under_way) == (9, 0, 8)
    assert take(loop, 7) == said(9)[2:]
    assert (len(rows.ran), loop.ahead) == (9, 8)
    rows.seconds = 0.01
    take(loop, 8)
    assert loop.ahead == 3
    rows.seconds = 1.0
    take(loop, 3)
    assert loop.ahead == 1
    assert [place for _, place in rows.ran] == list(range(1, 21))


def test_no_step_runs_for_which_there_is_no_room(rows: Rows) -> None:
    loop = begun(rows)
    loop.next(1)
    loop.next(3)
    assert (len(rows.ran), loop.under_way) == (4, 3)
    for left in (2, 1):
        loop.next(0)
        assert loop.under_way == left
    assert loop.next(0) is not None
    assert (len(rows.ran), loop.under_way) == (5, 0)
    with pytest.raises(ValueError, match="start"):
        loop.next(0)


def test_after_a_token_that_may_end_the_text_nothing_is_run_in_vain(rows: Rows) -> None:
    expected = said(12)
    loop = begun(rows, replace(GREEDY, ends=frozenset({expected[4]})))
    assert take(loop, 5) == expected[:5]
    assert (len(rows.ran), loop.under_way) == (5, 1)
    assert take(loop, 7) == expected[5:]  # where the text goes on nevertheless


def test_scores_that_are_not_numbers_are_left_to_the_host(rows: Rows) -> None:
    rows.broken = 4
    loop = begun(rows)
    assert take(loop, 3) == said(3)
    assert loop.next(loop.ahead) is None
    assert np.isnan(loop.logits(5)[5])
    assert len(rows.ran) == 5


def test_samples_are_those_of_the_sampler(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = SamplerSettings(temperature=1.25, top_k=40, top_p=1.0, min_p=0.0)
    sampler = Sampler(settings, 0)
    monkeypatch.setattr(sampler, "uniform", lambda place, *_: place % 7 / 7)
    assert take(begun(rows, WARM), 30) == said(30, sampler)
    told = replace(WARM, alternatives=3)
    sampled = begun(rows, told).next(1)
    assert sampled is not None
    host = sampler.sample(rows.run_row(4, 1), [3, 4], alternatives=3)
    assert sampled.alternatives == pytest.approx(np.array(host.alternatives))
    assert sampled[1:3] == pytest.approx(host[1:3])
    assert sampled.entropy == pytest.approx(host.entropy)


def test_logits_are_computed_again(rows: Rows) -> None:
    loop = begun(rows)
    ids = [3, 4, *take(loop, 40)]
    for place in range(len(ids) - KEPT_LOGITS, len(ids)):
        assert loop.logits(place).argmax() == ids[place]
    loop.start(ids[:10], PAGES, lambda place: 0.0)
    with pytest.raises(ValueError, match="the logits at 9"):
        loop.logits(9)
    assert take(loop, 4) == ids[10:14]


def test_what_was_drawn_is_forgotten_with_a_new_start(rows: Rows) -> None:
    loop = begun(rows)
    take(loop, 4)
    pages = np.array([7], np.int32)
    assert rows.shifts == {0}
    loop.start([9, 8, 7], pages, lambda place: 0.0, shift=2)
    assert rows.pages is pages
    assert loop.under_way == 1
    rows.shifts.clear()
    take(loop, 1)
    assert rows.ran[9:11] == [(7, 2), (rows.ran[10][0], 3)]
    loop.logits(4)
    assert rows.shifts == {2}
    loop.close()
    assert loop.under_way == 0


@pytest.mark.parametrize(
    ("plan", "taken"),
    [
        (GREEDY, True),
        (replace(WARM, alternatives=40), True),
        (SamplingPlan(SIZE, ((passes.SCALE, 0.5), (passes.KEEP_TOP, 4.0))), True),
        (replace(GREEDY, vocabulary=SIZE - 1), True),
        (replace(GREEDY, vocabulary=SIZE + 1), False),
        (replace(GREEDY, steps=((passes.SCALE, 0.5),)), False),
        (replace(GREEDY, repetition=1.1), False),
        (replace(GREEDY, bias=np.zeros(SIZE, np.float32)), False),
        (replace(GREEDY, top=1), False),
        (replace(GREEDY, alternatives=17), False),
        (replace(WARM, alternatives=41), False),
        (SamplingPlan(SIZE, ((passes.KEEP_TOP, 1e6),)), False),
        (SamplingPlan(SIZE, ((passes.KEEP_NUCLEUS, 0.5), (passes.KEEP_TOP, 4.0))), False),
        (SamplingPlan(SIZE, ((passes.SCALE, 0.5),)), False),
        (SamplingPlan(SIZE), False),
    ],
)
def test_plans(rows: Rows, plan: SamplingPlan, taken: bool) -> None:
    assert (decode_loop_of(rows, rows.sampling, plan, SIZE) is not None) == taken


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("cpu") / "m.gguf", TINY, "Q8_0")


@pytest.fixture(scope="module")
def model(path: Path) -> Iterator[Model]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample, "MIN_SCANNED", 1)
        model = load(path, CpuBackend(threads=2))
        yield model
    model.close()


def test_small_vocabularies_are_the_hosts(path: Path) -> None:
    model = load(path, CpuBackend(threads=1))
    cache = PagedCache(model, CacheSettings(context_length=64, memory=1))
    assert cache.decode_loop(SamplingPlan(TINY.vocab_size, greedy=True)) is None
    cache.close()
    model.close()


def test_a_models_tokens_and_scores_are_those_of_its_passes(model: Model) -> None:
    """Over the end of a page, and with a pass over another text in between."""
    cache, fresh = (PagedCache(model, CacheSettings(context_length=600, memory=1)) for _ in range(2))
    ids = np.random.default_rng(1).integers(3, 307, PAGE_TOKENS - 6).tolist()
    loop: Any = cache.decode_loop(SamplingPlan(TINY.vocab_size, greedy=True))
    with cache.open(ids) as lease, cache.open([9] * 300) as other, fresh.open(ids) as alone:
        for part in (ids[:200], ids[200:-1]):
            cache.run(lease, part)
            fresh.run(alone, part)
        cache.start(loop, lease, ids, lambda place: 0.0)
        for turn in range(24):
            steps = loop.ahead
            cache.reserve_ahead(loop, lease, len(ids) + steps)
            sampled = loop.next(steps)
            lease.extend([ids[-1]])
            expected = fresh.run(alone, ids[-1:])[0]
            assert loop.logits(len(ids)).tolist() == expected.tolist()
            assert sampled.id == expected.argmax()
            ids.append(sampled.id)
            if turn == 12:
                cache.run(other, [9] * 300)
                cache.start(loop, lease, ids, lambda place: 0.0)
        assert len(lease.pages) == 2
    cache.close()
    fresh.close()


def test_a_recurrent_model_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "MIN_SCANNED", 1)
    model = load(write_checkpoint(RECURRENT_CASES[0], tmp_path / "m"), CpuBackend(threads=1))
    cache = PagedCache(model, CacheSettings(context_length=64, memory=1))
    assert cache.recurrent
    assert cache.decode_loop(SamplingPlan(model.config.vocab_size, greedy=True)) is None
    cache.close()
    model.close()
