"""Writing with a device that draws by itself, one step ahead: which sequences may, and how what it drew is
taken in.

The host's own way (`engine.generator.decode`) decides whatever is unusual, and takes over wherever the device
cannot go on. Both ways give the same text; the device is only not kept waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import numpy as np

from engine.backends.base import DecodeLoop, Floats, SamplingPlan
from engine.generator.runner import SequenceRunner
from engine.generator.sequence import StepOutput, TokenSequence
from engine.generator.stats import SequenceStats
from engine.sampling import ordered_steps
from engine.sampling.penalties import OccurrencePenalty, RepetitionPenalty
from engine.sampling.step import SamplerStep
from engine.sampling.tables import TokenTables
from engine.sampling.temperature import Temperature
from engine.settings import SamplerSettings

_LONGEST_PAUSE = 256


def sampling_plan(
    settings: SamplerSettings, tables: TokenTables, size: int, *, top: int = 0, alternatives: int = 0
) -> SamplingPlan | None:
    """How a device draws as `engine.sampling.sampler.Sampler` would over `size` tokens; None where steps do
    what no plan can say.

    Penalties come first in a plan, then steps that look only at how likely a token is.
    """
    steps = [step for kind in ordered_steps(settings.order) if (step := kind.from_settings(settings)).active]
    greedy = Temperature.from_settings(settings).greedy
    steps = [step for step in steps if step.when_greedy] if greedy else steps
    penalties: list[SamplerStep] = [
        step for step in steps if isinstance(step, RepetitionPenalty | OccurrencePenalty)
    ]
    if steps[: len(penalties)] != penalties:
        return None
    few = [step.for_few() for step in steps[len(penalties) :]]
    if None in few:
        return None
    names = [step.name for step in penalties]
    return SamplingPlan(
        vocabulary=min(size, tables.vocabulary or size),
        steps=tuple(step for step in few if step is not None),
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
    )


def _bias(tables: TokenTables, size: int) -> Floats | None:
    """What is added to each score, -inf for what may not be drawn; None for nothing."""
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
    """The decode loops of one sequence. Without a device that can, `possible` is never true."""

    def __init__(self, runner: SequenceRunner, sequence: TokenSequence) -> None:
        self._runner, self._sequence = runner, sequence
        self._params: SamplingPlan | None = None
        self._decode_loop: DecodeLoop | None = None
        self._asked = False
        self._misses = self._pause = 0

    def possible(self) -> bool:
        """Whether the next tokens can be drawn by the device.

        Asked once for each token that the host decided.
        """
        if not self._asked:
            self._asked = True
            if not self._sequence.needs_host and self._runner.single:
                wanted, params = self._sequence.params.wanted, self._sequence.params
                size = self._runner.vocabulary
                self._params = sampling_plan(
                    params.sampler, params.tables, size, top=wanted.top, alternatives=wanted.alternatives
                )
                self._decode_loop = (
                    self._runner.decode_loop(self._params) if self._params is not None else None
                )
        if self._decode_loop is None or not self._sequence.usual:
            return False
        self._pause = max(0, self._pause - 1)
        return not self._pause

    def write(
        self, stats: SequenceStats, stopped: Callable[[], bool]
    ) -> Generator[StepOutput, None, Floats | None]:
        """Emissions like the loop's.

        Returns the logits (V,) of the next token where the host has to decide it, None at the end.
        """
        decode_loop, runner, sequence = self._decode_loop, self._runner, self._sequence
        assert decode_loop is not None
        runner.start(decode_loop, sequence.ids, sequence.uniform)
        while True:
            place = len(sequence.ids)
            further = place + 1 <= sequence.room and runner.room(decode_loop, place + 1)
            drawn = decode_loop.next(further)
            runner.walked(sequence.ids[-1])
            stats.passes = runner.passes
            if drawn is None or not sequence.usual:
                self._missed(drawn is None)
                sequence.keep_logits()
                return decode_loop.logits(place)
            output = sequence.accept_drawn(drawn, partial(decode_loop.logits, place))
            if output.retry is None:
                stats.token()
            yield output
            if output.reason:
                return None
            if stopped():
                yield sequence.finish("cancelled")
                return None
            if output.retry is not None:
                sequence.keep_logits()
                return output.retry
            if not further:
                sequence.keep_logits()
                decode_loop.close()
                row: Floats = runner.run(sequence.ids)[0]
                return row

    def close(self) -> None:
        """The sequence is over."""
        if self._decode_loop is not None:
            self._decode_loop.close()

    def _missed(self, undecided: bool) -> None:
        """Where the device often cannot tell, a step that was begun in vain costs more than waiting does:
        the host goes on for a while.
        """
        if undecided:
            self._misses += 1
            self._pause = min(2**self._misses, _LONGEST_PAUSE)
