"""The page table, case by case: what is found, shared, copied, reclaimed, given back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.core import PAGE_TOKENS as P
from engine.errors import ContextTooLong
from engine.kv_cache.lease import Lease
from engine.kv_cache.page_pool import PagePool, pages_for
from engine.kv_cache.pages import PageTable
from engine.kv_cache.states import State

ROOT = b"r" * 16


def ids(count: int, start: int = 0) -> list[int]:
    """`count` different ids."""
    return list(range(start, start + count))


def write(table: PageTable, tokens: list[int], key: str = "") -> Lease:
    """A lease with all of `tokens` valid."""
    lease = table.open(tokens, key=key)
    lease.reserve(len(tokens))
    lease.extend(tokens[lease.length :])
    table.check()
    return lease


def cache(table: PageTable, tokens: list[int], key: str = "") -> None:
    """Leave `tokens` behind as idle content."""
    write(table, tokens, key).close()
    table.check()


def found(table: PageTable, tokens: list[int], key: str = "") -> int:
    """How many of `tokens` a lease finds; leaves the table as it was."""
    with table.open(tokens, key=key) as lease:
        table.check()
        return lease.length


@pytest.mark.parametrize(("tokens", "pages"), [(0, 0), (1, 1), (P, 1), (P + 1, 2)])
def test_pages_for(tokens: int, pages: int) -> None:
    assert pages_for(tokens) == pages


def test_an_empty_table_finds_nothing() -> None:
    table = PageTable(4)
    lease = table.open(ids(1000))
    assert (lease.length, lease.pages, lease.ids, lease.copies) == (0, [], [], [])
    assert (table.free, table.idle, table.cached) == (4, 0, 0)


def test_going_back_into_a_shared_page_may_use_the_page_that_it_gives_up() -> None:
    table = PageTable(2)
    other = write(table, ids(P))
    lease = write(table, ids(P + 10))
    assert table.free + table.idle == 0
    lease.truncate(P - 5)
    assert lease.ids == ids(P - 5)
    assert lease.copies == [(other.pages[0], lease.pages[0])]
    table.check()


def test_returning_reserved_pages_copies_nothing() -> None:
    table = PageTable(6)
    lease = write(table, ids(50))
    lease.reserve(2 * P)
    copier = table.open([*ids(30), 9999])
    assert copier.copies
    lease.truncate(50)
    assert (lease.copies, len(lease.pages)) == ([], 1)
    copier.copied()
    table.check()


def test_no_ids_at_all() -> None:
    table = PageTable(1)
    cache(table, ids(10))
    with table.open([]) as lease:
        lease.reserve(0)
        lease.extend([])
        assert (lease.length, lease.pages) == (0, [])


def test_a_follow_up_turn_takes_its_own_pages_back_without_a_copy() -> None:
    table = PageTable(8)
    first = write(table, ids(600))
    pages = first.pages
    first.close()
    again = table.open(ids(700))
    assert (again.length, again.pages, again.copies) == (600, pages, [])
    again.reserve(700)
    again.extend(ids(100, 600))
    table.check()


def test_full_pages_are_shared_and_the_last_one_is_copied() -> None:
    table = PageTable(8)
    one = write(table, ids(600))
    two = table.open(ids(600))
    assert (two.length, two.ids) == (600, ids(600))
    assert two.pages[:2] == one.pages[:2]
    assert two.copies == [(one.pages[2], two.pages[2])]
    assert two.pages[2] != one.pages[2]
    table.check()
    two.copied()
    assert two.copies == []
    table.check()


def test_a_common_beginning_of_one_token_is_enough() -> None:
    table = PageTable(4)
    cache(table, ids(100))
    assert found(table, [0, 999]) == 1
    assert found(table, [999, 1]) == 0


def test_the_longest_of_several_branches_is_taken() -> None:
    table = PageTable(8)
    for length in (300, 350, 320):
        cache(table, ids(length) + ids(200 - (length - 300), 1000 + length))
    with table.open(ids(400)) as lease:
        assert lease.length == 350
        assert len(lease.copies) == 1


def test_part_of_a_full_page_is_found() -> None:
    table = PageTable(4)
    cache(table, ids(2 * P))
    assert found(table, ids(2 * P - 1)) == 2 * P - 1
    assert found(table, ids(P + 7)) == P + 7
    assert found(table, ids(2 * P)) == 2 * P


def test_equal_ids_after_another_beginning_are_not_the_same() -> None:
    table = PageTable(4)
    cache(table, ids(P, 5000) + ids(P))
    assert found(table, ids(P)) == 0
    assert found(table, ids(P, 6000) + ids(P)) == 0


def test_keys_keep_models_apart() -> None:
    table = PageTable(4)
    cache(table, ids(P + 10), key="a")
    assert found(table, ids(P + 10)) == 0
    assert found(table, ids(P + 10), key="b") == 0
    assert found(table, ids(P + 10), key="a") == P + 10


def test_reserve_takes_free_pages_then_the_idle_ones_used_longest_ago() -> None:
    table = PageTable(4)
    for start in (0, 1000, 2000):
        cache(table, ids(100, start))
    assert found(table, ids(100)) == 100  # used again: now the latest
    lease = table.open([9999])
    lease.reserve(2 * P)
    table.check()
    assert [found(table, ids(100, start)) for start in (0, 1000, 2000)] == [100, 0, 100]


def test_the_end_of_a_conversation_is_reclaimed_before_its_beginning() -> None:
    table = PageTable(4)
    cache(table, ids(3 * P))
    with table.open([9999]) as lease:
        lease.reserve(3 * P)
        assert found(table, ids(3 * P)) == P


def test_too_little_room_raises_one_sentence_and_changes_nothing() -> None:
    table = PageTable(3)
    held = write(table, ids(P))
    lease = table.open([9999])
    lease.reserve(1)
    with pytest.raises(
        ContextTooLong, match=r"^This chat needs 2 more cache pages .* only 1 of 3 are available.*\.$"
    ):
        lease.reserve(3 * P)
    assert (len(lease.pages), table.free) == (1, 1)
    table.check()
    held.close()
    lease.reserve(3 * P)
    table.check()


def test_copy_in_a_full_table_takes_the_idle_page_itself() -> None:
    table = PageTable(2)
    cache(table, ids(P + 100))
    with table.open([*ids(P + 50), 9999]) as lease:
        assert (lease.length, lease.copies) == (P + 50, [])
        lease.reserve(2 * P)
        table.check()


def test_nothing_is_copied_where_no_page_can_be_had() -> None:
    table = PageTable(2)
    one = write(table, ids(P + 100))
    two = table.open(ids(P + 100))
    assert (two.length, two.pages, two.copies) == (P, one.pages[:1], [])
    table.check()


def test_a_context_that_just_fits_undoes_a_copy() -> None:
    table = PageTable(3)
    cache(table, ids(P + 100))
    lease = table.open([*ids(P + 50), 9999])
    ((source, target),) = lease.copies
    lease.reserve(3 * P)
    assert (lease.copies, lease.pages[1], lease.length) == ([], source, P + 50)
    assert target in lease.pages
    table.check()


def test_a_page_to_copy_from_is_not_reclaimed_before_the_copy_is_confirmed() -> None:
    table = PageTable(4)
    cache(table, ids(100))
    cache(table, ids(100, 1000))
    copier = table.open([*ids(50), 9999])
    assert len(copier.copies) == 1
    with table.open([7777]) as other:
        other.reserve(2 * P)
        assert copier.copies[0][0] not in other.pages
        assert found(table, ids(100, 1000)) == 0
        table.check()
        with pytest.raises(ContextTooLong):
            other.reserve(3 * P)
        copier.copied()
        other.reserve(3 * P)


def test_a_copied_page_is_found_by_others_only_once_confirmed() -> None:
    table = PageTable(4)
    source = write(table, ids(100))
    copier = table.open(ids(60))
    source.truncate(20)
    assert source.copies  # its page still had to be copied from
    with table.open(ids(60)) as third:
        # from the first source, which nobody changed
        assert (third.length, third.copies[0][0]) == (60, copier.copies[0][0])
    table.check()


def test_content_that_is_still_to_be_copied_in_is_not_found() -> None:
    pool = PagePool(2)
    page = pool.acquire()
    assert page is not None
    pool.begin(page, ROOT, 0, ids(50))
    page.pending = True
    assert pool.find_partial(ROOT, ids(50)) == (None, 0)
    page.pending = False
    assert pool.find_partial(ROOT, [*ids(40), 9999]) == (page, 40)


def test_a_page_that_is_copied_from_stays_when_another_repeats_it() -> None:
    """Whichever of the two is given back last; it goes once the copy is confirmed."""
    for shorter_last in (False, True):
        pool = PagePool(3)
        short, long = pool.acquire(), pool.acquire()
        assert short is not None
        assert long is not None
        pool.begin(short, ROOT, 0, ids(50))
        pool.begin(long, ROOT, 0, ids(80))
        short.pins += 1
        for page in (long, short) if shorter_last else (short, long):
            pool.release(page)
        assert (short.ids, len(pool.free), short in pool.idle) == (ids(50), 1, True)
        assert list(pool.problems()) == []
        pool.unpin(short)
        assert (short.ids, len(pool.free), long.ids) == ([], 2, ids(80))
        assert list(pool.problems()) == []


def test_what_would_be_found_is_reported_without_a_lease() -> None:
    table = PageTable(4)
    assert table.found(ids(50)) == 0
    cache(table, ids(2 * P + 30))
    for tokens, length in (
        (ids(10), 10),
        (ids(P), P),
        (ids(P + 9), P + 9),
        (ids(3 * P), 2 * P + 30),
        ([7], 0),
        ([], 0),
    ):
        assert table.found(tokens) == length == found(table, tokens)
        assert table.found(tokens, leave=1) == min(length, max(0, len(tokens) - 1))
    assert table.found(ids(5), leave=9) == 0
    assert table.found(ids(5), key="other") == 0


def test_pages_that_are_held_already_are_counted() -> None:
    """Full ones, since a lease holds them, of which a text's last token is not, as it is still to be run."""
    table = PageTable(4)
    lease = write(table, ids(2 * P + 30))
    counts = [table.held(ids(length)) for length in (0, P, P + 1, 2 * P, 2 * P + 1, 2 * P + 40)]
    assert counts == [0, 0, 1, 1, 2, 2]
    assert (table.held(ids(3 * P, 1)), table.held(ids(3 * P), key="other")) == (0, 0)
    lease.truncate(P)
    assert table.held(ids(3 * P)) == 1
    lease.close()
    assert table.held(ids(3 * P)) == 0


