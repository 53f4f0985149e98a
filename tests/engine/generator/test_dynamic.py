"""Many jobs at once say what each of them says alone, whatever runs beside it, and lose no page."""

from __future__ import annotations

import random
import threading
import weakref
from collections.abc import Generator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from engine.constraint.prefix import PrefixFilter
from engine.core import PAGE_TOKENS, Done, Loading, Prefill, Priority, Text, Waiting
from engine.errors import BadSetting, ContextTooLong, NothingAllowed
from engine.generator.dynamic import DynamicGenerator, Failed, Job, Setup, Started
from engine.generator.request import GenerationRequest, Guidance
from engine.generator.runner import SequenceRunner
from engine.generator.streaming import StreamingGenerator
from engine.kv_cache.readings import planned
from engine.models.paged import PagedCache
from engine.settings import (
    CacheSettings,
    ConstraintSettings,
    SamplerSettings,
    SpeculationSettings,
    StopSettings,
)
from tests.engine.generator.fakes import FakeModel, random_logits, tokenizer

END = tokenizer().stop_token_ids
GREEDY = SamplerSettings(temperature=0.0)


class Said:
    """What a job has said: its text, ids, last event and error."""

    def __init__(self) -> None:
        self.text, self.ids = "", list[int]()
        self.done: Done | None = None
        self.error: BaseException | None = None
        self.prefills: list[Prefill] = []

    def take(self, event: Any) -> None:
        if isinstance(event, Waiting):
            return
        assert self.done is None, "an event after the last one"
        assert self.error is None, "an event after the last one"
        if isinstance(event, Text):
            self.text += event.text
            self.ids += [token.id for token in event.tokens]
        elif isinstance(event, Prefill):
            self.prefills.append(event)
        elif isinstance(event, Done):
            self.done = event
        elif isinstance(event, Failed):
            self.error = event.error


def dynamic(
    context: int = 2048, pages: int | None = None, rows: int | None = None, states: int = 0, **sizes: int
) -> tuple[DynamicGenerator, FakeModel]:
    """A generator over a fresh fake whose cache has `pages` pages, and `states` of recurrent layers."""
    model: Any = FakeModel(random_logits, states=states)
    if pages is not None:
        make = model.new_cache
        model.new_cache = lambda tokens, dtype, further=0: make(pages * PAGE_TOKENS - 2 * PAGE_TOKENS, dtype)
    cache = PagedCache(model, CacheSettings(context_length=context))
    if rows:
        cache.rows = rows
    return DynamicGenerator(model, cache, tokenizer(), **sizes), model


def alone(request: GenerationRequest, context: int = 2048) -> tuple[str, list[int], str]:
    """What a streaming generator makes of a request: text, ids, reason."""
    model: Any = FakeModel(random_logits)
    generator = StreamingGenerator(
        model, PagedCache(model, CacheSettings(context_length=context)), tokenizer()
    )
    said = Said()
    for event in generator.stream(request):
        said.take(event)
    assert said.done is not None
    return said.text, said.ids, said.done.reason


def run(generator: DynamicGenerator, jobs: Sequence[Job], turns: int = 20_000) -> dict[Job, Said]:
    """Enqueue the jobs and run all to their ends."""
    said = {job: Said() for job in jobs}
    generator.enqueue(jobs)
    while generator.num_remaining_jobs:
        for job, event, _ in generator.iterate():
            said[job].take(event)
        generator.cache.table.check()
        turns -= 1
        assert turns, "the jobs do not end"
    return said


def prompt(seed: int, length: int) -> list[int]:
    return random.Random(seed).choices(range(20, 200), k=length)


def request(seed: int, length: int, tokens: int, **more: Any) -> GenerationRequest:
    return GenerationRequest(
        prompt(seed, length),
        more.pop("sampler", SamplerSettings(seed=seed)),
        StopSettings(max_tokens=tokens),
        **more,
    )


def outcome(said: Said) -> tuple[str, list[int], str]:
    assert said.error is None, said.error
    assert said.done is not None
    return said.text, said.ids, said.done.reason


def test_how_a_prompt_was_read_is_told_from_its_beginning_on() -> None:
    """Of what is cached, too."""
    generator, _ = dynamic(rows=128)
    for cached in (0, 299):
        job = Job(request(1, 300, 4))
        assert run(generator, [job])[job].prefills[0].cached == cached
        assert job.reading == (tuple(planned(0, 300, 128)),)


