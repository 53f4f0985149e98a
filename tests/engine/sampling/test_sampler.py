"""Distribution, sampling and commit: chi-squared, places and seeds, restrictions, reports, bad logits."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import EngineError, NothingAllowed
from engine.sampling.distribution import Distribution
from engine.sampling.sampler import Sampled, Sampler
from engine.sampling.tables import TokenTables
from engine.settings import SamplerSettings
from tests.engine.sampling.exact import final_distribution, softmax

OFF = SamplerSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
LOGITS = np.log(np.asarray([0.1, 0.4, 0.2, 0.3])).astype(np.float32)


def chi_squared(counts: np.ndarray, probabilities: np.ndarray) -> float:
    expected = probabilities * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "sampler",
    [OFF, SamplerSettings(temperature=1.3, top_k=5, top_p=0.97, min_p=0.02)],
    ids=["neutral", "usual"],
)
def test_draws_follow_the_final_probabilities(sampler: SamplerSettings) -> None:
    logits = np.asarray([1.0, 0.2, -0.5, 2.0, 0.9, -3.0, 0.0], np.float32)
    drawer, counts = Sampler(sampler, 11), np.zeros(7)
    for place in range(20_000):
        counts[drawer.sample(logits, range(place)).id] += 1
    expected = final_distribution(logits.tolist(), [], sampler)
    kept = sorted(expected)
    assert counts.sum() == counts[kept].sum()
    # 99.9 % quantile of chi-squared with 6 degrees of freedom (fewer have a lower one).
    assert chi_squared(counts[kept], np.asarray([expected[token] for token in kept])) < 22.46


@pytest.mark.slow
def test_draws_from_a_large_vocabulary_follow_the_probabilities() -> None:
    # Above 1,024 candidates the draw goes by blocks; 1,300 is no multiple of a block.
    logits = np.sin(np.arange(1300) * 0.7).astype(np.float32)
    logits[600:] -= np.inf
    logits[[600, 1299]] = 5.0
    drawer, groups = Sampler(OFF, 12), np.zeros(4)
    group = np.asarray([0 if i < 300 else 1 if i < 600 else 2 if i == 600 else 3 for i in range(1300)])
    probabilities = np.exp(logits.astype(np.float64)) / np.exp(logits.astype(np.float64)).sum()
    for place in range(8000):
        groups[group[drawer.sample(logits, range(place)).id]] += 1
    assert chi_squared(groups, np.bincount(group, probabilities)) < 16.27  # 99.9 %, 3 degrees


@pytest.mark.parametrize("size", [4, 5000])
def test_tokens_without_probability_are_never_drawn(size: int) -> None:
    probabilities = np.zeros(size)
    probabilities[[1, size - 2]] = 0.5
    for ids in (None, np.arange(size) + 7):
        distribution = Distribution(ids, probabilities)
        drawn = [
            distribution.sample(uniform) - (7 if ids is not None else 0)
            for uniform in (0.0, 0.4999, 0.5, math.nextafter(1.0, 0.0), 1.0)
        ]
        assert drawn == [1, 1, size - 2, size - 2, size - 2]
        assert [p for _, p in distribution.likeliest(9)] == [0.5, 0.5]


def test_uniform_numbers_are_uniform_and_belong_to_their_arguments() -> None:
    sampler = Sampler(OFF, 42)
    assert sampler.seed == 42
    numbers = np.asarray([sampler.uniform(place) for place in range(20_000)])
    assert 0 <= numbers.min() < numbers.max() < 1
    # 99.9 %, 19 degrees
    assert chi_squared(np.histogram(numbers, 20, (0, 1))[0].astype(float), np.full(20, 0.05)) < 43.8
    assert abs(np.corrcoef(numbers[1:], numbers[:-1])[0, 1]) < 0.03
    assert numbers[7] == Sampler(SamplerSettings(), 42).uniform(7, 0, 0)
    others = {
        sampler.uniform(7, 1),
        sampler.uniform(7, 0, 1),
        sampler.uniform(8),
        Sampler(OFF, 43).uniform(7),
        Sampler(OFF, -42).uniform(7),
    }
    assert len(others | {numbers[7]}) == 6
    assert sampler.uniform((1 << 63) - 1, 5, 1 << 40) == Sampler(OFF, 42).uniform((1 << 63) - 1, 5, 1 << 40)


def test_the_same_numbers_on_every_machine() -> None:
    # From BLAKE2b itself: b2sum -l 64 of four little-endian words, of which the upper 53 bits count.
    assert Sampler(OFF, 1).uniform(2, 3, 4) == 0.8237397162346505


def write(sampler: Sampler, rows: np.ndarray, text: list[int], end: int) -> list[Sampled]:
    found = []
    while len(text) < end:
        found.append(sampler.sample(rows[len(text)], text, top=3))
        text.append(found[-1].id)
    return found


ROWS = np.random.default_rng(3).standard_normal((120, 3000)).astype(np.float32)
SEVERAL = SamplerSettings(
    repetition_penalty=1.1, xtc_probability=0.5, xtc_threshold=0.05, dry_multiplier=0.8, skew=0.2
)


def test_same_seed_same_ids_and_probabilities() -> None:
    assert write(Sampler(SEVERAL, 5), ROWS, [1, 2], 120) == write(Sampler(SEVERAL, 5), ROWS, [1, 2], 120)
    assert write(Sampler(SEVERAL, 5), ROWS, [1, 2], 120) != write(Sampler(SEVERAL, 6), ROWS, [1, 2], 120)


def test_going_back_and_continuing_later_reproduce_the_text() -> None:
    expected: list[int] = []
    write(Sampler(SEVERAL, 5), ROWS, expected, 100)
    sampler, text = Sampler(SEVERAL, 5), list[int]()
    write(sampler, ROWS, text, 60)
    del text[30:]
    sampler.distribution(ROWS[0], [9] * 77)  # a draft that led nowhere
    write(sampler, ROWS, text, 100)
    assert text == expected
    later = expected[:40]
    write(Sampler(SEVERAL, 5), ROWS, later, 100)
    assert later == expected


def test_another_attempt_draws_another_number() -> None:
    sampler = Sampler(OFF, 1)
    found = sampler.distribution(np.zeros(100_000, np.float32), [])
    ids = [sampler.sample_from(found, attempt=attempt).id for attempt in (0, 1, 2, 0)]
    assert ids[0] == ids[3]
    assert len(set(ids)) == 3
    assert ids[1] == int(sampler.uniform(0, 0, 1) * 100_000)
    # with the likeliest tokens reported, and in the compiled call
    for top in (1, 0):
        logits = np.zeros(100_000, np.float32)
        assert [sampler.sample(logits, [], attempt=attempt, top=top).id for attempt in (0, 1, 2)] == ids[:3]


def test_look_and_draw_and_take_are_sample() -> None:
    first, second, third = (Sampler(SEVERAL, 4) for _ in range(3))
    one = first.sample(ROWS[0], [1, 2], top=2, alternatives=3)
    assert one == second.sample_from(second.distribution(ROWS[0], [1, 2]), top=2, alternatives=3)
    assert one == third.commit(third.distribution(ROWS[0], [1, 2]), one.id, top=2, alternatives=3)


def test_logits_are_not_modified_and_may_be_read_only() -> None:
    for size in (5000, 70_000):
        logits = np.random.default_rng(4).standard_normal(size).astype(np.float32)
        before = logits.copy()
        logits.setflags(write=False)
        full = dataclasses.replace(SEVERAL, smoothing_factor=0.1, top_n_sigma=3.0)
        mask = np.full(size // 32 + 1, 0xFFFFFFF0, np.uint32)
        drawer = Sampler(full, 0, TokenTables(bias=((3, 1.0),), banned=frozenset({4})))
        for _ in range(3):
            drawer.sample(logits, [7, 8, 9], top=4, blocked=[1, 2], mask=mask, alternatives=3)
            drawer.sample(logits, [7, 8, 9], only=np.asarray([5, 6]))
        assert np.array_equal(logits, before)


def test_logits_may_be_part_of_a_larger_array() -> None:
    rows = np.random.default_rng(4).standard_normal((140_000, 2)).astype(np.float32)
    strided, whole = rows[:, 1], rows[:, 1].copy()
    mask = np.full(5000, 0x0FFFFFFF, np.uint32)
    settings = SamplerSettings(top_n_sigma=2.0)
    assert Sampler(settings, 3).sample(strided, [], mask=mask, alternatives=2) == Sampler(settings, 3).sample(
        whole, [], mask=mask, alternatives=2
    )


def test_top_list_is_sorted_final_and_only_candidates() -> None:
    logits = LOGITS.copy()
    assert Sampler(OFF, 0).sample(logits, []).top == ()
    top = Sampler(dataclasses.replace(OFF, top_k=3), 0).sample(logits, [], top=10).top
    assert [token for token, _ in top] == [1, 3, 2]
    assert [p for _, p in top] == pytest.approx([4 / 9, 3 / 9, 2 / 9], rel=2e-6)
    assert dict(Sampler(OFF, 0).sample(logits, [], top=2).top) == pytest.approx({1: 0.4, 3: 0.3}, rel=2e-6)
    logits[2] = -np.inf
    assert [token for token, _ in Sampler(OFF, 0).sample(logits, [], top=10).top] == [1, 3, 0]


def test_top_list_of_equal_tokens_has_the_lowest_ids_first() -> None:
    sampled = Sampler(OFF, 0).sample(np.zeros(70_000, np.float32), [], top=3, alternatives=3)
    assert [token for token, _ in sampled.top] == [token for token, _, _ in sampled.alternatives] == [0, 1, 2]


def test_raw_probability_knows_nothing_of_the_steps() -> None:
    settings = SamplerSettings(temperature=0.3, top_k=1, repetition_penalty=5.0)
    sampled = Sampler(settings, 0).sample(LOGITS, [1, 3, 2], blocked=[2])
    assert sampled.probability == 1.0
    assert sampled.raw_probability == pytest.approx(math.exp(LOGITS[sampled.id]), rel=1e-6)


def test_alternatives_are_the_models_own_with_both_probabilities() -> None:
    sampled = Sampler(dataclasses.replace(OFF, top_k=2), 0).sample(LOGITS, [], blocked=[1], alternatives=3)
    assert [token for token, _, _ in sampled.alternatives] == [1, 3, 2]
    assert [raw for _, raw, _ in sampled.alternatives] == pytest.approx([0.4, 0.3, 0.2], rel=2e-6)
    assert [final for _, _, final in sampled.alternatives] == pytest.approx([0.0, 0.6, 0.4], rel=2e-6)
    assert sampled.entropy == pytest.approx(-sum(p * math.log(p) for p in (0.1, 0.2, 0.3, 0.4)), rel=1e-6)
    quiet = Sampler(OFF, 0).sample(LOGITS, [])
    assert (quiet.alternatives, quiet.entropy) == ((), 0.0)
    greedy = Sampler(dataclasses.replace(OFF, temperature=0.0), 0).sample(LOGITS, [], alternatives=2)
    assert [(token, final) for token, _, final in greedy.alternatives] == [(1, 1.0), (3, 0.0)]
    assert Sampler(OFF, 0).sample(
        np.asarray([0.0, -np.inf], np.float32), [], alternatives=9
    ).alternatives == ((0, 1.0, 1.0),)


def test_blocked_ids_are_never_drawn() -> None:
    logits = np.asarray([9.0, 0.0, 8.0, 0.0], np.float32)
    drawer = Sampler(OFF, 0)
    assert {drawer.sample(logits, range(place), blocked=[0, 2, 4, -1]).id for place in range(50)} == {1, 3}
    assert Sampler(SamplerSettings(temperature=0.0), 0).sample(logits, [], blocked={0}).id == 2


def mask_of(tokens: set[int], words: int = 1) -> np.ndarray:
    mask = np.zeros(words, np.uint32)
    for token in tokens:
        mask[token // 32] |= np.uint32(1 << token % 32)
    return mask


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("restriction", [
    {"blocked": range(4)}, {"mask": mask_of(set())}, {"mask": mask_of({4, 31})},
    {"mask": np.zeros(0, np.uint32)}, {"mask": mask_of({0}), "blocked": [0]},
    {"only": np.asarray([], np.int64)}, {"only": np.asarray([4, -1])},
    {"mask": mask_of({0, 1}), "only": np.asarray([2, 3])},
    {"mask": mask_of({5, 6, 7}), "only": np.asarray([5])},
], ids=str)  # fmt: skip
def test_nothing_left_is_one_plain_sentence(restriction: dict[str, object], temperature: float) -> None:
    tables = TokenTables(vocabulary=4, bias=((0, 2.0), (9, 1.0)))
    sampler = Sampler(dataclasses.replace(SEVERAL, temperature=temperature), 0, tables)
    with pytest.raises(
        NothingAllowed, match=r"^Every token .* banned or not allowed; remove some of the bans\.$"
    ):
        sampler.sample(np.zeros(6, np.float32), [1, 2], **restriction)
    assert sampler.sample(np.zeros(6, np.float32), [1, 2]).id < 4  # the sampler goes on


@pytest.mark.parametrize("top_k", [0, 3])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_restrictions_of_a_large_vocabulary(temperature: float, top_k: int) -> None:
    size = 20_001  # no multiple of a mask's 32 bits
    logits = np.zeros(size, np.float32)
    logits[[1, 7, 20_000]] = 60.0, 50.0, 40.0
    drawer = Sampler(dataclasses.replace(OFF, temperature=temperature, top_k=top_k), 0)
    beyond = mask_of({7, 20_000, size}, 626)
    assert drawer.sample(logits, []).id == 1
    assert drawer.sample(logits, [], blocked={1}).id == 7
    assert drawer.sample(logits, [], mask=beyond).id == 7
    assert drawer.sample(logits, [], mask=beyond, blocked={7}).id == 20_000
    assert drawer.sample(logits, [], only=np.asarray([3, 20_000])).id == 20_000


@pytest.mark.parametrize(("tables", "scores"), [
    (TokenTables(banned=frozenset({0})), {1: 0.0, 2: 0.0}),
    (TokenTables(bias=((0, -math.inf), (0, 1.0))), {1: 0.0, 2: 0.0}),
    (TokenTables(allowed=frozenset({0, 9})), {0: 0.0}),
    (TokenTables(bias=((0, 1.0), (2, 0.25), (0, -0.5), (3, 9.0))), {0: 0.5, 1: 0.0, 2: 0.25}),
], ids=str)  # fmt: skip
def test_the_first_id_is_restricted_as_any(tables: TokenTables, scores: dict[int, float]) -> None:
    final = Sampler(OFF, 0, tables).distribution(np.zeros(3, np.float32), []).final
    assert dict(final.likeliest(9)) == pytest.approx(softmax(scores), rel=1e-5)


@pytest.mark.slow
@settings(max_examples=200)
@given(
    st.lists(st.integers(-40, 40).map(lambda eighths: eighths / 8), min_size=1, max_size=70), st.data(),
    st.booleans(), st.sampled_from([0.0, 1.0]),
)  # fmt: skip
def test_all_restrictions_combine(
    logits: list[float], data: st.DataObject, penalised: bool, temperature: float
) -> None:
    ids = st.frozensets(st.integers(-1, 75), max_size=75)
    optional = st.one_of(st.none(), ids)
    mask, only, allowed = data.draw(optional), data.draw(optional), data.draw(optional)
    blocked, banned, vocabulary = data.draw(ids), data.draw(ids), data.draw(st.integers(0, 80))
    bias = data.draw(
        st.lists(st.tuples(st.integers(-1, 75), st.sampled_from([-3.0, 0.5, 4.0, -math.inf])), max_size=5)
    )
    words = data.draw(st.integers(0, 3))
    scores = dict(enumerate(logits))
    for token, amount in bias:
        if token in scores:
            scores[token] += amount
    left = (
        {token for token in scores if scores[token] > -math.inf and not (vocabulary and token >= vocabulary)}
        - blocked
        - banned
    )
    for part in (
        allowed,
        only,
        None if mask is None else {token for token in mask if 0 <= token < 32 * words},
    ):
        left &= left if part is None else part
    sampler = dataclasses.replace(OFF, temperature=temperature, presence_penalty=1.0 if penalised else 0.0)
    tables = TokenTables(vocabulary, tuple(bias), allowed, banned)
    given = {
        "mask": None
        if mask is None
        else mask_of({token for token in mask if 0 <= token < 32 * words}, words),
        "only": None if only is None else np.asarray([*only, *only], np.int64),
        "blocked": blocked,
    }
    drawer = Sampler(sampler, 1, tables)
    history = [token for token in (0, 5, 5) if token < len(logits)]
    if not left:
        with pytest.raises(NothingAllowed):
            drawer.distribution(np.asarray(logits, np.float32), history, **given)
        return
    remaining = {token: scores[token] - (penalised and token in history) for token in left}
    found = dict(drawer.distribution(np.asarray(logits, np.float32), history, **given).final.likeliest(100))
    if temperature:
        assert found == pytest.approx(softmax(remaining), rel=1e-4)
    else:
        assert found == {min(remaining, key=lambda token: (-remaining[token], token)): 1.0}


def test_padding_of_the_head_is_no_token_at_all() -> None:
    logits = np.asarray([0.0, 1.0, 50.0, np.nan], np.float32)
    sampler = Sampler(OFF, 0, TokenTables(vocabulary=2))
    sampled = sampler.sample(logits, [], alternatives=4)
    assert [token for token, _, _ in sampled.alternatives] == [1, 0]
    assert sum(raw for _, raw, _ in sampled.alternatives) == pytest.approx(1.0)
    # A text may hold such ids; they are not penalised.
    penalised = Sampler(dataclasses.replace(OFF, presence_penalty=1.0), 0, TokenTables(vocabulary=2))
    assert penalised.sample(logits, [3, 2]).probability == pytest.approx(sampled.probability)


@pytest.mark.parametrize("bad", [[0.0, np.nan], [-np.inf, -np.inf], [0.0, np.inf]])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("size", [2, 70_000])
def test_logits_that_are_no_numbers_raise_one_sentence(
    bad: list[float], temperature: float, size: int
) -> None:
    logits = np.resize(np.asarray(bad, np.float32), size)
    with pytest.raises(EngineError, match=r"^The model's scores .* not finite numbers.*\.$"):
        Sampler(SamplerSettings(temperature=temperature), 0).sample(logits, [])


@pytest.mark.parametrize("logits", [np.zeros((1, 4), np.float32), np.zeros(4), np.zeros(0, np.float32)])
def test_wrong_arrays_are_refused(logits: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"must be float32 \(V,\)"):
        Sampler(OFF, 0).sample(logits, [])


@pytest.mark.parametrize("token", [4, -1])
def test_history_outside_the_vocabulary_raises(token: int) -> None:
    with pytest.raises(EngineError, match=f"token id {token}, but the model's ids go from 0 to 3"):
        Sampler(dataclasses.replace(OFF, presence_penalty=1.0), 0).sample(np.zeros(4, np.float32), [1, token])


def test_the_vocabulary_may_change() -> None:
    drawer = Sampler(SamplerSettings(temperature=0.0, presence_penalty=1.0), 0)
    assert drawer.sample(np.zeros(2, np.float32), [0]).id == 1
    assert drawer.sample(np.zeros(3, np.float32), [0, 2]).id == 1


def test_greedy_needs_no_random_number() -> None:
    greedy = Sampler(dataclasses.replace(OFF, temperature=0.0), 0)
    found = greedy.distribution(LOGITS, [])
    assert (found.final.greedy, found.final.sample(0.99), found.final.probability(1)) == (True, 1, 1.0)
    assert [greedy.sample_from(found, attempt=attempt).id for attempt in range(3)] == [1, 1, 1]
    assert not Sampler(OFF, 0).distribution(LOGITS, []).final.greedy


@pytest.mark.parametrize("size", [100, 40_000, 70_000])
def test_kernels_and_numpy_give_the_same_distribution(size: int) -> None:
    # The same tokens, once alone and once with a long tail that cannot be drawn: sizes take different ways
    # through the code.
    random = np.random.default_rng(9)
    small = (random.standard_normal(100) * 3).astype(np.float32)
    large = np.concatenate((small, np.full(size - 100, -np.inf, np.float32)))
    full = dataclasses.replace(
        SEVERAL,
        top_n_sigma=2.5,
        smoothing_factor=0.05,
        top_k=60,
        top_a=0.01,
        typical=0.9,
        tail_free=0.95,
        mirostat=True,
        max_temperature=1.5,
    )
    words = mask_of(set(range(0, 100, 1)) - {3, 50}, -(-size // 32))
    one = Sampler(full, 2).distribution(small, [1, 2, 1], mask=words[:4]).final
    other = Sampler(full, 2).distribution(large, [1, 2, 1], mask=words).final
    assert dict(one.likeliest(60)) == pytest.approx(dict(other.likeliest(60)), rel=1e-5)
