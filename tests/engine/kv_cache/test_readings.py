"""The passes by which a text was read: planned, remembered, and run again so that each row is the same."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core import PAGE_TOKENS
from engine.kv_cache.readings import Passes, Readings, again, cut, pass_end, planned, smallest


def recorded(rows: list[int]) -> Passes:
    """Passes of these rows, one after the other."""
    return list(zip(accumulate(rows, initial=0), rows, strict=False))


@given(st.integers(0, 900), st.integers(0, 900), st.sampled_from([1, 7, 100, 256, 512]), st.booleans())
def test_a_plan_reads_everything_once_and_the_last_alone(
    start: int, count: int, most: int, at_pages: bool
) -> None:
    """With states, it also stops at the last end of a page, wherever it began."""
    length = start + count
    passes = planned(start, length, most, at_pages)
    assert [at for at, _rows in passes] == list(accumulate([r for _at, r in passes], initial=start))[:-1]
    assert sum(rows for _at, rows in passes) == count
    assert all(0 < rows <= most for _at, rows in passes)
    assert not count or passes[-1] == (length - 1, 1)
    ends = [at + rows for at, rows in passes[:-2]]
    border = (length - 1) // PAGE_TOKENS * PAGE_TOKENS
    if at_pages:
        assert all(end % most == 0 or end == border for end in ends)
        assert not start < border < length or border in [at for at, _rows in passes]
    else:
        assert all((end - start) % most == 0 for end in ends)


def test_the_end_of_a_pass_that_is_under_way() -> None:
    """What was begun earlier keeps to its chunks."""
    assert [pass_end(10, start, 100, 32, False) for start in (10, 41, 42, 80)] == [42, 42, 74, 100]
    assert [pass_end(10, start, 300, 128, True) for start in (10, 128, 255, 256)] == [128, 256, 256, 300]
    assert pass_end(10, 200, 300, 512, True) == 256
    assert pass_end(10, 200, 256, 512, True) == 256


@given(
    st.lists(st.integers(1, 5) | st.integers(6, 60), min_size=1, max_size=12), st.integers(0, 1 << 20),
    st.integers(1, 40),
)  # fmt: skip
def test_passes_run_again_are_as_large_or_as_small(rows: list[int], at: int, most: int) -> None:
    """Of up to 5 rows where there were up to 5, and of more where there were more, from any position on; none
    ends early, or begins before the end of the one before it, without need.
    """
    passes, small, length = recorded(rows), 5, sum(rows)
    of = [(first, count) for first, count in passes for _unused in range(count)]
    at = asked = at % length
    while at < length:
        begin, end = again(passes, at, length, most, small)
        assert begin <= at < end <= length
        held = set(of[at:end])
        if of[at][1] > small:
            first, count = of[at]
            assert held == {of[at]}
            assert first <= begin
            assert end <= first + count
            assert small < end - begin <= max(most, small + 1)
            assert end == first + count or first + count - begin > most
            assert begin == at or at == asked or most < 2 * (small + 1)
        else:
            assert begin == at
            assert end - begin <= small
            assert all(count <= small for _first, count in held)
        at = end


def test_small_passes_are_joined() -> None:
    """As many as fit, since a pass costs its weights."""
    passes = recorded([2, 1, 1, 3, 20])
    assert again(passes, 0, 27, 16, 5) == (0, 5)
    assert again(passes, 2, 27, 16, 5) == (2, 7)
    assert again(passes, 5, 27, 16, 5) == (5, 7)
    assert again(passes, 0, 3, 16, 5) == (0, 3)
    assert again(passes, 7, 27, 16, 5) == (7, 21)
    assert again(passes, 21, 27, 16, 5) == (21, 27)
    assert again(passes, 25, 27, 16, 5) == (21, 27)


def test_whether_all_that_follows_was_run_in_small_passes() -> None:
    passes = recorded([20, 5, 1])
    assert [smallest(passes, start, 5) for start in (0, 19, 20, 22, 25)] == [False, False, True, True, True]
    assert not smallest(passes, 20, 4)
    assert not smallest([(0, 0)], 3, 5)


def test_passes_are_cut() -> None:
    for length, expected in ((0, []), (1, [(0, 4)]), (4, [(0, 4)]), (5, [(0, 4), (4, 2)])):
        passes = recorded([4, 2])
        cut(passes, length)
        assert passes == expected
    unknown = [(0, 4), (4, 0)]
    cut(unknown, 4)
    assert unknown == [(0, 4)]


def test_what_is_remembered() -> None:
    """Of the latest sequence that begins so, under the same key; the caller may change what it gets."""
    known, ids = Readings(), [5, 6, 7, 8]
    assert known.of("a", ids, 0) == []
    assert known.of("a", ids, 2) == [(0, 0)]
    known.remember("a", [], [(0, 1)])
    known.remember("a", ids, [(0, 3), (3, 1)])
    known.of("a", ids, 4).clear()
    assert known.of("a", [*ids, 9], 4) == [(0, 3), (3, 1)]
    assert known.of("a", ids, 3) == [(0, 3)]
    assert known.of("b", ids, 3) == known.of("a", [5, 6, 9], 3) == known.of("a", [*ids, 9], 5) == [(0, 0)]
    known.remember("a", [5, 6, 1], [(0, 2), (2, 1)])
    assert known.of("a", ids, 2) == [(0, 2)]
    known.remember("a", ids, [(0, 1), (1, 3)])
    assert known.of("a", ids, 2) == [(0, 1), (1, 3)]


def test_the_oldest_sequences_are_forgotten() -> None:
    known = Readings()
    for number in range(128):
        known.remember("", [number, 1], [(0, 2)])
    known.remember("", [], [(0, 0)])  # takes no place
    known.remember("", [0, 1], [(0, 1), (1, 1)])
    known.remember("", [128, 1], [(0, 2)])
    found = [number for number in range(129) if known.of("", [number], 1) != [(0, 0)]]
    assert found == [0, *range(2, 129)]


@pytest.mark.parametrize("at_pages", [False, True])
def test_what_lies_between_two_borders_is_read_apart(at_pages: bool) -> None:
    passes = planned(0, 700, 512, at_pages, borders=[10, 266, 266, 280])
    ends = [start + rows for start, rows in passes]
    assert {10, 266, 280} <= set(ends)
    assert [start for start, _rows in passes] == [0, *ends[:-1]]
    assert ends[-1] == 700
    assert passes[-1] == (699, 1)


def test_what_is_read_whole_may_have_more_rows_than_other_passes() -> None:
    borders = [6, 20, 20, 23, 30, 41]
    expected = [(0, 4), (4, 2), (6, 14), (20, 3), (23, 4), (27, 3), (30, 11), (41, 1), (42, 1)]
    assert planned(0, 43, 4, borders=borders, whole=True) == expected
    assert planned(0, 43, 64, borders=borders, whole=True) == planned(0, 43, 64, borders=borders)


def test_borders_count_from_where_reading_begins() -> None:
    assert planned(20, 31, 512, borders=[10, 25]) == [(20, 5), (25, 5), (30, 1)]
    assert planned(25, 31, 512, borders=[10, 25]) == [(25, 5), (30, 1)]
    assert planned(0, 20, 4, borders=[6]) == [(0, 4), (4, 2), (6, 4), (10, 4), (14, 4), (18, 1), (19, 1)]
    assert planned(0, 9, 16, borders=[20, 30]) == planned(0, 9, 16)
