"""Decoding ahead of the host on a CPU: several steps in a row, sampling included."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Protocol

from engine.backends.cpu.runtime.sampling_block import MOST_STEPS, SamplingBlock
from engine.backends.decode_loop import SamplingPlan
from engine.sampling import passes
from engine.sampling.kernels import LONGEST_HEAD, PickedToken
from engine.sampling.sampler import SHORT_HEAD, Sampled, sampled_by
from engine.tensors import Floats, Ints

_TOKEN = itemgetter(0)
_LONGEST_S = 0.032
"""Steps run in a row for at most this many seconds, two frames of a screen: a reply stops no later."""


class RowRunner(Protocol):
    """A program that runs one row at a time over a block table that is given once."""

    def set_pages(self, pages: Ints) -> None:
        """Use this block table from now on."""
        ...

    def run_row(self, token: int, place: int, shift: int = 0) -> Floats:
        """Logits (V,) float32 after a token at a place, whose rope position is `shift` less; the next pass
        may overwrite them.
        """
        ...

    def decode(self, token: int, place: int, steps: int, vocabulary: int, shift: int = 0) -> None:
        """Run the steps that the program's sampling block asks for, at most `steps`, from a token at a place
        on; tokens are sampled from the first `vocabulary` ids. `shift` is as in `run_row`.
        """
        ...


class CpuDecodeLoop:
    """A `DecodeLoop` of a program on a CPU.

    When a pass has read all weights, nothing that Python needs is left in the caches. What the host does with
    a token takes 0.2 ms then, and a fraction of it for each further token that it takes at the same time.
    """

    def __init__(self, rows: RowRunner, sampling: SamplingBlock, plan: SamplingPlan, head: int) -> None:
        self._rows, self._sampling, self._plan = rows, sampling, plan
        self._head = head  # the likeliest tokens that are looked at
        self._uniform: Callable[[int], float] = lambda place: 0.0
        self._begun = 0  # steps that may run, and have not; at most one where no token waits
        self._drawn: deque[PickedToken] = deque()  # of steps that have run
        self._text: list[int] = []  # from the place `_first` on; the next step runs its last token
        self._first = self._shift = 0
        self._most = 1  # steps in a row that take no longer than `_LONGEST_S`

    def start(
        self,
        ids: Sequence[int],
        pages: Ints,
        uniform: Callable[[int], float],
        states: tuple[int, int] | None = None,
        shift: int = 0,
    ) -> None:
        assert states is None, "a recurrent model has no decode loop on a CPU"
        self._drawn.clear()
        self._text, self._first, self._begun = [ids[-1]], len(ids) - 1, 1
        self._uniform, self._shift = uniform, shift
        plan = self._plan
        self._sampling.plan(self._head, None if plan.greedy else plan.steps, plan.alternatives, plan.ends)
        self._rows.set_pages(pages)

    def set_pages(self, pages: Ints) -> None:
        self._rows.set_pages(pages)

    def set_state(self, length: int, number: int) -> None:
        """As in the protocol; never called, since no model with states has such a loop."""
        raise AssertionError("a recurrent model has no decode loop on a CPU")

    @property
    def ahead(self) -> int:
        """As in the protocol: none while there are tokens to take. The last step that has begun is run only
        with the steps after it, so that the next token is always one of several.
        """
        return 0 if self._drawn else self._most

    @property
    def under_way(self) -> int:
        return len(self._drawn) + self._begun

    def next(self, further: int) -> Sampled | None:
        """As in the protocol. Raises `ValueError` if no step is under way."""
        self._begun += further
        if not self._drawn:
            if not self._begun:
                raise ValueError("no step is under way: start the loop")
            self._run(self._begun - 1 if further else self._begun)
        found = self._drawn.popleft()
        return sampled_by(found) if found[0] >= 0 else None

    def _run(self, steps: int) -> None:
        """Run this many steps; no more after one with which the text is likely to end."""
        plan, text = self._plan, self._text
        place = self._first + len(text) - 1
        count = steps if steps < MOST_STEPS else MOST_STEPS
        began = time.perf_counter()
        self._sampling.begin(
            [0.0] * count if plan.greedy else [*map(self._uniform, range(place + 1, place + 1 + count))]
        )
        self._rows.decode(text[-1], place, count, plan.vocabulary, self._shift)
        drawn = self._sampling.drawn()
        self._drawn += drawn
        text += map(_TOKEN, drawn)
        ran = len(drawn)
        self._begun = int(self._begun > ran)
        most = _LONGEST_S * ran / (time.perf_counter() - began)
        self._most = MOST_STEPS if most > MOST_STEPS else int(most) or 1

    def logits(self, place: int) -> Floats:
        """As in the protocol: the step is run again, which writes the same keys and values. Raises
        `ValueError` for a place whose step has not run since `start`.
        """
        if not self._first < place < self._first + len(self._text):
            raise ValueError(f"the logits at {place} are not among those since the loop was started")
        return self._rows.run_row(self._text[place - 1 - self._first], place - 1, self._shift).copy()

    def close(self) -> None:
        self._drawn.clear()
        self._begun = 0


def decode_loop_of(
    rows: RowRunner, sampling: SamplingBlock, plan: SamplingPlan, width: int
) -> CpuDecodeLoop | None:
    """A decode loop that samples by a plan from logits of `width` tokens, as `Sampler.sample` does in one
    compiled call; None where it cannot.
    """
    kept = next((step for step in plan.steps if step[0] != passes.SCALE), None)
    if plan.greedy:
        head = 0 if plan.steps else SHORT_HEAD
    else:
        head = int(kept[1]) if kept is not None and kept[0] == passes.KEEP_TOP else 0
    unusual = plan.top or plan.penalises or plan.bias is not None or plan.vocabulary > width
    if unusual or not plan.alternatives <= head <= LONGEST_HEAD or not head:
        return None
    return CpuDecodeLoop(rows, sampling, plan, head)