def test_nothing_is_taken_of_a_page_that_is_left_to_run() -> None:
    table = PageTable(4)
    cache(table, ids(2 * P))
    with table.open(ids(2 * P), leave=P) as lease:
        assert (lease.length, len(lease.pages), lease.copies) == (P, 1, [])
        table.check()


def test_a_page_to_copy_from_is_not_cut_for_another_lease() -> None:
    table = PageTable(3)
    cache(table, ids(100))
    copier = table.open([*ids(50), 9999])
    filler = table.open([7777])
    filler.reserve(P)
    with table.open([*ids(10), 8888]) as other:  # no page is free, and the idle one is needed
        assert (other.length, other.pages) == (0, [])
        table.check()
    copier.copied()
    assert found(table, [*ids(10), 8888]) == 10


def test_a_page_to_copy_from_is_not_dropped_as_repeated() -> None:
    table = PageTable(4)
    cache(table, ids(100))
    copier = table.open([*ids(50), 9999])
    longer = table.open(ids(150))
    longer.copied()
    longer.reserve(150)
    longer.extend(ids(50, 100))
    longer.close()
    table.check()
    assert table.idle == 2
    copier.copied()
    assert table.idle == 1
    assert found(table, ids(150)) == 150


def test_a_page_that_two_leases_copy_from_is_not_cut_by_one_of_them() -> None:
    table = PageTable(4)
    cache(table, ids(100))
    long, short = table.open([*ids(80), 9999]), table.open([*ids(40), 8888])
    with pytest.raises(ContextTooLong):
        short.reserve(3 * P)
    assert (len(long.copies), len(short.copies)) == (1, 1)
    table.check()
    long.copied()
    short.reserve(3 * P)
    assert (short.copies, short.ids, long.ids) == ([], ids(40), ids(80))
    table.check()


