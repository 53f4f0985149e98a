"""Cached content as entries that outlive the process: which pages to keep, and how to restore them.

An entry holds a page's ids and what it follows; keys and values are stored elsewhere
(`engine.kv_cache.disk`). Every entry follows another one of the same list, or is the first page of a
sequence, so each can be found again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.core import PAGE_TOKENS
from engine.kv_cache.page_pool import Page
from engine.kv_cache.pages import PageTable
from engine.kv_cache.states import State
from engine.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class PageEntry:
    """The content of one page: its `ids` (1 ... 256), and the number of the entry it follows.

    An entry comes before the one it follows, as ends are reclaimed before beginnings. `parent` is -1 for the
    first page of a sequence; then `root` is the 16-byte digest of the key it was written under.
    """

    ids: tuple[int, ...]
    parent: int
    root: bytes = b""


@dataclass(frozen=True, slots=True)
class Kept:
    """A page of the cache to keep: its index, its number in the file if it is still unread there (else -1),
    and its entry.
    """

    page: int
    unread: int
    entry: PageEntry


def worth_keeping(table: PageTable, limit: int) -> list[Kept]:
    """Up to `limit` pages with content, in the order they would be reclaimed; recently used ones are
    preferred.
    """
    pool = table.pool
    full: dict[bytes | None, Page] = {page.digest: page for page in pool.pages if page.digest is not None}
    held = [page for page in pool.pages if page.refs and page.ids and not page.pending]
    chosen: dict[Page, None] = {}
    for page in reversed([*pool.idle, *sorted(held, key=lambda page: -page.depth)]):
        chain = _missing(page, full, chosen)
        if len(chosen) + len(chain) <= limit:
            chosen.update(dict.fromkeys(chain))
    numbers = {page: number for number, page in enumerate(reversed(chosen))}
    return [Kept(page.index, page.unread, _entry(page, full, numbers)) for page in numbers]


def states_worth_keeping(table: PageTable, kept: Sequence[Kept], limit: int) -> list[tuple[int, int, State]]:
    """Up to `limit` states kept with these pages, the latest used first: the number of the page in `kept`,
    the place there, and the state.
    """
    used = {state: order for order, state in enumerate(table.pool.states.kept)}
    pages = [(number, table.pool.pages[page.page]) for number, page in enumerate(kept)]
    found = [(number, place, state) for number, page in pages for place, state in page.states.items()]
    found.sort(key=lambda each: used.get(each[2], len(used)), reverse=True)
    return found[:limit]


def take_up_states(
    table: PageTable, states: Sequence[tuple[int, int]], write: Callable[[int, int], bool]
) -> None:
    """Keep states with the pages that `take_up` took up; each is the number of its entry and its place there,
    the first ones are preferred. `write` reads one by its number into the state of a number, and says whether
    that went well.
    """
    pool, pages = table.pool.states, {page.unread: page for page in table.pool.pages if page.unread >= 0}
    good = [
        (which, pages[number], place)
        for which, (number, place) in enumerate(states)
        if number in pages and 1 <= place <= len(pages[number].ids)
    ]
    for which, page, place in reversed(good[: len(pool.free)]):
        state = pool.acquire()
        if state is not None:
            if write(which, state.number):
                pool.keep(state, page.states, place)
            pool.release(state)


def _missing(page: Page, full: dict[bytes | None, Page], chosen: dict[Page, None]) -> list[Page]:
    """The pages to add so that `page` can be found, `page` last; none if its content is already chosen."""
    chain: list[Page] = []
    step: Page | None = page if page.digest is None else full[page.digest]
    while step is not None and step not in chosen:
        chain.append(step)
        step = full[step.parent] if step.depth else None
    return chain[::-1]


def _entry(page: Page, full: dict[bytes | None, Page], numbers: dict[Page, int]) -> PageEntry:
    if page.depth:
        return PageEntry(tuple(page.ids), numbers[full[page.parent]])
    return PageEntry(tuple(page.ids), -1, page.parent)


def take_up(table: PageTable, entries: Sequence[PageEntry | None]) -> int:
    """Make the entries idle content of an empty table, in their order; their pages are `unread`.

    Returns the number of cached pages. None is a lost entry; the entries that follow it are lost too. When
    pages are short, those at the end of the list are taken. Raises ValueError if the table has content.
    """
    if table.cached:
        raise ValueError("content can be taken up into an empty table only")
    pool, pages = table.pool, dict[int, Page]()
    for number, entry in reversed(list(enumerate(entries))):
        if entry is None or not 1 <= len(entry.ids) <= PAGE_TOKENS:
            continue
        parent = pages.get(entry.parent)
        digest = parent.digest if parent is not None else entry.root
        if digest is None or len(digest) != 16 or (parent is None) != (entry.parent == -1) or not pool.free:
            continue
        page = pool.acquire()
        assert page is not None
        pool.begin(page, digest, parent.depth + 1 if parent is not None else 0)
        pool.append(page, entry.ids)
        page.unread = number
        pages[number] = page
    for number in sorted(pages):
        pool.release(pages[number])
    return table.cached
