"""Rows of `tests.bench.bench_cpu`: neighbour, verify, short, thread."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from statistics import median

from engine.cli.bench import Runner
from engine.kv_cache.lease import Lease
from engine.models.paged import PagedCache
from tests.bench.cpu_kit import (
    BANDWIDTH,
    SHAPES,
    Line,
    Options,
    in_turn,
    opened,
    random_ids,
    ratio,
    share,
    timed,
    warm,
    with_bandwidth,
)
from tests.tools.rivals import open_rivals

LLAMA = "llama.cpp"
VERIFY_BARS = {2: None, 4: 1.2, 8: 1.5}
SHORT_PROMPTS = (9, 12, 16, 24, 32, 48)


@contextmanager
def spinner() -> Iterator[None]:
    """Another program that keeps one core busy."""
    process = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
    time.sleep(0.3)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def neighbour(options: Options, work: str) -> Iterator[Line]:
    """Decoding with all threads next to a spinning program, compared with our single thread without it and
    with llama.cpp next to it.
    """
    path, count, threads = options.model(work), 32, options.threads
    with ExitStack() as stack:
        several, cache = stack.enter_context(opened(path, threads, 256))
        one, _ = stack.enter_context(opened(path, 1, 256))
        rivals = open_rivals(stack, (LLAMA,), path, threads, 256, options.interpreters)
        ids = random_ids(cache, 256)
        warm([several, one, *rivals], ids)
        several.run(ids[:count], 0, one_by_one=True)

        alone: list[float] = []
        beside: dict[str, list[float]] = {}
        for _ in range(options.repeat):
            alone.append(one.run(ids[:count], 0, one_by_one=True))
            with spinner():
                for name, seconds in in_turn(
                    timed([several, *rivals], ids[:count], 0, one_by_one=True), 1
                ).items():
                    beside.setdefault(name, []).extend(seconds)
        mine = beside.pop(several.name)
        rate = count / median(mine)
        yield Line(
            "neighbour", f"{work}, {threads} threads", rate, "tok/s", ratio(alone, mine), bar=0.85,
            rival="our 1 thread alone", theirs=count / median(alone),
        )  # fmt: skip
        for name, seconds in beside.items():
            if len(seconds) == len(mine):
                factor, theirs = ratio(seconds, mine), count / median(seconds)
                yield Line(
                    "neighbour",
                    f"{work}, {threads} threads",
                    rate,
                    "tok/s",
                    factor,
                    bar=4.0,
                    rival=name,
                    theirs=theirs,
                )


def verify(options: Options, work: str) -> Iterator[Line]:
    """A pass of 2, 4 and 8 tokens with all logits, relative to a pass of one; also llama.cpp's."""
    path, start = options.model(work), 64
    with ExitStack() as stack:
        ours, cache = stack.enter_context(opened(path, options.threads, 512))
        rivals = open_rivals(stack, (LLAMA,), path, options.threads, 512, options.interpreters)
        ids = random_ids(cache, 512)
        runners: list[Runner] = [ours, *rivals]
        warm(runners, ids)
        for runner in runners:
            runner.run(ids[:start], 0, one_by_one=False)
        sizes = (1, *VERIFY_BARS)
        lease = stack.enter_context(cache.table.open(()))
        cache.run(lease, ids[:start])
        work_of = {
            str(rows): partial(_pass, cache, lease, ids[start : start + rows], start) for rows in sizes
        }
        in_turn(work_of, 2)  # warms up
        times = in_turn(work_of, (4 if work in SHAPES else 12) * options.repeat)
        theirs = in_turn(
            {
                str(rows): partial(rival.run, ids[start : start + rows], start, one_by_one=False)
                for rival in rivals
                for rows in sizes
            },
            options.repeat,
        )
        for rows, bar in VERIFY_BARS.items():
            mine = times[str(rows)]
            yield Line(
                "verify", f"{work}, {rows} rows", 1e3 * median(mine), "ms", ratio(mine, times["1"]), bar=bar,
                at_most=True, rival="our one row", theirs=1e3 * median(times["1"]),
            )  # fmt: skip
            if str(rows) in theirs and "1" in theirs:
                took = theirs[str(rows)]
                yield Line(
                    "verify", f"{work}, {rows} rows, {LLAMA}", 1e3 * median(took), "ms",
                    ratio(took, theirs["1"]), rival="its one row", theirs=1e3 * median(theirs["1"]),
                )  # fmt: skip


def short(options: Options, work: str) -> Iterator[Line]:
    """A prompt of 9 to 48 tokens after 64 others in one pass, relative to passes of up to 8 tokens."""
    path, start = options.model(work), 64
    with ExitStack() as stack:
        _, cache = stack.enter_context(opened(path, options.threads, 512))
        ids = random_ids(cache, 512)
        lease = stack.enter_context(cache.table.open(()))
        cache.run(lease, ids[:start])
        work_of = {
            f"{rows} {most}": partial(_prompt, cache, lease, ids[start : start + rows], start, most)
            for rows in SHORT_PROMPTS
            for most in (rows, 8)
        }
        in_turn(work_of, 1)  # warms up
        times = in_turn(work_of, (3 if work in SHAPES else 12) * options.repeat)
        for rows in SHORT_PROMPTS:
            mine, theirs = times[f"{rows} {rows}"], times[f"{rows} 8"]
            yield Line(
                "short", f"{work}, {rows} rows", 1e3 * median(mine), "ms", ratio(mine, theirs), bar=1.0,
                at_most=True, rival="passes of 8", theirs=1e3 * median(theirs),
            )  # fmt: skip


def _prompt(cache: PagedCache, lease: Lease, ids: Sequence[int], start: int, most: int) -> float:
    """Seconds of passes of at most `most` tokens over `ids` after the first `start` of the lease."""
    lease.truncate(start)
    begun = time.perf_counter()
    for first in range(0, len(ids), most):
        cache.run(lease, ids[first : first + most], 1)
    return time.perf_counter() - begun


def _pass(cache: PagedCache, lease: Lease, ids: Sequence[int], start: int) -> float:
    """Seconds of one pass over `ids` after the first `start` tokens of the lease, with all logits."""
    lease.truncate(start)
    begun = time.perf_counter()
    cache.run(lease, ids, len(ids))
    return time.perf_counter() - begun


def thread(options: Options, work: str) -> Iterator[Line]:
    """Decoding with one thread, compared with llama.cpp's one thread and the bandwidth of one thread."""
    path, count = options.model(work), 16 if work in SHAPES else 48
    with ExitStack() as stack:
        ours, cache = stack.enter_context(opened(path, 1, 256))
        runners: list[Runner] = [ours, *open_rivals(stack, (LLAMA,), path, 1, 256, options.interpreters)]
        ids = random_ids(cache, 256)
        warm(runners, ids)
        times = in_turn(with_bandwidth(timed(runners, ids[:count], 0, one_by_one=True), 1), options.repeat)
        rate = count / median(times[ours.name])
        read = share(times[ours.name], count, cache, times[BANDWIDTH])
        if LLAMA in times:
            bar = None if work in SHAPES else 2.0
            factor, theirs = ratio(times[LLAMA], times[ours.name]), count / median(times[LLAMA])
            yield Line("thread", work, rate, "tok/s", factor, bar=bar, rival=LLAMA, theirs=theirs, share=read)
        if work in SHAPES:
            bandwidth = median(times[BANDWIDTH]) / 1e9
            yield Line(
                "thread",
                f"{work} of bandwidth",
                rate,
                "tok/s",
                read,
                "%",
                0.9,
                rival="GB/s, one thread",
                theirs=bandwidth,
            )
