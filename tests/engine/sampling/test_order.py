"""The order of the steps: the user's, the default one, and that any order of any settings is what the
formulas say.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine.sampling import SAMPLER_STEPS, ordered_steps
from engine.sampling.sampler import Sampler
from engine.sampling.step import Feedback
from engine.sampling.tables import TokenTables
from engine.settings import SAMPLER_STEP_NAMES, SamplerSettings
from tests.engine.sampling import exact
from tests.engine.sampling.test_steps import OFF, approx, distribution, of

NAMES = [name for name, _ in SAMPLER_STEP_NAMES]


def names(*order: str) -> list[str]:
    return [step.name for step in ordered_steps(order)]


def test_the_default_order_is_that_of_the_table() -> None:
    assert ordered_steps(SamplerSettings().order) == SAMPLER_STEPS
    assert ordered_steps(()) == SAMPLER_STEPS
    assert names(*reversed(NAMES)) == list(reversed(NAMES))


def test_missing_steps_come_after_the_step_before_them() -> None:
    assert names("temperature") == NAMES
    # top_k is listed before temperature, so what usually follows top_k comes there too.
    expected = [
        "repetition",
        "occurrence",
        "dry",
        "top_n_sigma",
        "smoothing",
        "top_k",
        *NAMES[NAMES.index("top_p") :],
        "temperature",
    ]
    assert names("top_k", "temperature") == expected
    assert names("skew", "repetition") == ["skew", *NAMES[:-1]]
    assert names(*NAMES[1:]) == NAMES  # the first step at the start
    assert names(*(name for name in NAMES if name != "xtc")) == NAMES


def test_of_a_name_that_comes_twice_the_first_counts_and_an_unknown_one_does_not() -> None:
    assert names("top_p", "telepathy", "temperature", "top_p") == names("top_p", "temperature")


def test_two_orders_give_two_distributions() -> None:
    # Temperature 0.5 makes 9:4:1 of 3:2:1, of which two tokens reach 0.9; of 3:2:1 itself all three are
    # needed.
    plain = dataclasses.replace(OFF, temperature=0.5, top_p=0.9)
    logits = of(3 / 6, 2 / 6, 1 / 6)
    assert distribution(logits, dataclasses.replace(plain, order=("temperature", "top_p"))) == approx(
        t0=9 / 13, t1=4 / 13
    )
    assert distribution(logits, dataclasses.replace(plain, order=("top_p", "temperature"))) == approx(
        t0=9 / 14, t1=4 / 14, t2=1 / 14
    )


def test_penalties_after_truncation_and_temperature() -> None:
    # Usually the penalty comes first and lets token 1 into the best two; afterwards it only lowers token 0.
    plain = dataclasses.replace(OFF, top_k=2, presence_penalty=math.log(8))
    logits = of(0.5, 0.2, 0.3)
    assert distribution(logits, plain, [0]) == approx(t1=0.4, t2=0.6)
    late = dataclasses.replace(plain, order=("top_k", "occurrence"))
    assert distribution(logits, late, [0, 1, 1]) == approx(t0=0.0625 / 0.3625, t2=0.3 / 0.3625)
    # The sign-aware penalty sees scores as temperature left them: 4 / 2 = 2 becomes 1, -4 / 2 = -2 becomes
    # -4.
    sign = dataclasses.replace(
        OFF, temperature=2.0, repetition_penalty=2.0, top_k=3, order=("temperature", "top_k", "repetition")
    )
    found = distribution(np.asarray([4.0, -4.0, 0.0], np.float32), sign, [0, 1])
    total = math.e + math.exp(-4) + 1
    assert found == approx(t0=math.e / total, t1=math.exp(-4) / total, t2=1 / total)


def test_skew_before_truncation_changes_who_is_likeliest() -> None:
    # Skewed by ln 4 the running sums 0.4, 0.7, 1 become 0.0256, 0.2401, 1.
    plain = dataclasses.replace(OFF, skew=math.log(4), top_k=2)
    logits = of(0.4, 0.3, 0.3)
    assert distribution(logits, dataclasses.replace(plain, order=("skew", "top_k"))) == approx(
        t1=0.2145 / 0.9744, t2=0.7599 / 0.9744
    )
    late = (0.4 / 0.7) ** 4
    assert distribution(logits, plain) == approx(t0=late, t1=1 - late)


# Multiples of powers of two: equal scores are exactly equal in float32 and in Python floats, so ties mean the
# same in both.
logit = st.integers(-40, 40).map(lambda eighths: eighths / 8)


def mostly(off: object, *values: object) -> st.SearchStrategy[object]:
    """Off four times of five, so that a step is met by many candidates."""
    return st.one_of(*[st.just(off)] * 4, st.sampled_from(values))


any_settings = st.builds(
    SamplerSettings, temperature=st.sampled_from([0.0, 0.3, 0.7, 1.0, 1.0, 2.5]),
    top_k=mostly(0, 1, 2, 3, 5, 12), top_p=mostly(1.0, 0.0, 0.3, 0.6, 0.9),
    min_p=mostly(0.0, 0.01, 0.2, 0.5, 1.0), repetition_penalty=mostly(1.0, 0.5, 2.0, 4.0),
    repetition_range=st.integers(-1, 9), repetition_decay=mostly(0, 1, 2, 5),
    presence_penalty=mostly(0.0, -1.0, 0.5, 2.0), frequency_penalty=mostly(0.0, -0.5, 0.25, 1.5),
    dry_multiplier=mostly(0.0, 0.75, 2.0), dry_base=st.sampled_from([1.0, 1.75, 3.0]),
    dry_allowed_length=st.integers(1, 3), dry_range=st.sampled_from([0, 1, 4, 9]),
    min_temperature=st.sampled_from([0.0, 0.5]), max_temperature=mostly(0.0, 1.5, 3.0),
    temperature_exponent=st.sampled_from([0.5, 1.0, 2.0]), top_n_sigma=mostly(0.0, 0.7, 1.0, 2.0),
    smoothing_factor=mostly(0.0, 0.125, 0.5), skew=mostly(0.0, -1.0, 0.5), top_a=mostly(0.0, 0.3, 0.9),
    tail_free=mostly(1.0, 0.4, 0.9), typical=mostly(1.0, 0.3, 0.5, 0.8), xtc_probability=mostly(0.0, 1.0),
    xtc_threshold=st.sampled_from([0.0, 0.1, 0.3]), mirostat=mostly(False, True),
    mirostat_tau=st.sampled_from([0.5, 2.0]), adaptive_target=mostly(0.0, 0.3, 0.8),
    order=st.lists(st.sampled_from(NAMES), max_size=20).map(tuple),
)  # fmt: skip
texts = st.lists(st.integers(0, 9), max_size=14)


def run(scores: dict[int, float], case: exact.Case) -> dict[int, float]:
    """The formulas, where their thresholds are clear: cases in which rounding decides are left out."""
    expected = exact.run(scores, case)
    sampler = case.settings
    for factor in (1 - 1e-4, 1 + 1e-4):
        shifts = {
            name: getattr(sampler, name) * factor
            for name in ("top_p", "min_p", "top_a", "tail_free", "typical")
        }
        nudged = dataclasses.replace(
            sampler, **{name: min(1.0, value) if getattr(sampler, name) < 1 else 1.0 for name,
            value in shifts.items()},
            xtc_threshold=sampler.xtc_threshold * factor, top_n_sigma=sampler.top_n_sigma * factor,
        )  # fmt: skip
        surprise = (2 * sampler.mirostat_tau if case.surprise is None else case.surprise) * factor
        other = exact.run(scores, dataclasses.replace(case, settings=nudged, surprise=surprise))
        assume(other.keys() == expected.keys())
        assume(
            all(math.isclose(other[token], expected[token], rel_tol=0.05, abs_tol=1e-6) for token in expected)
        )
    return expected


@pytest.mark.slow
@settings(max_examples=600)
@given(
    st.lists(logit, min_size=1, max_size=10),
    texts,
    any_settings,
    st.integers(0, 2**63 - 1),
    st.floats(0.1, 6),
    st.floats(0, 1),
    st.data(),
)
def test_any_order_of_any_settings_is_what_the_formulas_say(
    logits: list[float],
    history: list[int],
    sampler: SamplerSettings,
    seed: int,
    surprise: float,
    average: float,
    data: st.DataObject,
) -> None:
    history = [token % len(logits) for token in history]
    some = st.frozensets(st.integers(0, 9), max_size=2)
    tables = TokenTables(dry_breakers=data.draw(some), xtc_protected=data.draw(some))
    drawer = Sampler(sampler, seed, tables)
    drawer.restore(Feedback(surprise, average))
    distribution = drawer.distribution(np.asarray(logits, np.float32), history)
    sampled = drawer.sample_from(distribution, top=len(logits))
    found = dict(sampled.top)
    assert found
    assert sum(distribution.final.probabilities) == pytest.approx(1.0, abs=1e-6)
    assert sampled.probability == pytest.approx(found[sampled.id])
    assert [p for _, p in sampled.top] == sorted(found.values(), reverse=True)
    scores = dict(enumerate(logits))
    case = exact.Case(sampler, history, True, surprise, average, tables.dry_breakers, tables.xtc_protected)
    expected = {token: p for token, p in run(scores, case).items() if p > 1e-30}
    assert {token: p for token, p in found.items() if p > 1e-30} == pytest.approx(
        expected, rel=2e-3, abs=1e-7
    )


@pytest.mark.slow
@settings(max_examples=150)
@given(st.integers(0, 2**32 - 1), texts, any_settings, st.sampled_from([40, 1500, 66_000]))
def test_any_order_works_on_any_vocabulary(
    seed: int, history: list[int], sampler: SamplerSettings, size: int
) -> None:
    random = np.random.default_rng(seed)
    logits = (random.standard_normal(size) * random.choice([0.1, 3.0, 30.0])).astype(np.float32)
    logits[random.random(size) < 0.2] = -np.inf
    logits[random.integers(size)] = 5
    if size > 50_000 and sampler.skew and not sampler.top_k:
        sampler = dataclasses.replace(sampler, top_k=50)
    drawer = Sampler(sampler, seed)
    found = drawer.distribution(logits, history)
    assert float(found.final.probabilities.sum(dtype=np.float64)) == pytest.approx(1.0, abs=1e-5)
    assert (found.final.probabilities >= 0).all()
    ids = found.final.ids
    assert ids is None or len(set(ids.tolist())) == len(ids) > 0
    token = drawer.sample_from(found).id
    assert found.final.probability(token) > 0
    assert logits[token] > -np.inf
