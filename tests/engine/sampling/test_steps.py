"""Every step alone: the exact distribution on small vocabularies, worked out by hand."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from engine.sampling import SAMPLER_STEPS
from engine.sampling.sampler import Sampler
from engine.sampling.step import SamplerStep
from engine.settings import SAMPLER_STEP_NAMES, SamplerSettings, setting_info

OFF = SamplerSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
Floats = npt.NDArray[np.float32]


def of(*probabilities: float) -> Floats:
    """Logits with these probabilities, shifted so that some are positive and some negative."""
    return np.log(np.asarray(probabilities, np.float64)).astype(np.float32) + np.float32(1.5)


def distribution(logits: Floats, settings: SamplerSettings, history: Sequence[int] = ()) -> dict[int, float]:
    """All final probabilities, as the sampler tells them."""
    return dict(Sampler(settings, 0).distribution(logits, history).final.likeliest(logits.shape[0]))


def approx(**expected: float) -> object:
    return pytest.approx({int(name[1:]): value for name, value in expected.items()}, rel=2e-6)


def softmax(*scores: float) -> object:
    """The probabilities of tokens 0, 1, ... with these scores."""
    total = sum(map(math.exp, scores))
    return pytest.approx({token: math.exp(score) / total for token, score in enumerate(scores)}, rel=2e-6)


def test_temperature_raises_odds_to_its_inverse() -> None:
    settings = dataclasses.replace(OFF, temperature=0.5)
    assert distribution(of(0.1, 0.2, 0.3, 0.4), settings) == approx(
        t0=1 / 30, t1=4 / 30, t2=9 / 30, t3=16 / 30
    )
    settings = dataclasses.replace(OFF, temperature=2.0)
    assert distribution(of(1 / 30, 4 / 30, 9 / 30, 16 / 30), settings) == approx(
        t0=0.1, t1=0.2, t2=0.3, t3=0.4
    )


def test_temperature_near_zero_and_huge_logits_stay_finite() -> None:
    logits = np.asarray([3e38, -3e38, 2.9e38, 0], np.float32)
    assert distribution(logits, dataclasses.replace(OFF, temperature=0.011)) == {0: 1.0}


@pytest.mark.parametrize("temperature", [0.0, 0.009])
def test_greedy_takes_the_lowest_of_equal_ids(temperature: float) -> None:
    logits = of(0.1, 0.35, 0.2, 0.35)
    sampled = Sampler(dataclasses.replace(OFF, temperature=temperature), 5).sample(logits, [], top=3)
    assert (sampled.id, sampled.probability, sampled.top) == (1, 1.0, ((1, 1.0),))
    assert sampled.raw_probability == pytest.approx(0.35, rel=1e-6)


@pytest.mark.parametrize(
    "values",
    [{"top_k": 1}, {"top_p": 0.001}, {"top_p": 0.0}, {"min_p": 1.0}, {"top_a": 100.0},
     {"top_n_sigma": 1e-6}, {"tail_free": 0.0}],
)  # fmt: skip
def test_the_narrowest_value_of_a_step_leaves_the_likeliest_token(values: dict[str, float]) -> None:
    for size in (4, 4000):  # small vocabularies are not searched by the compiled scan
        logits = np.random.default_rng(size).normal(size=size).astype(np.float32)
        settings = dataclasses.replace(OFF, **values)  # type: ignore[arg-type]
        assert distribution(logits, settings) == {int(logits.argmax()): 1.0}
        assert {Sampler(settings, seed).sample(logits, []).id for seed in range(20)} == {logits.argmax()}


def test_greedy_obeys_penalties_and_ignores_truncation() -> None:
    settings = SamplerSettings(temperature=0.0, top_k=1, top_p=0.0, min_p=1.0, presence_penalty=1.0)
    assert Sampler(settings, 0).sample(of(0.5, 0.3, 0.2), [0]).id == 1


def test_top_k() -> None:
    settings = dataclasses.replace(OFF, top_k=2)
    assert distribution(of(0.1, 0.4, 0.2, 0.3), settings) == approx(t1=4 / 7, t3=3 / 7)
    assert distribution(of(0.4, 0.6), dataclasses.replace(OFF, top_k=9)) == approx(t0=0.4, t1=0.6)


def test_top_k_ties_go_to_the_lowest_id() -> None:
    assert distribution(of(0.1, 0.2, 0.2, 0.2, 0.1, 0.2), dataclasses.replace(OFF, top_k=3)) == approx(
        t1=1 / 3, t2=1 / 3, t3=1 / 3
    )


@pytest.mark.parametrize(
    ("p", "kept"), [(0.0, (0,)), (0.3, (0,)), (0.6, (0, 1)), (0.85, (0, 1, 2)), (0.99, (0, 1, 2, 3))]
)
def test_top_p_includes_the_token_that_crosses(p: float, kept: tuple[int, ...]) -> None:
    probabilities = (0.5, 0.25, 0.125, 0.125)
    mass = sum(probabilities[token] for token in kept)
    expected = {token: pytest.approx(probabilities[token] / mass, rel=2e-6) for token in kept}
    assert distribution(of(*probabilities), dataclasses.replace(OFF, top_p=p)) == expected


def test_top_p_ties_go_to_the_lowest_id() -> None:
    assert distribution(of(0.2, 0.2, 0.2, 0.2, 0.2), dataclasses.replace(OFF, top_p=0.5)) == approx(
        t0=1 / 3, t1=1 / 3, t2=1 / 3
    )


def test_min_p_is_relative_to_the_likeliest() -> None:
    logits = of(0.4, 0.25, 0.19, 0.16)
    assert distribution(logits, dataclasses.replace(OFF, min_p=0.45)) == approx(
        t0=0.4 / 0.84, t1=0.25 / 0.84, t2=0.19 / 0.84
    )
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
    assert distribution(of(0.5, 0.25, 0.25), settings, [0, 1, 0, 0]) == approx(
        t0=0.5 / 54 / total, t1=0.25 / 6 / total, t2=0.25 / total
    )


def test_negative_penalties_make_repeating_likelier() -> None:
    settings = dataclasses.replace(OFF, presence_penalty=-math.log(3))
    assert distribution(of(0.5, 0.5), settings, [1]) == approx(t0=0.25, t1=0.75)


@pytest.mark.parametrize(
    ("reach", "hit"), [(-1, {0, 1, 2}), (0, set()), (1, {2}), (2, {1, 2}), (99, {0, 1, 2})]
)
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
    # At temperature 0.5 the odds 3:2:1 become 9:4:1, so that two tokens reach 0.9 where three were needed
    # before.
    settings = dataclasses.replace(OFF, temperature=0.5, top_p=0.9)
    assert distribution(of(3 / 6, 2 / 6, 1 / 6), settings) == approx(t0=9 / 13, t1=4 / 13)


def test_top_p_looks_at_what_top_k_left() -> None:
    # Of 0.4 + 0.3 the first token alone is 0.57: enough for 0.55, which it would not be of the whole.
    settings = dataclasses.replace(OFF, top_k=2, top_p=0.55)
    assert distribution(of(0.4, 0.3, 0.2, 0.1), settings) == {0: 1.0}


def test_penalties_fade_before_the_range() -> None:
    # Range 1, fade 3: the newest token counts fully, those before it 3/4, 2/4 and 1/4, older ones not at all.
    settings = dataclasses.replace(OFF, repetition_range=1, repetition_decay=3)
    zeros = np.zeros(5, np.float32)
    assert distribution(
        zeros, dataclasses.replace(settings, frequency_penalty=4.0), [0, 1, 2, 3, 4]
    ) == softmax(0, -1, -2, -3, -4)
    # Twice the same token: frequency takes the sum of the strengths, presence and repetition the latest one.
    assert distribution(zeros[:2], dataclasses.replace(settings, frequency_penalty=4.0), [0, 0]) == softmax(
        -7, 0
    )
    assert distribution(zeros[:2], dataclasses.replace(settings, presence_penalty=4.0), [0, 0]) == softmax(
        -4, 0
    )
    # the newest token is 2; token 0 was seen 2 places before it: p = 1 + 2 * 2/4
    twos = np.full(3, 2.0, np.float32)
    assert distribution(twos, dataclasses.replace(settings, repetition_penalty=3.0), [0, 0, 1, 2]) == softmax(
        2 / 2, 2 / 2.5, 2 / 3
    )


def test_a_range_of_0_leaves_nothing_to_fade() -> None:
    settings = dataclasses.replace(OFF, repetition_range=0, repetition_decay=9, presence_penalty=4.0)
    assert distribution(np.zeros(2, np.float32), settings, [0]) == softmax(0, 0)


def test_top_n_sigma_is_counted_on_finite_logits() -> None:
    # Finite logits have mean 2 and variance 3.2. The second best is 2 below the best, which is 1.118
    # deviations.
    logits = np.asarray([5.0, 1.0, 1.0, 3.0, 0.0, -np.inf], np.float32)
    assert distribution(logits, dataclasses.replace(OFF, top_n_sigma=1.117)) == {0: 1.0}
    assert distribution(logits, dataclasses.replace(OFF, top_n_sigma=1.119)) == approx(
        t0=math.exp(2) / (1 + math.exp(2)), t3=1 / (1 + math.exp(2))
    )
    assert set(distribution(logits, dataclasses.replace(OFF, top_n_sigma=9.0))) == {0, 1, 2, 3, 4}
    warm = dataclasses.replace(OFF, top_n_sigma=1.119, temperature=3.0)
    assert set(distribution(logits, warm)) == set(
        distribution(logits, dataclasses.replace(warm, order=("temperature", "top_n_sigma")))
    )


def test_smoothing_squares_the_distance_from_the_best() -> None:
    logits = np.asarray([7.0, 6.0, 5.0], np.float32)
    assert distribution(logits, dataclasses.replace(OFF, smoothing_factor=0.5)) == softmax(0, -0.5, -2)
    # The temperature divides once, and only afterwards.
    assert distribution(logits, dataclasses.replace(OFF, smoothing_factor=0.25, temperature=0.5)) == softmax(
        0, -0.5, -2
    )


@pytest.mark.parametrize(("exponent", "heat"), [(1.0, 0.5 + 1.5 * 0.875), (2.0, 0.5 + 1.5 * 0.875**2)])
def test_dynamic_temperature_goes_by_the_entropy(exponent: float, heat: float) -> None:
    # Entropy 1.75 bits, of at most 2.
    settings = dataclasses.replace(
        OFF, min_temperature=0.5, max_temperature=2.0, temperature_exponent=exponent
    )
    logs = [math.log(p) / heat for p in (0.5, 0.25, 0.125, 0.125)]
    assert distribution(of(0.5, 0.25, 0.125, 0.125), settings) == softmax(*logs)


def test_dynamic_temperature_counts_the_tokens_that_are_left() -> None:
    # Of four equal tokens, as of two, the entropy is the greatest: the temperature is the highest.
    settings = dataclasses.replace(OFF, min_temperature=0.1, max_temperature=3.0, top_k=2)
    assert distribution(np.asarray([1.0, 1.0, 0.0, -np.inf], np.float32), settings) == approx(t0=0.5, t1=0.5)
    logits = np.asarray([1.0, 1.0, -np.inf, -np.inf], np.float32)
    whole = dataclasses.replace(
        settings, top_k=0, presence_penalty=3.0, order=("dynamic_temperature", "occurrence")
    )
    assert distribution(logits, whole, [0]) == approx(t0=1 / (1 + math.exp(3)), t1=1 / (1 + math.exp(-3)))
    sure = dataclasses.replace(OFF, max_temperature=1.0)  # down to 0, where only the likeliest is left
    assert distribution(np.asarray([90.0, 0.0], np.float32), sure)[0] == 1.0
    assert distribution(np.asarray([0.5, -np.inf], np.float32), sure)[0] == 1.0


@pytest.mark.parametrize(("a", "kept"), [(0.3, 4), (0.5, 3), (0.7, 2), (0.9, 2)])
def test_top_a_takes_the_square_of_the_best(a: float, kept: int) -> None:
    # Bounds 0.075, 0.125, 0.175 and 0.225.
    probabilities = (0.5, 0.25, 0.15, 0.1)
    mass = sum(probabilities[:kept])
    expected = {token: pytest.approx(p / mass, rel=2e-6) for token, p in enumerate(probabilities[:kept])}
    assert distribution(of(*probabilities), dataclasses.replace(OFF, top_a=a)) == expected


def test_names_are_those_of_the_settings() -> None:
    assert [step.name for step in SAMPLER_STEPS] == [name for name, _ in SAMPLER_STEP_NAMES]
    defined = [step for step in SamplerStep.__subclasses__() if step.__module__.startswith("engine.")]
    listed = {step.__qualname__ for step in SAMPLER_STEPS}
    assert {step.__qualname__ for step in defined} == listed, "a step is missing from SAMPLER_STEP_NAMES"


def test_neutral_values_make_every_step_inactive() -> None:
    fields = [
        field for field in dataclasses.fields(SamplerSettings) if setting_info(field).neutral is not None
    ]
    neutral = {field.name: setting_info(field).neutral for field in fields}
    assert not [step for step in SAMPLER_STEPS if step.from_settings(SamplerSettings(**neutral)).active]


ACTIVE: dict[str, list[dict[str, object]]] = {
    "repetition": [{"repetition_penalty": 1.3}],
    "occurrence": [{"presence_penalty": 0.5}, {"frequency_penalty": 0.5}],
    "dry": [{"dry_multiplier": 0.8, "dry_allowed_length": 1}], "top_n_sigma": [{"top_n_sigma": 1.0}],
    "smoothing": [{"smoothing_factor": 0.3}], "temperature": [{"temperature": 0.6}], "top_k": [{"top_k": 3}],
    "top_p": [{"top_p": 0.7}], "top_a": [{"top_a": 0.8}], "min_p": [{"min_p": 0.2}],
    "tail_free": [{"tail_free": 0.5}], "typical": [{"typical": 0.5}],
    "mirostat": [{"mirostat": True, "mirostat_tau": 1.0}],
    "dynamic_temperature": [{"min_temperature": 0.5, "max_temperature": 3.0}],
    "xtc": [{"xtc_probability": 1.0}], "adaptive_p": [{"adaptive_target": 0.2}],
    "skew": [{"skew": 0.4}, {"skew": -0.4}],
}  # fmt: skip
CHANGES = [(name, change) for name, changes in ACTIVE.items() for change in changes]


def test_every_step_is_listed_here() -> None:
    assert list(ACTIVE) == [step.name for step in SAMPLER_STEPS]


@pytest.mark.parametrize(("name", "change"), CHANGES, ids=str)
def test_each_setting_wakes_exactly_one_step_and_matters(name: str, change: dict[str, object]) -> None:
    settings = SamplerSettings.from_json({**OFF.to_json(), **change})
    assert [step.name for step in SAMPLER_STEPS if step.from_settings(settings).active] == [name]
    logits = of(0.4, 0.3, 0.1, 0.1, 0.06, 0.04)
    assert distribution(logits, settings, [0, 0, 1, 0]) != pytest.approx(
        distribution(logits, OFF, [0, 0, 1, 0]), rel=1e-3
    )


@pytest.mark.parametrize(("name", "change"), CHANGES, ids=str)
def test_greedy_drawing_heeds_exactly_the_steps_that_say_which_token_is_best(
    name: str, change: dict[str, object]
) -> None:
    settings = SamplerSettings.from_json({**OFF.to_json(), **change, "temperature": 0.0})
    heeded = next(step for step in SAMPLER_STEPS if step.name == name).when_greedy
    assert heeded == (name in ("repetition", "occurrence", "dry"))
    close = np.asarray([1.0, 0.99, 0.5, 0.4], np.float32)
    history = [0, 3, 0, 3]  # "3" was followed by 0
    assert Sampler(settings, 0).sample(close, history).id == (1 if heeded else 0)


INACTIVE: list[dict[str, object]] = [
    {"repetition_range": 0, "repetition_penalty": 2.0, "presence_penalty": 1.0}, {"repetition_range": 7},
    {"repetition_decay": 5}, {"top_k": 2000}, {"dry_base": 3.0, "dry_allowed_length": 1, "dry_range": 9},
    {"min_temperature": 2.0, "max_temperature": 1.0},
    {"min_temperature": 1.0, "max_temperature": 1.0, "temperature_exponent": 2.0}, {"xtc_threshold": 0.0},
    {"adaptive_decay": 0.1}, {"mirostat_tau": 1.0, "mirostat_eta": 0.5}, {"order": []},
    {"order": [step.name for step in reversed(SAMPLER_STEPS)]},
]  # fmt: skip


@pytest.mark.parametrize("change", INACTIVE, ids=str)
@pytest.mark.parametrize("size", [2000, 70_000])
def test_inactive_steps_change_nothing(change: dict[str, object], size: int) -> None:
    logits = np.random.default_rng(1).standard_normal(size).astype(np.float32)
    plain = Sampler(OFF, 9).sample(logits, [1, 2, 3, 1, 2], top=50, alternatives=3)
    if "top_k" in change:
        change = {"top_k": size}
    settings = SamplerSettings.from_json(OFF.to_json() | change)
    assert Sampler(settings, 9).sample(logits, [1, 2, 3, 1, 2], top=50, alternatives=3) == plain
