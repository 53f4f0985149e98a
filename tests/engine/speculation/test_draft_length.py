"""The pace over simulated passes: costs with noise as of a busy machine, acceptance by chance."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from engine.speculation.draft_length import DraftLengthController


@dataclass
class Run:
    """What a simulation came to, in plain passes' time without the noise."""

    tokens: int
    cost: float
    lengths: list[int]

    @property
    def speed(self) -> float:
        """Relative to plain passes."""
        return self.tokens / self.cost


def simulate(
    draft_length: DraftLengthController,
    rate: float | Callable[[int], float],
    cost: Callable[[int], float],
    tokens: int = 3000,
    seed: int = 0,
    misses: float = 0.0,
) -> Run:
    """`rate` of acceptance, perhaps by token; `cost(k)` of a pass with k guesses; a free drafter finds
    nothing in `misses`.
    """
    rng, run = random.Random(seed), Run(0, 0.0, [])
    while run.tokens < tokens:
        length = draft_length.next_length()
        drafted = 0 if rng.random() < misses else length
        accepted = 0
        while accepted < drafted and rng.random() < (rate if isinstance(rate, float) else rate(run.tokens)):
            accepted += 1
        noise = rng.lognormvariate(0.0, 0.1) * (rng.uniform(1.5, 6.0) if rng.random() < 0.1 else 1.0)
        run.tokens += accepted + 1
        run.cost += cost(drafted)
        run.lengths.append(length)
        draft_length.record(drafted, accepted, accepted + 1, 0.02 * noise * cost(drafted))
    return run


def best_speed(rate: float, cost: Callable[[int], float], longest: int) -> float:
    """Of the best fixed length."""
    return max(sum(rate**j for j in range(n + 1)) / cost(n) for n in range(longest + 1))


GOOD = {"cheap": (0.8, 0.2), "sure": (0.95, 0.2), "small gain": (0.5, 0.25)}
BAD = {"unlikely": (0.2, 0.4), "dear": (0.6, 1.0), "hopeless": (0.0, 0.3), "as slow": (0.1, 1.5)}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("seed", range(3))
def test_guessing_goes_on_where_it_pays(name: str, seed: int) -> None:
    rate, row = GOOD[name]

    def cost(k: int) -> float:
        return 1 + row * k

    draft_length = DraftLengthController(5)
    run = simulate(draft_length, rate, cost, 6000, seed)
    ideal = best_speed(rate, cost, 5)
    assert run.speed - 1 > 0.6 * (ideal - 1)
    assert draft_length.speedup == pytest.approx(ideal, rel=0.25)


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("seed", range(3))
def test_guessing_is_never_long_slower_than_plain(name: str, seed: int) -> None:
    rate, row = BAD[name]
    draft_length = DraftLengthController(5)
    run = simulate(draft_length, rate, lambda k: 1 + row * k, 3000, seed)
    assert run.speed > 0.97
    assert sum(1 for length in run.lengths[-500:] if length) <= 20
    assert 0.0 < draft_length.speedup < 1.0


@pytest.mark.parametrize("seed", range(3))
def test_off_and_on_again_as_it_comes_to_pay(seed: int) -> None:
    def rate(token: int) -> float:
        return 0.9 if token // 4000 % 2 else 0.05

    draft_length = DraftLengthController(5)
    off = simulate(draft_length, rate, lambda k: 1 + 0.3 * k, 4000, seed)
    assert not draft_length.on
    run = simulate(draft_length, lambda token: rate(token + off.tokens), lambda k: 1 + 0.3 * k, 4000, seed)
    assert draft_length.on
    assert run.speed > 1.3


@pytest.mark.parametrize("seed", range(3))
def test_a_free_drafter_is_measured_by_its_guesses_alone(seed: int) -> None:
    good, bad = DraftLengthController(5, free=True), DraftLengthController(5, free=True)
    # 60 % of the passes have no guess; what is fair is the mean over tokens of both kinds of passes
    gained = simulate(good, 0.8, lambda k: 1 + 0.3 * k, 6000, seed, misses=0.6)
    assert gained.speed > 1.1
    assert set(gained.lengths) == {0, 5}
    assert simulate(bad, 0.1, lambda k: 1 + 0.4 * k, 6000, seed, misses=0.6).speed > 0.97
    nothing = DraftLengthController(5, free=True)
    simulate(nothing, 0.5, lambda k: 1 + 0.4 * k, 1000, seed, misses=1.0)
    assert nothing.on
    assert nothing.speedup == 0.0


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("last", [1, 2, 4])
def test_lengths_follow_the_measured_costs(seed: int, last: int) -> None:
    """Rows are cheap up to some guesses and dear beyond, as where a kernel works on so many rows at a
    time.
    """

    def cost(k: int) -> float:
        return 1.0 if k <= last else 1.0 + 1.0 * (k - last)

    draft_length = DraftLengthController(6)
    simulate(draft_length, 0.8, cost, 1500, seed)
    assert simulate(draft_length, 0.8, cost, 1500, seed + 100).speed > 0.8 * best_speed(0.8, cost, 6)


def test_long_guesses_for_a_sure_drafter_and_short_ones_for_a_doubtful_one() -> None:
    sure, doubtful = DraftLengthController(7), DraftLengthController(7)
    long = simulate(sure, 0.97, lambda k: 1 + 0.1 * k).lengths[-200:]
    short = simulate(doubtful, 0.45, lambda k: 1 + 0.25 * k).lengths[-200:]
    assert sum(long) / len(long) > 5.5
    assert 0 < sum(short) / max(1, sum(1 for length in short if length)) < 2.5


