"""`bench --profile`: time and bytes by operation, for one decode step and one prefill step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING

from engine.cli.command import Answer
from engine.errors import BenchmarkError

if TYPE_CHECKING:
    from engine.models.paged import PagedCache

_DECODES, _PREFILLS = 30, 3
"""Measured steps of each kind; the median counts."""


def check_profile(cache: PagedCache) -> None:
    """Raise `BenchmarkError` for any backend but the CPU's."""
    from engine.backends.cpu.program import CpuProgram

    if not isinstance(cache.program, CpuProgram):
        raise BenchmarkError(
            "--profile measures the kernels of the CPU, but the model runs on the "
            f"{cache.model.backend.name} backend."
        )


def step_profiles(
    cache: PagedCache, ids: Sequence[int], prompt_tokens: int, depth: int, bandwidth: float
) -> Answer:
    """{"decode": ..., "prefill": ...}: the decode of one token at `depth`, and the first step of the prefill.

    `bandwidth` is in bytes/s.
    """
    lease = cache.table.open(())
    rows = min(cache.rows, prompt_tokens)

    def run(start: int, count: int) -> None:
        cache.rewind(lease, start)
        cache.run(lease, ids[start : start + count])

    try:
        prefill = _step(cache, lambda: run(0, rows), rows, 0, _PREFILLS, bandwidth)
        lease.truncate(0)
        for at in range(0, depth, cache.rows):
            cache.run(lease, ids[at : min(depth, at + cache.rows)])
        return {
            "decode": _step(cache, lambda: run(depth, 1), 1, depth, _DECODES, bandwidth),
            "prefill": prefill,
        }
    finally:
        lease.close()


def _step(
    cache: PagedCache, run: Callable[[], None], rows: int, depth: int, repeats: int, bandwidth: float
) -> Answer:
    from engine.backends.cpu.program import CpuProgram
    from engine.backends.cpu.runtime.profile import profile

    assert isinstance(cache.program, CpuProgram)
    walls: list[float] = []

    def timed() -> None:
        begun = time.perf_counter()
        run()
        walls.append(time.perf_counter() - begun)

    run()
    spent = profile(cache.program, timed, rows, depth, repeats)
    whole = sum(each.seconds for each in spent)
    operations = [
        {
            "name": each.name,
            "count": each.count,
            "seconds": each.seconds,
            "share": each.seconds / whole,
            "bytes": each.bytes,
            "bytes_per_second": each.bytes / each.seconds,
            "bandwidth_fraction": each.bytes / each.seconds / bandwidth,
        }
        for each in spent
        if each.seconds > 0.0
    ]
    return {
        "rows": rows, "depth": depth, "stages": cache.program.stage_count, "seconds": median(walls),
        "seconds_in_operations": whole, "operations": operations,
    }  # fmt: skip


def show_profile(profiles: Answer) -> list[str]:
    """A table for each step as lines of text."""
    lines: list[str] = []
    for name, step in profiles.items():
        lines += [
            "",
            f"{name} step: {step['rows']} rows at depth {step['depth']}, {1e3 * step['seconds']:.2f} ms, of "
            f"which {1e3 * step['seconds_in_operations']:.2f} ms in {step['stages']} stages of operations",
            "   share  times        us     us each         MB    GB/s  bandwidth    operations",
        ]
        for each in step["operations"]:
            micro = 1e6 * each["seconds"]
            read = (
                f"{each['bytes'] / 1e6:10.2f} {each['bytes_per_second'] / 1e9:7.1f} "
                f"{100 * each['bandwidth_fraction']:10.0f} %"
            )
            line = (
                f"{100 * each['share']:6.1f} % {each['count']:6d} {micro:9.0f} {micro / each['count']:11.1f} "
            )
            lines.append(f"{line}{read if each['bytes'] else '':30}  {each['name']}")
    return lines
