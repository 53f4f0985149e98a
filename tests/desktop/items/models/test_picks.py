"""Which three models are recommended for how much memory and speed."""

from __future__ import annotations

from desktop.items.models.picks import ABOUT, READING_SPEED, pick_facts, suggestions
from engine.hub import Pick, load_picks
from engine.models.memory.fit import Fit, fit
from engine.settings import CacheSettings

PICKS = load_picks().models


def fits(free: float, bandwidth: float = 0.0) -> dict[str, Fit]:
    return {pick.info.path: fit(pick.info, CacheSettings(), int(free), bandwidth) for pick in PICKS}


def chosen(free: float, bandwidth: float = 0.0) -> dict[str, Pick]:
    return {each.why: each.pick for each in suggestions(PICKS, fits(free, bandwidth))}


def test_a_usual_laptop_gets_three() -> None:
    found = chosen(11e9, 40e9)
    assert list(found) == ["small", "good", "largest"]
    assert found["small"].bytes < found["good"].bytes < found["largest"].bytes
    shown = {each.why: each.fit for each in suggestions(PICKS, fits(11e9, 40e9))}
    assert shown["good"].tokens_per_second >= READING_SPEED > shown["largest"].tokens_per_second
    assert shown["small"].tokens_per_second > shown["good"].tokens_per_second


def test_more_memory_and_more_speed_give_stronger_models() -> None:
    order = {pick.name: number for number, pick in enumerate(PICKS)}
    largest = [order[list(chosen(free).values())[-1].name] for free in (2.5e9, 6e9, 12e9, 24e9, 100e9)]
    assert largest == sorted(set(largest))
    assert order[chosen(24e9, 400e9)["good"].name] > order[chosen(24e9, 20e9)["good"].name]


def test_without_a_known_speed_the_good_one_leaves_half_of_the_memory() -> None:
    found = {each.why: each.fit for each in suggestions(PICKS, fits(16e9))}
    assert found["good"].total <= 8e9 < found["largest"].total


def test_the_small_one_is_never_slower_than_the_good_one() -> None:
    """As a dense model would be beside a mixture of experts."""
    for bandwidth in (10e9, 40e9, 100e9, 400e9):
        for free in (4e9, 8e9, 16e9, 20e9, 32e9, 64e9, 128e9):
            found = {each.why: each.fit for each in suggestions(PICKS, fits(free, bandwidth))}
            if "small" in found:
                assert found["small"].tokens_per_second > found["good"].tokens_per_second


def test_a_tight_fit_is_better_than_none_and_none_is_none() -> None:
    least = min(each.total for each in fits(1e12).values())
    assert list(chosen(least * 1.05)) == ["good"]
    assert chosen(least * 0.9) == {}
    assert suggestions(PICKS, {}) == ()


def test_every_model_has_a_sentence_about_it() -> None:
    assert [pick.about for pick in PICKS] == list(ABOUT)
    assert all(sentence.endswith(".") for sentence in ABOUT.values())


def test_facts_name_size_memory_speed_and_licence() -> None:
    first = suggestions(PICKS, fits(11e9, 40e9))[1]
    words = pick_facts(first)
    assert words.startswith("2.5 GB to download · needs about ")
    assert "tokens/s" in words
    assert words.endswith("Apache-2.0 licence")
    assert "tokens/s" not in pick_facts(suggestions(PICKS, fits(11e9))[1])