def test_a_page_that_another_lease_holds_is_not_cut_where_pages_are_short() -> None:
    table = PageTable(4)
    holder = write(table, ids(P + 100))
    copier = table.open([*ids(P + 50), 9999])
    with pytest.raises(ContextTooLong):
        copier.reserve(5 * P)
    table.check()
    assert (holder.ids, copier.ids, len(copier.copies)) == (ids(P + 100), ids(P + 50), 1)


def test_unconfirmed_copies_are_not_left_behind() -> None:
    table = PageTable(4)
    source = write(table, ids(100))
    table.open(ids(60)).close()
    table.check()
    assert (table.idle, table.free, source.length) == (0, 3, 100)


def test_truncate_inside_an_own_page_cuts_it() -> None:
    table = PageTable(4)
    lease = write(table, ids(600))
    pages = lease.pages.copy()
    lease.truncate(300)
    assert (lease.ids, lease.pages, lease.copies) == (ids(300), pages[:2], [])
    assert (table.free, table.idle) == (2, 0)  # what followed the cut cannot be found any more
    table.check()


def test_truncate_at_a_border_leaves_what_follows_to_be_found() -> None:
    table = PageTable(4)
    lease = write(table, ids(600))
    lease.truncate(P)
    assert (table.idle, len(lease.pages)) == (2, 1)
    assert found(table, ids(600)) == 600


