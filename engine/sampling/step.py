"""What a sampler step is: a small frozen object made from the settings, applied to the candidates of one token.

A step holds no run-time state: what changes from token to token lives in `SamplerState`, which belongs to one sampler and so
to one sequence. A new step is a class of this shape and one entry in `engine.sampling.SAMPLER_STEPS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

from engine.sampling.candidates import Candidates
from engine.sampling.history import History
from engine.settings import SamplerSettings


@dataclass(slots=True)
class SamplerState:
    """What steps may read and change from token to token. `history` follows the text so far within the repetition range."""

    history: History


class SamplerStep(Protocol):
    """One row of `SAMPLER_STEPS`."""

    @classmethod
    def from_settings(cls, settings: SamplerSettings) -> Self:
        """The step as these settings want it."""
        ...

    @property
    def active(self) -> bool:
        """False when the settings are neutral: the step is then never applied."""
        ...

    @property
    def uses_history(self) -> bool:
        """Whether `apply` reads `state.history`, which is followed only if some step does."""
        ...

    @property
    def keeps_argmax(self) -> bool:
        """Whether the likeliest token always stays the likeliest: greedy drawing leaves such steps out."""
        ...

    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        """Change scores, or drop candidates; at least one always stays. Scores are changed only before any were dropped."""
        ...
