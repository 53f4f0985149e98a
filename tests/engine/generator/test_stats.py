"""The figures of one reply, from its times and counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engine.core import Prefill
from engine.generator import stats
from engine.generator.stats import SequenceStats

WRITTEN: Any = SimpleNamespace(
    prompt_tokens=30, new_tokens=5, ids=list(range(35)), context_length=64, accepted_drafts=2,
    first_token=107.0, last_token=109.5,
)  # fmt: skip
DRAFTING: Any = SimpleNamespace(speedup=1.5)


def test_what_a_reply_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([102.0, 104.0, 106.0])
    monkeypatch.setattr(stats, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    found = SequenceStats(100.0, cached=10, passes=4, drafted=8)
    found.begin(DRAFTING)
    assert found.summary(WRITTEN, 7).prefill_seconds == 0.0
    for done in (20, 30):
        progress = Prefill(done, 30, 10)
        assert found.prefill(progress) is progress
    summary = found.summary(WRITTEN, 7)
    assert (summary.prompt_tokens, summary.prefill_tokens, summary.cached_tokens) == (30, 20, 10)
    assert (summary.new_tokens, summary.context_tokens, summary.context_length) == (5, 35, 64)
    assert (summary.prefill_seconds, summary.first_token_seconds, summary.decode_seconds) == (4.0, 7.0, 2.5)
    assert (summary.passes, summary.drafted_tokens, summary.accepted_tokens) == (4, 8, 2)
    assert (summary.seed, summary.speedup) == (7, 1.5)


def test_a_reply_that_never_began_reports_zeros() -> None:
    nothing: Any = SimpleNamespace(**vars(WRITTEN) | {"first_token": 0.0, "last_token": 0.0, "new_tokens": 0})
    summary = SequenceStats(100.0).summary(nothing, 7)
    assert (summary.prefill_tokens, summary.cached_tokens, summary.passes, summary.drafted_tokens) == (0,) * 4
    assert (summary.prefill_seconds, summary.first_token_seconds, summary.decode_seconds) == (0.0,) * 3
    assert summary.speedup == 0.0


def test_without_a_pass_drafting_has_no_speedup() -> None:
    found = SequenceStats(100.0)
    found.begin(DRAFTING)
    assert found.summary(WRITTEN, 7).speedup == 0.0
