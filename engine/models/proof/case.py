"""One case of `selftest` and of a GPU's first use: a small pass over random numbers, on two backends."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from engine.backends.base import Array, AttentionShape, Backend, Ops, Step, Weight
from engine.backends.states import States, StateShape
from engine.core import PAGE_TOKENS
from engine.lazy_dataclass import dataclass
from engine.models.proof.random_tensors import file_tensor
from engine.tensors import Floats, Ints, RawTensor

Pass = Callable[[Ops, Sequence[Weight]], Array]
Tensors = Callable[[], list[RawTensor]]

TOKENS = 96
"""Rows of the embedding tables."""
STEPS = (1, 2, 5, 8, 9, 64, 80)
"""The rows of the steps of most cases: small batches and large batches have different kernels."""
BATCHES = ((1, 4, 3), (2, 5, 1), (1, 6, 1))
"""Successive steps over three sequences. The second runs over position 15, where q4's keys change."""
POINTWISE = 1e-4
"""The tolerated difference of float32 arithmetic, relative to the largest magnitude of the reference."""
_TINY = AttentionShape(1, 1, 16, 1.0)


def normal(seed: int, *shape: int) -> Floats:
    """Normally distributed float32 of this shape."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def token_table(width: int, seed: int = 1) -> RawTensor:
    """An embedding table of this many columns."""
    return file_tensor("selftest.table", normal(seed, TOKENS, width))


@dataclass(frozen=True)
class Case:
    """One small pass: `forward` over the weights in `tensors`."""

    name: str
    tolerance: float
    forward: Pass
    tensors: Tensors
    steps: tuple[int, ...] = STEPS
    """The rows of each step; every step begins at position 0 unless they `follow` each other."""
    cache: str = "fp32"
    shapes: Sequence[AttentionShape] = (_TINY,)
    """Of the layers with keys and values."""
    follow: bool = False
    batches: tuple[tuple[int, ...], ...] = ()
    """The rows of each sequence in steps over several, after the others. The first sequence is theirs, where
    they `follow` each other; the rest begin at position 0.
    """
    states: tuple[StateShape, ...] = ()
    """The parts of a state, for operations that have one: each sequence has two, written by turns."""


def run_case(case: Case, backend: Backend, tensors: Sequence[RawTensor] | None = None) -> Floats:
    """The results of all steps on a backend: (rows, width) float32. `tensors` are reused if given."""
    weights = [backend.load_weight(tensor) for tensor in (case.tensors() if tensors is None else tensors)]
    length = sum(case.steps) + sum(rows[0] for rows in case.batches) if case.follow else 1
    pages, others = -(-length // PAGE_TOKENS), max(map(len, case.batches), default=1) - 1
    states = States(case.states, 2 * (1 + others) if case.states else 0)
    cache = backend.new_cache(case.shapes, pages + 1 + others, case.cache, states)
    table = np.arange(pages, 0, -1, dtype=np.int32)  # reversed, so that page numbers differ from their order
    found: list[Floats] = []
    try:
        with closing(
            backend.record(lambda ops: case.forward(ops, weights), cache, max(case.steps))
        ) as program:
            start = 0
            for number, rows in enumerate(case.steps):
                found.append(program.run(_step([start], (rows,), [table], states, number)).copy())
                start += rows if case.follow else 0
            starts = [start] + [0] * others
            tables = [table, *np.arange(pages + 1, pages + 1 + others, dtype=np.int32)[:, None]]
            for number, batch in enumerate(case.batches, len(case.steps)):
                found.append(program.run(_step(starts, batch, tables, states, number)).copy())
                starts = [start + rows for start, rows in zip(starts, batch, strict=True)]
    finally:
        cache.close()
    return np.concatenate(found)


def _step(
    starts: Sequence[int], counts: Sequence[int], tables: Sequence[Ints], states: States, number: int
) -> Step:
    """Step `number` over sequences, with these numbers of rows from these positions on; all rows have
    logits.
    """
    parts = [
        np.arange(start, start + count, dtype=np.int32) for start, count in zip(starts, counts, strict=True)
    ]
    ids = [(positions * 7 + 5 * number) % TOKENS for number, positions in enumerate(parts)]
    runs = [(count, len(table)) for count, table in zip(counts, tables, strict=True)]
    several = runs if len(runs) > 1 else ()
    turns = [
        (2 * i + (number + 1) % 2 if start else -1, 2 * i + number % 2) for i, start in enumerate(starts)
    ]
    return Step(
        np.concatenate(ids), np.concatenate(parts), np.concatenate(tables), sum(counts), several,
        turns if states.count else (),
    )  # fmt: skip


def difference(actual: Floats, expected: Floats) -> float:
    """The largest difference relative to the largest expected magnitude; infinite if only one of two values
    is finite.
    """
    if actual.shape != expected.shape or not np.array_equal(np.isfinite(actual), np.isfinite(expected)):
        return float("inf")
    finite = np.isfinite(expected)
    gap = np.abs(actual[finite] - expected[finite]).max(initial=0.0)
    return float(gap / max(np.abs(expected[finite]).max(initial=0.0), 1e-30))


Outcome = dict[str, Any]
"""One row of the table of checks: "name", "difference" (None: not finite), "tolerance", "passed", and
perhaps "error" and "kernels".
"""


def checked(case: Case, backend: Backend, reference: Backend) -> Outcome:
    """Run a case on both backends and compare."""
    return outcome(case.name, difference(run_case(case, backend), run_case(case, reference)), case.tolerance)


def outcome(name: str, difference: float, tolerance: float) -> Outcome:
    """One row of the table; a difference that is not finite becomes None and has not passed."""
    known = math.isfinite(difference)
    return {
        "name": name,
        "difference": difference if known else None,
        "tolerance": tolerance,
        "passed": known and difference <= tolerance,
    }
