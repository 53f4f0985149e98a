"""The page table of the key/value cache: which pages each sequence holds, and which prefixes are cached.

Pure bookkeeping: no key or value is touched here. A *lease* is one sequence's hold on its pages. Closed
leases leave idle pages, whose content the next `open` finds again until the pages are needed for something
else (least recently used first, ends of conversations before their beginnings). Full pages are shared between
leases; the first page that matches only in part is copied, or taken as it is. Single-threaded, like the
cache.

Three laws, tested by `tests/engine/kv_cache/test_pages_stateful.py`:

1. A lease writes only after its own `length`, into pages that no other lease holds.
2. Content is changed or reclaimed only when no lease relies on it.
3. The source of a copy that is not confirmed yet (`copies`) is neither reclaimed nor cut.

With states of recurrent layers a lease is as long as its latest state says: `open` finds the longest cached
prefix that has a state, and `truncate` goes back to the state before, which may forget more than was asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.core import PAGE_TOKENS
from engine.kv_cache.lease import Lease
from engine.kv_cache.page_pool import Page, PagePool, chain_digest
from engine.kv_cache.state_search import find_state
from engine.kv_cache.states import State


class PageTable:
    """All pages of one cache: `page_count` pages of `PAGE_TOKENS` positions, in `pool`, and `states` states
    of recurrent layers, 0 for a model without.
    """

    def __init__(self, page_count: int, states: int = 0) -> None:
        self.page_count = page_count
        self.pool = PagePool(page_count, states)
        self._leases: dict[Lease, None] = {}

    @property
    def free(self) -> int:
        """The number of empty pages."""
        return len(self.pool.free)

    @property
    def idle(self) -> int:
        """The number of pages that no lease holds, with content that can be found again."""
        return len(self.pool.idle)

    @property
    def cached(self) -> int:
        """The number of pages with content, idle or held."""
        return sum(1 for page in self.pool.pages if page.ids)

    def others(self, lease: Lease) -> bool:
        """Whether there are open leases besides this one."""
        return any(other is not lease for other in self._leases)

    def open(self, ids: Sequence[int], *, key: str = "", leave: int = 0) -> Lease:
        """A lease on the longest cached prefix of `ids`; see `Lease`. Never fails.

        It leaves out at least the last `leave` ids, so that there is something to run. `key` names what else
        keys and values depend on (model, adapter): content is found only under the key it was written with.
        """
        tokens, pool = [int(token) for token in ids], self.pool
        most = len(tokens) - leave
        lease = Lease(pool, _root(key), self._leases.pop)
        self._leases[lease] = None
        if pool.states.count:
            lease.begin_at(tokens, find_state(pool, _root(key), tokens[: max(0, most)]))
            return lease
        while most - lease.length >= PAGE_TOKENS:
            page = pool.find_full(lease.parent(), tokens[lease.length : lease.length + PAGE_TOKENS])
            if page is None:
                break
            pool.hold(page)
            lease.append(page)
        found, common = pool.find_partial(lease.parent(), tokens[lease.length : lease.length + PAGE_TOKENS])
        if found is not None and most > lease.length:
            # What the lease is about to run again may be cut off; but a full page could have others after it.
            lossless = common == len(found.ids) and found.digest is None
            lease.take_part(found, min(common, most - lease.length), lossless)
        return lease

    def found(self, ids: Sequence[int], *, key: str = "", leave: int = 0) -> int:
        """The length of the prefix that `open` would find; nothing changes."""
        tokens, at, parent = [int(token) for token in ids], 0, _root(key)
        most = len(tokens) - leave
        if self.pool.states.count:
            return find_state(self.pool, parent, tokens[: max(0, most)]).length
        while most - at >= PAGE_TOKENS:
            page = self.pool.find_full(parent, tokens[at : at + PAGE_TOKENS])
            if page is None or page.digest is None:
                break
            parent, at = page.digest, at + PAGE_TOKENS
        return max(0, min(most, at + self.pool.find_partial(parent, tokens[at : at + PAGE_TOKENS])[1]))

    def held(self, ids: Sequence[int], *, key: str = "") -> int:
        """How many of the pages that `open` would find are full and held by a lease already."""
        tokens, at, parent, count = [int(token) for token in ids], 0, _root(key), 0
        while len(tokens) - at > PAGE_TOKENS:
            page = self.pool.find_full(parent, tokens[at : at + PAGE_TOKENS])
            if page is None or page.digest is None or not page.refs:
                break
            parent, at, count = page.digest, at + PAGE_TOKENS, count + 1
        return count

    def read(self, page: int) -> None:
        """Confirm that the keys and values of an `unread` page have been read."""
        self.pool.pages[page].unread = -1

    def lose(self, page: int) -> None:
        """Forget an idle page that cannot be read, and what follows it."""
        self.pool.drop([self.pool.pages[page]])

    def forget(self) -> None:
        """Drop all idle content, except pages that a lease is still copying from."""
        self.pool.drop([page for page in self.pool.idle if not page.pins])

    def check(self) -> None:
        """Raise AssertionError if the bookkeeping contradicts itself. Slow: it checks everything."""
        for problem in self.problems():
            raise AssertionError(problem)

    def problems(self) -> Iterator[str]:
        refs, pins, used = dict[Page, int](), dict[Page, int](), dict[State, int]()
        for lease in self._leases:
            yield from lease.problems()
            for page in lease.block:
                refs[page] = refs.get(page, 0) + 1
            for source, _ in lease.copying:
                pins[source] = pins.get(source, 0) + 1
            for state in lease.held_states():
                used[state] = used.get(state, 0) + 1
        yield from self.pool.states.problems((page.states for page in self.pool.pages), used)
        for page in self.pool.pages:
            if (page.refs, page.pins) != (refs.get(page, 0), pins.get(page, 0)):
                yield (
                    f"page {page.index} counts {page.refs} references and {page.pins} pins, but the leases "
                    "say otherwise"
                )
        yield from self.pool.problems()


def _root(key: str) -> bytes:
    """The digest before the first page of a key."""
    return chain_digest(b"", list(key.encode("utf-8")))
