"""The race draws each token with its probability, mostly the same one from nearly equal distributions."""

from __future__ import annotations

import numpy as np
import pytest

from engine.sampling.distribution import Distribution, certain

UNIFORMS = np.random.default_rng(7).random(20_000)


def drawn(distribution: Distribution) -> list[int]:
    return [distribution.race(uniform) for uniform in UNIFORMS]


@pytest.mark.parametrize("ids", [None, [40, 7, 300_000, 0, 9, 12]], ids=["whole", "some"])
def test_a_race_draws_each_token_with_its_probability(ids: list[int] | None) -> None:
    shares = np.array([0.4, 0.25, 0.2, 0.1, 0.05, 0.0])
    made = None if ids is None else np.array(ids, np.int64)
    found = drawn(Distribution(made, shares.astype(np.float32)))
    counts = np.array([found.count(token) for token in ids or range(6)])
    assert counts[5] == 0
    expected = shares[:5] * len(UNIFORMS)
    chi = float(((counts[:5] - expected) ** 2 / expected).sum())
    assert chi < 18.5  # 99.9 % of the chi-squared distribution with 4 degrees of freedom
    assert counts.sum() == len(UNIFORMS)


def test_a_race_of_another_distribution_ends_alike_as_often_as_promised() -> None:
    """At least (1 - d) / (1 + d) of the draws, d half the sum of the differences, in any order of ids."""
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.ones(12))
    q = 0.8 * p + 0.2 * rng.dirichlet(np.ones(12))
    order = rng.permutation(12)
    one, other = Distribution(None, p), Distribution(order.astype(np.int64), q[order])
    distance = np.abs(p - q).sum() / 2
    same = np.mean([a == b for a, b in zip(drawn(one), drawn(other), strict=True)])
    assert (1 - distance) / (1 + distance) - 0.01 < same < 1 - distance + 0.01


def test_one_token_wins_every_race() -> None:
    assert {certain(7).race(uniform) for uniform in (0.0, 0.5, np.nextafter(1.0, 0.0))} == {7}
