"""Sampler steps (elsewhere: logits processors or warpers), in their default order.

`engine.sampling.sampler.Sampler` applies them. To add a step, write a `SamplerStep` in one of the modules
imported below and add its name and settings to `engine/settings/sampler.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.sampling import curves, dry, feedback, penalties, temperature, truncation, unlikely
from engine.sampling.step import SamplerStep, steps_in
from engine.settings import SAMPLER_STEP_NAMES

_STEPS = {
    step.name: step
    for module in (penalties, dry, truncation, temperature, curves, feedback, unlikely)
    for step in steps_in(module)
}
SAMPLER_STEPS: tuple[type[SamplerStep], ...] = tuple(_STEPS[name] for name, _ in SAMPLER_STEP_NAMES)
"""All steps in their default order, as listed in `SAMPLER_STEP_NAMES`."""


def ordered_steps(order: Sequence[str]) -> tuple[type[SamplerStep], ...]:
    """All steps, with those named in `order` in that order.

    A step that `order` does not name follows its predecessor in the default order (the first step goes to the
    start). Unknown names are ignored, and only the first of a repeated name counts.
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
