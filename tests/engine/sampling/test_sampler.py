"""The draw: chi-squared, seeds, top list, bans, bad logits, and agreement with the plain formulas on random settings."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine.errors import EngineError
from engine.sampling.candidates import Candidates
from engine.sampling.sampler import Sampler
from engine.settings import SamplerSettings
from tests.engine.sampling.exact import final_distribution

OFF = SamplerSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


def chi_squared(counts: np.ndarray, probabilities: np.ndarray) -> float:
    expected = probabilities * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("sampler", [OFF, SamplerSettings(temperature=1.3, top_k=5, top_p=0.97, min_p=0.02)], ids=["neutral", "all steps"])
def test_draws_follow_the_final_probabilities(sampler: SamplerSettings) -> None:
    logits = np.asarray([1.0, 0.2, -0.5, 2.0, 0.9, -3.0, 0.0], np.float32)
    drawer, counts = Sampler(sampler, 11), np.zeros(7)
    for _ in range(20_000):
        counts[drawer.sample(logits, []).id] += 1
    expected = final_distribution(logits.tolist(), [], sampler)
    kept = sorted(expected)
    assert counts.sum() == counts[kept].sum()
    # 99.9 % quantile of chi-squared with 6 degrees of freedom (fewer have a lower one).
    assert chi_squared(counts[kept], np.asarray([expected[token] for token in kept])) < 22.46


def test_draws_from_a_large_vocabulary_follow_the_probabilities() -> None:
    # Above 1,024 candidates the draw goes by blocks; 1,300 is no multiple of a block.
    logits = np.sin(np.arange(1300) * 0.7).astype(np.float32)
    logits[600:] -= np.inf
    logits[[600, 1299]] = 5.0
    drawer, groups = Sampler(OFF, 12), np.zeros(4)
    group = np.asarray([0 if i < 300 else 1 if i < 600 else 2 if i == 600 else 3 for i in range(1300)])
    probabilities = np.exp(logits.astype(np.float64)) / np.exp(logits.astype(np.float64)).sum()
    for _ in range(8000):
        groups[group[drawer.sample(logits, []).id]] += 1
    assert chi_squared(groups, np.bincount(group, probabilities)) < 16.27  # 99.9 %, 3 degrees


@pytest.mark.parametrize("size", [4, 5000])
def test_tokens_without_probability_are_never_drawn(size: int) -> None:
    logits = np.full(size, -np.inf, np.float32)
    logits[[1, size - 2]] = 0.0
    candidates = Candidates(logits, np.empty_like(logits))
    drawn = [_draw(candidates, uniform)[0] for uniform in (0.0, 0.4999, 0.5, math.nextafter(1.0, 0.0), 1.0)]
    assert drawn == [1, 1, size - 2, size - 2, size - 2]


def test_same_seed_same_ids_and_probabilities() -> None:
    rows = np.random.default_rng(3).standard_normal((200, 3000)).astype(np.float32)

    def run(seed: int) -> list[object]:
        drawer, history = Sampler(SamplerSettings(repetition_penalty=1.1), seed), [1, 2]
        found = [drawer.sample(row, history, top=3) for row in rows]
        return [*found]

    assert run(5) == run(5)
    assert [s.id for s in run(5)] != [s.id for s in run(6)]  # type: ignore[attr-defined]


def test_one_uniform_number_a_token_also_when_greedy() -> None:
    random = np.random.Generator(np.random.PCG64(42))
    logits = np.zeros(1000, np.float32)
    drawer, greedy = Sampler(OFF, 42), Sampler(dataclasses.replace(OFF, temperature=0.0), 42)
    for _ in range(50):
        assert drawer.sample(logits, []).id == int(random.random() * 1000)
        assert greedy.sample(logits, []).id == 0
    assert greedy._random.bit_generator.state == random.bit_generator.state


def test_logits_are_not_modified_and_may_be_read_only() -> None:
    logits = np.random.default_rng(4).standard_normal(5000).astype(np.float32)
    before = logits.copy()
    logits.setflags(write=False)
    drawer = Sampler(SamplerSettings(repetition_penalty=1.2, presence_penalty=0.3), 0)
    for _ in range(3):
        drawer.sample(logits, [7, 8, 9], top=4, banned=[1, 2])
    assert np.array_equal(logits, before)


def test_top_list_is_sorted_final_and_only_candidates() -> None:
    logits = np.log(np.asarray([0.1, 0.4, 0.2, 0.3])).astype(np.float32)
    assert Sampler(OFF, 0).sample(logits, []).top == ()
    top = Sampler(dataclasses.replace(OFF, top_k=3), 0).sample(logits, [], top=10).top
    assert [token for token, _ in top] == [1, 3, 2]
    assert [p for _, p in top] == pytest.approx([4 / 9, 3 / 9, 2 / 9], rel=2e-6)
    assert dict(Sampler(OFF, 0).sample(logits, [], top=2).top) == pytest.approx({1: 0.4, 3: 0.3}, rel=2e-6)
    logits[2] = -np.inf
    assert [token for token, _ in Sampler(OFF, 0).sample(logits, [], top=10).top] == [1, 3, 0]


def test_top_list_of_equal_tokens_has_the_lowest_ids_first() -> None:
    assert [token for token, _ in Sampler(OFF, 0).sample(np.zeros(70_000, np.float32), [], top=3).top] == [0, 1, 2]


def test_raw_probability_knows_nothing_of_the_steps() -> None:
    logits = np.log(np.asarray([0.1, 0.4, 0.2, 0.3])).astype(np.float32)
    settings = SamplerSettings(temperature=0.3, top_k=1, repetition_penalty=5.0)
    sampled = Sampler(settings, 0).sample(logits, [1, 3, 2], banned=[2])
    assert sampled.probability == 1.0
    assert sampled.raw_probability == pytest.approx(math.exp(logits[sampled.id]), rel=1e-6)


def test_banned_ids_are_never_drawn() -> None:
    logits = np.asarray([9.0, 0.0, 8.0, 0.0], np.float32)
    drawer = Sampler(OFF, 0)
    assert {drawer.sample(logits, [], banned=[0, 2, 4, -1]).id for _ in range(50)} == {1, 3}
    assert Sampler(SamplerSettings(temperature=0.0), 0).sample(logits, [], banned=[0]).id == 2
    with pytest.raises(EngineError, match=r"banned; take some"):
        drawer.sample(logits, [], banned=range(4))


@pytest.mark.parametrize("bad", [[0.0, np.nan], [-np.inf, -np.inf], [0.0, np.inf]])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_raise_one_sentence(bad: list[float], temperature: float) -> None:
    with pytest.raises(EngineError, match=r"^The model's scores .* not finite numbers.*\.$"):
        Sampler(SamplerSettings(temperature=temperature), 0).sample(np.asarray(bad, np.float32), [])


@pytest.mark.parametrize("logits", [np.zeros((1, 4), np.float32), np.zeros(4), np.zeros(0, np.float32)])
def test_wrong_arrays_are_refused(logits: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"must be float32 \(V,\)"):
        Sampler(OFF, 0).sample(logits, [])


@pytest.mark.parametrize("token", [4, -1])
def test_history_outside_the_vocabulary_raises(token: int) -> None:
    with pytest.raises(EngineError, match=f"token id {token}, but the model knows ids 0 to 3"):
        Sampler(dataclasses.replace(OFF, presence_penalty=1.0), 0).sample(np.zeros(4, np.float32), [1, token])


def test_the_vocabulary_may_change() -> None:
    drawer = Sampler(SamplerSettings(temperature=0.0, presence_penalty=1.0), 0)
    assert drawer.sample(np.zeros(2, np.float32), [0]).id == 1
    assert drawer.sample(np.zeros(3, np.float32), [0, 2]).id == 1


# Multiples of powers of two: equal scores are exactly equal in float32 and in Python floats, so ties mean the same in both.
logit = st.integers(-96, 96).map(lambda eighths: eighths / 8)
any_settings = st.builds(
    SamplerSettings,
    temperature=st.sampled_from([0.0, 0.3, 0.7, 1.0, 2.5]), top_k=st.integers(0, 12), top_p=st.floats(0, 1), min_p=st.floats(0, 1),
    repetition_penalty=st.sampled_from([0.5, 1.0, 2.0, 4.0]), repetition_range=st.integers(-1, 9),
    presence_penalty=st.integers(-12, 12).map(lambda quarters: quarters / 4),
    frequency_penalty=st.integers(-8, 8).map(lambda quarters: quarters / 4),
)  # fmt: skip


def assume_clear_thresholds(logits: list[float], history: list[int], sampler: SamplerSettings, exact: dict[int, float]) -> None:
    """Leave out the rare cases in which a sum lies so near to `top_p`, or a share to `min_p`, that rounding decides."""
    for factor in (1 - 1e-4, 1 + 1e-4):
        nudged = dataclasses.replace(sampler, top_p=min(1.0, sampler.top_p * factor), min_p=min(1.0, sampler.min_p * factor))
        assume(set(final_distribution(logits, history, nudged)) == set(exact))


@settings(max_examples=400, deadline=None)
@given(st.lists(logit, min_size=1, max_size=10), st.lists(st.integers(0, 9), max_size=14), any_settings, st.integers(0, 2**63 - 1))
def test_mass_is_one_and_the_formulas_hold(logits: list[float], history: list[int], sampler: SamplerSettings, seed: int) -> None:
    history = [token % len(logits) for token in history]
    sampled = Sampler(sampler, seed).sample(np.asarray(logits, np.float32), history, top=len(logits))
    found = dict(sampled.top)
    assert found
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-6)
    assert sampled.probability == pytest.approx(found[sampled.id])
    assert [p for _, p in sampled.top] == sorted(found.values(), reverse=True)
    exact = final_distribution(logits, history, sampler)
    assume_clear_thresholds(logits, history, sampler, exact)
    assert found == pytest.approx({token: p for token, p in exact.items() if token in found or p > 1e-30}, rel=1e-4, abs=1e-30)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6000), st.integers(0, 2**32 - 1), any_settings, st.booleans())
def test_large_vocabularies_too(size: int, seed: int, sampler: SamplerSettings, coarse: bool) -> None:
    random = np.random.default_rng(seed)
    logits = (random.standard_normal(size) * 4).astype(np.float32)
    if coarse:
        logits = np.round(logits)  # many ties
    history = random.integers(0, size, 30).tolist()
    sampled = Sampler(sampler, seed).sample(logits, history, top=size)
    assert sum(p for _, p in sampled.top) == pytest.approx(1.0, abs=1e-5)
    assert 1 <= len(sampled.top) <= (sampler.top_k or size)
    assert sampled.id in dict(sampled.top)