def mixed(seed: int) -> GenerationRequest:
    """A request of any kind."""
    dice = random.Random(seed)
    more: dict[str, Any] = {}
    kind = seed % 6
    if kind == 1:
        more["guidance"] = Guidance(tuple(prompt(seed + 1000, dice.randint(1, 300))), 1.5)
    elif kind == 2:
        more["speculation"] = SpeculationSettings(method="ngram", draft_tokens=3)
    elif kind == 3:
        more["constraint"] = ConstraintSettings(format="regex", pattern="[a-z ]{5,60}")
    elif kind == 4:
        more["constraint"] = ConstraintSettings(banned_strings=("e", "ab"))
    sampler = SamplerSettings(seed=seed, temperature=dice.choice([0.0, 0.7, 1.3]), repetition_penalty=1.1)
    return request(seed, dice.randint(1, 700), dice.randint(1, 60), sampler=sampler, **more)


@pytest.mark.slow
def test_jobs_of_every_kind_say_what_they_say_alone() -> None:
    generator, _ = dynamic(pages=200)
    jobs = [Job(mixed(seed), identifier=seed) for seed in range(32)]
    said = run(generator, jobs)
    for job in jobs:
        assert outcome(said[job]) == alone(job.request), job.identifier


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("states", [0, 7, 40])
def test_too_few_pages_lose_nothing(states: int) -> None:
    generator, _ = dynamic(context=1024, pages=7, rows=64, states=states)
    suspended = 0
    original = generator._scheduler._suspend

    def counting(job: Job) -> None:
        nonlocal suspended
        suspended += 1
        original(job)

    generator._scheduler._suspend = counting  # type: ignore[method-assign]
    jobs = [Job(request(seed, 200, 400)) for seed in range(10)]
    said = run(generator, jobs)
    assert suspended > 3
    for job in jobs:
        assert outcome(said[job]) == alone(job.request, 1024)


def test_a_suspended_job_holds_no_pages_of_the_draft_model() -> None:
    """It takes them again later, and its reply stays the same."""
    found = []
    for suspends in (False, True):
        generator, _ = dynamic()
        draft: Any = FakeModel(random_logits)
        cache = PagedCache(draft, CacheSettings(context_length=512))
        generator.drafters.set_model(draft, cache)
        generator.drafters.threshold = 0.0
        model = SpeculationSettings(method="model", adaptive=False)
        job = Job(request(1, 300, 40, sampler=SamplerSettings(seed=1, temperature=0.9), speculation=model))
        said, suspended = Said(), 0
        generator.enqueue(job)
        while generator.num_remaining_jobs:
            for _job, event, _step in generator.iterate():
                said.take(event)
            held = cache.table.page_count - cache.table.free - cache.table.idle
            if suspends and held and len(said.ids) in range(10, 30) and job in generator.active:
                generator._scheduler._suspend(job)
                suspended += 1
                assert cache.table.free + cache.table.idle == cache.table.page_count
        assert said.done is not None
        assert said.done.stats.accepted_tokens > 20
        assert (suspended > 1) == suspends
        found.append((said.text, said.ids))
    assert found[0] == found[1]


def test_passes_run_together() -> None:
    generator, model = dynamic(pages=60)
    jobs = [Job(request(seed, 20, 30)) for seed in range(8)]
    passes = 0
    run_step = model.program.run

    def counting(step: Any) -> Any:
        nonlocal passes
        if step.runs:
            passes += 1
            assert len(step.runs) <= 8
        return run_step(step)

    model.program.run = counting  # type: ignore[method-assign]
    run(generator, jobs)
    assert 29 <= passes <= 40


def test_sequences_draft_no_more_than_what_still_runs_in_one_pass() -> None:
    generator, _ = dynamic()
    runner, rows = SequenceRunner(generator.cache, [20]), generator.cache.program.batch_rows
    assert runner.most_drafts is None
    for sharing in range(1, rows + 3):
        runner.sharing = sharing
        most = runner.most_drafts
        assert most is not None
        assert most == 0 or sharing * (most + 1) <= rows
        assert sharing * (most + 2) > rows


