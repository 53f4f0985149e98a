"""Passes over several sequences, run one sequence after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from engine.backends.base import Step
from engine.tensors import Floats


def single_steps(step: Step) -> Iterator[Step]:
    """The step of each sequence that has logits or must be run, in order; a step over one is itself.

    The logit rows of a pass are its last ones; a sequence before them still gets one, which nobody reads.
    """
    if not step.runs:
        yield step
        return
    row = page = 0
    left = len(step.token_ids)
    for i, (rows, pages) in enumerate(step.runs):
        left -= rows
        logits = min(rows, max(0, step.logit_rows - left))
        yield Step(
            step.token_ids[row : row + rows],
            step.positions[row : row + rows],
            step.pages[page : page + pages],
            max(1, logits),
            states=step.states[i : i + 1],
            kept=step.kept + row,
            rope_positions=None if step.rope_positions is None else step.rope_positions[row : row + rows],
            cross=step.cross[i : i + 1],
        )
        row, page = row + rows, page + pages


def run_singly(run: Callable[[Step], Floats], step: Step) -> Floats:
    """The logits (logit_rows, V) of a step over several sequences, from a `run` that knows only one."""
    found = np.concatenate([run(each).copy() for each in single_steps(step)])
    return np.asarray(found[len(found) - step.logit_rows :])