def test_without_adapting_the_length_is_the_longest_but_for_measuring() -> None:
    draft_length = DraftLengthController(4, adaptive=False)
    run = simulate(draft_length, 0.1, lambda k: 1 + 1.0 * k, 2000)
    assert set(run.lengths) == {0, 4}
    assert run.lengths.count(0) < 0.03 * len(run.lengths) + 3
    assert 0.0 < draft_length.speedup < 0.5
    assert draft_length.on


@pytest.mark.parametrize(("row", "found"), [(0.2, 0.2), (0.5, 0.5), (0.02, 0.05), (1.5, 1.5)])
def test_what_guesses_add_to_a_pass_is_measured(row: float, found: float) -> None:
    draft_length = DraftLengthController(5, free=True)
    assert [draft_length.extra_cost(count) for count in (1, 4)] == [0.25, 1.0]
    rng = random.Random(2)
    for _ in range(300):
        drafted = rng.randrange(5) if draft_length.next_length() else 0
        draft_length.record(
            drafted, drafted, drafted + 1, 0.02 * rng.lognormvariate(0.0, 0.03) * (1 + row * drafted)
        )
    assert [draft_length.extra_cost(count) for count in (1, 2, 4)] == pytest.approx(
        [found, 2 * found, 4 * found], abs=0.1, rel=0.05
    )
    assert draft_length.extra_cost(5) == pytest.approx(5 * found, abs=0.2, rel=0.1)


def test_costs_between_measured_lengths_lie_between_them() -> None:
    draft_length = DraftLengthController(7, free=True)
    for drafted, cost in [(0, 1.0)] * 4 + [(1, 1.5), (5, 3.5)] * 3:
        draft_length.next_length()
        draft_length.record(drafted, drafted, drafted + 1, 0.02 * cost)
    assert [draft_length.extra_cost(count) for count in (1, 2, 3, 4, 5, 6)] == pytest.approx(
        [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    )


def test_a_single_slow_pass_does_not_count_as_measured() -> None:
    draft_length = DraftLengthController(5, free=True)
    for _ in range(4):
        draft_length.next_length()
        draft_length.record(0, 0, 1, 0.02)
    draft_length.next_length()
    draft_length.record(2, 2, 3, 0.5)
    assert draft_length.extra_cost(2) == 0.5


@pytest.mark.parametrize("how", [{}, {"free": True}, {"adaptive": False}])
def test_the_first_pass_guesses(how: dict[str, bool]) -> None:
    assert DraftLengthController(5, **how).next_length() > 0


def test_nothing_is_known_at_first() -> None:
    draft_length = DraftLengthController(5)
    assert (draft_length.speedup, draft_length.on) == (0.0, True)
    draft_length.next_length()
    draft_length.record(0, 0, 1, 0.01)
    assert draft_length.speedup == 0.0
    with pytest.raises(ValueError, match="at least 1 token"):
        DraftLengthController(0)


def test_clocks_that_stand_still_do_no_harm() -> None:
    draft_length = DraftLengthController(3)
    for _ in range(200):
        length = draft_length.next_length()
        draft_length.record(length, length, length + 1, 0.0)
    assert draft_length.speedup >= 0.0


def test_a_length_that_was_tried_once_is_not_judged_by_that_pass() -> None:
    """The first pass of a length is often slow; what it costs is still estimated from the lengths that were
    measured often enough.
    """
    draft_length, drafted = DraftLengthController(2), iter([1, 1, 1, 2])
    for _ in range(7):
        guessed = next(drafted) if draft_length.next_length() else 0
        draft_length.record(guessed, guessed, guessed + 1, {0: 1.0, 1: 1.2, 2: 9.0}[guessed])
    assert next(drafted, None) is None
    assert draft_length.next_length() == 2


def test_no_guess_is_supposed_to_be_free() -> None:
    draft_length = DraftLengthController(5, free=True)
    for drafted in (0, 1, 4) * 4:
        draft_length.next_length()
        draft_length.record(drafted, drafted, drafted + 1, 0.02)
    assert [draft_length.extra_cost(count) for count in (1, 2, 4, 5)] == pytest.approx([0.05, 0.1, 0.2, 0.25])


@pytest.mark.parametrize(("good", "bad"), [(0, 7), (20, 7), (100, 10), (2000, 49)])
def test_who_has_won_much_may_lose_more_before_a_pause(good: int, bad: int) -> None:
    """Each good pass wins half a plain one, each bad one loses as much: up to 3, or a tenth of what was
    won, but at most 24.
    """
    draft_length = DraftLengthController(1, free=True)
    for _ in range(2):
        draft_length.next_length()
        draft_length.record(0, 0, 1, 1.0)

    def drafted(accepted: int) -> int:
        """The length of a pass, which takes half as long again with a guess."""
        length = draft_length.next_length()
        right = min(accepted, length)
        draft_length.record(length, right, right + 1, 1.0 + 0.5 * length)
        return length

    won = 0
    while won < good:
        won += drafted(1)
    lost = 0
    while draft_length.on:
        lost += drafted(0)
    assert lost == bad
    pauses = []
    for _ in range(7):
        pauses.append(0)
        while not drafted(0):
            pauses[-1] += 1
        while draft_length.on:
            drafted(0)
    assert pauses == [128, 256, 512, 1024, 2048, 2048, 2048]


def test_a_loss_too_small_to_stop_at_once_ends_the_first_passes_and_each_trial() -> None:
    draft_length = DraftLengthController(1, guess_cost=0.05)
    for trial in ((3, 15), (0, 16), (0, 16)):
        asked = [0, 0]
        while (length := draft_length.next_length()) or draft_length.on:
            asked[length] += 1
            draft_length.record(length, 0, 1, 1.0 + 0.05 * length)
        assert tuple(asked) == trial
        draft_length.record(0, 0, 1, 1.0)
        while not draft_length.next_length():
            draft_length.record(0, 0, 1, 1.0)
