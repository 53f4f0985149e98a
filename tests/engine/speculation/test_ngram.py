"""The n-gram drafter against a slow search, over texts that grow, are cut and grow otherwise."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.speculation.ngram import NgramDrafter, _Rates
from engine.speculation.ngram_index import NgramIndex

EDITS = st.lists(
    st.one_of(
        st.lists(st.integers(0, 3), max_size=12),
        st.integers(0, 20),
        st.lists(st.integers(0, 5), min_size=60, max_size=150),
    ),
    max_size=12,
)
"""A list of tokens is added; a number cuts that many tokens off."""


def nothing(count: int) -> float:
    """What guesses cost that cost nothing."""
    return 0.0


def slow_places(text: list[int], run: list[int], limit: int) -> list[int]:
    """Places after `run` in `text`, latest first."""
    places = [i for i in range(len(run), len(text)) if text[i - len(run) : i] == run]
    return places[::-1][:limit]


@pytest.mark.slow
@settings(max_examples=80)
@given(EDITS, st.integers(1, 5), st.integers(1, 5))
def test_index_agrees_with_a_search(edits: list[list[int] | int], one: int, other: int) -> None:
    shortest, longest = sorted((one, other))
    index, text = NgramIndex(shortest, longest), list[int]()
    for edit in edits:
        if isinstance(edit, int):
            text = text[: max(0, len(text) - edit)]
            index.cut(len(text))
        else:
            text = text + edit
            index.extend(edit)
        assert index.text == text
        keys = list(index.keys(text))
        assert len(keys) == max(0, min(longest, len(text)) - shortest + 1)
        for k, key in enumerate(keys, shortest):
            assert index.places(k, key, 5) == slow_places(text, text[-k:], 5)


@pytest.mark.parametrize("begun", [0, 3])
def test_a_long_text_is_indexed_as_token_by_token(begun: int) -> None:
    random.seed(7)
    text = random.choices(range(3), k=200)
    index = NgramIndex(2, 4)
    index.extend(text[:begun])
    index.extend(text[begun:])
    for k, key in enumerate(index.keys(text), 2):
        assert index.places(k, key, 9) == slow_places(text, text[-k:], 9) != []


def slow_guess(reference: list[int], text: list[int], count: int, shortest: int, longest: int) -> list[int]:
    """The continuation of the best match: own text first, of the latest 8 places of the longest run the
    longest match.
    """
    best, best_match = list[int](), 0
    for source in (text, reference):
        for k in range(longest, shortest - 1, -1):
            if k < best_match or len(text) < k:
                continue
            places = slow_places(source, text[-k:], 8)
            for place in places:
                match = 0
                while match < min(24, place, len(text)) and source[place - 1 - match] == text[-1 - match]:
                    match += 1
                if match > best_match:
                    best_match, best = match, source[place : place + count]
                    while source is text and len(best) < count:
                        best.append((text + best)[place + len(best)])
            if places:
                break
    return best


@pytest.mark.slow
@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 3), max_size=90), EDITS, st.lists(st.integers(0, 3), max_size=30),
    st.integers(0, 6), st.lists(st.integers(1, 5), min_size=2, max_size=2),
)  # fmt: skip
def test_guesses_agree_with_a_search(
    prompt: list[int], edits: list[list[int] | int], reference: list[int], count: int, runs: list[int]
) -> None:
    drafter, text = NgramDrafter(min(runs), max(runs)), list(prompt)
    drafter.extra_cost = nothing  # however unlikely
    drafter.preload(reference)
    drafter.begin(prompt)
    for edit in edits:
        text = text[: max(len(prompt), len(text) - edit)] if isinstance(edit, int) else text + edit
        found = drafter.propose(text, count)
        assert found == slow_guess(reference, text, count, min(runs), max(runs))


def test_a_cut_and_another_end_of_the_same_length_are_noticed() -> None:
    drafter = NgramDrafter(3, 5)
    drafter.extra_cost = nothing
    drafter.begin([1, 2, 3])
    drafter.propose([1, 2, 3, 4, 5, 6, 7, 8], 3)
    text = [1, 2, 3, 4, 9, 9, 9, 8, 1, 2, 3, 4]
    assert drafter.propose(text, 3) == [9, 9, 9]
    assert drafter.propose([1, 2, 3, 4, 9, 9, 9, 8, 5, 6, 7], 3) == []
    assert drafter.propose([1, 2], 3) == []


def test_a_prompt_that_was_cut_and_goes_on_differently_is_read_again() -> None:
    drafter = NgramDrafter(3, 5)
    drafter.extra_cost = nothing
    drafter.begin(range(60))
    assert drafter.propose(range(60), 3) == []
    assert drafter.propose([*range(20), 5, 6, 7], 3) == [8, 9, 10]
    assert drafter.propose([*range(30), 20, 21, 22], 3) == [23, 24, 25]


def test_nothing_of_one_sequence_is_left_in_the_next() -> None:
    drafter = NgramDrafter()
    drafter.extra_cost = nothing
    drafter.begin([5, 6, 7, 8, 5, 6])
    assert drafter.propose([5, 6, 7, 8, 5, 6], 2) == [7, 8]
    drafter.begin([5, 6])
    assert drafter.propose([5, 6], 2) == []
    drafter.close()
    assert drafter.propose([5, 6], 2) == []


def test_a_preloaded_text_stays_until_it_is_forgotten() -> None:
    drafter = NgramDrafter(2, 5)
    drafter.extra_cost = nothing
    drafter.preload([1, 2, 3, 4])
    for _ in range(2):
        drafter.begin([9, 1, 2])
        assert drafter.propose([9, 1, 2], 5) == [3, 4]
    drafter.forget()
    assert drafter.propose([9, 1, 2], 5) == []


def test_without_the_prompt_only_the_reply_repeats() -> None:
    drafter = NgramDrafter(2, 5, use_prompt=False)
    drafter.extra_cost = nothing
    prompt = [1, 2, 3, 4, 1, 2]
    drafter.begin(prompt)
    assert drafter.propose(prompt, 3) == []
    assert drafter.propose([*prompt, 7, 8, 9, 7, 8], 3) == [9, 7, 8]
    assert drafter.propose([*prompt, 7, 8, 5], 3) == []


def test_a_text_that_repeats_itself_is_guessed_beyond_its_end() -> None:
    drafter = NgramDrafter()
    drafter.extra_cost = nothing
    drafter.begin([1, 2, 3, 1, 2, 3, 1])
    assert drafter.propose([1, 2, 3, 1, 2, 3, 1], 7) == [2, 3, 1, 2, 3, 1, 2]


def test_only_likely_guesses_are_proposed_and_rates_are_learnt() -> None:
    draw = random.Random(1)
    drafter, text = NgramDrafter(), [draw.randrange(4) for _ in range(200)]
    drafter.begin(text)
    for _ in range(300):  # noise over four tokens: single tokens always occurred before, but say nothing
        text.append(draw.randrange(4))
        drafter.propose(text, 5)
    wrong = sum(len(drafter.propose(text, 5)) for _ in range(50) if not text.append(draw.randrange(4)))  # type: ignore[func-returns-value]
    assert wrong < 10
    copied = [draw.randrange(1000, 2000) for _ in range(60)]
    text += copied + [7] + copied[:20]
    assert drafter.propose(text, 5) == copied[20:25]


def test_a_pass_is_filled_as_far_as_it_costs_the_same() -> None:
    """Kernels take rows in blocks: a guess too unlikely by itself comes along where its row is free, and
    none into the next block.
    """
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3]
    drafter = NgramDrafter()
    drafter.begin(text)
    found = []
    for cost in ((0.05, 0.1, 0.15), (0.9, 0.9, 0.9), (0.05, 0.05, 1.5), (0.6, 0.6, 0.6)):
        drafter.extra_cost = dict(enumerate(cost, 1)).__getitem__
        found.append(drafter.propose(text, 3))
    assert found == [[4, 5, 6], [], [4, 5], [4, 5, 6]]


@pytest.mark.parametrize(("shortest", "longest"), [(0, 5), (3, 2), (1, 6)])
def test_impossible_lengths_are_refused(shortest: int, longest: int) -> None:
    with pytest.raises(ValueError, match="1 to 5 can be looked up"):
        NgramDrafter(shortest, longest)


def test_what_became_of_a_guess_is_learnt_by_the_length_of_its_match(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each token of a guess follows a match that is one longer; after a wrong one nothing is known of the
    rest.
    """
    learnt = list[tuple[int, bool]]()
    monkeypatch.setattr(_Rates, "learn", lambda self, match, right: learnt.append((match, right)))
    drafter = NgramDrafter()
    drafter.extra_cost = nothing
    text = [9, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3]
    drafter.begin(text)
    assert drafter.propose(text, 4) == [4, 5, 6, 7]
    text += [4, 5, 0, 7]
    assert drafter.propose(text, 4)[0] == 8  # after the only 7 so far
    assert learnt == [(3, True), (4, True), (5, False)]
    drafter.propose(text[:-2], 4)  # what is taken back tells nothing of a guess
    assert len(learnt) == 3


