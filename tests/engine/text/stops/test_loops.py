"""Loop detection against a plain definition."""

from __future__ import annotations

import random
import time

from hypothesis import given
from hypothesis import strategies as st

from engine.text.stops.conditions import Loop
from engine.text.stops.loops import LoopWatch


def by_definition(ids: list[int], new_from: int, loop: Loop) -> list[int] | None:
    """The smallest passage that, written `repeats` times and more, gives the reply's last `window` ids."""
    tail = ids[new_from:][-loop.window :]
    if len(tail) < loop.window:
        return None
    for period in range(1, loop.window // loop.repeats + 1):
        passage = tail[:period]
        if (passage * loop.window)[: loop.window] == tail:
            return passage
    return None


LOOPS = st.integers(2, 5).flatmap(
    lambda repeats: st.builds(Loop, window=st.integers(repeats, 24), repeats=st.just(repeats))
)


@given(
    loop=LOOPS, prompt=st.lists(st.integers(0, 2), max_size=4), begin=st.lists(st.integers(0, 2), max_size=8),
    passage=st.lists(st.integers(0, 2), min_size=1, max_size=8),
    spoiled=st.none() | st.tuples(st.integers(0, 60), st.integers(0, 2)),
)  # fmt: skip
def test_agrees_with_the_definition_after_each_token(
    loop: Loop, prompt: list[int], begin: list[int], passage: list[int], spoiled: tuple[int, int] | None
) -> None:
    ids = prompt + begin + passage * 12
    if spoiled and spoiled[0] < len(ids):
        ids[spoiled[0]] = spoiled[1]
    watch = LoopWatch([loop])
    for n in range(len(prompt), len(ids) + 1):
        expected = by_definition(ids[:n], len(prompt), loop)
        found = watch.find(ids[:n], len(prompt))
        assert found == (None if expected is None else (loop, expected))


@given(loop=LOOPS, ids=st.lists(st.integers(0, 1), max_size=40))
def test_agrees_with_the_definition_on_noise(loop: Loop, ids: list[int]) -> None:
    expected = by_definition(ids, 0, loop)
    assert LoopWatch([loop]).find(ids, 0) == (None if expected is None else (loop, expected))


def test_first_of_several_loops_is_named() -> None:
    short, long = Loop(4, 4), Loop(12, 2)
    watch = LoopWatch([long, short])
    assert watch.find([9, 7, 7, 7, 7], 0) == (short, [7])
    assert watch.find([1, 2, 3, 4, 5, 6] * 2, 0) == (long, [1, 2, 3, 4, 5, 6])
    assert watch.find([7] * 12, 0) == (long, [7])
    assert watch.find([7] * 12, 9) is None
    assert LoopWatch([]).find([7] * 12, 0) is None


def test_right_after_tokens_were_taken_back() -> None:
    watch, ids = LoopWatch([Loop(6, 3)]), [1, 2, 1, 2, 1, 2]
    assert watch.find(ids, 0) is not None
    del ids[4:]
    assert watch.find(ids, 0) is None
    ids += [1, 3]
    assert watch.find(ids, 0) is None
    ids[5:] = [2]
    assert watch.find(ids, 0) == (Loop(6, 3), [1, 2])


def test_cost_of_a_token_does_not_grow_with_the_reply() -> None:
    draw, watch = random.Random(0), LoopWatch([Loop(512, 4)])
    # as frequent as words: some everywhere, most rare
    ids = [min(int(draw.paretovariate(0.6)), 49000) for _ in range(20_000)]

    def seconds(first: int) -> float:
        begin = time.process_time()
        for n in range(first, first + 500):
            watch.find(ids[:n] if n < 1000 else ids, 0)
        return (time.process_time() - begin) / 500

    assert min(seconds(19_000) for _ in range(3)) < 200e-6  # about 5 microseconds; a busy machine takes more
