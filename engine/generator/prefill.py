"""Reading the prompt: what the cache does not hold yet is run through the model in chunks, with progress."""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence

from engine.backends.base import Floats
from engine.cache.pages import Lease
from engine.core import Prefill
from engine.models.paged import PagedCache


def prefill(cache: PagedCache, lease: Lease, ids: Sequence[int], stop: threading.Event | None) -> Generator[Prefill, None, Floats | None]:
    """Run `ids` from the lease's length on; yields progress first, after each chunk, and with done == total at the end.

    Returns the logits (V,) float32 after the last id, or None when `stop` was set: what was run until then stays cached.
    """
    cached, total = lease.length, len(ids)
    yield Prefill(cached, total, cached)
    logits: Floats | None = None
    while lease.length < total:
        if stop is not None and stop.is_set():
            return None
        logits = cache.run(lease, ids[lease.length : lease.length + cache.rows])[-1]
        yield Prefill(lease.length, total, cached)
    return logits
