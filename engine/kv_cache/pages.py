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
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.core import PAGE_TOKENS
from engine.errors import ContextTooLong
from engine.kv_cache.page_pool import Page, PagePool, chain_digest


def pages_for(tokens: int) -> int:
    """The number of pages for this many tokens."""
    return -(-tokens // PAGE_TOKENS)


class PageTable:
    """All pages of one cache: `page_count` pages of `PAGE_TOKENS` positions, in `pool`."""

    def __init__(self, page_count: int) -> None:
        self.page_count = page_count
        self.pool = PagePool(page_count)
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

    def open(self, ids: Sequence[int], *, key: str = "", leave: int = 0) -> Lease:
        """A lease on the longest cached prefix of `ids`; see `Lease`. Never fails.

        It leaves out at least the last `leave` ids, so that there is something to run. `key` names what else
        keys and values depend on (model, adapter): content is found only under the key it was written with.
        """
        tokens, pool = [int(token) for token in ids], self.pool
        most = len(tokens) - leave
        lease = Lease(self, pool, key)
        self._leases[lease] = None
        while most - lease.length >= PAGE_TOKENS:
            page = pool.find_full(lease._parent(), tokens[lease.length : lease.length + PAGE_TOKENS])
            if page is None:
                break
            pool.hold(page)
            lease._append(page)
        found, common = pool.find_partial(lease._parent(), tokens[lease.length : lease.length + PAGE_TOKENS])
        if found is not None and most > lease.length:
            # What the lease is about to run again may be cut off; but a full page could have others after it.
            lossless = common == len(found.ids) and found.digest is None
            lease._take_part(found, min(common, most - lease.length), lossless)
        return lease

    def found(self, ids: Sequence[int], *, key: str = "", leave: int = 0) -> int:
        """The length of the prefix that `open` would find; nothing changes."""
        tokens, at, parent = [int(token) for token in ids], 0, _root(key)
        most = len(tokens) - leave
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
        for problem in self._problems():
            raise AssertionError(problem)

    def _close(self, lease: Lease) -> None:
        del self._leases[lease]

    def _problems(self) -> Iterator[str]:
        refs, pins = dict[Page, int](), dict[Page, int]()
        for lease in self._leases:
            yield from lease._problems()
            for page in lease._block:
                refs[page] = refs.get(page, 0) + 1
            for source, _ in lease._copying:
                pins[source] = pins.get(source, 0) + 1
        for page in self.pool.pages:
            if (page.refs, page.pins) != (refs.get(page, 0), pins.get(page, 0)):
                yield (
                    f"page {page.index} counts {page.refs} references and {page.pins} pins, but the leases "
                    "say otherwise"
                )
        yield from self.pool.problems()


class Lease:
    """One sequence's pages, made by `PageTable.open`.

    `pages` is the block table (page j holds positions 256 j ... 256 j + 255) and `ids` the tokens whose keys
    and values are valid. `copies` lists (source page, target page): the caller copies these whole pages, in
    order, before it runs the model on this lease; doing so twice does no harm. `copied()` confirms it, and
    `extend` implies it.

    The order of use: `open`, `reserve`, copies, then repeatedly: run the model on positions from `length` on,
    `extend`. After `truncate`: `reserve` and copies again. Slots after `length` may hold anything, such as
    rejected drafts.
    """

    def __init__(self, table: PageTable, pool: PagePool, key: str) -> None:
        self.ids: list[int] = []
        self.pages: list[int] = []
        self.copies: list[tuple[int, int]] = []
        self._table = table
        self._pool = pool
        self._root = _root(key)
        self._block: list[Page] = []
        # not confirmed yet; the caller may have emptied `copies`
        self._copying: list[tuple[Page, Page]] = []
        self._closed = False

    @property
    def length(self) -> int:
        """Tokens whose keys and values are valid."""
        return len(self.ids)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def unread(self) -> list[tuple[int, int, int]]:
        """What must be read from a file first: (depth in the block table, page, its number in the file).

        Empty unless `engine.kv_cache.prefix_index.take_up` was used. The source of a copy has the depth of
        its copy.
        """
        places = [
            *enumerate(self._block),
            *((self._block.index(target), source) for source, target in self._copying),
        ]
        return [(depth, page.index, page.unread) for depth, page in places if page.unread >= 0]

    def reserve(self, total_tokens: int) -> None:
        """Reserve pages for `total_tokens` positions. Raises `ContextTooLong`, with nothing lost, if there
        are too few.

        Read `copies` and `pages` only afterwards: where pages are short, a source replaces its copy.
        """
        self._must_be_open()
        missing = pages_for(total_tokens) - len(self._block)
        if missing <= 0:
            return
        if missing > self._pool.available():
            self._undo_copies()
        available = self._pool.available()
        if missing > available:
            raise ContextTooLong(
                f"This conversation needs {missing} more cache pages of {PAGE_TOKENS} tokens, but only "
                f"{available} of {self._table.page_count} can be had; shorten it or choose a larger context "
                "length."
            )
        for _ in range(missing):
            page = self._pool.acquire()
            assert page is not None
            self._block.append(page)
            self.pages.append(page.index)

    def extend(self, ids: Sequence[int]) -> None:
        """Take in tokens whose keys and values have been written after `length`.

        Raises ValueError if they do not fit into the reserved pages.
        """
        self._must_be_open()
        held, new = self.ids, list(map(int, ids))
        if len(held) + len(new) > len(self._block) * PAGE_TOKENS:
            raise ValueError(
                f"{len(new)} tokens after {self.length} do not fit into {len(self._block)} reserved pages"
            )
        if self._copying or self.copies:
            self.copied()
        while new:
            depth, slot = divmod(len(held), PAGE_TOKENS)
            page = self._block[depth]
            if not slot:
                self._pool.begin(page, self._parent(), depth)
            part, new = new[: PAGE_TOKENS - slot], new[PAGE_TOKENS - slot :]
            self._pool.append(page, part)
            held.extend(part)

    def truncate(self, length: int) -> None:
        """Forget the tokens from `length` on and return the pages after it, reserved ones too. No key or
        value moves.

        A page that other leases need is replaced by a copy (see `copies`). Raises ValueError if `length` is
        not in 0 ... self.length, and `ContextTooLong`, with nothing changed, if there is no page for the
        copy.
        """
        self._must_be_open()
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot truncate {self.length} tokens to {length}")
        keep, cut = pages_for(length), length % PAGE_TOKENS
        surplus = self._block[keep:]
        last = self._block[keep - 1] if cut and length < self.length else None
        shared = last is not None and (last.refs > 1 or last.pins > 0)
        if shared and not self._pool.available() and all(page.refs > 1 or page.pins for page in surplus):
            raise ContextTooLong(
                f"Going back to token {length} needs one more cache page of {PAGE_TOKENS} tokens, but all "
                f"{self._table.page_count} are in use; close another conversation or choose a larger "
                "context length."
            )
        del self._block[keep:], self.pages[keep:], self.ids[length:]
        self._release(surplus)
        if surplus and surplus[-1].digest is None:
            self._pool.reclaim_first(surplus[-1])  # mostly rejected drafts
        if last is not None and shared:
            self._replace_by_copy(last, cut)
        elif last is not None:
            self._pool.cut(last, cut)

    def copied(self) -> None:
        """Confirm that `copies` are done: their sources may be reclaimed, their targets found by others."""
        copying, self._copying = self._copying, []
        self.copies.clear()
        for source, target in copying:
            target.pending = False
            self._pool.unpin(source)

    def close(self) -> None:
        """Return all pages; their content can be found again, except that of unconfirmed `copies`.

        May be called twice.
        """
        if not self._closed:
            self._closed = True
            self._table._close(self)
            block, self._block, self.pages, self.ids = self._block, [], [], []
            self._release(block)

    def _must_be_open(self) -> None:
        if self._closed:
            raise ValueError("this lease was closed")

    def _parent(self) -> bytes:
        """The digest of the full pages so far; defined only at a page boundary."""
        depth = self.length // PAGE_TOKENS
        digest = self._block[depth - 1].digest if depth else self._root
        assert digest is not None
        return digest

    def _append(self, page: Page) -> None:
        self._block.append(page)
        self.pages.append(page.index)
        self.ids.extend(page.ids)

    def _take_part(self, page: Page, common: int, lossless: bool) -> None:
        """Use the first `common` tokens of `page`: the page itself if that is `lossless`, else a copy, if
        there is a page for it.

        The copy takes the page that was used longest ago rather than one of the same conversation.
        """
        pool = self._pool
        target = None
        if not pool.may_be_taken(page) or not lossless:
            page.pins += 1  # before `acquire`, which could reclaim it
            target = pool.acquire()
            if target is None:
                page.pins -= 1
                if not pool.may_be_taken(page):
                    return
        if target is None:
            pool.hold(page)
            pool.cut(page, common)
            self._append(page)
            return
        pool.begin(target, page.parent, page.depth, page.ids[:common])
        self._append(target)
        self._owe_copy(page, target)

    def _replace_by_copy(self, page: Page, length: int) -> None:
        """Replace the last page, which other leases need, by a copy of its first `length` tokens."""
        page.pins += 1
        target = self._pool.acquire()
        assert target is not None
        self._pool.begin(target, page.parent, page.depth, page.ids[:length])
        self._block[-1], self.pages[-1] = target, target.index
        self._owe_copy(page, target)
        self._pool.release(page)

    def _owe_copy(self, source: Page, target: Page) -> None:
        """Note a copy to make. `source` is already pinned."""
        target.pending = True
        self._copying.append((source, target))
        self.copies.append((source.index, target.index))

    def _undo_copies(self) -> None:
        """Where the source of a copy is idle, use the source itself, cut, and return the target."""
        for source, target in list(self._copying):
            if not source.refs and source.pins == 1:
                place = self._block.index(target)
                self._pool.hold(source)
                self._pool.cut(source, len(target.ids))
                self._block[place], self.pages[place] = source, source.index
                self._release([target])

    def _release(self, pages: Sequence[Page]) -> None:
        """Release pages, the last one first, so that the end of a conversation is reclaimed before its
        beginning.
        """
        for page in reversed(pages):
            for owed in [pair for pair in self._copying if pair[1] is page]:
                self._copying.remove(owed)
                self.copies[:] = [pair for pair in self.copies if pair != (owed[0].index, page.index)]
                self._pool.unpin(owed[0])
            self._pool.release(page)

    def _problems(self) -> Iterator[str]:
        if self.pages != [page.index for page in self._block]:
            yield "a lease's block table is wrong"
        parent = self._root
        for depth, page in enumerate(self._block):
            mine = self.ids[depth * PAGE_TOKENS : (depth + 1) * PAGE_TOKENS]
            if page.ids != mine:
                yield f"page {page.index} does not hold what its lease relies on"
            if page.refs > 1 and page.digest is None:
                yield f"page {page.index} is shared before it is full"
            if mine and (page.parent, page.depth) != (parent, depth):
                yield f"page {page.index} follows the wrong page"
            parent = page.digest or b""


def _root(key: str) -> bytes:
    """The digest before the first page of a key."""
    return chain_digest(b"", list(key.encode("utf-8")))
