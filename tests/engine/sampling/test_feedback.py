"""Mirostat and adaptive-p: what they learn, and that a rewind makes them forget it."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from engine.sampling.sampler import Sampler
from tests.engine.sampling.test_steps import OFF, approx, of

LOGITS = of(0.5, 0.25, 0.125, 0.125)
MIROSTAT = dataclasses.replace(OFF, mirostat=True, mirostat_tau=1.2, mirostat_eta=1.0)
ADAPTIVE = dataclasses.replace(OFF, adaptive_target=0.3, adaptive_decay=0.5)


def left(sampler: Sampler, logits: np.ndarray = LOGITS) -> dict[int, float]:
    return dict(sampler.distribution(logits, [0]).final.likeliest(9))


def commit(sampler: Sampler, token: int, logits: np.ndarray = LOGITS) -> None:
    sampler.commit(sampler.distribution(logits, [0]), token)


@pytest.mark.parametrize(
    ("tau", "kept"), [(0.2, (1.0,)), (0.9, (1.0,)), (1.2, (2 / 3, 1 / 3)), (1.6, (0.5, 0.25, 0.125, 0.125))]
)
def test_mirostat_starts_at_twice_the_surprise(tau: float, kept: tuple[float, ...]) -> None:
    assert left(Sampler(dataclasses.replace(MIROSTAT, mirostat_tau=tau), 0)) == pytest.approx(
        dict(enumerate(kept)), rel=2e-6
    )


def test_mirostat_learns_from_the_probability_after_truncation() -> None:
    sampler = Sampler(MIROSTAT, 0)  # mu = 2.4: p >= 0.189
    commit(sampler, 0)  # of 2/3 and 1/3: surprise 0.585, mu = 2.4 + 1.2 - 0.585 = 3.015, p >= 0.1237
    assert len(left(sampler)) == 4
    commit(sampler, 3)  # of all: surprise 3, mu = 1.215, p >= 0.43
    assert left(sampler) == {0: 1.0}
    commit(sampler, 0)  # certain: surprise 0, mu = 2.415
    assert left(sampler) == approx(t0=2 / 3, t1=1 / 3)


def test_mirostat_comes_near_its_target() -> None:
    random = np.random.default_rng(0)
    sampler = Sampler(dataclasses.replace(OFF, mirostat=True, mirostat_tau=3.0, mirostat_eta=0.1), 1)
    surprises = []
    for place in range(1500):
        logits = (random.standard_normal(500) * 2).astype(np.float32)
        surprises.append(-math.log2(sampler.sample(logits, range(place)).probability))
    assert np.mean(surprises[500:]) == pytest.approx(3.0, abs=0.1)


def test_adaptive_p_prefers_its_target() -> None:
    # Distances from 0.3, in units of 0.3: 1, 0 and 2/3.
    scores = [5 - 10 * 1 / 2, 5.0, 5 - 10 * (4 / 9) / (5 / 3)]
    total = sum(map(math.exp, scores))
    expected = {token: pytest.approx(math.exp(score) / total, rel=1e-5) for token, score in enumerate(scores)}
    assert left(Sampler(ADAPTIVE, 0), of(0.6, 0.3, 0.1)) == expected


@pytest.mark.parametrize(("token", "adapted"), [(0, 0.15), (1, 0.3), (2, 0.4)])
def test_adaptive_p_corrects_by_what_was_drawn(token: int, adapted: float) -> None:
    # The mean moves from 0.3 halfway to 0.6, 0.3 or 0.1, and the target as far to the other side.
    logits, sampler = of(0.6, 0.3, 0.1), Sampler(ADAPTIVE, 0)
    commit(sampler, token, logits)
    distances = [abs(p - adapted) / 0.3 for p in (0.6, 0.3, 0.1)]
    scores = [5 - 10 * d * d / (1 + d) for d in distances]
    total = sum(map(math.exp, scores))
    assert left(sampler, logits) == {
        index: pytest.approx(math.exp(score) / total, rel=1e-5) for index, score in enumerate(scores)
    }


@pytest.mark.parametrize(("target", "token", "adapted"), [(0.9, 2, 1.0), (0.2, 0, 0.0)])
def test_adaptive_p_aims_at_no_more_than_certainty_and_no_less_than_nothing(
    target: float, token: int, adapted: float
) -> None:
    # The mean moves to 0.1 or 0.6; twice the target less that would be 1.7 or -0.2.
    logits = of(0.6, 0.3, 0.1)
    sampler = Sampler(dataclasses.replace(ADAPTIVE, adaptive_target=target, adaptive_decay=0.0), 0)
    commit(sampler, token, logits)
    distances = [abs(p - adapted) / 0.3 for p in (0.6, 0.3, 0.1)]
    scores = [5 - 10 * d * d / (1 + d) for d in distances]
    total = sum(map(math.exp, scores))
    assert left(sampler, logits) == {
        index: pytest.approx(math.exp(score) / total, rel=1e-5) for index, score in enumerate(scores)
    }


def test_adaptive_p_sees_what_earlier_steps_left_and_never_revives_a_token() -> None:
    logits = np.asarray([2.0, 1.0, -np.inf, 0.0], np.float32)
    assert set(left(Sampler(ADAPTIVE, 0), logits)) == {0, 1, 3}
    assert left(Sampler(dataclasses.replace(ADAPTIVE, top_k=1), 0), logits) == {0: 1.0}


BOTH = dataclasses.replace(
    ADAPTIVE,
    mirostat=True,
    mirostat_tau=2.0,
    mirostat_eta=0.5,
    top_k=30,
    xtc_probability=0.3,
    dry_multiplier=0.5,
)


def test_going_back_to_a_snapshot_is_as_if_nothing_had_been() -> None:
    rows = np.random.default_rng(3).standard_normal((40, 200)).astype(np.float32) * 3

    def write(sampler: Sampler, text: list[int], end: int) -> list[object]:
        found: list[object] = []
        while len(text) < end:
            found.append(sampler.sample(rows[len(text)], text, top=3, alternatives=2))
            text.append(found[-1].id)  # type: ignore[attr-defined]
        return found

    straight, winding = Sampler(BOTH, 8), Sampler(BOTH, 8)
    expected = write(straight, [], 40)
    text: list[int] = []
    found = write(winding, text, 15)
    before = winding.snapshot()
    other = [*text]
    for row in rows[:10]:  # another continuation, at other places, then forgotten
        other.append(winding.sample(row, [*other, 5], blocked=[1, 2]).id)
    assert winding.snapshot() != before
    winding.restore(before)
    assert winding.snapshot() == before
    assert found + write(winding, text, 40) == expected


def test_looking_teaches_nothing() -> None:
    sampler = Sampler(BOTH, 8)
    before = sampler.snapshot()
    sampler.distribution(LOGITS, [1])
    assert sampler.snapshot() == before


def test_a_token_that_was_dropped_teaches_nothing() -> None:
    sampler = Sampler(MIROSTAT, 0)
    before = sampler.snapshot()
    assert sampler.commit(sampler.distribution(LOGITS, [1]), 3).probability == 0.0
    assert sampler.snapshot() == before
