"""Tail-free and locally typical sampling, by hand and on vocabularies too large to sort."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from engine.sampling.sampler import Sampler
from tests.engine.sampling import exact
from tests.engine.sampling.test_steps import OFF, approx, distribution, of

FALLING = np.asarray([0.48, 0.28, 0.18, 0.12, 0.08]) / 1.14


@pytest.mark.parametrize(("z", "kept"), [(0.0, 1), (0.6, 1), (0.65, 2), (0.85, 2), (0.9, 3), (0.99, 3)])
def test_tail_free_follows_the_second_differences(z: float, kept: int) -> None:
    # Falls 0.20, 0.10, 0.06, 0.04 and bends 0.10, 0.04, 0.02: running shares 0.625, 0.875 and 1. One token
    # more is kept.
    expected = {
        token: pytest.approx(p / FALLING[:kept].sum(), rel=2e-6) for token, p in enumerate(FALLING[:kept])
    }
    assert distribution(of(*FALLING), dataclasses.replace(OFF, tail_free=z)) == expected


def test_tail_free_leaves_flat_and_tiny_distributions_alone() -> None:
    settings = dataclasses.replace(OFF, tail_free=0.1)
    assert distribution(of(0.25, 0.25, 0.25, 0.25), settings) == approx(t0=0.25, t1=0.25, t2=0.25, t3=0.25)
    assert distribution(of(0.9, 0.1), settings) == approx(t0=0.9, t1=0.1)


@pytest.mark.parametrize(
    ("mass", "kept"), [(0.0, (1,)), (0.2, (1,)), (0.3, (0, 1)), (0.8, (0, 1, 2)), (0.9, (0, 1, 2, 3))]
)
def test_typical_prefers_the_expected_surprise(mass: float, kept: tuple[int, ...]) -> None:
    # Surprises of 1, 2, 3 and 3 bits; the expected one is 1.75 bits, so that token 1 is the most typical, not
    # the likeliest.
    probabilities = (0.5, 0.25, 0.125, 0.125)
    total = sum(probabilities[token] for token in kept)
    expected = {token: pytest.approx(probabilities[token] / total, rel=2e-6) for token in kept}
    assert distribution(of(*probabilities), dataclasses.replace(OFF, typical=mass)) == expected


@pytest.mark.parametrize(
    ("size", "mass", "kept"),
    [(4, 0.25, 1), (4, 0.5, 2), (4, 0.75, 3), (4096, 0.5, 2048), (4096, 0.0625, 256)],
)
def test_typical_takes_the_lowest_ids_of_equally_near_tokens_and_no_more_than_the_mass(
    size: int, mass: float, kept: int
) -> None:
    found = distribution(np.zeros(size, np.float32), dataclasses.replace(OFF, typical=mass))
    assert found == {token: pytest.approx(1 / kept) for token in range(kept)}


def test_typical_of_one_token_above_and_one_below_the_expected_surprise_takes_the_lower_id() -> None:
    """Of two tokens each is as far from the mean as the other where both are as likely; a hair apart, the
    nearer one is first.
    """
    for scores, first in (((1.0, 1.0), 0), ((1.0, 1.5), 1), ((1.5, 1.0), 0)):
        assert list(distribution(np.array(scores, np.float32), dataclasses.replace(OFF, typical=0.01))) == [
            first
        ]


@pytest.mark.parametrize("size", [258, 1500, 2049, 5000])
@pytest.mark.parametrize("spread", [0.3, 1.0, 2.5])
@pytest.mark.parametrize(
    "change",
    [{"tail_free": 0.3}, {"tail_free": 0.97}, {"typical": 0.2}, {"typical": 0.9}, {"top_p": 0.9}],
    ids=str,
)
def test_heads_of_large_vocabularies_equal_sorting_all(
    size: int, spread: float, change: dict[str, float]
) -> None:
    logits = (np.random.default_rng(5).standard_normal(size) * spread).astype(np.float32)
    logits[::7] = -np.inf
    settings = dataclasses.replace(OFF, **change)
    case = exact.Case(settings)
    scores = {token: float(score) for token, score in enumerate(logits) if score > -np.inf}
    expected = exact.run(scores, case)
    found = Sampler(settings, 0).distribution(logits, []).final
    assert found.ids is not None
    # Single precision may decide otherwise about a token or two at the edge of thousands.
    assert len(set(found.ids.tolist()) ^ set(expected)) <= 2
    assert dict(found.likeliest(20)) == pytest.approx(
        {token: expected[token] for token in exact.ranked(expected)[:20]}, rel=1e-3
    )


@pytest.mark.parametrize("name", ["top_p", "typical"])
@pytest.mark.parametrize("seed", range(4))
def test_a_share_just_below_1_keeps_nearly_all(name: str, seed: int) -> None:
    """Sums of the same weights in two orders differ in their last bits, and neither may be out of reach."""
    logits = np.random.default_rng(seed).standard_normal(5000).astype(np.float32)
    settings = dataclasses.replace(OFF, **{name: math.nextafter(1.0, 0.0)})
    assert len(distribution(logits, settings)) >= 4990
