"""The base class of sampler steps: small frozen objects that change the candidates of one token.

A step holds no run-time state. What changes from token to token is in `SamplerState`, which
belongs to one sampler and so to one sequence. A new step is a subclass, with its name and
settings in `engine/settings/sampler.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import field, fields
from types import ModuleType
from typing import ClassVar, Self

from engine.lazy_dataclass import dataclass
from engine.sampling.candidates import Candidates
from engine.sampling.distribution import Distribution
from engine.sampling.history import History
from engine.sampling.repeats import Repeats
from engine.sampling.tables import TokenTables
from engine.settings import SamplerSettings


@dataclass(frozen=True, slots=True)
class Feedback:
    """What steps learned from the tokens so far: mirostat's mu in bits, and adaptive-p's running mean."""

    surprise: float
    average: float


@dataclass(slots=True)
class SamplerState:
    """What steps may read and change while one token is chosen.

    `history` and `repeats` follow the text so far. `rng(purpose)` is a random number in [0, 1) that
    belongs to this position. A step that learns stores under its name in `notes` the distribution with
    the token's probability.
    """

    history: History
    repeats: Repeats
    tables: TokenTables
    feedback: Feedback
    rng: Callable[[int], float]
    notes: dict[str, Distribution] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SamplerStep(ABC):
    """Base class of the steps in `SAMPLER_STEPS`. A step's fields are the settings of the same names."""

    name: ClassVar[str]
    uses_history: ClassVar[bool] = False
    """Whether `apply` reads `state.history`, which is updated only if an active step does."""
    uses_repeats: ClassVar[bool] = False
    """Whether `apply` reads `state.repeats`, which is updated only if an active step does."""
    when_greedy: ClassVar[bool] = False
    """Whether greedy sampling applies the step too, because it can change which token is best."""
    learns: ClassVar[bool] = False
    """Whether `learn` has an effect; such a step is applied even to a single candidate."""

    @classmethod
    def from_settings(cls, settings: SamplerSettings) -> Self:
        """The step with the values of these settings."""
        return cls(**{field.name: getattr(settings, field.name) for field in fields(cls)})

    @property
    @abstractmethod
    def active(self) -> bool:
        """False if the settings are neutral: the step is then never applied."""

    @abstractmethod
    def apply(self, candidates: Candidates, state: SamplerState) -> None:
        """Change scores or drop candidates, but not the last one. Steps may come in any order."""

    def compiled_step(self) -> tuple[int, float] | None:
        """`apply` as a (code, value) step of `engine.sampling.passes`; None if it has no such form."""
        return None

    def learn(self, feedback: Feedback, probability: float) -> Feedback:
        """The feedback after a token that had this probability (> 0) in the noted distribution."""
        return feedback


def steps_in(module: ModuleType) -> list[type[SamplerStep]]:
    """The steps defined in a module."""
    return [
        found
        for found in vars(module).values()
        if isinstance(found, type) and issubclass(found, SamplerStep) and found.__module__ == module.__name__
    ]
