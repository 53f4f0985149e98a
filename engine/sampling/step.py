"""What a sampler step is: a small frozen object made from the settings, applied to the candidates of one
token.

A step holds no run-time state: what changes from token to token lives in `SamplerState`, which belongs to one
sampler and so to one sequence. A new step is a class of this shape, and its name and settings in
`engine/settings/sampler.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import ClassVar, Self

from engine.sampling.candidates import Candidates
from engine.sampling.distribution import Distribution
from engine.sampling.history import History
from engine.sampling.repeats import Repeats
from engine.sampling.tables import TokenTables
from engine.settings import SamplerSettings


@dataclass(frozen=True, slots=True)
class Feedback:
    """What was learnt from the tokens so far: mirostat's mu in bits, and adaptive-p's running mean
    probability.
    """

    surprise: float
    average: float


@dataclass(slots=True)
class SamplerState:
    """What steps may read and change while one token is chosen.

    `history` and `repeats` follow the text so far. `rng(purpose)` is a random number in [0, 1) that belongs
    to this place in the text. A step that learns from the chosen token notes under its name the distribution
    in which to find the token's probability.
    """

    history: History
    repeats: Repeats
    tables: TokenTables
    feedback: Feedback
    rng: Callable[[int], float]
    notes: dict[str, Distribution] = field(default_factory=dict)


class SamplerStep(ABC):
    """One row of `SAMPLER_STEPS`."""

    name: ClassVar[str]
    uses_history: ClassVar[bool] = False
    """Whether `apply` reads `state.history`, which is followed only if some step does."""
    uses_repeats: ClassVar[bool] = False
    """The same of `state.repeats`."""
    when_greedy: ClassVar[bool] = False
    """Whether greedy drawing applies the step too, because it says which token is best."""
    learns: ClassVar[bool] = False
    """Whether `learn` does anything; such a step is applied even to a single candidate."""

    @classmethod
    @abstractmethod
    def from_settings(cls, settings: SamplerSettings) -> Self:
        """The step as these settings want it."""

    @property
    @abstractmethod
    def active(self) -> bool:
        """False when the settings are neutral: the step is then never applied."""

    @abstractmethod
    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        """Change scores, or drop candidates; at least one always stays. Steps come in any order."""

    def for_few(self) -> tuple[int, float] | None:
        """What `apply` does to a few candidates in order, as a step of `engine.sampling.passes`; None
        where it does anything else.
        """
        return None

    def learn(self, feedback: Feedback, probability: float) -> Feedback:
        """The feedback after a token that had this probability (> 0) in the noted distribution."""
        return feedback


def steps_in(module: ModuleType) -> list[type[SamplerStep]]:
    """The steps that a module defines."""
    return [
        found
        for found in vars(module).values()
        if isinstance(found, type) and issubclass(found, SamplerStep) and found.__module__ == module.__name__
    ]