def test_truncate_inside_a_shared_page_copies_it() -> None:
    table = PageTable(4)
    one, two = write(table, ids(2 * P)), write(table, ids(2 * P))
    two.truncate(P + 100)
    assert two.copies == [(one.pages[1], two.pages[1])]
    assert (two.pages != one.pages, one.ids, two.ids) == (True, ids(2 * P), ids(P + 100))
    two.reserve(P + 120)
    two.extend(ids(20, 9000))
    table.check()
    assert found(table, ids(2 * P)) == 2 * P


def test_truncate_inside_a_shared_page_without_room_changes_nothing() -> None:
    table = PageTable(1)
    write(table, ids(P))
    two = table.open(ids(P))
    with pytest.raises(ContextTooLong, match=r"token 100 needs one more cache page .* all 1 are in use"):
        two.truncate(100)
    assert two.length == P
    table.check()
    two.truncate(0)
    assert (two.pages, two.ids) == ([], [])


def test_truncate_inside_a_shared_page_takes_a_page_of_its_own_that_is_given_back() -> None:
    """Not one that another lease has as well, or copies from."""
    for other in (ids(2 * P), [*ids(P + 50), 9000]):  # the second page is shared; is to be copied
        table = PageTable(2 + (len(other) < 2 * P))
        write(table, ids(2 * P)).close()
        one, two = table.open(ids(2 * P)), table.open(other)
        with pytest.raises(ContextTooLong, match="token 100 needs one more cache page"):
            one.truncate(100)
        assert one.length == 2 * P
        two.close()
        table.check()
    lease = write(table, ids(P))
    assert lease.length == P


def test_truncate_gives_reserved_pages_back() -> None:
    table = PageTable(4)
    lease = table.open([1])
    lease.reserve(4 * P)
    lease.extend([1])
    lease.truncate(1)
    assert (len(lease.pages), table.free) == (1, 3)


def test_wrong_lengths_and_closed_leases_are_refused() -> None:
    table = PageTable(2)
    lease = write(table, ids(10))
    with pytest.raises(ValueError, match="cannot truncate 10 tokens to 11"):
        lease.truncate(11)
    with pytest.raises(ValueError, match="to -1"):
        lease.truncate(-1)
    with pytest.raises(ValueError, match="do not fit into 1 reserved"):
        lease.extend(ids(P))
    lease.close()
    lease.close()
    with pytest.raises(ValueError, match="closed"):
        lease.reserve(1)
    with pytest.raises(ValueError, match="closed"):
        lease.extend([])
    with pytest.raises(ValueError, match="closed"):
        lease.truncate(0)


