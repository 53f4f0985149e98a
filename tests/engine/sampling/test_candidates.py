"""The partial sort, against a full one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.sampling.candidates import Candidates, top_indices


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 3000), st.integers(0, 300), st.integers(0, 2**32 - 1), st.integers(0, 3), st.floats(0, 1))
def test_top_indices_equal_a_stable_full_sort(size: int, count: int, seed: int, decimals: int, blocked: float) -> None:
    random = np.random.default_rng(seed)
    scores = np.round(random.standard_normal(size), decimals).astype(np.float32)
    scores[random.random(size) < blocked] = -np.inf
    assert top_indices(scores, count).tolist() == np.argsort(-scores, kind="stable")[:count].tolist()


@pytest.mark.parametrize("size", [49_152, 152_064, 256_000, 32_001])
@pytest.mark.parametrize("count", [1, 40, 1000])
def test_top_indices_of_real_sizes(size: int, count: int) -> None:
    scores = np.round(np.random.default_rng(size).standard_normal(size), 2).astype(np.float32)
    assert top_indices(scores, count).tolist() == np.argsort(-scores, kind="stable")[:count].tolist()


def test_scores_cannot_change_after_candidates_were_dropped() -> None:
    candidates = Candidates(np.zeros(4, np.float32), np.zeros(4, np.float32))
    candidates.keep_top(2)
    with pytest.raises(ValueError, match="only before"):
        candidates.writable()
    with pytest.raises(ValueError, match="only before"):
        candidates.divide(2.0)


def test_weights_follow_every_change() -> None:
    candidates = Candidates(np.asarray([0.0, 1.0, 2.0], np.float32), np.zeros(3, np.float32))
    assert candidates.weights() == pytest.approx(np.exp([-2.0, -1.0, 0.0]))
    candidates.divide(0.5)
    assert candidates.weights() == pytest.approx(np.exp([-4.0, -2.0, 0.0]))
    candidates.writable()[1] = 0.0
    assert candidates.weights() == pytest.approx(np.exp([-4.0, 0.0, 0.0]))
    candidates.keep(np.asarray([0, 1]))
    assert candidates.weights() == pytest.approx(np.exp([-4.0, 0.0]))