def test_one_prompt_of_eight_jobs_is_read_once() -> None:
    generator, _ = dynamic(pages=100)
    text = prompt(5, 1500)
    jobs = [
        Job(GenerationRequest([*text, 30 + n], SamplerSettings(seed=n), StopSettings(max_tokens=20)))
        for n in range(8)
    ]
    said = run(generator, jobs)
    read = sum(said[job].done.stats.prefill_tokens for job in jobs)  # type: ignore[union-attr]
    assert read == 1501 + 7 * 1
    assert sum(said[job].done.stats.cached_tokens for job in jobs) == 7 * 1500  # type: ignore[union-attr]


def test_a_reply_waits_for_one_chunk_at_most() -> None:
    generator, model = dynamic(pages=100, rows=512)
    first, second = Job(request(1, 10, 200)), Job(request(2, 2000, 5))
    generator.enqueue(first)
    while not any(isinstance(event, Text) for _, event, _ in generator.iterate()):
        pass
    generator.enqueue(second)
    before = len(model.program.ran)
    while second in (*generator.pending, *generator.active):
        generator.iterate()
    passes = model.program.ran[before:]
    assert max(passes) == 64
    chunks = [at for at, rows in enumerate(passes) if rows > 8]
    assert len(chunks) == 32
    assert all(later - at > 1 for at, later in pairwise(chunks)), "the reply waited for two chunks"


@pytest.mark.parametrize(("asked", "alone", "beside"), [(0, 512, 64), (100, 100, 100)])
def test_a_pass_reads_as_much_of_a_prompt_as_was_asked_for(asked: int, alone: int, beside: int) -> None:
    generator, model = dynamic(pages=60, rows=512, max_chunk_size=asked)
    generator.enqueue(Job(request(2, 700, 100)))
    while not any(isinstance(event, Text) for _, event, _ in generator.iterate()):
        pass
    before = len(model.program.ran)
    generator.enqueue(second := Job(request(3, 700, 1)))
    while second in (*generator.pending, *generator.active):
        generator.iterate()
    assert (max(model.program.ran[:before]), max(model.program.ran[before:])) == (alone, beside)


def test_a_short_prompt_overtakes_a_long_one_but_not_for_ever() -> None:
    generator, _ = dynamic(pages=100, rows=64)
    long = Job(request(1, 2000, 5))
    generator.enqueue(long)
    generator.iterate()
    short = [Job(request(seed, 20, 5)) for seed in range(2, 12)]
    order: list[Job] = []
    generator.enqueue(short)
    while generator.num_remaining_jobs:
        order += [
            job for job, event, _ in generator.iterate() if isinstance(event, Text) and job not in order
        ]
    assert order.index(long) == long.max_skips


def test_the_chat_in_front_comes_first_and_background_yields() -> None:
    generator, _ = dynamic(pages=100)
    background = Job(request(1, 20, 40), priority=-1)
    generator.enqueue(background)
    for _ in range(5):
        generator.iterate()
    front = Job(request(2, 20, 20), priority=1)
    generator.enqueue(front)
    between = 0
    while front in (*generator.pending, *generator.active):
        between += sum(isinstance(event, Text) for job, event, _ in generator.iterate() if job is background)
    assert between <= 1
    last: list[Any] = []
    while generator.num_remaining_jobs:
        last += [event for job, event, _ in generator.iterate() if job is background]
    assert isinstance(last[-1], Done)