def test_forget_drops_idle_content_only() -> None:
    table = PageTable(4)
    held = write(table, ids(10))
    cache(table, ids(2 * P, 1000))
    table.forget()
    assert (table.free, table.idle, table.cached, held.length) == (3, 0, 1, 10)
    table.check()


def test_repeated_content_is_kept_once() -> None:
    table = PageTable(6)
    a, b = table.open(ids(300)), table.open(ids(300))
    for lease in (a, b):
        lease.reserve(300)
        lease.extend(ids(300))
    table.check()
    a.close()
    b.close()
    assert (table.idle, table.free) == (2, 4)
    assert found(table, ids(300)) == 300
    table.check()


@pytest.mark.slow
def test_a_cut_of_a_very_long_conversation() -> None:
    table = PageTable(2000)
    lease = write(table, ids(2000 * P))
    lease.truncate(5)
    assert (lease.length, lease.copies, table.free, table.idle) == (5, [], 1999, 0)
    table.check()


def test_in_a_full_table_a_fork_costs_what_was_used_longest_ago() -> None:
    table = PageTable(5)
    cache(table, ids(100, 5000))
    cache(table, ids(2 * P))
    cache(table, ids(2 * P, 1000))
    assert table.free == 0
    with table.open([*ids(100), 9999]) as lease:  # begins as the second one does, which stays whole
        assert (lease.length, len(lease.copies)) == (100, 1)
    table.check()
    assert [found(table, ids(100, 5000)), found(table, ids(2 * P)), found(table, ids(2 * P, 1000))] == [
        0,
        2 * P,
        2 * P,
    ]


def test_what_is_run_again_may_be_cut_off() -> None:
    table = PageTable(2)
    cache(table, ids(P + 50))
    with table.open(ids(P + 50), leave=1) as lease:
        assert (lease.length, lease.copies) == (P + 49, [])
    with table.open([9], leave=1) as lease:
        assert lease.length == 0
    with table.open([], leave=1) as lease:
        assert lease.length == 0


def test_a_full_page_is_not_cut_to_have_something_to_run() -> None:
    table = PageTable(4)
    cache(table, ids(2 * P + 50))
    with table.open(ids(2 * P), leave=1) as lease:
        assert (lease.length, len(lease.copies)) == (2 * P - 1, 1)
        table.check()
    assert found(table, ids(2 * P + 50)) == 2 * P + 50


def test_rejected_drafts_in_a_page_of_their_own_are_reclaimed_first() -> None:
    table = PageTable(3)
    cache(table, ids(50, 5000))
    lease = write(table, ids(P))
    for draft in range(3):
        lease.reserve(P + 3)
        lease.extend(ids(3, 7000 + 10 * draft))
        lease.truncate(P)
        table.check()
    assert found(table, ids(50, 5000)) == 50
    lease.reserve(P + 1)
    lease.extend([1])
    assert found(table, ids(50, 5000)) == 50


def test_of_equal_pages_the_one_that_nobody_has_is_taken_as_it_is() -> None:
    table = PageTable(4)
    leases = [table.open(()), table.open(())]
    for lease in leases:
        lease.reserve(100)
        lease.extend(ids(100))
    leases[1].close()
    with table.open(ids(150)) as again:
        assert (again.length, again.copies) == (100, [])
        table.check()


def test_content_goes_when_longer_content_that_begins_with_it_is_given_back() -> None:
    table = PageTable(4)
    long = write(table, ids(150))
    write(table, ids(100)).close()
    assert table.idle == 1
    long.close()
    assert (table.idle, found(table, ids(150))) == (1, 150)
    table.check()


