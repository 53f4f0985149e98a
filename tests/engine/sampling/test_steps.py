"""Every step and their order: the exact distribution on small vocabularies."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from engine.sampling import SAMPLER_STEPS
from engine.sampling.sampler import Sampler
from engine.settings import SamplerSettings, setting_info

OFF = SamplerSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
Floats = npt.NDArray[np.float32]


def of(*probabilities: float) -> Floats:
    """Logits with these probabilities, shifted so that some are positive and some negative."""
    return np.log(np.asarray(probabilities, np.float64)).astype(np.float32) + np.float32(1.5)


def distribution(logits: Floats, settings: SamplerSettings, history: Sequence[int] = ()) -> dict[int, float]:
    """All final probabilities, as the sampler tells them."""
    return dict(Sampler(settings, 0).sample(logits, history, top=logits.shape[0]).top)


def approx(**expected: float) -> object:
    return pytest.approx({int(name[1:]): value for name, value in expected.items()}, rel=2e-6)


def test_temperature_raises_odds_to_its_inverse() -> None:
    settings = dataclasses.replace(OFF, temperature=0.5)
    assert distribution(of(0.1, 0.2, 0.3, 0.4), settings) == approx(t0=1 / 30, t1=4 / 30, t2=9 / 30, t3=16 / 30)
    settings = dataclasses.replace(OFF, temperature=2.0)
    assert distribution(of(1 / 30, 4 / 30, 9 / 30, 16 / 30), settings) == approx(t0=0.1, t1=0.2, t2=0.3, t3=0.4)


def test_temperature_near_zero_and_huge_logits_stay_finite() -> None:
    logits = np.asarray([3e38, -3e38, 2.9e38, 0], np.float32)
    assert distribution(logits, dataclasses.replace(OFF, temperature=0.011)) == {0: 1.0}


@pytest.mark.parametrize("temperature", [0.0, 0.009])
def test_greedy_takes_the_lowest_of_equal_ids(temperature: float) -> None:
    logits = of(0.1, 0.35, 0.2, 0.35)
    sampled = Sampler(dataclasses.replace(OFF, temperature=temperature), 5).sample(logits, [], top=3)
    assert (sampled.id, sampled.probability, sampled.top) == (1, 1.0, ((1, 1.0),))
    assert sampled.raw_probability == pytest.approx(0.35, rel=1e-6)


def test_greedy_obeys_penalties_and_ignores_truncation() -> None:
    settings = SamplerSettings(temperature=0.0, top_k=1, top_p=0.0, min_p=1.0, presence_penalty=1.0)
    assert Sampler(settings, 0).sample(of(0.5, 0.3, 0.2), [0]).id == 1


def test_top_k() -> None:
    settings = dataclasses.replace(OFF, top_k=2)
    assert distribution(of(0.1, 0.4, 0.2, 0.3), settings) == approx(t1=4 / 7, t3=3 / 7)
    assert distribution(of(0.4, 0.6), dataclasses.replace(OFF, top_k=9)) == approx(t0=0.4, t1=0.6)


def test_top_k_ties_go_to_the_lowest_id() -> None:
    assert distribution(of(0.1, 0.2, 0.2, 0.2, 0.1, 0.2), dataclasses.replace(OFF, top_k=3)) == approx(t1=1 / 3, t2=1 / 3, t3=1 / 3)


@pytest.mark.parametrize(
    ("p", "kept"),
    [(0.0, (0,)), (0.3, (0,)), (0.6, (0, 1)), (0.85, (0, 1, 2)), (0.99, (0, 1, 2, 3))],
)
def test_top_p_includes_the_token_that_crosses(p: float, kept: tuple[int, ...]) -> None:
    probabilities = (0.5, 0.25, 0.125, 0.125)
    mass = sum(probabilities[token] for token in kept)
    expected = {token: pytest.approx(probabilities[token] / mass, rel=2e-6) for token in kept}
    assert distribution(of(*probabilities), dataclasses.replace(OFF, top_p=p)) == expected


def test_top_p_ties_go_to_the_lowest_id() -> None:
    assert distribution(of(0.2, 0.2, 0.2, 0.2, 0.2), dataclasses.replace(OFF, top_p=0.5)) == approx(t0=1 / 3, t1=1 / 3, t2=1 / 3)


def test_min_p_is_relative_to_the_likeliest() -> None:
    logits = of(0.4, 0.25, 0.19, 0.16)
    assert distribution(logits, dataclasses.replace(OFF, min_p=0.45)) == approx(t0=0.4 / 0.84, t1=0.25 / 0.84, t2=0.19 / 0.84)
    assert distribution(logits, dataclasses.replace(OFF, min_p=1.0)) == {0: 1.0}


def test_repetition_penalty_looks_at_the_sign() -> None:
    logits = np.asarray([2.0, 2.0, -1.0, -1.0, 0.0], np.float32)
    scores = [1.0, 2.0, -2.0, -1.0, 0.0]
    total = sum(map(math.exp, scores))
    expected = {token: pytest.approx(math.exp(score) / total, rel=2e-6) for token, score in enumerate(scores)}
    assert distribution(logits, dataclasses.replace(OFF, repetition_penalty=2.0), [0, 2, 0, 4]) == expected


def test_presence_counts_once_and_frequency_each_time() -> None:
    settings = dataclasses.replace(OFF, presence_penalty=math.log(2), frequency_penalty=math.log(3))
    total = 0.5 / 54 + 0.25 / 6 + 0.25
    assert distribution(of(0.5, 0.25, 0.25), settings, [0, 1, 0, 0]) == approx(t0=0.5 / 54 / total, t1=0.25 / 6 / total, t2=0.25 / total)


def test_negative_penalties_make_repeating_likelier() -> None:
    settings = dataclasses.replace(OFF, presence_penalty=-math.log(3))
    assert distribution(of(0.5, 0.5), settings, [1]) == approx(t0=0.25, t1=0.75)


@pytest.mark.parametrize(("reach", "hit"), [(-1, {0, 1, 2}), (0, set()), (1, {2}), (2, {1, 2}), (99, {0, 1, 2})])
def test_penalties_look_back_as_far_as_the_range(reach: int, hit: set[int]) -> None:
    settings = dataclasses.replace(OFF, presence_penalty=5.0, repetition_range=reach)
    found = distribution(of(0.25, 0.25, 0.25, 0.25), settings, [0, 1, 2])
    assert {token for token, probability in found.items() if probability < found[3] / 2} == hit


def test_penalties_come_before_temperature() -> None:
    settings = dataclasses.replace(OFF, temperature=0.5, presence_penalty=math.log(2))
    assert distribution(of(0.5, 0.5), settings, [0]) == approx(t0=0.2, t1=0.8)


def test_repetition_comes_before_presence() -> None:
    settings = dataclasses.replace(OFF, repetition_penalty=2.0, presence_penalty=1.5)
    share = 1 / (1 + math.exp(0.5))  # 2 / 2 - 1.5 = -0.5 against 0; the other way round it would be 0.25
    assert distribution(np.asarray([2.0, 0.0], np.float32), settings, [0]) == approx(t0=share, t1=1 - share)


def test_temperature_comes_before_truncation() -> None:
    # At temperature 0.5 the odds 3:2:1 become 9:4:1, so that two tokens reach 0.9 where three were needed before.
    settings = dataclasses.replace(OFF, temperature=0.5, top_p=0.9)
    assert distribution(of(3 / 6, 2 / 6, 1 / 6), settings) == approx(t0=9 / 13, t1=4 / 13)


def test_top_p_looks_at_what_top_k_left() -> None:
    # Of 0.4 + 0.3 the first token alone is 0.57: enough for 0.55, which it would not be of the whole.
    settings = dataclasses.replace(OFF, top_k=2, top_p=0.55)
    assert distribution(of(0.4, 0.3, 0.2, 0.1), settings) == {0: 1.0}


def test_order_of_the_table() -> None:
    names = [step.__name__ for step in SAMPLER_STEPS]
    assert names == ["RepetitionPenalty", "OccurrencePenalty", "Temperature", "TopK", "TopP", "MinP"]


def test_neutral_values_make_every_step_inactive() -> None:
    neutral = {field.name: setting_info(field).neutral for field in dataclasses.fields(SamplerSettings) if field.name != "seed"}
    assert not [step for step in SAMPLER_STEPS if step.from_settings(SamplerSettings(**neutral)).active]


ACTIVE: list[dict[str, float]] = [
    {"repetition_penalty": 1.3}, {"presence_penalty": 0.5}, {"frequency_penalty": 0.5}, {"temperature": 0.6}, {"top_k": 3}, {"top_p": 0.7},
    {"min_p": 0.2},
]  # fmt: skip


@pytest.mark.parametrize("change", ACTIVE, ids=str)
def test_each_setting_wakes_exactly_one_step_and_matters(change: dict[str, float]) -> None:
    settings = SamplerSettings.from_json({**OFF.to_json(), **change})
    assert sum(step.from_settings(settings).active for step in SAMPLER_STEPS) == 1
    logits = of(0.4, 0.3, 0.1, 0.1, 0.06, 0.04)
    assert distribution(logits, settings, [0, 0, 1]) != pytest.approx(distribution(logits, OFF, [0, 0, 1]), rel=1e-3)


def test_steps_that_say_so_keep_the_argmax() -> None:
    random = np.random.default_rng(0)
    for change in ACTIVE:
        settings = SamplerSettings.from_json({**OFF.to_json(), **change})
        step = next(step for kind in SAMPLER_STEPS if (step := kind.from_settings(settings)).active)
        if step.keeps_argmax:
            for _ in range(20):
                logits = random.standard_normal(9).astype(np.float32)
                assert Sampler(settings, 0).sample(logits, [3, 4], top=1).top[0][0] == logits.argmax()


def test_inactive_steps_change_nothing() -> None:
    logits = np.random.default_rng(1).standard_normal(2000).astype(np.float32)
    plain = Sampler(OFF, 9).sample(logits, [1, 2, 3], top=2000)
    changes: list[dict[str, float]] = [{"repetition_range": 0, "repetition_penalty": 2.0, "presence_penalty": 1.0}, {"repetition_range": 7}]
    changes.append({"top_k": 2000})
    for change in changes:
        settings = SamplerSettings.from_json(OFF.to_json() | change)
        assert Sampler(settings, 9).sample(logits, [1, 2, 3], top=2000) == plain
