"""Which jobs of the queue may start beside those that run."""

from __future__ import annotations

from collections.abc import Sequence

from engine.core import PAGE_TOKENS
from engine.generator.job import SUSPENDED, Job
from engine.kv_cache.page_pool import pages_for
from engine.models.paged import PagedCache

_LOOK_AHEAD = 16
"""How many jobs of the queue are looked at in a turn."""
_MUCH_LONGER = 4
"""A prompt may overtake one that has this many times as much left to read."""


def first(queue: Sequence[Job]) -> Sequence[Job]:
    """The first jobs of a queue: those of higher priority, then suspended ones, then older ones."""
    order = sorted(queue, key=lambda job: (-job.priority, job.state != SUSPENDED, job.serial))
    return order[:_LOOK_AHEAD]


def waits_for_a_reader(job: Job, active: Sequence[Job], cache: PagedCache) -> bool:
    """Whether a prompt that is being read comes first: it may be the same one, or nearly done."""
    readers = [other for other in active if other.reads and other.priority >= job.priority]
    if not readers:
        return False
    ids = job.ids
    found = cache.found(ids)
    for other in readers:
        if (
            other.skips >= other.max_skips
            or other.left < _MUCH_LONGER * (len(ids) - found)
            or _begin_alike(ids, other.ids, found + PAGE_TOKENS)
        ):
            return True
    for other in readers:
        other.skips += 1
    return False


def fits(
    job: Job, active: Sequence[Job], suspended: Sequence[Job], cache: PagedCache, *, borrowed: bool = False
) -> bool:
    """Whether a job can start now: with its setup, and with pages for its prompt and for every reply. Those
    of jobs of lower priority count as free: they are suspended when their pages are needed.

    The model stays as it is while others run or are `suspended`, which go on with it later, and while it is
    `borrowed`.
    """
    begun = active or borrowed or any(other is not job for other in suspended)
    if begun and job.setup is not None and not job.setup.holds():
        return False
    if not (active or borrowed):
        return True
    table = cache.table
    negative = job.request.guidance.negative_ids if job.request.guidance is not None else ()
    texts = [ids for ids in (job.ids, negative) if ids]
    free = table.pool.available() - len(active)
    pages = sum(pages_for(len(ids) + 1) for ids in texts)
    if pages - sum(table.held(ids, key=cache.key) for ids in texts) <= free:
        return True
    return pages <= free + sum(other.own_pages for other in active if other.priority < job.priority)


def _begin_alike(ids: Sequence[int], others: Sequence[int], length: int) -> bool:
    """Whether two texts have their first `length` tokens in common."""
    return len(ids) >= length and list(ids[:length]) == list(others[:length])