def test_rates_of_matches_of_about_the_same_length_are_learnt_together() -> None:
    groups = [[1], [2], [3], [4], [5], [6, 7, 8], [9, 10, 11, 12], [13, 20, 24, 1000]]
    lengths = [length for group in groups for length in group]
    first = [_Rates().rate(length) for length in lengths]
    assert first == sorted(first)
    assert 0.0 < first[0] < first[-1] < 1.0
    for group in groups:
        for right in (False, True):
            rates = _Rates()
            for _ in range(3):
                rates.learn(group[-1], right)
            changed = [
                length for length, before in zip(lengths, first, strict=True) if rates.rate(length) != before
            ]
            assert changed == group
            assert all(
                (rates.rate(length) > before) == right
                for length, before in zip(lengths, first, strict=True)
                if length in group
            )


def test_what_was_learnt_fades() -> None:
    rates = _Rates()
    for _ in range(300):
        rates.learn(3, True)
    assert rates.rate(3) > 0.99
    for _ in range(70):
        rates.learn(3, False)
    assert rates.rate(3) < 0.15


@pytest.mark.parametrize(("places", "guess"), [(8, 50), (9, 60)])
def test_the_latest_eight_places_of_a_run_are_compared(places: int, guess: int) -> None:
    """The earliest one matches best; behind eight others it is not looked at, and of these the latest is
    taken.
    """
    text = [7, 1, 50, *([9, 1, 60] * (places - 1)), 7, 1]
    drafter = NgramDrafter(1, 1)
    drafter.extra_cost = nothing
    drafter.begin(text)
    assert drafter.propose(text, 1)[0] == guess


def test_of_matches_beyond_24_tokens_the_latest_counts() -> None:
    run = [*range(100, 140)]
    drafter = NgramDrafter()
    drafter.extra_cost = nothing
    text = [*run, 50, 7, *run[-30:], 60, 8, *run]
    drafter.begin(text)
    assert drafter.propose(text, 1)[0] == 60
    text = [*run, 50, 7, *run[-20:], 60, 8, *run]
    drafter.begin(text)
    assert drafter.propose(text, 1)[0] == 50


def test_a_guess_that_is_worth_just_what_it_costs_comes_along() -> None:
    text = [9, 1, 2, 3, 4, 5, 1, 2, 3]
    drafter = NgramDrafter()
    drafter.begin(text)
    drafter.extra_cost = lambda count: count * _Rates().rate(3)
    assert drafter.propose(text, 1) == [4]
    drafter.extra_cost = lambda count: count * _Rates().rate(3) + 1e-9
    assert drafter.propose(text, 1) == []
