"""Overlapped decode: a device that can sample runs ahead of the host.

The host (`engine.generator.decode`) decides whatever is unusual, and takes over wherever the device cannot go
on. Both give the same text; overlapping only keeps the device from waiting.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from engine.backends.decode_loop import DecodeLoop, SamplingPlan
from engine.core import FIRST_PICTURE_ID
from engine.generator.runner import SequenceRunner
from engine.generator.sequence import StepOutput, TokenSequence
from engine.generator.stats import SequenceStats
from engine.sampling import ordered_steps
from engine.sampling.penalties import OccurrencePenalty, RepetitionPenalty
from engine.sampling.sampler import Sampled
from engine.sampling.step import SamplerStep
from engine.sampling.tables import TokenTables
from engine.sampling.temperature import Temperature
from engine.settings import SamplerSettings
from engine.tensors import Floats

_LONGEST_PAUSE = 256


def sampling_plan(
    settings: SamplerSettings,
    tables: TokenTables,
    size: int,
    *,
    top: int = 0,
    alternatives: int = 0,
    ends: frozenset[int] = frozenset(),
) -> SamplingPlan | None:
    """The plan by which a device samples as `engine.sampling.sampler.Sampler` would over `size` tokens; None
    if a step has no place in a plan.

    Penalties come first in a plan, then the steps that depend only on how likely a token is.
    """
    steps = [step for kind in ordered_steps(settings.order) if (step := kind.from_settings(settings)).active]
    greedy = Temperature.from_settings(settings).greedy
    steps = [step for step in steps if step.when_greedy] if greedy else steps
    penalties: list[SamplerStep] = [
        step for step in steps if isinstance(step, RepetitionPenalty | OccurrencePenalty)
    ]
    if steps[: len(penalties)] != penalties:
        return None
    compiled = [step.compiled_step() for step in steps[len(penalties) :]]
    if None in compiled:
        return None
    names = [step.name for step in penalties]
    return SamplingPlan(
        vocabulary=min(size, tables.vocabulary or size),
        steps=tuple(step for step in compiled if step is not None),
        greedy=greedy,
        bias=_bias(tables, size),
        repetition=settings.repetition_penalty,
        presence=settings.presence_penalty,
        frequency=settings.frequency_penalty,
        reach=settings.repetition_range,
        fade=settings.repetition_decay,
        repetition_first=names[:1] != ["occurrence"],
        top=top,
        alternatives=alternatives,
        ends=ends,
    )


def _bias(tables: TokenTables, size: int) -> Floats | None:
    """What is added to each score, -inf for tokens that are not allowed; None for nothing."""
    if not tables.bias and tables.allowed is None and not tables.banned:
        return None
    added: Any = np.zeros(size, np.float64)
    for token, amount in tables.bias:
        if 0 <= token < size:
            added[token] += amount
    added[[token for token in tables.banned if 0 <= token < size]] = -np.inf
    if tables.allowed is not None:
        forbidden = np.ones(size, bool)
        forbidden[[token for token in tables.allowed if 0 <= token < size]] = False
        added[forbidden] = -np.inf
    bias: Floats = added.astype(np.float32)
    return bias


class OverlappedDecode:
    """The device's decode loops of one sequence; without a device that can sample, `begin` is always None.

    While one runs, `logits` (V,) are those of the next token where the host has to decide it.
    """

    def __init__(self, runner: SequenceRunner, sequence: TokenSequence) -> None:
        self._runner, self._sequence = runner, sequence
        self.possible = runner.decodes_on_device
        """Whether `begin` may ever give a decode loop."""
        self._device: DecodeLoop | None = None
        self._asked = False
        self._misses = self._pause = 0
        self._place = 0
        self.logits: Floats | None = None

    def begin(self) -> DecodeLoop | None:
        """The decode loop, started with the last token; None where the host has to decide the next one.

        Call it once for each token that the host decided. Raises `ContextTooLong`.
        """
        if not self._runner.single:
            self._leave()
            return None
        if not self._asked:
            self._asked = True
            self._device = self._find()
        if self._device is None or not self._sequence.usual:
            return None
        self._pause = max(0, self._pause - 1)
        if self._pause:
            return None
        started = self._runner.start(self._device, self._sequence.ids, self._sequence.uniform)
        return self._device if started else None

    def further(self) -> int:
        """How many steps the device may begin after those under way."""
        sequence, device = self._sequence, self._device
        assert device is not None
        self._place = len(sequence.ids)
        steps, room = device.ahead, sequence.room - self._place
        steps = steps if steps < room else room
        return steps if steps > 0 and self._runner.room(device, self._place + steps) else 0

    def take_in(self, sampled: Sampled | None, stats: SequenceStats) -> StepOutput | None:
        """What the device's token made certain; None where the host has to decide it from `logits`."""
        device, runner, sequence = self._device, self._runner, self._sequence
        assert device is not None
        runner.committed(sequence.ids[-1])
        stats.passes = runner.passes
        if sampled is None or not sequence.usual:
            self._missed(sampled is None)
            sequence.keep_logits()
            self.logits = device.logits(self._place)
            return None
        return sequence.accept_drawn(sampled, partial(device.logits, self._place))

    def ends_after(self, output: StepOutput) -> bool:
        """Whether the host goes on: from `logits`, or where these are None with a pass of its own."""
        assert self._device is not None
        if output.retry is None and self._device.under_way:
            return False
        self._sequence.keep_logits()
        self.logits = output.retry
        if not self._runner.single:
            self._leave()
        return True

    def _leave(self) -> None:
        """Give up the decode loop: other sequences run now, and one of them may take it with its own plan."""
        if self._device is not None:
            self._device.close()
        self._device, self._asked = None, False

    def close(self) -> None:
        """The sequence is over."""
        if self._device is not None:
            self._device.close()

    def _find(self) -> DecodeLoop | None:
        """A decode loop that samples as the sequence's settings say, where there is one."""
        params, runner = self._sequence.params, self._runner
        if self._sequence.needs_host or not runner.single:
            return None
        returns = params.returns
        plan = sampling_plan(
            params.sampler,
            params.tables,
            runner.vocabulary,
            top=returns.top,
            alternatives=returns.alternatives,
            ends=frozenset(params.rules.token_ids),
        )
        if plan is None or (plan.penalises and max(self._sequence.ids) >= FIRST_PICTURE_ID):
            return None  # a device counts how often each id of its vocabulary occurs
        return runner.decode_loop(plan)

    def _missed(self, undecided: bool) -> None:
        """Where the device often cannot decide, a step begun in vain costs more than waiting: pause."""
        if undecided:
            self._misses += 1
            self._pause = min(2**self._misses, _LONGEST_PAUSE)
