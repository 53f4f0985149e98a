"""Filters that need long, for a search or a mask: only their reply waits; it says what it always says."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import closing
from typing import Any

import pytest

from engine.constraint.completion import Completer
from engine.constraint.filter_set import Busy, FilterSet
from engine.constraint.grammar import GrammarFilter
from engine.constraint.grammar_source import regex_source, schema_source
from engine.core import Done, Text, Waiting
from engine.errors import BadSetting
from engine.generator import decode
from engine.generator import job as job_module
from engine.generator.dynamic import Job
from engine.generator.request import GenerationRequest
from engine.settings import ConstraintSettings, SamplerSettings, SpeculationSettings, StopSettings
from tests.engine.generator.fakes import tokenizer
from tests.engine.generator.test_dynamic import Said, alone, dynamic, outcome, prompt, request, run

WAIT = 60.0
PLACES = ["shortest", "mask", "fits"]
"""What a filter is asked for: its shortest text, its mask after two tokens, or an ending after another token
than the known one.
"""


class Held(GrammarFilter):
    """Three to six letters and a digit; it waits where it is asked for `place` until it is `free`."""

    def __init__(self, place: str = "") -> None:
        self.place = ""
        super().__init__(tokenizer(), regex_source("[a-z]{3,6}[0-9]"))
        self.place, self.begun, self.free = place, threading.Event(), threading.Event()

    def _wait(self) -> None:
        self.begun.set()
        assert self.free.wait(WAIT)

    def completion(self, after: bytes, known: bytes | None = None) -> bytes | None:
        if self.place == ("shortest" if known is None else "fits"):
            self._wait()
        return super().completion(after, known)

    def mask(self) -> Any:
        if self.place == "mask" and self.length == 2:
            self._wait()
        return super().mask()


@pytest.fixture(params=PLACES)
def held(request: pytest.FixtureRequest) -> Iterator[Held]:
    found = Held(request.param)
    yield found
    found.free.set()


def constrained(filter: GrammarFilter, tokens: int = 20) -> GenerationRequest:
    sampler = SamplerSettings(seed=5, temperature=1.0)
    return GenerationRequest(prompt(3, 40), sampler, StopSettings(max_tokens=tokens), filters=(filter,))


def test_others_go_on_and_the_reply_is_the_same(held: Held) -> None:
    usual = alone(constrained(Held()))
    generator, model = dynamic()
    first, second = Job(constrained(held)), Job(request(1, 30, 50))
    said = {first: Said(), second: Said()}
    generator.enqueue([first, second])
    turns, run_step, passes = 0, model.program.run, 0

    def counting(step: Any) -> Any:
        nonlocal passes
        passes += 1
        return run_step(step)

    model.program.run = counting  # type: ignore[method-assign]
    while said[second].done is None:
        turns += 1
        for job, event, _ in generator.iterate():
            said[job].take(event)
    assert held.begun.is_set()
    assert said[first].done is None
    # a pass for each token of the second, for a prompt each, and few for what the first has written
    assert 50 <= passes <= 60
    assert turns <= passes
    held.free.set()
    while generator.num_remaining_jobs:
        for job, event, _ in generator.iterate():
            said[job].take(event)
    assert outcome(said[first]) == usual
    assert usual[2] == "end_filter"
    generator.cache.table.check()


def test_one_that_waits_can_be_stopped(held: Held) -> None:
    generator, _ = dynamic()
    stop = threading.Event()
    job, said = Job(constrained(held), stop=stop), Said()
    generator.enqueue(job)
    while not held.begun.is_set():
        for _job, event, _ in generator.iterate():
            said.take(event)
    stop.set()
    while generator.num_remaining_jobs:
        for _job, event, _ in generator.iterate():
            said.take(event)
    assert said.done is not None
    assert said.done.reason == "cancelled"
    generator.cache.table.check()
    held.free.set()


def test_one_that_waits_can_be_removed(held: Held) -> None:
    generator, _ = dynamic()
    job = Job(constrained(held))
    generator.enqueue(job)
    while not held.begun.is_set():
        generator.iterate()
    generator.cancel(job)
    assert generator.num_remaining_jobs == 0
    generator.cache.table.check()
    held.free.set()


def test_the_caller_of_one_that_waits_gets_its_turn(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    generator, _ = dynamic()
    waits: list[Any] = []
    with closing(generator.stream(constrained(held))) as first:
        while not held.begun.is_set():
            next(first)
        monkeypatch.setattr(job_module, "wait", lambda *what: waits.append(what) or wait(*what))
        assert [type(next(first)) for _ in range(3)] == [Waiting] * 3
        assert len(waits) == 3  # a thread that waits leaves the processor to others
        with closing(generator.stream(request(1, 30, 50))) as second:
            texts = [event for event in second if isinstance(event, Text | Done)]
            assert isinstance(texts[-1], Done)
        assert isinstance(next(first), Waiting)
        held.free.set()
        said = Said()
        for event in first:
            said.take(event)
        assert said.done is not None
        assert said.done.reason == "end_filter"


@pytest.mark.slow
def test_without_any_patience_all_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every mask, ending and search comes late, under drafts, bans and suspension: not a token changes."""

    def asked(seed: int) -> GenerationRequest:
        dice = random.Random(seed)
        pattern = dice.choice(["[a-z ]{5,60}", "(ab|cd|e[0-9]{3})+!", "[^a-m]{20,}"])
        banned = ("e", "ab") if seed % 3 == 1 and pattern[1] == "a" else ()
        constraint = ConstraintSettings(format="regex", pattern=pattern, banned_strings=banned)
        drafting = SpeculationSettings(method="ngram", draft_tokens=3) if seed % 3 == 2 else None
        more = {} if drafting is None else {"speculation": drafting}
        return request(seed, dice.randint(1, 300), dice.randint(10, 60), constraint=constraint, **more)

    jobs = [Job(asked(seed)) for seed in range(12)] + [Job(request(seed, 200, 100)) for seed in range(4)]
    usual = [alone(job.request, 1024) for job in jobs]
    monkeypatch.setattr(decode, "PATIENCE", 0.0)
    generator, _ = dynamic(context=1024, pages=9, rows=64)
    said = run(generator, jobs)
    assert [outcome(said[job]) for job in jobs] == usual
    assert [alone(job.request, 1024) for job in jobs] == usual


