"""DRY's index kept up to date, against looking for every passage afresh."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.sampling.repeats import Repeats
from engine.sampling.sampler import Sampler
from engine.settings import SamplerSettings
from tests.engine.sampling import exact
from tests.work import calls_in

change = st.one_of(
    st.tuples(st.just("grow"), st.lists(st.integers(0, 3), max_size=8)),
    st.tuples(st.just("repeat"), st.integers(1, 9)),
    st.tuples(st.just("rewind"), st.integers(0, 9)),
    st.tuples(st.just("edit"), st.integers(0, 40)),
    st.tuples(st.just("long"), st.integers(65, 90)),
)


def found(repeats: Repeats, least: int, reach: int) -> dict[int, int]:
    ids, lengths = repeats.continuations(least, reach)
    assert ids.tolist() == sorted(set(ids.tolist()))
    return dict(zip(ids.tolist(), lengths.tolist(), strict=True))


def expected(text: Sequence[int], breakers: frozenset[int], least: int, reach: int) -> dict[int, int]:
    return {
        token: length for token, length in exact.repeats(text, breakers, reach).items() if length >= least
    }


@pytest.mark.slow
@settings(max_examples=200)
@given(
    st.lists(change, max_size=14), st.sampled_from([frozenset(), frozenset({0}), frozenset({1, 3})]),
    st.integers(1, 4), st.sampled_from([0, 1, 2, 7, 30]), st.booleans(),
)  # fmt: skip
def test_runs_equal_looking_afresh(
    changes: list[tuple[str, object]], breakers: frozenset[int], least: int, reach: int, as_tuple: bool
) -> None:
    repeats, text = Repeats(breakers), list[int]()
    for kind, value in changes:
        if isinstance(value, list):
            text = text + value
        elif isinstance(value, int) and kind == "repeat":
            text = text + text[-value:]
        elif isinstance(value, int) and kind == "rewind":
            text = text[: max(0, len(text) - value)]
        elif isinstance(value, int) and kind == "long":
            text = text + [index * index % 5 for index in range(value)]
        elif isinstance(value, int) and text:
            text[value % len(text)] = 2
        repeats.update(tuple(text) if as_tuple else text)
        assert found(repeats, least, reach) == expected(text, breakers, least, reach)


def test_nothing_is_left_of_a_text_that_was_taken_back() -> None:
    for seed in range(20):
        tokens = np.random.default_rng(seed).integers(3, size=30).tolist()
        repeats, text = Repeats(frozenset()), tokens[:20]
        repeats.update(text)
        del text[5:]
        for token in tokens[20:]:
            repeats.update(text)
            assert found(repeats, 1, 0) == expected(text, frozenset(), 1, 0)
            text.append(token)


def test_a_text_of_one_token_and_one_beyond_the_capacity() -> None:
    repeats, text = Repeats(frozenset()), [3] * 2000
    repeats.update(text)
    assert found(repeats, 1, 0) == {3: 1999}
    text += [3] * 60
    repeats.update(text)
    assert found(repeats, 1, 0) == {3: 2059}
    assert found(repeats, 1, 10) == {3: 9}


@pytest.mark.parametrize(("history", "penalties"), [
    ([0, 1, 2, 0, 1], {2: 1.0}),  # a passage of two tokens, the allowed length, came before 2
    ([5, 0, 1, 2, 5, 0, 1], {2: 1.75}),  # of three
    ([0, 1, 2, 3, 0, 1, 3, 0, 1], {2: 1.0, 3: 1.75}),  # "0 1" was followed by 2, "3 0 1" by 3
    ([0, 1, 2, 0, 1, 2, 4, 0, 1], {2: 1.0}),  # how often does not count
    ([1, 2, 0, 2], {}),  # one token is too short
    ([0, 1, 2, 0, 1, 2, 0, 1], {2: 1.75 ** 3}),  # passages may overlap: "0 1 2 0 1" came before 2
])  # fmt: skip
def test_penalties_of_small_texts(history: list[int], penalties: dict[int, float]) -> None:
    sampler = Sampler(SamplerSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, dry_multiplier=1.0), 0)
    distribution = sampler.distribution(np.zeros(6, np.float32), history).final
    scores = {token: -penalties.get(token, 0.0) for token in range(6)}
    assert dict(enumerate(distribution.probabilities.tolist())) == pytest.approx(
        exact.softmax(scores), rel=1e-5
    )


def test_the_longest_passage_counts() -> None:
    # "7 0 1" was followed by 4, "0 1" also by 4 and by 2.
    sampler = Sampler(
        SamplerSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, dry_multiplier=1.0, dry_base=2.0), 0
    )
    probabilities = sampler.distribution(
        np.zeros(8, np.float32), [7, 0, 1, 4, 5, 0, 1, 4, 3, 0, 1, 2, 7, 0, 1]
    ).final.probabilities
    scores = {token: {4: -2.0, 2: -1.0}.get(token, 0.0) for token in range(8)}
    assert dict(enumerate(probabilities.tolist())) == pytest.approx(exact.softmax(scores), rel=1e-5)


def test_an_endless_repeat_gets_a_finite_penalty() -> None:
    settings = SamplerSettings(
        temperature=0.02, top_k=0, top_p=1.0, min_p=0.0, dry_multiplier=100.0, dry_base=10.0
    )
    assert Sampler(settings, 0).sample(np.asarray([50.0, 0.0], np.float32), [0] * 500).id == 1
    assert Sampler(settings, 0).sample(np.asarray([50.0], np.float32), [0] * 500).id == 0


def test_two_samplers_share_nothing() -> None:
    settings = SamplerSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, dry_multiplier=5.0)
    logits, text = np.zeros(4, np.float32), [0, 1, 2, 0, 1]
    first, second = Sampler(settings, 0), Sampler(settings, 0)
    assert first.distribution(logits, text).final.probabilities[2] < 0.01
    assert second.distribution(logits, [3]).final.probabilities.tolist() == [0.25] * 4
    assert second.distribution(logits, [3, 0, 1]).final.probabilities.tolist() == [0.25] * 4
    # nor does a sampler remember another text
    assert first.distribution(logits, [3, 0, 1]).final.probabilities.tolist() == [0.25] * 4


def test_a_token_costs_the_same_at_a_long_text_as_at_a_short_one() -> None:
    def most_calls(length: int) -> int:
        text = (np.random.default_rng(0).zipf(1.3, length) % 20_000).tolist()
        repeats, calls = Repeats(frozenset()), list[int]()
        repeats.update(text)
        for token in text[:300]:
            text.append(token)
            calls.append(calls_in(lambda: repeats.update(text)) + calls_in(lambda: repeats.continuations(2)))
        return max(calls)

    assert most_calls(8192) < most_calls(512) + 20 < 100
