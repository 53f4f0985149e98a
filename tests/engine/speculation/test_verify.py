"""Whatever guesses: what is written has exactly the target's distribution."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.sampling.distribution import Distribution, certain
from engine.speculation.drafter import Proposal
from engine.speculation.verify import ACCEPT, RESIDUAL, SAMPLE, choose, residual

GRID = (np.arange(200) + 0.5) / 200


def whole(values: list[float] | npt.NDArray[np.float64], dtype: type = np.float64) -> Distribution:
    p = np.asarray(values, np.float64)
    return Distribution(None, (p / p.sum()).astype(dtype))


def some(ids: list[int], values: list[float]) -> Distribution:
    p = np.asarray(values, np.float64)
    return Distribution(np.asarray(ids, np.int64), p / p.sum())


def dense(distribution: Distribution, size: int) -> npt.NDArray[np.float64]:
    return np.array([distribution.probability(token) for token in range(size)])


def numbers(**by_purpose: float) -> Callable[[int], float]:
    """Fixed numbers for draw, accept and residual; asking for another one is an error."""
    names = {SAMPLE: "draw", ACCEPT: "accept", RESIDUAL: "residual"}
    return lambda purpose: by_purpose[names[purpose]]


def written(target: Distribution, q: Distribution, size: int) -> tuple[npt.NDArray[np.float64], float]:
    """The distribution of what `choose` writes when guesses are drawn from `q`, and the share of accepted
    ones.

    Integrated: over the guesses exactly, over each random number by midpoints of a grid.
    """
    result, accepted = np.zeros(size), 0.0
    for guess, probability in enumerate(dense(q, size)):
        if not probability:
            continue
        for test in GRID:
            token, kept = choose(target, Proposal(guess, q), numbers(draw=np.nan, accept=test, residual=0.5))
            weight = probability / len(GRID)
            if kept:
                assert token == guess
                result[token] += weight
                accepted += weight
                continue
            left = residual(target, q)
            assert left is not None
            result += weight * dense(left, size)
            assert left.probability(token) > 0.0
    return result, accepted


DISTRIBUTIONS = st.tuples(st.lists(st.integers(0, 20), min_size=1, max_size=9).filter(any), st.booleans())


def made(drawn: tuple[list[int], bool]) -> Distribution:
    """Whole, or only the ids that have probability, in another order."""
    values, truncated = drawn
    if not truncated:
        return whole([float(v) for v in values])
    ids = sorted((i for i, v in enumerate(values) if v), key=lambda i: (-values[i], i))
    return some(ids, [float(values[i]) for i in ids])


@settings(max_examples=60)
@given(DISTRIBUTIONS, DISTRIBUTIONS)
def test_written_tokens_have_the_targets_distribution(
    p_drawn: tuple[list[int], bool], q_drawn: tuple[list[int], bool]
) -> None:
    p, q = made(p_drawn), made(q_drawn)
    result, accepted = written(p, q, 9)
    np.testing.assert_allclose(result, dense(p, 9), atol=2 / len(GRID))
    assert accepted == pytest.approx(np.minimum(dense(p, 9), dense(q, 9)).sum(), abs=2 / len(GRID))


@given(DISTRIBUTIONS, DISTRIBUTIONS)
def test_the_residual_is_what_the_guess_lacks(
    p_drawn: tuple[list[int], bool], q_drawn: tuple[list[int], bool]
) -> None:
    p, q = made(p_drawn), made(q_drawn)
    required = np.maximum(dense(p, 9) - dense(q, 9), 0.0)
    left = residual(p, q)
    if required.sum() < 1e-12:
        assert left is None or required.sum() > 0.0
    else:
        assert left is not None
        np.testing.assert_allclose(dense(left, 9), required / required.sum(), atol=1e-9)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("truncated", [False, True])
def test_chi_squared_of_many_draws(truncated: bool) -> None:
    rng = np.random.default_rng(3)
    size, draws = 12, 20_000
    p_values, q_values = rng.dirichlet(np.ones(size)), rng.dirichlet(np.ones(size))
    q_values[3] = 0.0
    p_values[5] = 0.0
    if truncated:
        ids = [int(i) for i in rng.permutation(size)[:8]]
        p, q = some(ids, [p_values[i] for i in ids]), some(list(range(10)), list(q_values[:10]))
    else:
        p, q = whole(p_values, np.float32), whole(q_values, np.float32)
    counts, kept = np.zeros(size), 0
    for _ in range(draws):
        u = rng.random(3)
        token, accepted = choose(
            p, Proposal(q.sample(rng.random()), q), lambda purpose, u=u: float(u[purpose])
        )  # type: ignore[misc]
        counts[token] += 1
        kept += accepted
    expected = dense(p, size) * draws
    assert not counts[expected == 0].any()
    inside = expected > 0
    chi = float(((counts[inside] - expected[inside]) ** 2 / expected[inside]).sum())
    assert chi < 31.3  # 99.9 % of the chi-squared distribution with 11 degrees of freedom
    overlap = np.minimum(dense(p, size), dense(q, size)).sum()
    assert kept / draws == pytest.approx(overlap, abs=4 * np.sqrt(0.25 / draws))


def test_without_a_guess_the_target_draws() -> None:
    p = whole([0.2, 0.5, 0.3])
    assert choose(p, None, numbers(draw=0.1)) == (0, False)
    assert choose(p, None, numbers(draw=0.69)) == (1, False)
    assert choose(p, None, numbers(draw=0.71)) == (2, False)


@given(st.floats(0, 1, exclude_max=True), st.integers(0, 2))
def test_a_certain_guess_changes_no_token(uniform: float, guess: int) -> None:
    p = whole([0.2, 0.5, 0.3])
    token, accepted = choose(p, Proposal(guess), numbers(draw=uniform))
    assert token == p.sample(uniform)
    assert accepted == (token == guess)


def test_a_greedy_target_takes_only_its_own_token() -> None:
    q = whole([0.5, 0.5])
    assert choose(certain(1), Proposal(1, q), numbers(draw=0.0)) == (1, True)
    assert choose(certain(1), Proposal(0, q), numbers(draw=0.0)) == (1, False)
    assert choose(certain(1), None, numbers(draw=0.0)) == (1, False)


def test_a_guess_that_could_not_be_drawn_is_compared() -> None:
    p, q = whole([0.5, 0.5]), whole([1.0, 0.0])
    assert choose(p, Proposal(1, q), numbers(draw=0.9)) == (1, True)
    assert choose(p, Proposal(1, q), numbers(draw=0.1)) == (0, False)


def test_a_guess_beyond_the_targets_vocabulary_is_refused() -> None:
    p, q = whole([0.5, 0.5]), whole([0.1, 0.1, 0.8])
    token, accepted = choose(p, Proposal(2, q), numbers(accept=0.0, residual=0.75))
    assert (token, accepted) == (1, False)


def test_a_residual_lost_to_rounding_draws_from_the_target() -> None:
    p = Distribution(None, np.array([0.5, 0.5]))
    q = Distribution(None, np.array([np.nextafter(0.5, 1), 0.5]))
    assert residual(p, q) is None
    refused = np.nextafter(1.0, 0.0)
    assert choose(p, Proposal(0, q), numbers(accept=refused, residual=0.75)) == (1, False)
    assert choose(p, Proposal(0, q), numbers(accept=refused, residual=0.25)) == (0, True)


def test_equal_distributions_always_accept() -> None:
    p = whole(np.random.default_rng(0).random(50), np.float32)
    for guess in range(50):
        assert choose(p, Proposal(guess, p), numbers(accept=np.nextafter(1.0, 0.0))) == (guess, True)
