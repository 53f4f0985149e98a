"""Drawing the next token: the table of steps and their order.

`engine.sampling.sampler.Sampler` applies them.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.sampling.curves import TailFree, Typical
from engine.sampling.dry import Dry
from engine.sampling.feedback import AdaptiveP, Mirostat
from engine.sampling.penalties import OccurrencePenalty, RepetitionPenalty
from engine.sampling.step import SamplerStep
from engine.sampling.temperature import DynamicTemperature, Smoothing, Temperature
from engine.sampling.truncation import MinP, TopA, TopK, TopNSigma, TopP
from engine.sampling.unlikely import Skew, Xtc

SAMPLER_STEPS: tuple[type[SamplerStep], ...] = (
    RepetitionPenalty, OccurrencePenalty, Dry, TopNSigma, Smoothing, Temperature, TopK, TopP, TopA, MinP,
    TailFree, Typical, Mirostat, DynamicTemperature, Xtc, AdaptiveP, Skew,
)  # fmt: skip
"""All steps in their default order of application; `engine.settings.SAMPLER_STEP_NAMES` has the same
names.
"""


def ordered_steps(order: Sequence[str]) -> tuple[type[SamplerStep], ...]:
    """All steps, those named in `order` as it says. A step it leaves out comes right after the step before it
    in the default order (the first one at the start); of a name that comes twice the first counts.
    """
    kinds = {kind.name: kind for kind in SAMPLER_STEPS}
    names = list(dict.fromkeys(name for name in order if name in kinds))
    previous = -1
    for name in kinds:
        if name not in names:
            names.insert(previous + 1, name)
        previous = names.index(name)
    return tuple(kinds[name] for name in names)


__all__ = ["SAMPLER_STEPS", "ordered_steps"]
