"""When a job can start beside others: pages for its prompt and one for every reply."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engine.core import PAGE_TOKENS as P
from engine.generator.admission import first, fits, waits_for_a_reader
from engine.generator.job import PENDING, SUSPENDED
from engine.kv_cache.pages import PageTable
from tests.engine.kv_cache.test_pages import ids, write


def job(
    length: int, negative: int = 0, holds: bool | None = None, priority: int = 0, own_pages: int = 0
) -> Any:
    guidance = SimpleNamespace(negative_ids=ids(negative, 5000)) if negative else None
    setup = None if holds is None else SimpleNamespace(holds=lambda: holds)
    return SimpleNamespace(
        ids=ids(length), request=SimpleNamespace(guidance=guidance), setup=setup, priority=priority,
        own_pages=own_pages,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "active", "expected"),
    [
        (job(9 * P), 0, True),  # alone it starts, whatever its length
        (job(P - 1), 3, True),  # 1 page, and 3 for the others' next tokens, of 4
        (job(P - 1), 4, False),
        (job(P), 2, True),  # 2 pages: one for its own next token
        (job(P), 3, False),
        (job(P - 1, negative=P - 1), 2, True),
        (job(P - 1, negative=P - 1), 3, False),
        (job(1, holds=True), 1, True),
        (job(1, holds=False), 1, False),  # the model would have to change under the other
        (job(1, holds=False), 0, True),
    ],
)
def test_a_job_starts_if_all_have_pages(asked: Any, active: int, expected: bool) -> None:
    cache: Any = SimpleNamespace(table=PageTable(4), key="")
    assert fits(asked, [job(1)] * active, [asked], cache) is expected


@pytest.mark.parametrize(("priority", "expected"), [(-1, 5), (0, 5), (1, 7)])
def test_pages_of_jobs_of_lower_priority_count_as_free(priority: int, expected: int) -> None:
    cache: Any = SimpleNamespace(table=PageTable(6), key="")
    active = [job(1, own_pages=2), job(1, priority=1, own_pages=3)]
    found = [pages for pages in range(1, 9) if fits(job(pages * P - 1, priority=priority), active, [], cache)]
    assert max(found) == expected - 1


def test_pages_that_others_hold_already_are_shared() -> None:
    cache: Any = SimpleNamespace(table=PageTable(4), key="")
    with write(cache.table, ids(P)):
        assert [fits(job(P + 5), [job(1)] * count, [], cache) for count in (2, 3)] == [True, False]
        assert [fits(job(P + 5), [], [job(1)], cache), fits(job(1, holds=False), [], [job(1)], cache)] == [
            True,
            False,
        ]


def test_those_of_higher_priority_come_first_then_suspended_ones_then_older_ones() -> None:
    def waiting(serial: int, state: str = PENDING, priority: int = 0) -> Any:
        return SimpleNamespace(serial=serial, state=state, priority=priority)

    queue = [waiting(number) for number in range(20)]
    queue += [
        waiting(20, SUSPENDED),
        waiting(21, SUSPENDED, -1),
        waiting(22, priority=1),
        waiting(23, SUSPENDED),
    ]
    assert [job.serial for job in first(queue)] == [22, 20, 23, *range(13)]


def reader(length: int, read: int = 0, *, start: int = 0, priority: int = 0, reads: bool = True) -> Any:
    """A job with a prompt of `length` tokens, the same ones for an equal `start`, `read` of them read."""
    return SimpleNamespace(
        ids=ids(length, start), left=length - read, reads=reads, priority=priority, skips=0, max_skips=2
    )


@pytest.mark.parametrize(
    ("other", "waits"),
    [
        (reader(4 * P, start=5000), False),  # four times as much is left to read
        (reader(4 * P, 1, start=5000), True),
        (reader(9 * P), True),  # it begins with the same page
        (reader(9 * P, start=5000, reads=False), False),
        (reader(2 * P, start=5000, reads=False), False),  # it writes its reply
        (reader(2 * P, start=5000, priority=-1), False),  # it reads only while nobody else would
        (reader(2 * P, start=5000, priority=1), True),
        (reader(2 * P, start=5000), True),
    ],
)
def test_a_prompt_waits_for_one_that_is_the_same_or_nearly_read(other: Any, waits: bool) -> None:
    cache: Any = SimpleNamespace(found=lambda ids: 0)
    assert waits_for_a_reader(reader(P), [other], cache) is waits


def test_a_long_prompt_is_overtaken_only_so_often() -> None:
    cache: Any = SimpleNamespace(found=lambda ids: 0)
    long, behind = reader(40 * P, start=5000), reader(40 * P, start=9000, priority=-1)
    assert [waits_for_a_reader(reader(P), [long, behind], cache) for _ in range(4)] == [
        False, False, True, True,
    ]  # fmt: skip
    assert (long.skips, behind.skips) == (2, 0)


def test_what_is_cached_of_a_prompt_does_not_count() -> None:
    """It is neither left to read nor the beginning that both share."""
    for found, waits in ((0, True), (P, False)):
        cache: Any = SimpleNamespace(found=lambda ids, found=found: found)
        assert waits_for_a_reader(reader(P + 100), [reader(4 * 100, start=5000)], cache) is waits
    cache = SimpleNamespace(found=lambda ids: P)
    assert not waits_for_a_reader(reader(P + 100), [reader(9 * P)], cache)
    assert waits_for_a_reader(reader(2 * P), [reader(9 * P)], cache)
