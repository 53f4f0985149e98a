"""Beside other jobs neither a device nor a CPU runs ahead; a job that is alone again has its loop back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from engine.generator.dynamic import DynamicGenerator, Job
from engine.generator.job import ACTIVE
from engine.models.paged import PagedCache
from engine.settings import CacheSettings, SamplerSettings
from tests.engine.generator.fakes import random_logits, tokenizer
from tests.engine.generator.test_dynamic import Said, alone, outcome, request
from tests.engine.generator.test_overlap import Running, RunningModel, Walking, WalkingModel

GREEDY = SamplerSettings(temperature=0.0)
WARM = SamplerSettings(temperature=1.1, top_k=50, top_p=0.9, min_p=0.01)
SAMPLERS = (GREEDY, WARM, replace(WARM, repetition_penalty=1.3, repetition_range=20))


def walking(context: int = 2048) -> tuple[DynamicGenerator, Walking]:
    """A generator over a fake whose device samples."""
    model: Any = WalkingModel(random_logits)
    cache = PagedCache(model, CacheSettings(context_length=context))
    return DynamicGenerator(model, cache, tokenizer()), model.program


def turns(generator: DynamicGenerator, said: dict[Job, Said], most: int = 100_000) -> None:
    """Take turns until all jobs have ended, or `most` of them."""
    while generator.num_remaining_jobs and most:
        for job, event, _ in generator.iterate():
            said[job].take(event)
        generator.cache.table.check()
        most -= 1


def starts_beside(program: Walking, generator: DynamicGenerator) -> list[int]:
    """Is given, in each turn, the number of active jobs whenever a decode loop starts."""
    active: list[int] = []
    start = program.starts.append

    class Starts(list[int]):
        def append(self, length: int) -> None:
            active.append(len(generator.active))
            start(length)

    program.starts = Starts()
    return active


@pytest.mark.parametrize("second_sampler", SAMPLERS)
@pytest.mark.parametrize("first_sampler", SAMPLERS)
def test_a_job_that_comes_and_goes(first_sampler: SamplerSettings, second_sampler: SamplerSettings) -> None:
    """The first job's device has drawn ahead when the second begins, has to stop, and may go on later."""
    generator, program = walking()
    beside = starts_beside(program, generator)
    first = Job(request(1, 9, 90, sampler=replace(first_sampler, seed=3)))
    second = Job(request(2, 12, 20, sampler=replace(second_sampler, seed=4)))
    said = {first: Said(), second: Said()}
    generator.enqueue(first)
    turns(generator, said, 15)
    assert len(beside) == 1
    assert first.state == ACTIVE
    generator.enqueue(second)
    while second in (*generator.pending, *generator.active):
        turns(generator, said, 1)
    assert beside == [1]
    turns(generator, said)
    assert beside == [1, 1]
    for job in (first, second):
        assert outcome(said[job]) == alone(job.request)


def test_the_device_of_one_is_not_another_jobs() -> None:
    """The first job's device has drawn a token when that job is suspended; the second one takes the
    device with its own plan, and the first then begins anew with its own.
    """
    generator, program = walking()
    beside = starts_beside(program, generator)
    first = Job(request(1, 9, 60, sampler=replace(WARM, seed=3)))
    second = Job(request(2, 12, 30, sampler=replace(GREEDY, seed=4)))
    said = {first: Said(), second: Said()}
    generator.enqueue(first)
    turns(generator, said, 10)
    generator.enqueue(second)
    while not second.waits_for or second.reads:
        turns(generator, said, 1)
    generator._scheduler._suspend(first)
    generator._scheduler._most_jobs = 1  # so that it stays away while the second runs
    turns(generator, said)
    assert beside == [1, 1, 1]
    assert len(program.plans) == 3
    for job in (first, second):
        assert outcome(said[job]) == alone(job.request)


def test_three_jobs_that_begin_together() -> None:
    generator, program = walking()
    beside = starts_beside(program, generator)
    jobs: Sequence[Job] = [Job(request(n, 8 + n, 25 * n, sampler=replace(WARM, seed=n))) for n in (1, 2, 3)]
    said = {job: Said() for job in jobs}
    generator.enqueue(jobs)
    turns(generator, said)
    assert beside == [1]
    for job in jobs:
        assert outcome(said[job]) == alone(job.request)


@pytest.mark.parametrize("turn", range(10, 19))
def test_a_cpu_that_has_run_ahead_when_another_job_begins(turn: int) -> None:
    """Wherever in its row of steps: what is left of it runs before any pass over the other's pages."""
    model: Any = RunningModel(random_logits)
    cache = PagedCache(model, CacheSettings(context_length=2048))
    generator, program = DynamicGenerator(model, cache, tokenizer()), model.program
    assert isinstance(program, Running)
    first = Job(request(1, 9, 60, sampler=replace(WARM, seed=3)))
    second = Job(request(2, 12, 20, sampler=replace(GREEDY, seed=4)))
    said = {first: Said(), second: Said()}
    generator.enqueue(first)
    turns(generator, said, turn)
    assert len(program.starts) == 1
    generator.enqueue(second)
    turns(generator, said)
    assert len(program.starts) == 2
    assert len(set(program.places)) == len(program.places)
    for job in (first, second):
        assert outcome(said[job]) == alone(job.request)
