"""Content that leaves a page table as entries and comes back: what is kept, in what order, and what is not
believed.
"""

from __future__ import annotations

import pytest

from engine.core import PAGE_TOKENS as P
from engine.kv_cache.page_pool import chain_digest
from engine.kv_cache.pages import PageTable
from engine.kv_cache.prefix_index import PageEntry, take_up, worth_keeping
from tests.engine.kv_cache.test_pages import cache, found, ids, write

ROOT = chain_digest(b"", [])


def entries(table: PageTable, limit: int = 100) -> list[PageEntry]:
    return [page.entry for page in worth_keeping(table, limit)]


def moved(table: PageTable, pages: int = 20, limit: int = 100) -> PageTable:
    """Another table with the same content; its pages count as read."""
    other = PageTable(pages)
    take_up(other, entries(table, limit))
    for page in range(pages):
        other.read(page)
    other.check()
    return other


def test_everything_is_found_again_under_its_key() -> None:
    table = PageTable(20)
    cache(table, ids(2 * P + 50))
    cache(table, ids(P) + ids(300, 5000))
    cache(table, ids(40), key="adapter")
    other = moved(table)
    assert other.idle == table.idle
    assert found(other, ids(2 * P + 50)) == 2 * P + 50
    assert found(other, ids(P) + ids(300, 5000)) == P + 300
    assert found(other, ids(40), key="adapter") == 40
    assert found(other, ids(P), key="adapter") == 40


def test_the_order_of_reclaiming_stays() -> None:
    table = PageTable(20)
    for start in (0, 1000, 2000):
        cache(table, ids(P + 100, start))
    assert found(table, ids(P + 100)) == P + 100  # used again: now the latest
    other = moved(table, pages=6)
    with other.open([9999]) as lease:
        lease.reserve(2 * P)
        assert [found(other, ids(P + 100, start)) for start in (0, 1000, 2000)] == [P + 100, 0, P + 100]


@pytest.mark.parametrize("short_of", ["file", "table"])
def test_where_room_is_short_the_latest_is_kept_and_beginnings_before_ends(short_of: str) -> None:
    table = PageTable(20)
    cache(table, ids(3 * P))
    cache(table, ids(3 * P, 5000))
    other = moved(table, limit=4) if short_of == "file" else moved(table, pages=4)
    assert (found(other, ids(3 * P)), found(other, ids(3 * P, 5000))) == (P, 3 * P)


def test_held_content_is_kept_as_well_but_no_copy_that_was_not_made() -> None:
    table = PageTable(20)
    held = write(table, ids(P + 60))
    copier = table.open([*ids(P + 30), 9999])
    assert copier.copies
    assert [len(entry.ids) for entry in entries(table)] == [60, P]
    copier.copied()
    assert sorted(len(entry.ids) for entry in entries(table)) == [30, 60, P]
    held.close()


def test_reserved_pages_without_content_are_not_kept() -> None:
    table = PageTable(20)
    with table.open(()) as lease:
        lease.reserve(2 * P)
        lease.extend(ids(P))
        assert [len(entry.ids) for entry in entries(table)] == [P]


def test_repeated_content_of_living_leases_is_kept_once() -> None:
    table = PageTable(20)
    leases = [table.open(()), table.open(())]
    for lease in leases:
        lease.reserve(2 * P)
        lease.extend(ids(2 * P))
    assert table.cached == 4
    assert len(entries(table)) == 2
    assert found(moved(table), ids(2 * P)) == 2 * P


def test_pages_are_unread_until_they_are_read() -> None:
    table = PageTable(20)
    cache(table, ids(P + 100))
    other = PageTable(5)
    assert take_up(other, entries(table)) == 2
    with other.open([*ids(P + 50), 9999]) as lease:
        (depth, page, number), (copied_depth, source, source_number) = sorted(lease.unread)
        assert (depth, number, copied_depth, source_number) == (0, 1, 1, 0)
        assert lease.copies[0][0] == source
        other.read(page)
        assert len(lease.unread) == 1
        other.read(source)
        assert lease.unread == []
        other.check()


def test_a_page_that_cannot_be_read_goes_with_all_that_follows_it() -> None:
    table = PageTable(20)
    cache(table, ids(3 * P))
    other = PageTable(5)
    take_up(other, entries(table))
    lease = other.open(ids(3 * P))
    depth, page, _ = sorted(lease.unread)[1]
    lease.truncate(depth * P)
    other.lose(page)
    other.check()
    assert (lease.length, other.cached) == (P, 1)
    lease.close()


def test_content_is_not_mixed_with_content() -> None:
    table = PageTable(4)
    cache(table, ids(10))
    with pytest.raises(ValueError, match="empty table"):
        take_up(table, [])


FULL = PageEntry(tuple(range(P)), -1, ROOT)


@pytest.mark.parametrize(
    ("listed", "count"),
    [
        ([], 0),
        ([None], 0),
        ([FULL], 1),
        ([PageEntry((1,), -1, ROOT)], 1),
        ([PageEntry((1, 2), 1), FULL], 2),
        ([PageEntry((1, 2), 1), None], 0),  # what it follows was lost
        ([FULL, PageEntry((1, 2), 0)], 1),  # follows what comes before it
        ([PageEntry((1, 2), 0)], 0),  # follows itself
        ([PageEntry((1, 2), 7), FULL], 1),
        ([PageEntry((1, 2), -5), FULL], 1),
        ([PageEntry((1, 2), 1), PageEntry((1, 2), -1, ROOT)], 1),  # follows a page that is not full
        ([PageEntry((1, 2), -1, b"short")], 0),
        ([PageEntry((1, 2), -1)], 0),
        ([PageEntry((), -1, ROOT)], 0),
        ([PageEntry(tuple(range(P + 1)), -1, ROOT)], 0),
        ([FULL, FULL], 1),  # the same twice
    ],
)  # fmt: skip
def test_entries_that_contradict_each_other(listed: list[PageEntry | None], count: int) -> None:
    table = PageTable(4)
    assert take_up(table, listed) == count == table.idle
    table.check()


def test_an_entry_whose_parent_is_gone_is_no_first_page() -> None:
    table = PageTable(4)
    assert take_up(table, [PageEntry((1, 2), 5, ROOT), PageEntry((3, 4), -1, ROOT)]) == 1
    assert (found(table, [1, 2]), found(table, [3, 4])) == (0, 2)
