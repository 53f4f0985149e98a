"""A profile of a step: the time of each stage in a replay with all threads, and the bytes that it reads.

The caller's thread takes the time at the end of each stage. The operations of a stage run concurrently, so
they share one figure under all their names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from engine.backends.cpu.codegen.kernel_cache import KERNELS
from engine.backends.cpu.lowering.call import Operation
from engine.backends.cpu.program import CpuProgram
from engine.backends.cpu.runtime.clock import ticks_per_second
from engine.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Spent:
    """Stages of the same kernels on the same shapes, in one step."""

    name: str
    """Kernels with the shapes of their matrices, as in "linear_q41 576x576", or with heads, key/value heads
    and head dimension.
    """
    count: int
    seconds: float
    """Seconds of all of these stages."""
    bytes: int
    """Bytes of weights, keys and values that all of these stages read."""


def profile(
    program: CpuProgram, run: Callable[[], object], rows: int, depth: int, repeats: int
) -> list[Spent]:
    """The profile of a step of `rows` rows after `depth` positions, the longest time first.

    `run` runs the step once. Each stage counts with the median of its times. Empty if the CPU has no counter.
    """
    stages, rate = program.stages, ticks_per_second(KERNELS.pool["ticks"])
    stamps = np.zeros((repeats, len(stages) + 1), np.int64)
    try:
        for each in stamps:
            program.stamps = each
            run()
    finally:
        program.stamps = None
    if not rate:
        return []
    seconds = np.median(np.diff(stamps, axis=1), axis=0) / rate
    sums: dict[str, Spent] = {}
    for operations, spent in zip(stages, seconds, strict=True):
        name, read = _name(operations), sum(bytes_read(each, rows, depth) for each in operations)
        before = sums.get(name, Spent(name, 0, 0.0, 0))
        sums[name] = Spent(name, before.count + 1, before.seconds + float(spent), before.bytes + read)
    return sorted(sums.values(), key=lambda each: -each.seconds)


def bytes_read(operation: Operation, rows: int, depth: int) -> int:
    """Bytes of weights (as many experts as rows can choose), keys and values that an operation reads."""
    own = 1 if operation.on_logit_rows else rows
    weights = min(operation.bytes, own * operation.row_bytes) if operation.row_bytes else operation.bytes
    positions = min(depth + rows, operation.window + rows - 1) if operation.window else depth + rows
    return weights + operation.position_bytes * positions


def _name(operations: list[Operation]) -> str:
    counted = Counter(" ".join([each.kernel, "x".join(map(str, each.shape))]).strip() for each in operations)
    return " + ".join(f"{count} {name}" if count > 1 else name for name, count in counted.items())
