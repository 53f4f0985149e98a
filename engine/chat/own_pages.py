"""Pages of the KV cache for a text that is read beside the replies: to score it, or to embed it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from uuid import uuid4

from engine.chat.local import LocalChat
from engine.core import Waiting
from engine.errors import ContextTooLong
from engine.kv_cache.lease import Lease


@contextmanager
def own_pages(
    chat: LocalChat, length: int, *, keep: bool = False
) -> Iterator[Generator[Waiting, None, Lease]]:
    """Waits for a lease with pages for a text of `length` tokens, which is read whole, whatever is cached, by
    the model with its usual adapters. What the lease wrote is forgotten at the end of the context, unless it
    is to `keep`.
    """
    cache, opened = chat.generator.cache, list[Lease]()

    def ready() -> Generator[Waiting, None, Lease]:
        yield from lent
        opened.append(cache.table.open((), key=cache.key if keep else f" {uuid4()}"))
        yield from _reserved(chat, opened[0], length)
        return opened[0]

    with chat.borrow() as lent:
        try:
            yield ready()
        finally:
            pages = [page for lease in opened if not keep for page in lease.pages[:1]]
            for lease in opened:
                lease.close()
            for page in pages:
                cache.table.lose(page)


def _reserved(chat: LocalChat, lease: Lease, length: int) -> Generator[Waiting, None, None]:
    """Reserve all pages for a text of `length` tokens; waits while replies hold them.

    Texts that hold some pages and wait for more could wait for each other.
    """
    cache = chat.generator.cache
    while True:
        try:
            cache.reserve(lease, length)
        except ContextTooLong:
            if not cache.table.others(lease):
                raise
        else:
            return
        yield Waiting(queued=True)
