"""Where a text can be gone on with when its recurrent layers have states: at ends of pages, at its own end,
and where a state was kept.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.core import PAGE_TOKENS as P
from engine.errors import ContextTooLong
from engine.kv_cache.lease import Lease
from engine.kv_cache.pages import PageTable
from engine.kv_cache.prefix_index import states_worth_keeping, take_up, take_up_states, worth_keeping
from engine.kv_cache.states import Places, State, StatePool


def run(lease: Lease, ids: list[int]) -> tuple[int, int]:
    """One pass; returns the numbers of the states before and after it."""
    lease.reserve(lease.length + len(ids))
    states = lease.states
    lease.extend(ids)
    return states


def test_a_pass_reads_the_state_of_the_pass_before_and_can_be_taken_back() -> None:
    table = PageTable(4, 5)
    with table.open([]) as lease:
        none, first = run(lease, [1, 2, 3])
        assert none == -1
        before, second = run(lease, [4, 5])
        assert (before, second != first) == (first, True)
        lease.truncate(4)  # in the middle of the second pass
        assert lease.ids == [1, 2, 3]
        assert run(lease, [4, 9])[0] == first
        lease.truncate(5)
        assert lease.length == 5  # nothing to take back
        table.check()


def test_a_text_goes_on_from_its_own_end_and_from_ends_of_pages() -> None:
    table, text = PageTable(8, 9), list(range(1, 2 * P + 40))
    with table.open(text) as lease:
        ends = [
            run(lease, part)[1] for part in (text[:P], text[P : P + 50], text[P + 50 : 2 * P], text[2 * P :])
        ]
    assert table.found(text) == len(text)
    assert table.found([*text, 7, 7]) == len(text)
    assert table.found(text, leave=1) == table.found([*text[:-1], 0]) == 2 * P
    assert table.found(text[: P + 60]) == P  # a pass ended nearer, but its state was not kept
    assert table.found(text[: P - 1]) == 0
    with table.open([*text[: 2 * P - 1], 0]) as lease:
        assert lease.ids == text[:P]
        assert run(lease, [5])[0] == ends[0]
        table.check()
    with table.open([*text, 7]) as lease:
        assert run(lease, [7])[0] == ends[3]


def test_passes_over_the_end_of_a_page_keep_the_state_before_it() -> None:
    table, text = PageTable(8, 9), list(range(1, P + 20))
    with table.open(text) as lease:
        run(lease, text[: P - 6])
        run(lease, text[P - 6 : P + 2])
        run(lease, text[P + 2 :])
        lease.truncate(P + 1)
        assert lease.length == P - 6
        table.check()


def test_a_kept_state_is_found_when_the_text_goes_on_differently() -> None:
    table, text = PageTable(8, 9), list(range(1, 60))
    with table.open(text) as lease:
        run(lease, text[:20])
        lease.keep_state()
        kept = run(lease, text[20:40])[0]
        run(lease, text[40:])
    assert table.found(text[:30]) == 20
    with table.open([*text[:25], 0, 0]) as fork:
        assert fork.ids == text[:20]
        assert run(fork, [0])[0] == kept
        assert table.found(text) == len(text)  # the fork has a page of its own
        table.check()


def test_a_kept_state_in_a_later_page_is_found_with_no_more_than_its_tokens() -> None:
    table, text = PageTable(8, 9), list(range(1, P + 40))
    with table.open(text) as lease:
        run(lease, text[:P])
        run(lease, text[P : P + 10])
        lease.keep_state()
        run(lease, text[P + 10 :])
    with table.open([*text[: P + 15], 0]) as fork:
        assert fork.ids == text[: P + 10]
        table.check()


def test_where_the_last_page_cannot_be_copied_nothing_of_the_text_stays_in_use() -> None:
    table, text = PageTable(2, 9), list(range(1, P + 20))
    with table.open(text) as first:
        run(first, text[:P])
        run(first, text[P:])
        first.keep_state()
        with table.open([*text, 5]) as second:  # no page is free for the copy that it needs
            assert (second.ids, second.pages) == ([], [])
            table.check()
    assert table.free + table.idle == 2
    table.check()


def test_states_go_with_their_tokens() -> None:
    table, text = PageTable(2, 9), list(range(1, 60))
    with table.open(text) as lease:
        for start in range(0, 50, 10):
            run(lease, text[start : start + 10])
            lease.keep_state()
    with table.open(text[:30]) as lease:
        assert lease.length == 30
        run(lease, [0])
        with table.open([*text[:30], 0]) as other:
            assert other.length == 30
            table.check()
    with table.open(text[:12]) as lease:
        lease.truncate(10)
        run(lease, [0, 0])
        table.check()
    table.forget()
    table.check()
    assert table.found(text) == 0
    assert len(table.pool.states.free) == 9


def test_states_of_tokens_that_are_gone_are_not_found() -> None:
    table = PageTable(2, 9)
    with table.open([]) as lease:
        for ids in ([1] * 10, [2] * 10):
            run(lease, ids)
            lease.keep_state()
        lease.truncate(15)
        for ids in ([3] * 10, [3] * 10, [3] * 10):
            run(lease, ids)
        table.check()
        lease.truncate(25)
        assert lease.length == 10


@pytest.mark.parametrize("length", [20, 25])
def test_a_text_goes_back_to_the_latest_state_kept_before(length: int) -> None:
    table = PageTable(2, 9)
    with table.open([]) as lease:
        written = list[int]()
        for part in range(5):
            written.append(run(lease, [part] * 10)[1])
            lease.keep_state()
        lease.truncate(length)
        assert lease.ids == [0] * 10 + [1] * 10
        assert run(lease, [9])[0] == written[1]
        table.check()


@pytest.mark.parametrize("longer_first", [False, True])
def test_a_longer_copy_of_a_page_takes_its_states_over(longer_first: bool) -> None:
    table, text = PageTable(4, 9), list(range(1, 60))
    first, second = table.open([]), table.open([])
    run(first, text[:20])
    run(second, text[:40])
    for lease in (second, first) if longer_first else (first, second):
        lease.close()
    assert table.idle == 1
    assert table.found(text[:25]) == 20
    assert table.found(text) == 40
    table.check()


def test_the_least_recently_used_states_are_reclaimed_and_those_in_use_are_not() -> None:
    table = PageTable(40, 6)
    for text in ([1] * 5, [2] * 5, [3] * 5, [4] * 5):
        with table.open(text) as lease:
            run(lease, text)
    with table.open([1] * 6) as lease:  # used again
        assert lease.length == 5
    with table.open([9]) as lease:
        run(lease, [9])
        run(lease, [9])
        run(lease, [9])
    assert [table.found([n] * 5) for n in (1, 2, 3, 4)] == [5, 0, 5, 5]
    table.check()


def test_too_few_states_are_one_sentence_and_lose_nothing() -> None:
    table = PageTable(9, 5)
    leases = [table.open([]) for _ in range(3)]
    for lease in leases[:2]:
        run(lease, [1])
        run(lease, [2])
    run(leases[0], [3])  # gives up the state before the latest
    leases[0].reserve(4)
    leases[1].reserve(3)
    with pytest.raises(ContextTooLong, match="All 5 states"):
        leases[2].reserve(1)
    assert [lease.ids for lease in leases] == [[1, 2, 3], [1, 2], []]
    table.check()
    leases[1].close()
    run(leases[2], [1])
    table.check()


def test_tokens_without_a_state_are_refused() -> None:
    table = PageTable(2, 3)
    lease = table.open([])
    run(lease, [1])
    with pytest.raises(ValueError, match="no state"):
        lease.extend([2])


def test_a_model_without_recurrent_layers_has_no_states() -> None:
    table = PageTable(2)
    with table.open([]) as lease:
        lease.reserve(3)
        lease.extend([1, 2, 3])
        lease.keep_state()
        lease.truncate(2)
        assert lease.ids == [1, 2]
        table.check()


def test_states_of_places_that_no_page_has_are_left_out() -> None:
    """A damaged file may name any place; the last state here cannot be read."""
    before, table = PageTable(4, 9), PageTable(4, 9)
    with before.open([1, 2, 3]) as lease:
        run(lease, [1, 2, 3])
    assert take_up(table, [kept.entry for kept in worth_keeping(before, 4)]) == 1
    asked: list[int] = []

    def write(which: int, number: int) -> bool:
        asked.append(which)
        return which != 4

    take_up_states(table, [(0, 0), (0, 4), (1, 1), (0, 2), (0, 3), (0, 1)], write)
    assert sorted(asked) == [3, 4, 5]
    table.check()
    assert table.found([1, 2, 3, 4]) == 2
    assert table.found([1, 9]) == 1


def test_the_states_to_save_are_those_in_use_and_then_the_latest_used() -> None:
    table = PageTable(9, 9)
    for text in ([1] * 8, [2] * 5, [3] * 7):
        with table.open(text) as lease:
            run(lease, text)
    with table.open([2] * 6) as lease:  # used again
        assert lease.length == 5
    with table.open([1] * 9) as lease:
        assert lease.length == 8
        kept = worth_keeping(table, 9)
        found = states_worth_keeping(table, kept, 9)
        assert [(kept[number].entry.ids[0], place) for number, place, _ in found] == [(1, 8), (2, 5), (3, 7)]
        for number, place, state in found:
            assert table.pool.pages[kept[number].page].states[place] is state
        assert states_worth_keeping(table, kept, 2) == found[:2]


def test_the_first_state_kept_at_a_place_stays_there() -> None:
    pool, places = StatePool(3), Places()
    first, second = pool.acquire(), pool.acquire()
    assert first is not None
    assert second is not None
    pool.keep(first, places, 5)
    pool.keep(second, places, 5)
    pool.keep(first, places, 6)  # it has its place
    assert places == {5: first}
    pool.release(second)
    assert second in pool.free
    assert not list(pool.problems([places], {first: 1}))


def test_a_state_in_use_that_is_forgotten_is_free_after_its_last_user() -> None:
    pool, places = StatePool(2), Places()
    state = pool.acquire()
    assert state is not None
    pool.keep(state, places, 5)
    pool.forget(state)
    assert state not in pool.free
    assert places == {}
    pool.release(state)
    assert state in pool.free
    assert not list(pool.problems([places], {}))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda pool, places, kept: places.update({6: places.pop(5)}), "not kept where it says"),
        (lambda pool, places, kept: setattr(kept, "places", {5: kept}), "not kept where it says"),
        (lambda pool, places, kept: setattr(kept, "users", 1), "counts 1 users"),
        (lambda pool, places, kept: pool.kept.clear(), "in the wrong list"),
        (lambda pool, places, kept: pool.free.append(kept), "in the wrong list"),
        (lambda pool, places, kept: pool.free.pop(), "lost or in the free list twice"),
        (lambda pool, places, kept: pool.free.append(pool.free[0]), "lost or in the free list twice"),
    ],
)
def test_the_check_names_each_broken_rule_of_states(
    damage: Callable[[StatePool, Places, State], object], sentence: str
) -> None:
    pool, places = StatePool(4), Places()
    kept = pool.acquire()
    assert kept is not None
    pool.keep(kept, places, 5)
    pool.release(kept)
    assert not list(pool.problems([places], {}))
    damage(pool, places, kept)
    assert any(sentence in problem for problem in pool.problems([places], {}))
