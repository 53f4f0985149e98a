"""The candidates of one draw: partial sorts against full ones, and both of their forms against plain
arrays.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.sampling.candidates import Candidates
from engine.sampling.distribution import Distribution
from engine.sampling.masks import Workspace
from engine.sampling.selection import at_least, column_maxima, dot, moments, top_indices


def candidates(*scores: float) -> Candidates:
    return Candidates(np.asarray(scores, np.float32), Workspace(len(scores)))


def content(left: Candidates) -> dict[int, float]:
    """Scores above -inf by id."""
    return {left.id_at(i): float(score) for i, score in enumerate(left.scores()) if score > -np.inf}


@settings(max_examples=200)
@given(
    st.integers(0, 3000), st.integers(0, 300), st.integers(0, 2**32 - 1), st.integers(0, 3), st.floats(0, 0.9)
)
def test_top_indices_equal_a_stable_full_sort(
    size: int, count: int, seed: int, decimals: int, blocked: float
) -> None:
    random = np.random.default_rng(seed)
    scores = np.round(random.standard_normal(size), decimals).astype(np.float32)
    scores[random.random(size) < blocked] = -np.inf
    expected = np.argsort(-scores, kind="stable")[:count]
    found = top_indices(scores, count)
    finite = scores[expected] > -np.inf  # indices of -inf may be left out
    assert found[: finite.sum()].tolist() == expected[finite].tolist()
    assert not (scores[found[finite.sum() :]] > -np.inf).any()


@pytest.mark.parametrize("size", [16_384, 49_152, 152_064, 256_000, 32_001])
@pytest.mark.parametrize("count", [1, 40, 1000, 20_000])
@pytest.mark.parametrize("known", [False, True])
def test_top_indices_of_real_sizes(size: int, count: int, known: bool) -> None:
    scores = np.round(np.random.default_rng(size).standard_normal(size), 2).astype(np.float32)
    maxima = column_maxima(scores) if known else None
    assert top_indices(scores, count, maxima).tolist() == np.argsort(-scores, kind="stable")[:count].tolist()


def test_a_full_sort_of_signs_zeros_and_ties() -> None:
    random = np.random.default_rng(1)
    scores = random.choice(
        np.asarray([0.0, -0.0, 1.5, -1.5, 1e-40, -1e-40, 3e38, -3e38, -np.inf], np.float32), 9000
    )
    assert top_indices(scores, 9000).tolist() == np.argsort(-scores, kind="stable").tolist()


@pytest.mark.parametrize("size", [100, 16_384, 20_001, 70_000])
@pytest.mark.parametrize("bound", [-np.inf, -1e39, -1.0, 0.0, 2.0, 3.5, 9.0])
def test_at_least_finds_what_comparing_finds(size: int, bound: float) -> None:
    random = np.random.default_rng(size)
    scores = random.standard_normal(size).astype(np.float32)
    scores[random.random(size) < 0.3] = -np.inf
    expected = np.flatnonzero((scores >= np.float64(bound)) & (scores > -np.inf))
    assert at_least(scores, bound, column_maxima(scores)).tolist() == expected.tolist()
    assert at_least(scores, bound, None).tolist() == expected.tolist()


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 100_000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_by_blocks(size: int, dtype: type) -> None:
    a, b = np.random.default_rng(size).random((2, size)).astype(dtype)
    assert dot(a) == pytest.approx(math.fsum(a), rel=1e-6)
    assert dot(a, b) == pytest.approx(math.fsum(a.astype(np.float64) * b), rel=1e-6)


def test_weights_and_mass_follow_every_change() -> None:
    left = candidates(0.0, 1.0, 2.0)
    assert left.weights() == pytest.approx(np.exp([-2.0, -1.0, 0.0]))
    left.scale(2.0)
    assert left.weights() == pytest.approx(np.exp([-4.0, -2.0, 0.0]))
    assert left.mass == pytest.approx(np.exp([-4.0, -2.0, 0.0]).sum())
    scores, places, which = left.edit(np.asarray([1, 7]))
    assert np.asarray([10.0, 20.0])[which].tolist() == [10.0]
    scores[places] = 0.0
    assert left.weights() == pytest.approx(np.exp([-4.0, -4.0, 0.0]))
    left.keep(np.asarray([0, 1]))
    assert left.weights() == pytest.approx([1.0, 1.0])
    left.scale(3.0)
    assert content(left) == {0: 0.0, 1: 0.0}


@pytest.mark.parametrize("explicit", [False, True])
def test_what_is_known_of_the_scores_follows_their_squares(explicit: bool) -> None:
    left = candidates(0.0, 1.0, 2.0)
    if explicit:
        left.keep_ids(np.asarray([0, 1, 2]))
    assert (left.largest, left.mass) == (2.0, pytest.approx(np.exp([-2.0, -1.0, 0.0]).sum()))
    left.scale(2.0)
    assert (left.largest, left.mass) == (4.0, pytest.approx(np.exp([-4.0, -2.0, 0.0]).sum()))
    left.square(1.0)
    assert (left.largest, left.mass) == (0.0, pytest.approx(np.exp([-16.0, -4.0, 0.0]).sum()))
    assert left.weights() == pytest.approx(np.exp([-16.0, -4.0, 0.0]))


@pytest.mark.parametrize("count", [1, 2, 255, 256])
def test_few_weights_and_their_mass_are_those_of_compiled_code(count: int) -> None:
    """Bit for bit: exp of the C library, added up one after the other."""
    left = candidates(*np.random.default_rng(count).normal(0.0, 6.0, 300))
    left.keep_top(count)
    expected = [math.exp(score - left.largest) for score in left.scores().tolist()]
    assert left.weights().tolist() == expected
    assert left.mass == list(itertools.accumulate(expected))[-1]


@pytest.mark.parametrize("dropped_first", [False, True])
def test_every_change_does_the_same_in_both_forms(dropped_first: bool) -> None:
    left = candidates(3.0, -1.0, 2.0, 2.0, 0.5)
    if dropped_first:
        left.keep_top(5)
        assert [left.id_at(i) for i in range(5)] == [0, 2, 3, 4, 1]
    left.scale(0.5)
    scores, places, which = left.edit(np.asarray([2, 4]))
    scores[places] -= np.asarray([10.0, 20.0])[which]
    assert content(left) == {0: 1.5, 1: -0.5, 2: -9.0, 3: 1.0, 4: -19.75}
    assert left.largest == 1.5
    left.drop(np.asarray([i for i in range(len(left)) if left.id_at(i) in (0, 4)]))
    assert content(left) == {1: -0.5, 2: -9.0, 3: 1.0}
    assert (left.survivors, left.largest, left.id_at(left.best())) == (3, 1.0, 3)
    assert left.deviation() == pytest.approx(np.std([-0.5, -9.0, 1.0]))
    left.square(2.0)
    assert content(left) == {1: -4.5, 2: -200.0, 3: 0.0}
    assert left.entropy() == pytest.approx(
        math.log(1 + math.exp(-4.5)) + 4.5 * math.exp(-4.5) / (1 + math.exp(-4.5)), rel=1e-5
    )
    left.keep_reaching(-4.5)
    assert content(left) == {1: -4.5, 3: 0.0}
    left.keep_ids(np.asarray([1, 2]))
    assert content(left) == {1: -4.5}
    left.drop_ids(np.asarray([1]))
    assert left.empty


def test_scores_beyond_float32_stay_in_order() -> None:
    left = candidates(3e38, 2e38, -3e38)
    left.scale(50.0)
    scores, places, _ = left.edit(np.asarray([1]))
    scores[places] += 6e39
    assert content(left) == pytest.approx({0: 1.5e40, 1: 1.6e40, 2: -1.5e40})
    assert left.deviation() == pytest.approx(np.std([1.5e40, 1.6e40, -1.5e40]))


def mask_of(allowed: np.ndarray, words: int, beyond: bool) -> np.ndarray:
    bits = np.full(words * 32, beyond)
    bits[: min(len(allowed), len(bits))] = allowed[: len(bits)]
    return np.packbits(bits, bitorder="little").view("<u4").astype(np.uint32)


@pytest.mark.slow
@settings(max_examples=40)
@given(
    st.one_of(st.integers(1, 200), st.integers(65_500, 65_700)), st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 0.001, 0.3, 0.97, 1.0]), st.integers(-3, 3), st.booleans(),
)  # fmt: skip
@example(65_537, 1, 0.001, 0, True)
def test_masks_of_every_size(size: int, seed: int, share: float, more_words: int, beyond: bool) -> None:
    random = np.random.default_rng(seed)
    logits = random.standard_normal(size).astype(np.float32)
    logits.setflags(write=False)
    allowed = random.random(size) < share
    words = max(0, -(-size // 32) + more_words)
    left = Candidates(logits, Workspace(size))
    left.allow(mask_of(allowed, words, beyond))
    kept = np.flatnonzero(allowed[: words * 32])
    found = left.reaching(-np.inf)
    assert np.array_equal(left.ids_at(found), kept)
    assert np.array_equal(left.scores()[found], logits[kept])
    assert left.empty == (not len(kept))
    if len(kept):
        assert left.largest == logits[kept].max()
        assert left.deviation() == pytest.approx(logits[kept].astype(np.float64).std(), rel=1e-5, abs=1e-6)
        assert left.top(3).shape[0] == min(3, len(kept))


@pytest.mark.parametrize("size", [500, 70_000])
def test_a_small_deviation_far_from_zero(size: int) -> None:
    logits = (np.random.default_rng(0).standard_normal(size) * 0.5 - 1000).astype(np.float32)
    expected = logits.astype(np.float64).std()
    assert Candidates(logits, Workspace(size)).deviation() == pytest.approx(expected, rel=1e-5)
    logits[::3] = -np.inf
    expected = logits[logits > -np.inf].astype(np.float64).std()
    assert Candidates(logits, Workspace(size)).deviation() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("size", [3, 300])
@pytest.mark.parametrize("explicit", [False, True])
def test_probabilities_of_tokens_that_are_there_and_that_are_not(size: int, explicit: bool) -> None:
    shares = np.arange(1, size + 1) / (size * (size + 1) / 2)
    ids = np.arange(size) * 2 + 1 if explicit else None
    found = Distribution(ids, shares)
    expected = dict(zip(range(size) if ids is None else ids.tolist(), shares.tolist(), strict=True))
    tokens = range(-2, 2 * size + 3)
    assert [found.probability(token) for token in tokens] == [expected.get(token, 0.0) for token in tokens]
    assert found.probabilities_of(tokens) == [expected.get(token, 0.0) for token in tokens]


def test_a_bound_cuts_ordered_candidates_short_and_long() -> None:
    scores = np.random.default_rng(3).permutation(1000).astype(np.float32) / 50
    best = np.argsort(-scores)
    for count, kept in ((400, 300), (100, 60), (400, 400)):
        found = Candidates(scores, Workspace(1000))
        found.keep_top(count)
        found.keep_reaching(float(scores[best[kept - 1]]))
        assert found.ids_at(np.arange(len(found))).tolist() == best[:kept].tolist()


@pytest.mark.parametrize("size", [300, 70_000])
@pytest.mark.parametrize("factor", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("bound", [-2.0, 1.5])
def test_what_reaches_a_bound_after_a_temperature(size: int, factor: float, bound: float) -> None:
    logits = np.random.default_rng(5).integers(-60, 60, size).astype(np.float32) / 8
    found = Candidates(logits, Workspace(size))
    found.scale(factor)
    assert np.array_equal(found.reaching(bound), np.flatnonzero(logits * np.float64(factor) >= bound))


@pytest.mark.parametrize("size", [10, 5000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moments_leave_out_what_is_dropped(size: int, dtype: type) -> None:
    random = np.random.default_rng(size)
    values = random.standard_normal(size).astype(dtype)
    values[random.random(size) < 0.4] = -np.inf
    apart = values[values > -np.inf].astype(np.float64) - 0.5
    assert moments(values, 0.5) == pytest.approx((len(apart), apart.sum(), (apart**2).sum()), rel=1e-5)


def test_a_full_sort_of_float64() -> None:
    scores = np.round(np.random.default_rng(3).standard_normal(9000), 2)
    assert top_indices(scores, 9000).tolist() == np.argsort(-scores, kind="stable").tolist()