def test_a_priority_that_changes_while_passes_are_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are short for the second job when the first, whose pass is collected, becomes the last one."""
    generator, _ = dynamic(pages=60)
    first = Priority(0)
    jobs = [Job(request(1, 20, 30), priority=first), Job(request(2, 20, 30))]
    said, reserve = {job: Said() for job in jobs}, generator.cache.reserve
    suspended: list[Job] = []
    suspend = generator._scheduler._suspend
    monkeypatch.setattr(generator._scheduler, "_suspend", lambda job: (suspended.append(job), suspend(job)))

    def short(lease: Any, length: int) -> None:
        if first.value == 0 and len(said[jobs[1]].ids) == 5 and lease.ids == jobs[1].ids[:-1]:
            first.value = -1
            raise ContextTooLong("no pages are free")
        reserve(lease, length)

    monkeypatch.setattr(generator.cache, "reserve", short)
    generator.enqueue(jobs)
    while generator.num_remaining_jobs:
        for job, event, _ in generator.iterate():
            said[job].take(event)
    assert suspended == jobs[:1]
    assert [outcome(said[job]) for job in jobs] == [alone(job.request) for job in jobs]


@pytest.mark.parametrize("beside", [1, 2])
def test_the_chat_in_front_does_not_wait_for_pages_of_others(beside: int) -> None:
    """They are suspended when it needs their pages, and go on after it; those of its own priority are not."""
    generator, _ = dynamic(context=1024, pages=5 * beside, rows=64)
    behind = [Job(request(seed, 900, 120)) for seed in range(beside)]
    front, equal = Job(request(8, 600, 10), priority=1), Job(request(9, 600, 10))
    said = {job: Said() for job in (*behind, front, equal)}

    def turn() -> None:
        for job, event, _ in generator.iterate():
            said[job].take(event)
        generator.cache.table.check()

    generator.enqueue(behind)
    while not all(said[job].ids for job in behind):
        turn()
    generator.enqueue([equal, front])
    while said[front].done is None:
        turn()
        assert equal in generator.pending
    assert any(said[job].done is None for job in behind)
    while generator.num_remaining_jobs:
        turn()
    for job, each in said.items():
        assert outcome(each) == alone(job.request, 1024)


def test_a_priority_counts_as_it_is_now() -> None:
    generator, _ = dynamic(pages=100)
    first, second = Priority(-1), Priority(-1)
    jobs = [Job(request(1, 20, 60), priority=first), Job(request(2, 20, 60), priority=second)]
    generator.enqueue(jobs)

    def written(turns: int) -> list[int]:
        found = [
            job for _ in range(turns) for job, event, _ in generator.iterate() if isinstance(event, Text)
        ]
        return [found.count(job) for job in jobs]

    assert min(written(12)) > 2
    first.value = 1
    before = written(10)
    assert before[0] > 5
    assert before[1] <= 1
    first.value, second.value = -1, 0
    after = written(10)
    assert after[0] <= 1
    assert after[1] > 5
    generator.clear_queue()


@pytest.mark.parametrize("sizes", [{"max_batch_size": 0}, {"max_chunk_size": -1}])
def test_sizes_out_of_range_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(BadSetting, match="the first must be at least 1, the second at least 0"):
        dynamic(pages=4, **sizes)


def test_a_stream_says_while_it_is_queued() -> None:
    generator, _ = dynamic(pages=60, max_batch_size=1)
    first, second = (generator.events(Job(request(seed, 20, 8))) for seed in (1, 2))
    said: list[list[Any]] = [[], []]
    going = {0: first, 1: second}
    while going:
        for number, events in tuple(going.items()):
            event = next(events, None)
            said[number].append(event)
            if event is None:
                del going[number]
    assert Waiting(True) not in said[0]
    begins = next(at for at, event in enumerate(said[1]) if isinstance(event, Prefill))
    assert begins > 3
    assert said[1][:begins].count(Waiting(True)) > 3
    assert set(said[1][:begins]) <= {Waiting(), Waiting(True)}
    assert Waiting(True) not in said[1][begins:]


def test_cancel_stop_and_clear() -> None:
    generator, _ = dynamic(pages=60, max_batch_size=2)
    jobs = [Job(request(seed, 300, 500)) for seed in range(5)]
    generator.enqueue(jobs)
    for _ in range(6):
        generator.iterate()
    assert len(generator.active) == 2
    assert [job.serial for job in generator.pending] == [3, 4, 5]
    generator.cancel(jobs[0])
    jobs[1].stop.set()
    jobs[2].stop.set()  # which never begins
    ends = [(job, event) for _ in range(4) for job, event, _ in generator.iterate()]
    assert jobs[0] not in [job for job, _ in ends]
    reasons = {job: event.reason for job, event in ends if isinstance(event, Done)}
    assert reasons == {jobs[1]: "cancelled", jobs[2]: "cancelled"}
    generator.clear_queue()
    assert not generator.num_remaining_jobs
    assert not generator.iterate()
    assert not any(page.refs for page in generator.cache.table.pool.pages)


def test_a_cancelled_job_has_no_events_that_came_while_a_stream_was_read() -> None:
    generator, _ = dynamic(pages=60)
    job, ended = Job(request(1, 20, 500)), Job(request(2, 20, 1))
    generator.enqueue([job, ended])
    stream = generator.stream(request(3, 20, 5))
    for _ in range(12):
        next(stream)
    generator.cancel(job)
    assert {event.job for event in generator._scheduler.unheard} == {ended}
    assert generator.num_remaining_jobs == 2  # the stream, and the end that nobody has heard of
    generator.cancel(ended)
    assert not generator.iterate()
    stream.close()


def test_an_error_ends_its_job_alone() -> None:
    generator, _ = dynamic(pages=60)
    impossible = ConstraintSettings(allowed_tokens=(30,), banned_tokens=(30,))
    bad, good = Job(request(1, 20, 5, constraint=impossible)), Job(request(2, 20, 5))
    said = run(generator, [bad, good])
    assert said[bad].error is not None
    assert "nothing" in str(said[bad].error).lower() or str(said[bad].error)
    assert outcome(said[good]) == alone(good.request)


def test_a_broken_device_ends_the_jobs_of_the_pass() -> None:
    generator, model = dynamic(pages=60)
    jobs = [Job(request(seed, 20, 50)) for seed in range(3)]
    generator.enqueue(jobs)
    for _ in range(10):
        generator.iterate()

    memory: list[weakref.ref[Any]] = []

    def broken() -> None:
        held = np.zeros(1)
        memory.append(weakref.ref(held))
        raise OSError("the device is gone")

    model.program.before_run = broken
    found = generator.iterate()
    assert [job for job, event, _ in found if isinstance(event, Failed)] == jobs
    assert [held() for held in memory] == [None]  # though the error with its traceback is still there
    assert not any(page.refs for page in generator.cache.table.pool.pages)


def test_requests_that_cannot_run_are_refused_at_once_and_leave_no_job() -> None:
    generator, _ = dynamic(context=512, pages=20)
    with pytest.raises(ContextTooLong):
        generator.enqueue([Job(request(1, 10, 5)), Job(request(1, 600, 5))])
    with pytest.raises(BadSetting):
        generator.enqueue(Job(GenerationRequest([])))
    assert not generator.num_remaining_jobs
    job = Job(request(1, 10, 1))
    assert generator.enqueue(job) > 0
    for again in (generator.enqueue, generator.events):
        with pytest.raises(ValueError, match="before"):
            again(job)


def test_streams_are_pulled_in_turns() -> None:
    generator, _ = dynamic(pages=60)
    asked = [request(seed, 100, 25) for seed in range(3)]
    streams = [generator.stream(each) for each in asked]
    said = [Said() for _ in streams]
    open_ones = list(range(3))
    while open_ones:
        for i in list(open_ones):
            event = next(streams[i], None)
            if event is None:
                open_ones.remove(i)
            else:
                said[i].take(event)
    assert [outcome(each) for each in said] == [alone(each) for each in asked]
    assert not generator.num_remaining_jobs


def test_a_closed_stream_ends_its_job_and_no_other() -> None:
    generator, _ = dynamic(pages=60)
    one, other = generator.stream(request(1, 50, 500)), generator.stream(request(2, 50, 10))
    next(one), next(other)
    one.close()
    said = Said()
    for event in other:
        said.take(event)
    assert outcome(said)[2] == "max_tokens"
    assert not any(page.refs for page in generator.cache.table.pool.pages)


def test_generate_answers_prompts_pairs_and_lists() -> None:
    generator, _ = dynamic(pages=60)
    asked = GenerationRequest([], SamplerSettings(seed=3), StopSettings(max_tokens=8))
    one = generator.generate("abc", asked)
    both = generator.generate(["abc", "hello"], asked, completion_only=True)
    assert one.text == "abc" + both[0].text
    moved = generator.generate("hello", replace(asked, seed=4), completion_only=True)
    assert both[1].text == moved.text  # prompt i has seed + i
    unseeded = replace(asked, sampler=SamplerSettings(temperature=0.0))
    assert len(generator.generate(["abc", "abc"], unseeded)) == 2
    guided = generator.generate(("abc", "xyz"), asked, guidance_scale=2.0)
    assert guided.text.startswith("abc")
    assert guided.text != one.text
    abort = threading.Event()
    assert generator.generate("abc", asked, abort_event=abort).text == one.text
    abort.set()
    assert generator.generate(["a", "b"], asked, abort_event=abort) is None
    assert not generator.num_remaining_jobs
    with pytest.raises(BadSetting):
        generator.generate(["a", "b"], [asked])
    filtered = replace(asked, filters=[PrefixFilter(tokenizer(), ["the"])])
    assert generator.generate("a", filtered, completion_only=True).text.startswith("the")
    with pytest.raises(ValueError, match="one request for each prompt"):
        generator.generate(["a", "b"], filtered)


def test_generate_raises_what_a_job_raises_and_cancels_the_others() -> None:
    generator, _ = dynamic(pages=60)
    good = GenerationRequest([], GREEDY, StopSettings(max_tokens=1000))
    impossible = ConstraintSettings(allowed_tokens=(30,), banned_tokens=(30,))
    with pytest.raises(NothingAllowed):
        generator.generate(["abc", "abd"], [good, replace(good, constraint=impossible)])
    assert not generator.num_remaining_jobs
    assert not any(page.refs for page in generator.cache.table.pool.pages)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "states"), [(0, 0), (1, 0), (2, 0), (3, 0), (1, 7), (2, 20)])
def test_any_order_of_calls_keeps_the_pages_in_order(seed: int, states: int) -> None:
    """2,000 random calls: enqueue, cancel, stop, run, evict; pages are short, so that jobs are suspended."""
    dice = random.Random(seed)
    generator, _ = dynamic(context=1024, pages=9, rows=64, states=states)
    said: dict[Job, Said] = {}
    cancelled: set[Job] = set()
    number = 0
    for _ in range(2000 if seed == 0 else 500):
        call = dice.random()
        if call < 0.06 and generator.num_remaining_jobs < 12:
            number += 1
            shared = prompt(dice.randint(0, 2), dice.choice([0, 100, 300]))
            ids = [*shared, *prompt(number, dice.randint(1, 300))]
            job = Job(
                GenerationRequest(
                    ids, SamplerSettings(seed=number), StopSettings(max_tokens=dice.randint(1, 80))
                ),
                priority=dice.choice([-1, 0, 0, 1]),
                max_skips=dice.randint(0, 4),
            )
            said[job] = Said()
            generator.enqueue(job)
        elif call < 0.08 and generator.num_remaining_jobs:
            victim = dice.choice([*generator.pending, *generator.active])
            cancelled.add(victim)
            generator.cancel(victim)
        elif call < 0.09 and generator.num_remaining_jobs:
            dice.choice([*generator.pending, *generator.active]).stop.set()
        elif call < 0.10:
            generator.cache.table.forget()
        else:
            for job, event, _ in generator.iterate():
                assert job not in cancelled
                said[job].take(event)
        generator.cache.table.check()
    while generator.num_remaining_jobs:
        for job, event, _ in generator.iterate():
            said[job].take(event)
    assert not any(page.refs for page in generator.cache.table.pool.pages)
    whole = 0
    for job, each in said.items():
        if job in cancelled:
            continue
        text, ids, reason = outcome(each)
        if reason != "cancelled":
            whole += 1
            assert (text, ids, reason) == alone(job.request, 1024)
    assert whole > 5


def test_started_comes_once_and_first() -> None:
    generator, _ = dynamic(pages=7, context=1024, rows=64)
    jobs = [Job(request(seed, 200, 150)) for seed in range(5)]
    generator.enqueue(jobs)
    found: dict[Job, list[Any]] = {job: [] for job in jobs}
    while generator.num_remaining_jobs:
        for job, event, _ in generator.iterate():
            found[job].append(event)
    for events in found.values():
        assert [isinstance(event, Started) for event in events] == [True] + [False] * (len(events) - 1)
        assert np.all([not isinstance(event, Failed) for event in events])


class Adapters:
    """What the jobs of a test need of the model: one adapter at a time."""

    def __init__(self) -> None:
        self.now, self.changes = "", list[str]()

    def setup(self, name: str) -> Setup:
        def run(stop: threading.Event) -> Generator[Loading, None, None]:
            if name == "broken":
                raise BadSetting("There is no such adapter.")
            if self.now != name:
                yield Loading("Loading the adapters", 0, 1)
                self.now = name
                self.changes.append(name)

        return Setup(lambda: self.now == name, run)


def test_a_prompt_is_checked_against_the_vocabulary_that_its_setup_brings() -> None:
    generator, model = dynamic()
    size, adapters = model.config.vocab_size, Adapters()
    with pytest.raises(BadSetting, match=f"ids go from 0 to {size - 1}"):
        generator.enqueue(Job(GenerationRequest([size])))
    larger = adapters.setup("a")._replace(vocabulary=size + 1)
    with pytest.raises(BadSetting, match=f"ids go from 0 to {size}"):
        generator.enqueue(Job(GenerationRequest([size + 1]), setup=larger))
    job = Job(GenerationRequest([size]), setup=larger)
    generator.enqueue(job)
    assert generator.pending == (job,)
    generator.cancel(job)


def test_prompts_with_adapters_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    generator, _ = dynamic(pages=60)
    applied: list[str] = []

    class Slot:
        def __init__(self, cache: PagedCache) -> None:
            self.cache = cache

        def holds(self, adapters: Sequence[tuple[str, float]]) -> bool:
            return applied[-1:] == [str(adapters)]

        def apply(self, adapters: Any, stop: threading.Event | None = None) -> Generator[Loading, None, None]:
            assert not any(page.refs for page in self.cache.table.pool.pages), "a sequence is open"
            if not self.holds(adapters):
                applied.append(str(adapters))
            yield from ()

    monkeypatch.setattr("engine.generator.dynamic.AdapterSlot", Slot)
    asked = GenerationRequest([], SamplerSettings(seed=3), StopSettings(max_tokens=8))
    one, other = [("one", 1.0)], [("other", 0.5)]
    replies = generator.generate(["abc", "abd", "abe"], asked, adapters=[one, other, one])
    assert [len(reply.ids) for reply in replies] == [8, 8, 8]
    assert applied == [str(one), str(other)]
    generator.set_loras([])
    assert applied[-1] == "[]"
    with pytest.raises(BadSetting, match="adapters for 1"):
        generator.generate(["abc", "abd"], asked, adapters=[one])
    generator.enqueue(Job(request(1, 10, 5)))
    with pytest.raises(RuntimeError, match="no jobs"):
        generator.set_loras(one)


def test_jobs_wait_for_the_adapter_that_they_need_and_do_not_starve() -> None:
    generator, _ = dynamic(pages=100)
    adapters = Adapters()
    names = ["a", "a", "b", "a", "a", "a", "a", "a", "a", "b", "broken", ""]
    jobs = [Job(request(n, 20, 20), setup=adapters.setup(name)) for n, name in enumerate(names)]
    said = run(generator, jobs)
    assert said[jobs[10]].error is not None
    for job, name in zip(jobs, names, strict=True):
        if name != "broken":
            assert outcome(said[job]) == alone(job.request)
    # four jobs overtake the first that needs "b", and no more
    assert adapters.changes[:3] == ["a", "b", "a"]
    assert len(adapters.changes) <= 6


def test_a_setup_goes_on_while_another_job_is_cancelled() -> None:
    generator, _ = dynamic(pages=60)
    begun = list[str]()
    ready = False

    def bring_about(stop: threading.Event) -> Generator[Loading, None, None]:
        nonlocal ready
        begun.append("setup")
        for done in range(5):
            yield Loading("Loading the adapters", done, 5)
        ready = True

    job = Job(request(1, 20, 5), setup=Setup(lambda: ready, bring_about))
    others = [Job(request(number, 20, 5)) for number in (2, 3)]
    generator.enqueue([job, *others])
    said = {each: Said() for each in (job, *others)}
    loading = 0
    while generator.num_remaining_jobs:
        for each, event, _ in generator.iterate():
            loading += isinstance(event, Loading)
            if not isinstance(event, Loading):
                said[each].take(event)
        if loading == 2:
            generator.cancel(others[0])
    assert (begun, loading) == (["setup"], 5)
    assert outcome(said[job]) == alone(job.request)
    assert outcome(said[others[1]]) == alone(others[1].request)


@pytest.mark.parametrize("max_skips", [0, 4])
def test_the_model_stays_as_a_suspended_job_needs_it(max_skips: int) -> None:
    generator, _ = dynamic(pages=60)
    adapters = Adapters()
    held = Job(request(1, 20, 30), setup=adapters.setup("a"))
    other = Job(request(2, 20, 30), setup=adapters.setup("b"), priority=1, max_skips=max_skips)
    said = {held: Said(), other: Said()}
    generator.enqueue(held)
    for _ in range(10):
        for job, event, _ in generator.iterate():
            said[job].take(event)
    generator._scheduler._suspend(held)
    generator.enqueue(other)
    for _ in range(200):
        for job, event, _ in generator.iterate():
            said[job].take(event)
        assert adapters.now == "a" or said[held].done is not None
    assert adapters.changes == ["a", "b"]
    for job in said:
        assert outcome(said[job]) == alone(job.request)


def test_a_job_can_be_suspended_while_it_reads_again_what_its_states_lost() -> None:
    """Where drafts were wrong, in both rows of guidance, before the next pass."""

    def nearly_repeating(sequence: list[int]) -> Any:
        place = len(sequence) % 7 if len(sequence) % 11 else 8
        return np.eye(tokenizer().vocab_size, dtype=np.float32)[20 + place] * 9

    asked = request(3, 20, 90, guidance=Guidance(tuple(prompt(7, 42)), 1.5), sampler=GREEDY)

    def reply(asked: GenerationRequest, most: int) -> tuple[tuple[str, list[int], str], int]:
        model: Any = FakeModel(nearly_repeating, states=12)
        cache = PagedCache(model, CacheSettings(context_length=1024))
        generator, said, suspended = DynamicGenerator(model, cache, tokenizer()), Said(), 0
        job = Job(asked)
        generator.enqueue(job)
        while generator.num_remaining_jobs:
            for _, event, _ in generator.iterate():
                said.take(event)
            if said.ids and job.reads and job.resuming is None and suspended < most:
                suspended += 1
                generator._scheduler._suspend(job)
            cache.table.check()
        return outcome(said), suspended

    drafting = SpeculationSettings(method="ngram", draft_tokens=3, adaptive=False)
    found, suspended = reply(replace(asked, speculation=drafting), 20)
    assert suspended > 2
    assert found == reply(asked, 0)[0]


def test_a_background_job_that_is_paused_can_be_stopped() -> None:
    generator, _ = dynamic(pages=60)
    background, front = Job(request(1, 20, 400), priority=-1), Job(request(2, 20, 400), priority=1)
    generator.enqueue(background)
    for _ in range(10):
        generator.iterate()
    generator.enqueue(front)
    for _ in range(5):
        generator.iterate()
    background.stop.set()
    ends = [(job, event.reason) for job, event, _ in generator.iterate() if isinstance(event, Done)]
    assert ends == [(background, "cancelled")]
    assert generator.active == (front,)


def test_what_nobody_reads_does_not_pile_up() -> None:
    """A reply whose drafts give several tokens a pass, beside one that gets one: both are read in turns."""

    def repeating(sequence: list[int]) -> Any:
        return np.eye(tokenizer().vocab_size, dtype=np.float32)[20 + len(sequence) % 7] * 9

    model: Any = FakeModel(repeating)
    generator = DynamicGenerator(model, PagedCache(model, CacheSettings(context_length=2048)), tokenizer())
    drafting = SpeculationSettings(method="ngram", draft_tokens=4)
    streams = [
        generator.stream(request(1, 20, 300, sampler=GREEDY, speculation=drafting)),
        generator.stream(request(2, 20, 300, sampler=GREEDY)),
    ]
    said, open_ones = [Said(), Said()], [0, 1]
    most = 0
    while open_ones:
        for i in list(open_ones):
            event = next(streams[i], None)
            if event is None:
                open_ones.remove(i)
            else:
                said[i].take(event)
            most = max(most, *map(len, generator._scheduler._streams.values()), 0)
    assert said[0].done is not None
    assert said[0].done.stats.accepted_tokens > 100
    assert most <= 8


def test_a_stream_goes_on_though_another_is_not_read() -> None:
    generator, _ = dynamic(pages=60)
    left, read = generator.stream(request(1, 20, 60)), generator.stream(request(2, 20, 60))
    next(left)
    said = Said()
    for event in read:
        said.take(event)
    assert outcome(said) == alone(request(2, 20, 60))
    said = Said()
    for event in left:
        said.take(event)
    assert outcome(said) == alone(request(1, 20, 60))
