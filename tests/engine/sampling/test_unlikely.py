"""XTC and skew."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from engine.sampling import sampler
from engine.sampling.sampler import Sampler
from engine.sampling.tables import TokenTables
from engine.sampling.unlikely import XTC_PURPOSE
from tests.engine.sampling.test_steps import OFF, approx, distribution, of

ALWAYS = dataclasses.replace(OFF, xtc_probability=1.0, xtc_threshold=0.15)
LOGITS = of(0.4, 0.3, 0.2, 0.1)


def test_xtc_drops_all_likely_tokens_but_the_least() -> None:
    assert distribution(LOGITS, ALWAYS) == approx(t2=2 / 3, t3=1 / 3)
    assert distribution(of(0.1, 0.3, 0.4, 0.2), ALWAYS) == approx(t0=1 / 3, t3=2 / 3)
    assert distribution(of(0.1, 0.3, 0.4, 0.2), dataclasses.replace(ALWAYS, top_k=4)) == approx(
        t0=1 / 3, t3=2 / 3
    )


@pytest.mark.parametrize("threshold", [0.35, 0.45])
def test_xtc_leaves_one_likely_token_alone(threshold: float) -> None:
    assert distribution(LOGITS, dataclasses.replace(ALWAYS, xtc_threshold=threshold)) == approx(
        t0=0.4, t1=0.3, t2=0.2, t3=0.1
    )


def test_xtc_takes_the_threshold_itself_in_and_of_equals_keeps_the_last() -> None:
    logits = np.zeros(4, np.float32)  # 0.25 each, exactly
    assert distribution(logits, dataclasses.replace(ALWAYS, xtc_threshold=0.25)) == {3: 1.0}
    assert distribution(of(0.3, 0.3, 0.3, 0.1), ALWAYS) == approx(t2=0.75, t3=0.25)
    assert distribution(LOGITS, dataclasses.replace(ALWAYS, xtc_threshold=0.0)) == {3: 1.0}


@pytest.mark.parametrize(("protected", "kept"), [({0}, 4), ({1, 9}, 4), ({2}, 2), ({3}, 2), (set(), 2)])
def test_xtc_does_nothing_where_a_protected_token_would_go(protected: set[int], kept: int) -> None:
    drawer = Sampler(ALWAYS, 0, TokenTables(xtc_protected=frozenset(protected)))
    assert len(drawer.distribution(LOGITS, []).final.likeliest(4)) == kept


def test_xtc_uses_one_random_number_a_place() -> None:
    drawer = Sampler(dataclasses.replace(ALWAYS, xtc_probability=0.3), 5)
    dropped = [drawer.distribution(LOGITS, range(place)).final.probability(0) == 0.0 for place in range(4000)]
    assert abs(sum(dropped) - 1200) < 3.3 * math.sqrt(4000 * 0.3 * 0.7)
    assert dropped == [
        drawer.distribution(LOGITS, range(place)).final.probability(0) == 0.0 for place in range(4000)
    ]


def test_xtc_falls_below_its_probability(monkeypatch: pytest.MonkeyPatch) -> None:
    for uniform, falls in ((0.25, False), (np.nextafter(0.25, 0.0), True)):
        monkeypatch.setattr(Sampler, "uniform", lambda *place, uniform=uniform: uniform)
        found = distribution(LOGITS, dataclasses.replace(ALWAYS, xtc_probability=0.25))
        assert (0 not in found) == falls


def test_xtc_shares_its_random_number_with_nothing_else() -> None:
    assert XTC_PURPOSE != sampler.SAMPLE


@pytest.mark.slow
def test_draws_with_xtc_follow_the_mixture() -> None:
    drawer, counts = Sampler(dataclasses.replace(ALWAYS, xtc_probability=0.5), 6), np.zeros(4)
    for place in range(20_000):
        counts[drawer.sample(LOGITS, range(place)).id] += 1
    expected = np.asarray([0.2, 0.15, 0.1 + 1 / 3, 0.05 + 1 / 6]) * 20_000
    assert ((counts - expected) ** 2 / expected).sum() < 16.27  # 99.9 %, 3 degrees


def test_skew_bends_the_running_sum() -> None:
    # Running sums 0.5, 0.8 and 1 (likeliest first) become their squares or their roots.
    logits = of(0.3, 0.5, 0.2)
    assert distribution(logits, dataclasses.replace(OFF, skew=math.log(2))) == approx(
        t0=0.39, t1=0.25, t2=0.36
    )
    roots = [math.sqrt(0.5), math.sqrt(0.8), 1.0]
    assert distribution(logits, dataclasses.replace(OFF, skew=-math.log(2))) == approx(
        t0=roots[1] - roots[0], t1=roots[0], t2=1 - roots[1]
    )


@pytest.mark.parametrize("skew", [-3.0, -0.5, 0.2, 1.0, 2.5])
def test_skew_is_the_same_as_bending_the_random_number(skew: float) -> None:
    logits = np.random.default_rng(2).standard_normal(50).astype(np.float32) * 2
    order = np.argsort(-logits, kind="stable")
    plain = np.exp(logits[order].astype(np.float64))
    sums = plain.cumsum() / plain.sum()
    bent = Sampler(dataclasses.replace(OFF, skew=skew), 0).distribution(logits, []).final
    # Drawn over a grid of numbers, both give each token equally often.
    grid = (np.arange(20_000) + 0.5) / 20_000
    by_number = np.bincount(order[np.searchsorted(sums, grid ** math.exp(-skew))], minlength=50)
    by_distribution = np.bincount([bent.sample(float(u)) for u in grid], minlength=50)
    assert np.abs(by_number - by_distribution).max() <= 2


@pytest.mark.slow
def test_draws_with_skew_follow_their_probabilities() -> None:
    settings = dataclasses.replace(OFF, skew=0.7)
    drawer, counts = Sampler(settings, 3), np.zeros(4)
    expected = distribution(LOGITS, settings)
    for place in range(20_000):
        counts[drawer.sample(LOGITS, range(place)).id] += 1
    required = np.asarray([expected[token] for token in range(4)]) * 20_000
    assert ((counts - required) ** 2 / required).sum() < 16.27  # 99.9 %, 3 degrees


def test_skew_of_a_sure_model_keeps_it_sure() -> None:
    assert (
        distribution(np.asarray([800.0, 0.0, -np.inf], np.float32), dataclasses.replace(OFF, skew=1.0))[0]
        == 1.0
    )
