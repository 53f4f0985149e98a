"""Row `steps` of `tests.bench.bench_cpu`: where the time of one recorded step goes, stage by stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from engine.backends.cpu.program import CpuProgram
from engine.backends.cpu.runtime.bandwidth import read_bandwidth
from engine.backends.cpu.runtime.profile import Spent, profile
from tests.bench.cpu_kit import NEWER, RECURRENT, SHAPES, Line, Options, opened, random_ids

DEEP = 8192
STEPS = (*SHAPES, *NEWER, *(f"{work} at {DEEP}" for work in RECURRENT))
PROMPT = 512
"""The most rows of a prompt's pass."""
_ROUNDS, _REPEATS, _PROMPTS = 20, 9, 3


def steps(options: Options, work: str) -> Iterator[Line]:
    """A line for the stages of the same kernels and shapes, and one for the sum of all: a decode step's as
    shares of the bandwidth, a prompt's as shares of its time.

    Of several profiles the fastest counts, as a whole: where other programs use the cores, a stage's own
    least time is nothing, because the other threads may run it while the caller's waits for a core.
    """
    name, _, deep = work.partition(" at ")
    depth = int(deep or 0)
    with opened(options.model(name), options.threads, depth + PROMPT) as (_, cache):
        program, ids, lease = cache.program, random_ids(cache, depth + PROMPT), cache.table.open(())
        assert isinstance(program, CpuProgram)

        def profiled(rows: int, repeats: int) -> list[Spent]:
            def run() -> None:
                cache.rewind(lease, depth)
                cache.run(lease, ids[depth : depth + rows])

            return profile(program, run, rows, depth, repeats)

        for at in range(0, depth, cache.rows):
            cache.run(lease, ids[at : min(depth, at + cache.rows)])
        bandwidth, rounds = 0.0, list[list[Spent]]()
        for _ in range(_ROUNDS):
            bandwidth = max(bandwidth, read_bandwidth(options.threads, seconds=0.1))
            rounds.append(profiled(1, _REPEATS))
        step, read = min(rounds, key=_seconds), cache.model.weight_bytes_per_token
        yield from _lines(work, step, lambda each: each.bytes / each.seconds / bandwidth)
        yield Line(
            "steps", f"{work}, all", 1e6 * _seconds(step), "us", read / _seconds(step) / bandwidth, "%",
            rival="GB/s", theirs=bandwidth / 1e9, about="weights alone",
        )  # fmt: skip
        if not depth:
            prompt = profiled(min(PROMPT, cache.rows), _PROMPTS)
            yield from _lines(f"{name} prompt", prompt, lambda each: each.seconds / _seconds(prompt))
        lease.close()


def _seconds(found: list[Spent]) -> float:
    return sum(each.seconds for each in found)


def _lines(work: str, found: list[Spent], share: Callable[[Spent], float]) -> Iterator[Line]:
    for each in found:
        micro = 1e6 * each.seconds
        yield Line(
            "steps", work, micro, "us", share(each), "%", rival=f"{each.count} of us each",
            theirs=micro / each.count, about=each.name,
        )  # fmt: skip