def test_a_search_ends_with_its_set(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, going = 0, threading.Event()
    real = Completer._way

    def way(self: Completer, *rest: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps == 300:
            going.set()
        return real(self, *rest)

    monkeypatch.setattr(Completer, "_way", way)
    monkeypatch.setattr("engine.constraint.completion.MOST_STEPS", 1 << 60)
    schema, tasks = schema_source('{"minItems": 9999, "type": "array"}'), []
    both = [FilterSet([GrammarFilter(tokenizer(), schema)]) for _ in "ab"]
    for one in both:  # the second waits for the first
        one.patience = 0.0
        assert begun(one)
        with pytest.raises(Busy) as busy:
            one.needed()
        tasks.append(busy.value.task)
    assert going.wait(WAIT)
    for one, task in zip(both[::-1], tasks[::-1], strict=True):
        one.close()  # which cancels a task that has not started: nobody is told of such a one
        assert task.cancelled() or wait([task], WAIT).done
        assert task.cancelled() or task.result() is None


def begun(one: FilterSet) -> bool:
    """Whether the set has begun; asked until it has."""
    while True:
        try:
            return one.begin()
        except Busy as busy:
            busy.task.result(WAIT)


@pytest.mark.parametrize(
    "schema",
    [
        '{"type": "array", "minItems": 1000000000}',
        '{"type": "string", "minLength": 1000000000}',
        '{"type": "object", "properties": {"a": {"type": "array", "minItems": 99999}}, "required": ["a"]}',
    ],
)
def test_what_is_certainly_too_long_is_refused_without_a_search(
    schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Completer, "shortest")
    one = GrammarFilter(tokenizer(), schema_source(schema))
    generator, _ = dynamic()
    said = run(generator, [job := Job(constrained(one))])
    assert isinstance(said[job].error, BadSetting)
    assert "a reply may have 20; allow longer replies, or choose a simpler format." in str(said[job].error)
