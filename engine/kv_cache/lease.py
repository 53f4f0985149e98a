"""One sequence's hold on its pages, and on the states of recurrent layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from engine.core import PAGE_TOKENS
from engine.errors import ContextTooLong
from engine.kv_cache.page_pool import Page, PagePool, pages_for
from engine.kv_cache.state_search import FoundState
from engine.kv_cache.states import State
from engine.words import _


class Lease:
    """One sequence's pages, made by `PageTable.open`.

    `pages` is the block table (page j holds positions 256 j ... 256 j + 255) and `ids` the tokens whose keys
    and values are valid. `copies` lists (source page, target page): the caller copies these whole pages, in
    order, before it runs the model on this lease; doing so twice does no harm. `copied()` confirms it, and
    `extend` implies it.

    The order of use: `open`, `reserve`, copies, then repeatedly: run the model on positions from `length` on,
    `extend`. After `truncate`: `reserve` and copies again. Slots after `length` may hold anything, such as
    rejected drafts.

    For `PageTable` alone: `begin_at`, `parent`, `append` and `take_part`, by which it is filled when it is
    opened; its pages `block`; and `copying`, the copies that are not confirmed yet.
    """

    def __init__(self, pool: PagePool, root: bytes, closed: Callable[[Lease], object]) -> None:
        self.ids: list[int] = []
        self.pages: list[int] = []
        self.copies: list[tuple[int, int]] = []
        self._pool = pool
        self._root = root
        self._when_closed = closed
        self.block: list[Page] = []
        self.copying: list[tuple[Page, Page]] = []
        self._marks: list[tuple[int, State]] = []  # the latest states, each with the length it sums up
        self._targets: list[State] = []  # those that the next passes write
        self._closed = False

    @property
    def length(self) -> int:
        """Tokens whose keys and values are valid."""
        return len(self.ids)

    @property
    def own_pages(self) -> int:
        """How many of its pages no other lease holds."""
        return sum(page.refs == 1 for page in self.block)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_unused: object) -> None:
        self.close()

    @property
    def unread(self) -> list[tuple[int, int, int]]:
        """What must be read from a file first: (depth in the block table, page, its number in the file).

        Empty unless `engine.kv_cache.prefix_index.take_up` was used. The source of a copy has the depth of
        its copy.
        """
        places = [
            *enumerate(self.block),
            *((self.block.index(target), source) for source, target in self.copying),
        ]
        return [(depth, page.index, page.unread) for depth, page in places if page.unread >= 0]

    @property
    def states(self) -> tuple[int, int]:
        """For `Step.states`: the numbers of the state at `length`, -1 for none, and of the one that was
        reserved for the next pass.
        """
        before = self._marks[-1][1].number if self._marks else -1
        return before, self._targets[0].number

    def reserve_ahead(self) -> int:
        """Reserve a state for the pass after the next one, too, which may begin before `extend`; returns its
        number. Raises `ContextTooLong`.
        """
        self._reserve_states(2)
        return self._targets[1].number

    def keep_state(self) -> None:
        """Make the state at `length`, if there is one, findable even when the text goes on differently."""
        if self._marks:
            length, state = self._marks[-1]
            depth, place = divmod(length - 1, PAGE_TOKENS)
            self._pool.states.keep(state, self.block[depth].states, place + 1)

    def reserve(self, total_tokens: int) -> None:
        """Reserve pages for `total_tokens` positions, and a state for the next pass to write. Raises
        `ContextTooLong`, with nothing lost, if there are too few.

        Read `copies` and `pages` only afterwards: where pages are short, a source replaces its copy.
        """
        self._must_be_open()
        self._reserve_states(1)
        missing = pages_for(total_tokens) - len(self.block)
        if missing <= 0:
            return
        if missing > self._pool.available():
            self._undo_copies()
        available = self._pool.available()
        if missing > available:
            raise ContextTooLong(
                _(
                    "This chat needs {missing} more cache pages of {page_tokens} tokens, but only "
                    "{available} of {pages} are available; shorten it or choose a larger context "
                    "length.",
                    missing=missing,
                    page_tokens=PAGE_TOKENS,
                    available=available,
                    pages=len(self._pool.pages),
                )
            )
        for _unused in range(missing):
            page = self._pool.acquire()
            assert page is not None
            self.block.append(page)
            self.pages.append(page.index)

    def extend(self, ids: Sequence[int]) -> None:
        """Take in tokens whose keys and values have been written after `length`.

        Raises ValueError if they do not fit into the reserved pages.
        """
        if self._closed:
            self._must_be_open()
        held, new = self.ids, list(map(int, ids))
        start = at = len(held)
        end = at + len(new)
        if end > len(self.block) * PAGE_TOKENS:
            raise ValueError(
                f"{len(new)} tokens after {self.length} do not fit into {len(self.block)} reserved pages"
            )
        if self.copying or self.copies:
            self.copied()
        while at < end:
            depth, slot = at // PAGE_TOKENS, at % PAGE_TOKENS
            page = self.block[depth]
            if not slot:
                self._pool.begin(page, self.parent(), depth)
            part = new[at - start : at - start + PAGE_TOKENS - slot]
            self._pool.append(page, part)
            held += part
            at += PAGE_TOKENS - slot
        if self._pool.states.count and end > start:
            self._advance(start)

    def truncate(self, length: int) -> None:
        """Forget the tokens from `length` on and return the pages after it, reserved ones too. No key or
        value moves.

        A page that other leases need is replaced by a copy (see `copies`). Raises ValueError if `length` is
        not in 0 ... self.length, and `ContextTooLong`, with nothing changed, if there is no page for the
        copy. Of a model with recurrent layers the lease may be shorter afterwards.
        """
        self._must_be_open()
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot truncate {self.length} tokens to {length}")
        marks = self._marks
        if self._pool.states.count and length < self.length:
            marks = self._marks_up_to(length)
            length = marks[-1][0] if marks else 0
        keep, cut = pages_for(length), length % PAGE_TOKENS
        surplus = self.block[keep:]
        last = self.block[keep - 1] if cut and length < self.length else None
        shared = last is not None and (last.refs > 1 or last.pins > 0)
        if shared and not self._pool.available() and all(page.refs > 1 or page.pins for page in surplus):
            raise ContextTooLong(
                _(
                    "Going back to token {length} needs one more cache page of {page_tokens} "
                    "tokens, but all {pages} are in use; close another chat or choose a larger "
                    "context length.",
                    length=length,
                    page_tokens=PAGE_TOKENS,
                    pages=len(self._pool.pages),
                )
            )
        self._take_marks(marks)
        del self.block[keep:], self.pages[keep:], self.ids[length:]
        self._release(surplus)
        if surplus and surplus[-1].digest is None:
            self._pool.reclaim_first(surplus[-1])  # mostly rejected drafts
        if last is not None and shared:
            self._replace_by_copy(last, cut)
        elif last is not None:
            self._pool.cut(last, cut)

    def copied(self) -> None:
        """Confirm that `copies` are done: their sources may be reclaimed, their targets found by others."""
        copying, self.copying = self.copying, []
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
            self.keep_state()
            self._when_closed(self)
            self._take_marks([])
            targets, self._targets = self._targets, []
            for state in reversed(targets):
                self._pool.states.release(state)
            block, self.block, self.pages, self.ids = self.block, [], [], []
            self._release(block)

    # -- states

    def held_states(self) -> list[State]:
        """The states that it uses."""
        return [*(state for _unused, state in self._marks), *self._targets]

    def begin_at(self, tokens: Sequence[int], found: FoundState) -> None:
        """Take the pages up to a state that was found; none if there is no page for the copy of the last."""
        if found.state is None:
            return
        self._pool.states.hold(found.state)
        self._marks.append((found.length, found.state))
        for page in found.pages[:-1]:
            self._pool.hold(page)
            self.append(page)
        page, rest = found.pages[-1], found.length - self.length
        if rest == PAGE_TOKENS:
            self._pool.hold(page)
            self.append(page)
        else:
            self.take_part(page, rest, rest == len(page.ids))
        if self.length < found.length:
            self._take_marks([])
            block, self.block, self.pages, self.ids = self.block, [], [], []
            self._release(block)

    def _reserve_states(self, count: int) -> None:
        """Have states for the next passes to write; the one before the latest is given up if need be."""
        pool = self._pool.states
        while pool.count and len(self._targets) < count:
            state = pool.acquire()
            if state is None and len(self._marks) > 1:
                self._take_marks(self._marks[-1:])
                state = pool.acquire()
            if state is None:
                raise ContextTooLong(
                    _(
                        "All {count} states of this model's recurrent layers are in use; close "
                        "another chat, or choose more memory for chats.",
                        count=pool.count,
                    )
                )
            self._targets.append(state)

    def _advance(self, start: int) -> None:
        """A pass has written the state after the tokens from `start` on. What is left of the text at the
        latest end of a page, or in the pass before it, is kept.
        """
        if not self._targets:
            raise ValueError("no state was reserved for these tokens")
        border = self.length // PAGE_TOKENS * PAGE_TOKENS
        if start < border < self.length:
            self.keep_state()
        self._marks = [*self._marks, (self.length, self._targets.pop(0))]
        if border == self.length:
            self.keep_state()
        if len(self._marks) > 2:
            self._pool.states.release(self._marks.pop(0)[1])

    def _marks_up_to(self, length: int) -> list[tuple[int, State]]:
        """The latest state that sums up at most `length` tokens, as marks; none if there is none."""
        marks = [mark for mark in self._marks if mark[0] <= length][-1:]
        if marks:
            return marks  # none is kept between the two latest passes
        for depth in reversed(range(pages_for(length))):
            first, kept = depth * PAGE_TOKENS, self.block[depth].states
            if places := [place for place in kept if first + place <= length]:
                return [(first + max(places), kept[max(places)])]
        return []

    def _take_marks(self, marks: list[tuple[int, State]]) -> None:
        """Use these states instead of those so far."""
        before, self._marks = self._marks, marks
        for _unused, state in marks:
            self._pool.states.hold(state)
        for _unused, state in before:
            self._pool.states.release(state)

    # -- pages

    def _must_be_open(self) -> None:
        if self._closed:
            raise ValueError("this lease was closed")

    def parent(self) -> bytes:
        """The digest of the full pages so far; defined only at a page boundary."""
        depth = self.length // PAGE_TOKENS
        digest = self.block[depth - 1].digest if depth else self._root
        assert digest is not None
        return digest

    def append(self, page: Page) -> None:
        """Use one more page, which is held already, with all its tokens."""
        self.block.append(page)
        self.pages.append(page.index)
        self.ids.extend(page.ids)

    def take_part(self, page: Page, common: int, lossless: bool) -> None:
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
            self.append(page)
            return
        pool.begin(target, page.parent, page.depth, page.ids[:common])
        self.append(target)
        self._owe_copy(page, target)

    def _replace_by_copy(self, page: Page, length: int) -> None:
        """Replace the last page, which other leases need, by a copy of its first `length` tokens."""
        page.pins += 1
        target = self._pool.acquire()
        assert target is not None
        self._pool.begin(target, page.parent, page.depth, page.ids[:length])
        self.block[-1], self.pages[-1] = target, target.index
        self._owe_copy(page, target)
        self._pool.release(page)

    def _owe_copy(self, source: Page, target: Page) -> None:
        """Note a copy to make. `source` is already pinned."""
        target.pending = True
        self.copying.append((source, target))
        self.copies.append((source.index, target.index))

    def _undo_copies(self) -> None:
        """Where the source of a copy is idle, use the source itself, cut, and return the target."""
        for source, target in list(self.copying):
            if not source.refs and source.pins == 1:
                place = self.block.index(target)
                self._pool.hold(source)
                self._pool.cut(source, len(target.ids))
                self.block[place], self.pages[place] = source, source.index
                self._release([target])

    def _release(self, pages: Sequence[Page]) -> None:
        """Release pages, the last one first, so that the end of a conversation is reclaimed before its
        beginning.
        """
        for page in reversed(pages):
            for owed in [pair for pair in self.copying if pair[1] is page]:
                self.copying.remove(owed)
                self.copies[:] = [pair for pair in self.copies if pair != (owed[0].index, page.index)]
                self._pool.unpin(owed[0])
            self._pool.release(page)

    def problems(self) -> Iterator[str]:
        if self.pages != [page.index for page in self.block]:
            yield "a lease's block table is wrong"
        parent = self._root
        for depth, page in enumerate(self.block):
            mine = self.ids[depth * PAGE_TOKENS : (depth + 1) * PAGE_TOKENS]
            if page.ids != mine:
                yield f"page {page.index} does not hold what its lease relies on"
            if page.refs > 1 and page.digest is None:
                yield f"page {page.index} is shared before it is full"
            if mine and (page.parent, page.depth) != (parent, depth):
                yield f"page {page.index} follows the wrong page"
            parent = page.digest or b""
        if self._pool.states.count and self.length != (self._marks[-1][0] if self._marks else 0):
            yield "a lease is not as long as its latest state says"
