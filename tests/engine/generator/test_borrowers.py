"""What runs beside the jobs, such as scoring: the model is as it needs it, and nobody waits for ever."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from typing import Any

import pytest

from engine.core import PAGE_TOKENS, Waiting
from engine.errors import BadSetting, ContextTooLong
from engine.generator.dynamic import DynamicGenerator, Job, Setup
from tests.engine.generator.test_dynamic import Adapters, Said, alone, dynamic, outcome, request, run


class Beside:
    """A text that runs beside the jobs: it waits for the model, and keeps it until it is `let_go`."""

    def __init__(self, generator: DynamicGenerator, setup: Setup) -> None:
        self._stack = ExitStack()
        self._steps = self._stack.enter_context(generator.borrow(setup))
        self.ready = False

    def step(self) -> None:
        if next(self._steps, None) is None:
            self.ready = True

    def let_go(self) -> None:
        self._stack.close()


def turn(generator: DynamicGenerator, said: dict[Job, Said], *beside: Beside) -> None:
    for job, event, _ in generator.iterate():
        said[job].take(event)
    for one in beside:
        if not one.ready:
            one.step()


def test_no_job_changes_the_model_while_it_is_borrowed() -> None:
    generator, _ = dynamic(pages=60)
    adapters = Adapters()
    beside = Beside(generator, adapters.setup(""))
    beside.step()
    assert beside.ready
    same, other = (Job(request(n, 20, 20), setup=adapters.setup(name)) for n, name in enumerate(["", "a"]))
    said = {same: Said(), other: Said()}
    generator.enqueue([other, same])
    for _ in range(60):
        turn(generator, said)
    assert outcome(said[same]) == alone(same.request)  # which needs the model as it is
    assert (adapters.changes, generator.pending) == ([], (other,))
    beside.let_go()
    while generator.num_remaining_jobs:
        turn(generator, said)
    assert outcome(said[other]) == alone(other.request)
    assert adapters.changes == ["a"]


def test_the_model_is_put_right_for_a_borrower_once_nothing_runs() -> None:
    generator, _ = dynamic(pages=60)
    adapters = Adapters()
    job = Job(request(1, 20, 20), setup=adapters.setup("a"))
    said = {job: Said()}
    generator.enqueue(job)
    turn(generator, said)
    beside = Beside(generator, adapters.setup(""))
    while generator.num_remaining_jobs:
        turn(generator, said, beside)
        assert not beside.ready
        assert adapters.now == "a"
    # Its adapters are loading now.
    late = Job(request(2, 20, 20))
    said[late] = Said()
    generator.enqueue(late)
    turn(generator, said)
    assert generator.pending == (late,)
    beside.step()
    assert (beside.ready, adapters.now) == (True, "")
    while generator.num_remaining_jobs:
        turn(generator, said)
    assert outcome(said[late]) == alone(late.request)


def test_a_borrower_that_leaves_while_the_model_is_put_right_stops_nobody() -> None:
    generator, _ = dynamic(pages=60)
    adapters = Adapters()
    beside = Beside(generator, adapters.setup("b"))
    beside.step()
    beside.let_go()
    job = Job(request(1, 20, 5), setup=adapters.setup("a"))
    assert outcome(run(generator, [job])[job]) == alone(job.request)
    assert adapters.changes == ["a"]


def test_a_borrower_does_not_begin_while_a_job_loads_its_adapters() -> None:
    """The model is between the two then, though it still says that it is as before."""
    generator, _ = dynamic(pages=60)
    adapters = Adapters()
    job = Job(request(1, 20, 5), setup=adapters.setup("a"))
    said = Said()
    generator.enqueue(job)
    beside, begun = Beside(generator, adapters.setup("")), list[str]()
    for _ in range(40):
        for _job, event, _step in generator.iterate():
            begun.append(type(event).__name__)
            if begun[-1] != "Loading":
                said.take(event)
        if not beside.ready:
            beside.step()
        assert beside.ready is (said.done is not None and adapters.now == "")
    assert begun[0] == "Loading"
    assert adapters.changes == ["a", ""]


def test_a_borrower_loads_nothing_while_a_job_loads_its_adapters() -> None:
    generator, _ = dynamic(pages=60)
    adapters = Adapters()
    job = Job(request(1, 20, 5), setup=adapters.setup("a"))
    said = {job: Said()}
    generator.enqueue(job)
    assert [type(event).__name__ for _job, event, _step in generator.iterate()] == ["Loading"]
    beside = Beside(generator, adapters.setup("b"))
    for _ in range(3):
        beside.step()
    assert (beside.ready, adapters.changes) == (False, [])
    while generator.num_remaining_jobs:
        turn(generator, said, beside)
    assert outcome(said[job]) == alone(job.request)
    while not beside.ready:
        beside.step()
    assert adapters.changes == ["a", "b"]


def test_a_borrower_waits_for_one_that_uses_other_adapters() -> None:
    generator, _ = dynamic(pages=60)
    adapters = Adapters()
    first, second = (Beside(generator, adapters.setup(name)) for name in ("", "b"))
    first.step()
    for _ in range(3):
        second.step()
    assert (first.ready, second.ready, adapters.changes) == (True, False, [])
    first.let_go()
    second.step()
    second.step()
    assert (second.ready, adapters.changes) == (True, ["b"])


def test_one_that_leaves_does_not_end_the_loading_of_another() -> None:
    generator, _ = dynamic(pages=60)
    adapters = Adapters()
    loading, leaving = (Beside(generator, adapters.setup(name)) for name in ("b", "c"))
    loading.step()
    leaving.step()
    leaving.let_go()
    job = Job(request(1, 20, 5))
    said = {job: Said()}
    generator.enqueue(job)
    turn(generator, said)
    assert generator.pending == (job,)
    loading.step()
    assert (loading.ready, adapters.changes) == (True, ["b"])
    while generator.num_remaining_jobs:
        turn(generator, said)
    assert outcome(said[job]) == alone(job.request)


def test_a_job_is_overtaken_by_borrowers_only_as_often_as_it_allows() -> None:
    generator, _ = dynamic(pages=60)
    adapters = Adapters()
    jobs = [Job(request(1, 20, 5), setup=adapters.setup(name), max_skips=3) for name in ("", "a")]
    generator.enqueue(jobs)
    ready = []
    for _ in range(5):
        beside = Beside(generator, adapters.setup(""))
        beside.step()
        ready.append(beside.ready)
        beside.let_go()
    assert ready == [True, True, True, False, False]
    assert [job.skips for job in jobs] == [0, 3]  # the first needs the model as it is


def test_what_the_setup_raises_reaches_the_borrower_and_nobody_else() -> None:
    generator, _ = dynamic(pages=60)
    adapters = Adapters()
    with (
        pytest.raises(BadSetting, match="no such adapter"),
        generator.borrow(adapters.setup("broken")) as lent,
    ):
        list(lent)
    job = Job(request(1, 20, 5), setup=adapters.setup("a"))
    assert outcome(run(generator, [job])[job]) == alone(job.request)


def test_neither_jobs_nor_borrowers_starve() -> None:
    """Both come without end, and need different adapters."""
    generator, _ = dynamic(pages=100, max_batch_size=2)
    adapters = Adapters()
    said: dict[Job, Said] = {}
    texts, read, turns = list[Beside](), 0, 0
    for _ in range(3):
        texts.append(Beside(generator, adapters.setup("")))
    while read < 40 or sum(each.done is not None for each in said.values()) < 40:
        while len(generator.pending) < 3:
            job = Job(request(len(said), 20, 3), setup=adapters.setup("a"))
            said[job] = Said()
            generator.enqueue(job)
        turn(generator, said)
        for text in list(texts):
            if text.ready:
                text.let_go()
                read += 1
                texts.remove(text)
                texts.append(Beside(generator, adapters.setup("")))
            else:
                text.step()
        turns += 1
        assert turns < 4000, (read, len(said), adapters.changes)
    # each change serves several
    assert len(adapters.changes) < 40


def lease(generator: DynamicGenerator, pages: int) -> Any:
    found = generator.cache.table.open((), key="beside")
    found.reserve(pages * PAGE_TOKENS)
    return found


@pytest.mark.parametrize("first", ["job", "lease"])
def test_a_reply_waits_for_pages_that_a_borrower_holds(first: str) -> None:
    generator, _ = dynamic(pages=4)
    adapters = Adapters()
    job = Job(request(1, 2 * PAGE_TOKENS - 10, PAGE_TOKENS), setup=adapters.setup(""))
    said = {job: Said()}
    beside = Beside(generator, adapters.setup(""))
    beside.step()
    if first == "job":
        generator.enqueue(job)
        while not said[job].text:
            turn(generator, said)
        held = lease(generator, 2)
    else:
        held = lease(generator, 2)
        generator.enqueue(job)
    for _ in range(400):
        turn(generator, said)
    assert said[job].done is None
    assert generator.pending == (job,)
    held.close()
    beside.let_go()
    while generator.num_remaining_jobs:
        turn(generator, said)
    assert outcome(said[job]) == alone(job.request)


def test_without_a_borrower_a_reply_that_fits_nowhere_is_refused() -> None:
    generator, _ = dynamic(pages=4)
    held = lease(generator, 2)
    job = Job(request(1, 2 * PAGE_TOKENS - 10, PAGE_TOKENS))
    said = run(generator, [job])
    assert isinstance(said[job].error, ContextTooLong)
    held.close()


def test_a_borrower_waits_as_one_of_the_queue() -> None:
    generator, _ = dynamic(pages=60)
    adapters = Adapters()
    generator.enqueue(Job(request(1, 20, 20), setup=adapters.setup("a")))
    generator.iterate()
    generator.iterate()
    with generator.borrow(adapters.setup("")) as lent:
        steps: Generator[Waiting, None, None] = lent
        assert next(steps).queued