def test_giving_back_the_beginning_of_a_page_counts_as_use_of_that_page() -> None:
    table = PageTable(4)
    cache(table, ids(100))
    beginning = table.open([*ids(50), 9999])
    beginning.copied()
    for start in (1000, 2000):
        cache(table, ids(100, start))
    beginning.close()
    with table.open([8888]) as lease:
        lease.reserve(2 * P)  # one page is free, another one is reclaimed
        assert [found(table, ids(100, start)) for start in (0, 1000, 2000)] == [100, 0, 100]


def test_of_what_a_cut_gives_back_the_end_is_reclaimed_first() -> None:
    table = PageTable(4)
    lease = write(table, ids(2 * P + 50))
    lease.truncate(P)
    with table.open([9999]) as other:
        other.reserve(2 * P)
        assert found(table, ids(2 * P + 50)) == 2 * P


DAMAGE: dict[str, Callable[[Lease, PagePool], object]] = {
    "a lease's block table is wrong": lambda lease, pool: lease.pages.reverse(),
    "page 1 does not hold what its lease relies on": lambda lease, pool: lease.ids.pop(),
    "page 1 is shared before it is full": lambda lease, pool: setattr(pool.pages[1], "refs", 2),
    "page 1 follows the wrong page": lambda lease, pool: setattr(pool.pages[1], "depth", 2),
    "page 0 follows the wrong page": lambda lease, pool: setattr(pool.pages[0], "parent", ROOT),
    "page 1 counts 1 references and 1 pins, but the leases say otherwise": lambda lease, pool: setattr(
        pool.pages[1], "pins", 1
    ),
    "page 0 counts 2 references and 0 pins, but the leases say otherwise": lambda lease, pool: setattr(
        pool.pages[0], "refs", 2
    ),
    "a page is in the free list twice": lambda lease, pool: pool.free.append(pool.pages[3]),
    "page 1 is in the wrong list": lambda lease, pool: pool.idle.update({pool.pages[1]: None}),
    "page 2 is in the wrong list": lambda lease, pool: pool.idle.clear(),
    "page 3 is in the wrong list": lambda lease, pool: pool.free.clear(),
    "page 1 is indexed wrongly": lambda lease, pool: pool._children.pop(pool.pages[1].parent),
    "page 2 has the wrong digest": lambda lease, pool: setattr(pool.pages[2], "digest", ROOT),
    "page 0 cannot be unread": lambda lease, pool: (
        setattr(pool.pages[0], "unread", 0),
        setattr(pool.pages[0], "refs", 2),
    ),
    "page 2 cannot be unread": lambda lease, pool: (
        setattr(pool.pages[2], "unread", 0),
        setattr(pool.pages[2], "pending", True),
    ),
    "page 3 cannot be unread": lambda lease, pool: setattr(pool.pages[3], "unread", 0),
    "page 1 keeps a state of tokens that it does not hold": lambda lease, pool: pool.pages[1].states.update(
        {0: State(0)}
    ),
    "page 2 keeps a state of tokens that it does not hold": lambda lease, pool: pool.pages[2].states.update(
        {11: State(0)}
    ),
    "the table of digests is wrong": lambda lease, pool: pool._full.update({ROOT: 1}),
    "the index holds pages without content": lambda lease, pool: pool._children.update(
        {ROOT: {pool.pages[3]: None}}
    ),
    "the index holds a beginning that no page follows": lambda lease, pool: pool._children.update({b"": {}}),
    "page 1 cannot be found": lambda lease, pool: setattr(pool.pages[1], "parent", ROOT),
    "page 3 is to be copied from, but empty": lambda lease, pool: setattr(pool.pages[3], "pins", 1),
}
"""What is damaged where pages 0 and 1 are held, 2 is idle and 3 free, by how it is described."""


@pytest.mark.parametrize("reported", DAMAGE)
def test_check_notices_damage(reported: str) -> None:
    table = PageTable(4)
    lease = write(table, ids(P + 10))
    cache(table, ids(10, 5000))
    assert (lease.pages, [*table.pool.idle]) == ([0, 1], [table.pool.pages[2]])
    DAMAGE[reported](lease, table.pool)
    assert reported in [*table.problems()]
    with pytest.raises(AssertionError):
        table.check()
