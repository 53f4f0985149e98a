"""Finding the latest kept state of a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.core import PAGE_TOKENS
from engine.kv_cache.page_pool import Page, PagePool
from engine.kv_cache.states import State


class FoundState(NamedTuple):
    """A state that sums up the first `length` tokens, and the pages that hold these; the last keeps it."""

    length: int = 0
    state: State | None = None
    pages: tuple[Page, ...] = ()


def find_state(pool: PagePool, root: bytes, tokens: Sequence[int]) -> FoundState:
    """The latest kept state of a prefix of `tokens` after `root`; one without a state if there is none."""
    best, chain, parent = FoundState(), list[Page](), root
    while True:
        first = PAGE_TOKENS * len(chain)
        chunk = list(tokens[first : first + PAGE_TOKENS])
        for page, common in pool.prefixes(parent, chunk):
            for place, state in page.states.items():
                if place <= common and first + place > best.length:
                    best = FoundState(first + place, state, (*chain, page))
        following = pool.find_full(parent, chunk) if len(chunk) == PAGE_TOKENS else None
        if following is None or following.digest is None:
            return best
        chain.append(following)
        parent = following.digest
