"""Writing with a device that draws by itself, one step ahead: which sequences may, and how what it drew is taken in.

The host's own way (`engine.generator.decode`) decides whatever is unusual, and takes over wherever the device cannot go on. Both ways give
the same text; the device is only not kept waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.backends.base import Floats, Walk, WalkPlan
from engine.generator.runner import Source
from engine.generator.sequence import Emission, Job
from engine.sampling import ordered_steps
from engine.sampling.penalties import OccurrencePenalty, RepetitionPenalty
from engine.sampling.step import SamplerStep
from engine.sampling.tables import TokenTables
from engine.sampling.temperature import Temperature
from engine.settings import SamplerSettings

if TYPE_CHECKING:
    from engine.generator.decode import Clock

_LONGEST_PAUSE = 256


def walk_plan(settings: SamplerSettings, tables: TokenTables, size: int, *, top: int = 0, alternatives: int = 0) -> WalkPlan | None:
    """How a device draws as `engine.sampling.sampler.Sampler` would over `size` tokens; None where steps do what no plan can say.

    Penalties come first in a plan, then steps that look only at how likely a token is.
    """
    steps = [step for kind in ordered_steps(settings.order) if (step := kind.from_settings(settings)).active]
    greedy = Temperature.from_settings(settings).greedy
    steps = [step for step in steps if step.when_greedy] if greedy else steps
    penalties: list[SamplerStep] = [step for step in steps if isinstance(step, RepetitionPenalty | OccurrencePenalty)]
    if steps[: len(penalties)] != penalties:
        return None
    few = [step.for_few() for step in steps[len(penalties) :]]
    if None in few:
        return None
    names = [step.name for step in penalties]
    return WalkPlan(
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


class Ahead:
    """The walks of one sequence. Without a device that can, `possible` is never true."""

    def __init__(self, source: Source, job: Job) -> None:
        self._source, self._job = source, job
        self._plan: WalkPlan | None = None
        self._walk: Walk | None = None
        self._asked = False
        self._misses = self._pause = 0

    def possible(self) -> bool:
        """Whether the next tokens can be drawn by the device. Asked once for each token that the host decided."""
        if not self._asked:
            self._asked = True
            if not self._job.needs_host and self._source.single:
                wanted, plan = self._job.plan.wanted, self._job.plan
                size = self._source.vocabulary
                self._plan = walk_plan(plan.sampler, plan.tables, size, top=wanted.top, alternatives=wanted.alternatives)
                self._walk = self._source.walk(self._plan) if self._plan is not None else None
        if self._walk is None or not self._job.usual:
            return False
        self._pause = max(0, self._pause - 1)
        return not self._pause

    def write(self, clock: Clock, stopped: Callable[[], bool]) -> Generator[Emission, None, Floats | None]:
        """Emissions like the loop's. Returns the logits (V,) of the next token where the host has to decide it, None at the end."""
        walk, source, job = self._walk, self._source, self._job
        assert walk is not None
        source.start(walk, job.ids, job.uniform)
        while True:
            place = len(job.ids)
            further = place + 1 <= job.room and source.room(walk, place + 1)
            drawn = walk.next(further)
            source.walked(job.ids[-1])
            clock.passes = source.passes
            if drawn is None or not job.usual:
                self._missed(drawn is None)
                job.keep_logits()
                return walk.logits(place)
            emission = job.accept_drawn(drawn, partial(walk.logits, place))
            if emission.retry is None:
                clock.token()
            yield emission
            if emission.reason:
                return None
            if stopped():
                yield job.finish("cancelled")
                return None
            if emission.retry is not None:
                job.keep_logits()
                return emission.retry
            if not further:
                job.keep_logits()
                walk.close()
                row: Floats = source.run(job.ids)[0]
                return row

    def close(self) -> None:
        """The sequence is over."""
        if self._walk is not None:
            self._walk.close()

    def _missed(self, undecided: bool) -> None:
        """Where the device often cannot tell, a step that was begun in vain costs more than waiting does: the host goes on for a while."""
        if undecided:
            self._misses += 1
            self._pause = min(2**self._misses, _LONGEST_PAUSE)
