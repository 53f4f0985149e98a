"""Cached content as records that outlive the process: which pages to keep, and how to restore them.

A record holds a page's ids and what it follows; keys and values are stored elsewhere
(`engine.kv_cache.disk`). Every record follows another one of the same list, or is the first page of a
sequence, so each can be found again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.core import PAGE_TOKENS
from engine.kv_cache.page_pool import Page
from engine.kv_cache.pages import PageTable


@dataclass(frozen=True, slots=True)
class PageRecord:
    """The content of one page: its `ids` (1 ... 256), and the number of the record it follows.

    A record comes before the one it follows, as ends are reclaimed before beginnings. `parent` is -1 for the
    first page of a sequence; then `root` is the 16-byte digest of the key it was written under.
    """

    ids: tuple[int, ...]
    parent: int
    root: bytes = b""


@dataclass(frozen=True, slots=True)
class Kept:
    """A page of the cache to keep: its index, its number in the file if it is still unread there (else -1),
    and its record.
    """

    page: int
    unread: int
    record: PageRecord


def worth_keeping(table: PageTable, limit: int) -> list[Kept]:
    """Up to `limit` pages with content, in the order they would be reclaimed; recently used ones are
    preferred.
    """
    pool = table.pool
    full: dict[bytes | None, Page] = {
        page.digest: page for page in pool.pages if page.digest is not None and not page.pending
    }
    held = [page for page in pool.pages if page.refs and page.ids and not page.pending]
    chosen: dict[Page, None] = {}
    for page in reversed([*pool.idle, *sorted(held, key=lambda page: -page.depth)]):
        chain = _missing(page, full, chosen)
        if len(chosen) + len(chain) <= limit:
            chosen.update(dict.fromkeys(chain))
    numbers = {page: number for number, page in enumerate(reversed(chosen))}
    return [Kept(page.index, page.unread, _record(page, full, numbers)) for page in numbers]


def _missing(page: Page, full: dict[bytes | None, Page], chosen: dict[Page, None]) -> list[Page]:
    """The pages to add so that `page` can be found, `page` last; none if its content is already chosen."""
    chain: list[Page] = []
    step: Page | None = page if page.digest is None else full[page.digest]
    while step is not None and step not in chosen:
        chain.append(step)
        step = full[step.parent] if step.depth else None
    return chain[::-1]


def _record(page: Page, full: dict[bytes | None, Page], numbers: dict[Page, int]) -> PageRecord:
    if page.depth:
        return PageRecord(tuple(page.ids), numbers[full[page.parent]])
    return PageRecord(tuple(page.ids), -1, page.parent)


def take_up(table: PageTable, records: Sequence[PageRecord | None]) -> int:
    """Make the records idle content of an empty table, in their order; their pages are `unread`.

    Returns the number of cached pages. None is a lost record; the records that follow it are lost too. When
    pages are short, those at the end of the list are taken. Raises ValueError if the table has content.
    """
    if table.cached:
        raise ValueError("content can be taken up into an empty table only")
    pool, pages = table.pool, dict[int, Page]()
    for number, record in reversed(list(enumerate(records))):
        if record is None or not 1 <= len(record.ids) <= PAGE_TOKENS:
            continue
        parent = pages.get(record.parent)
        digest = parent.digest if parent is not None else record.root
        if digest is None or len(digest) != 16 or (parent is None) != (record.parent == -1) or not pool.free:
            continue
        page = pool.acquire()
        assert page is not None
        pool.begin(page, digest, parent.depth + 1 if parent is not None else 0)
        pool.append(page, record.ids)
        page.unread = number
        pages[number] = page
    for number in sorted(pages):
        pool.release(pages[number])
    return table.cached
