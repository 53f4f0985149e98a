"""Rows of `tests.bench.bench_cpu` on many sequences at once: batch, together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from statistics import median

from engine.generator.dynamic import DynamicGenerator, Failed, Job
from engine.generator.request import GenerationRequest, Guidance
from engine.models.paged import PagedCache
from engine.settings import SamplerSettings
from engine.text.stops.conditions import StopRules
from tests.bench.cpu_kit import Line, Options, generating, in_turn, random_ids, ratio
from tests.tools.rivals import open_rivals

LLAMA = "llama.cpp batched"
COUNTS = (1, 2, 4, 8, 16)
GREEDY = SamplerSettings(temperature=0.0)
EIGHT_BAR, RIVAL_BAR, GUIDANCE_BAR = 3.0, 2.0, 1.7


def requests(ids: Sequence[int], count: int, tokens: int) -> list[GenerationRequest]:
    """Greedy replies of `tokens` tokens to short prompts that differ from their beginning."""
    stops = StopRules(frozenset(), max_tokens=tokens)
    return [GenerationRequest([*ids[8 * n : 8 * n + 8]], GREEDY, stops) for n in range(count)]


def decode_seconds(generator: DynamicGenerator, asked: Sequence[GenerationRequest]) -> float:
    """Seconds for each token and job, from when all replies have begun to when the first has ended."""
    generator.cache.table.forget()
    jobs = [Job(each) for each in asked]
    generator.enqueue(jobs)
    begun, first = 0.0, 0
    while len(generator.active) == len(jobs) or not begun:
        failed = [event.error for _, event, _ in generator.iterate() if isinstance(event, Failed)]
        assert not failed, failed
        if not begun and all(map(_written, jobs)):
            begun, first = time.perf_counter(), sum(map(_written, jobs))
    seconds = (time.perf_counter() - begun) / (sum(map(_written, jobs)) - first)
    generator.clear_queue()
    return seconds


def _written(job: Job) -> int:
    """How many tokens a job has written."""
    return job.opened.sequence.new_tokens if job.opened is not None else 0


def batch(options: Options, work: str) -> Iterator[Line]:
    """Tokens a second of 1 to 16 jobs, sampling and text included; llama.cpp only runs its passes."""
    tokens = 32 if work not in ("starter", "gemma") else 64
    with ExitStack() as stack:
        generator = stack.enter_context(generating(options.model(work), options.threads, 2048))
        rivals = open_rivals(
            stack, (LLAMA,), options.model(work), options.threads, 2048, options.interpreters
        )
        ids = random_ids(generator.cache, 200)
        work_of: dict[str, Callable[[], float]] = {}
        for count in COUNTS:
            work_of[f"ours {count}"] = partial(decode_seconds, generator, requests(ids, count, tokens))
            for rival in rivals:
                work_of[f"theirs {count}"] = partial(_rival_seconds, rival, ids[:tokens], count)
        in_turn(work_of, 1)
        times = in_turn(work_of, options.repeat)
        for count in COUNTS:
            mine = times[f"ours {count}"]
            rate = 1 / median(mine)
            if f"theirs {count}" in times:
                theirs = times[f"theirs {count}"]
                yield Line(
                    "batch", f"{work}, {count} jobs", rate, "tok/s", ratio(theirs, mine), bar=RIVAL_BAR,
                    rival="llama.cpp", theirs=1 / median(theirs),
                )  # fmt: skip
            if count > 1:
                yield Line(
                    "batch", f"{work}, {count} jobs, of one", rate, "tok/s", ratio(times["ours 1"], mine),
                    bar=EIGHT_BAR if count == 8 and work == "Q4_K_M" else None,
                    rival="our 1 job", theirs=1 / median(times["ours 1"]),
                )  # fmt: skip


def _rival_seconds(rival: object, ids: Sequence[int], count: int) -> float:
    seconds: float = rival.run_batch(ids, count)  # type: ignore[attr-defined]
    return seconds / (len(ids) * count)


def together(options: Options, work: str) -> Iterator[Line]:
    """Guidance in one pass compared with two; a chat's first token while 8 others are written."""
    with ExitStack() as stack:
        generator = stack.enter_context(generating(options.model(work), options.threads, 2048))
        ids = random_ids(generator.cache, 600)
        stops = StopRules(frozenset(), max_tokens=48)
        guided = GenerationRequest(ids[:16], GREEDY, stops, guidance=Guidance(tuple(ids[20:36]), 1.5))
        prompt = GenerationRequest(ids[:200], GREEDY, StopRules(frozenset(), max_tokens=2))
        beside = requests(ids[200:], 8, 2000)
        guide = partial(decode_seconds, generator, [guided])
        found = in_turn(
            {
                "one pass": guide,
                "two passes": partial(_in_two_passes, generator.cache, guide),
                "first alone": partial(_first_token, generator, prompt, []),
                "first beside": partial(_first_token, generator, prompt, beside),
            },
            options.repeat,
        )
        yield Line(
            "together", f"{work}, guidance", 1 / median(found["one pass"]), "tok/s",
            ratio(found["two passes"], found["one pass"]), bar=GUIDANCE_BAR,
            rival="in two passes", theirs=1 / median(found["two passes"]),
        )  # fmt: skip
        yield Line(
            "together", f"{work}, first token", 1000 * median(found["first beside"]), "ms",
            ratio(found["first beside"], found["first alone"]), rival="alone",
            theirs=1000 * median(found["first alone"]),
        )  # fmt: skip


def _in_two_passes(cache: PagedCache, work: Callable[[], float]) -> float:
    """With the rows of a pass run one after the other, as they were before passes could be joined."""
    program = cache.program
    rows = program.batch_rows
    program.batch_rows = 1
    try:
        return work()
    finally:
        program.batch_rows = rows


def _first_token(
    generator: DynamicGenerator, asked: GenerationRequest, beside: Sequence[GenerationRequest]
) -> float:
    """Seconds from enqueuing a job to its first token, while others are written."""
    generator.cache.table.forget()
    others = [Job(each) for each in beside]
    generator.enqueue(others)
    while not all(map(_written, others)):
        generator.iterate()
    job, started = Job(asked), time.perf_counter()
    generator.enqueue(job)
    while not _written(job):
        generator.iterate()
    seconds = time.perf_counter() - started
    generator.clear_queue()
    return seconds
