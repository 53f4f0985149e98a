"""`bench --profile`: time and bytes by operation, for one decode step and one prefill step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING

from engine.cli.command import Answer
from engine.errors import BenchmarkError
from engine.platform.terminal import padded, width_of
from engine.units import number_text, percent_text
from engine.words import N_, _, translate

if TYPE_CHECKING:
    from engine.models.paged import PagedCache

_DECODES, _PREFILLS = 30, 3
"""Measured steps of each kind; the median counts."""


def check_profile(cache: PagedCache) -> None:
    """Raise `BenchmarkError` for any backend but the CPU's."""
    from engine.backends.cpu.program import CpuProgram

    if not isinstance(cache.program, CpuProgram):
        raise BenchmarkError(
            _(
                "--profile measures the kernels of the CPU, but the model runs on the {name} backend.",
                name=cache.model.backend.name,
            )
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


_TITLES = (
    N_("share"), N_("times"), N_("us"), N_("us each"), "MB", "GB/s", N_("bandwidth"), N_("operations"),
)  # fmt: skip
_WIDTHS = (8, 6, 9, 9, 10, 7, 10, 0)
"""The columns of the terminal that each column of the table takes at least."""


def show_profile(profiles: Answer) -> list[str]:
    """A table for each step as lines of text."""
    lines: list[str] = []
    for name, step in profiles.items():
        lines += ["", _heading(name, step), *_table([_row(each) for each in step["operations"]])]
    return lines


def _heading(name: str, step: Answer) -> str:
    values = {
        "rows": step["rows"], "depth": step["depth"], "time": 1e3 * step["seconds"],
        "part": 1e3 * step["seconds_in_operations"], "stages": step["stages"],
    }  # fmt: skip
    if name == "decode":
        return _(
            "decode step: rows {rows}, depth {depth}, {time:.2f} ms, of which {part:.2f} ms in operations "
            "(stages {stages})",
            **values,
        )
    return _(
        "prefill step: rows {rows}, depth {depth}, {time:.2f} ms, of which {part:.2f} ms in operations "
        "(stages {stages})",
        **values,
    )


def _row(each: Answer) -> list[str]:
    micro = 1e6 * each["seconds"]
    read = ["", "", ""]
    if each["bytes"]:
        read = [
            number_text(each["bytes"] / 1e6, ".2f"),
            number_text(each["bytes_per_second"] / 1e9, ".1f"),
            percent_text(each["bandwidth_fraction"]),
        ]
    shares = [percent_text(each["share"], ".1f"), str(each["count"])]
    return [
        *shares,
        number_text(micro, ".0f"),
        number_text(micro / each["count"], ".1f"),
        *read,
        each["name"],
    ]


def _table(rows: list[list[str]]) -> list[str]:
    """Figures to the right of their columns, the names after them."""
    titles = [translate(title) for title in _TITLES]
    widths = [max(least, width_of(title)) for least, title in zip(_WIDTHS, titles, strict=True)]
    return [
        " ".join(padded(cell, width, right=True) for cell, width in zip(row[:-1], widths[:-1], strict=True))
        + f"  {row[-1]}"
        for row in (titles, *rows)
    ]
