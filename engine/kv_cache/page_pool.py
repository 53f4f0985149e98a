"""Pages of the key/value cache and what lies in them: reference counts, digests, reclaiming.

Used through `engine.kv_cache.pages`.

A page is *free* (empty), *held* (by one or more leases) or *idle* (held by none, but its content can be found
again). Idle pages are reclaimed in the order they became idle. Each full page has a
128-bit BLAKE2b digest over (digest of the page before, its own ids), so equal digests mean equal whole
prefixes; the scheme is that of ExLlamaV2's dynamic generator and of vLLM's automatic prefix caching.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import field

from engine.core import PAGE_TOKENS
from engine.kv_cache.states import Places, StatePool
from engine.lazy_dataclass import dataclass


@dataclass(eq=False, slots=True)
class Page:
    """One page.

    `ids` are the tokens whose keys and values are in its first slots; `parent` is the digest of all pages
    before it. `refs` counts the leases with it in their block table, `pins` the unconfirmed copies that read
    it; `pending`: its own content still has to be copied in. `depth` is its place in the sequence; `digest`
    is None until it is full. `unread` is its number in a file from which its keys and values still have to be
    read, else -1. `states` are the states of recurrent layers that are kept with it.
    """

    index: int
    ids: list[int] = field(default_factory=list)
    parent: bytes = b""
    digest: bytes | None = None
    depth: int = 0
    refs: int = 0
    pins: int = 0
    pending: bool = False
    unread: int = -1
    states: Places = field(default_factory=dict)


def pages_for(tokens: int) -> int:
    """The number of pages for this many tokens."""
    return -(-tokens // PAGE_TOKENS)


def chain_digest(parent: bytes, ids: Sequence[int]) -> bytes:
    """The 16-byte digest of `ids` (each a signed 64-bit integer) after the prefix with digest `parent`."""
    return hashlib.blake2b(parent + array("q", ids).tobytes(), digest_size=16).digest()


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """The number of leading ids that are equal."""
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count


class PagePool:
    """`page_count` pages of `PAGE_TOKENS` positions, and `states` states of recurrent layers."""

    def __init__(self, page_count: int, states: int = 0) -> None:
        self.states = StatePool(states)
        self.pages = [Page(index) for index in range(page_count)]
        self.free = list(reversed(self.pages))
        self.idle: OrderedDict[Page, None] = OrderedDict()  # the first is reclaimed first
        # parent digest -> pages with content, full or partial
        self._children: dict[bytes, dict[Page, None]] = {}
        self._full: dict[bytes, int] = {}  # digest -> how many full pages have it

    def find_full(self, parent: bytes, chunk: list[int]) -> Page | None:
        """A page that holds exactly these `PAGE_TOKENS` ids after `parent`."""
        digest = chain_digest(parent, chunk)
        if digest not in self._full:
            return None
        return next(
            (page for page in self._children[parent] if page.digest == digest and page.ids == chunk), None
        )

    def find_partial(self, parent: bytes, chunk: list[int]) -> tuple[Page | None, int]:
        """The page after `parent` with the longest common prefix, and its length; of equals, one that
        `may_be_taken`.
        """
        best, common, best_rank = None, 0, (0, False)
        for page, length in self.prefixes(parent, chunk):
            rank = (length, self.may_be_taken(page) and length == len(page.ids))
            if rank > best_rank:
                best, common, best_rank = page, length, rank
        return best, common

    def prefixes(self, parent: bytes, chunk: list[int]) -> Iterator[tuple[Page, int]]:
        """The pages after `parent` that begin as `chunk` does, and the length of what is common."""
        for page in self._children.get(parent, ()):
            if not page.pending and (length := _common(page.ids, chunk)):
                yield page, length

    def may_be_taken(self, page: Page) -> bool:
        """Whether nothing relies on the page's content."""
        return not page.refs and not page.pins

    def available(self) -> int:
        """The number of pages that `acquire` could return."""
        return len(self.free) + sum(1 for page in self.idle if not page.pins)

    def acquire(self) -> Page | None:
        """An empty page with one reference, if need be the idle page that was used longest ago; None if there
        is none.
        """
        if not self.free:
            oldest = next((page for page in self.idle if not page.pins), None)
            if oldest is None:
                return None
            self.drop([oldest])
        page = self.free.pop()
        page.refs = 1
        return page

    def hold(self, page: Page) -> None:
        """Add a reference."""
        self.idle.pop(page, None)
        page.refs += 1

    def release(self, page: Page) -> None:
        """Remove a reference; content that was never copied in is dropped."""
        page.refs -= 1
        if page.pending:
            self.drop(self._clear(page))
        self._settle(page)

    def reclaim_first(self, page: Page) -> None:
        """Reclaim this idle page next: it is unlikely to be needed."""
        if page in self.idle:
            self.idle.move_to_end(page, last=False)

    def unpin(self, page: Page) -> None:
        """Remove an unconfirmed copy from this page."""
        page.pins -= 1
        self._settle(page)

    def begin(self, page: Page, parent: bytes, depth: int, ids: Sequence[int] = ()) -> None:
        """Make an empty page the successor of `parent`, with these ids (fewer than a page)."""
        page.parent, page.depth = parent, depth
        page.ids.extend(ids)
        self._children.setdefault(parent, {})[page] = None

    def append(self, page: Page, ids: Sequence[int]) -> None:
        """Append ids that fit; a page that is full now gets its digest."""
        page.ids += ids
        if len(page.ids) == PAGE_TOKENS:
            page.digest = chain_digest(page.parent, page.ids)
            self._full[page.digest] = self._full.get(page.digest, 0) + 1

    def cut(self, page: Page, length: int) -> None:
        """Forget the content from `length` (>= 1) on, and idle pages that could be found only through it."""
        if length < len(page.ids):
            del page.ids[length:]
            self.states.cut(page.states, length)
            self.drop(self._unseal(page))

    def drop(self, pages: Sequence[Page]) -> None:
        """Make idle pages free, and with them the idle pages that could be found only through them."""
        stack = list(pages)
        while stack:
            page = stack.pop()
            if page in self.idle:
                del self.idle[page]
                stack.extend(self._clear(page))
                self.free.append(page)

    def _settle(self, page: Page) -> None:
        """File a page that no lease holds: free if it is empty or another one repeats it, else idle."""
        if page.refs:
            return
        if not page.ids:
            self.free.append(page)
            return
        self.idle.pop(page, None)
        self.idle[page] = None
        if page.pins:
            return
        for other in [
            other for other in self._children[page.parent] if other is not page and other in self.idle
        ]:
            if len(other.ids) > len(page.ids) and other.ids[: len(page.ids)] == page.ids:
                self.idle.pop(other)
                self.idle[other] = None
                self.states.move(page.states, other.states)
                self.drop([page])
                return
            if not other.pins and page.ids[: len(other.ids)] == other.ids:
                self.states.move(other.states, page.states)
                self.drop([other])

    def _unseal(self, page: Page) -> list[Page]:
        """Remove a page's digest; returns the pages that can no longer be found.

        These are idle and not being copied from: whoever holds or copies a page holds the pages before it,
        too.
        """
        digest, page.digest = page.digest, None
        if digest is None:
            return []
        self._full[digest] -= 1
        if self._full[digest]:
            return []
        del self._full[digest]
        return list(self._children.get(digest, ()))

    def _clear(self, page: Page) -> list[Page]:
        """Forget all content of a page; returns the pages that can no longer be found."""
        siblings = self._children[page.parent]
        del siblings[page]
        if not siblings:
            del self._children[page.parent]
        page.ids, page.pending, page.unread = [], False, -1
        self.states.cut(page.states, 0)
        return self._unseal(page)

    def problems(self) -> Iterator[str]:
        """A sentence for each broken invariant of lists and indexes."""
        free, full = set(self.free), dict[bytes, int]()
        if len(free) != len(self.free):
            yield "a page is in the free list twice"
        for page in self.pages:
            if (page in free) != (not page.refs and not page.ids) or (page in self.idle) != (
                not page.refs and bool(page.ids)
            ):
                yield f"page {page.index} is in the wrong list"
            if (page in self._children.get(page.parent, ())) != bool(page.ids):
                yield f"page {page.index} is indexed wrongly"
            if page.digest != (chain_digest(page.parent, page.ids) if len(page.ids) == PAGE_TOKENS else None):
                yield f"page {page.index} has the wrong digest"
            if page.unread >= 0 and (page.refs > 1 or page.pending or not page.ids):
                yield f"page {page.index} cannot be unread"
            if any(not 1 <= place <= len(page.ids) for place in page.states):
                yield f"page {page.index} keeps a state of tokens that it does not hold"
            if page.digest is not None:
                full[page.digest] = full.get(page.digest, 0) + 1
        if full != self._full:
            yield "the table of digests is wrong"
        if sum(len(pages) for pages in self._children.values()) != sum(1 for page in self.pages if page.ids):
            yield "the index holds pages without content"
        if not all(self._children.values()):
            yield "the index holds a beginning that no page follows"
        for page in self.pages:
            if page.ids and page.depth and page.parent not in full:
                yield f"page {page.index} cannot be found"
            if page.pins and not page.ids:
                yield f"page {page.index} is to be copied from, but empty"
