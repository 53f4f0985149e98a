"""What a caller asks of a generator: one sequence, from its prompt to everything that may end it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.constraint import make_filters
from engine.constraint.filter import Filter
from engine.generator.params import GenerationParams, ReturnOptions, token_tables
from engine.lazy_dataclass import dataclass
from engine.sampling.tables import TokenTables
from engine.settings import (
    ConstraintSettings,
    OutputSettings,
    SamplerSettings,
    SpeculationSettings,
    StopSettings,
)
from engine.tensors import Floats
from engine.text.stops.conditions import StopRules
from engine.text.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Guidance:
    """Classifier-free guidance: the prompt of the negative row, and how far the reply is pushed from it."""

    negative_ids: tuple[int, ...]
    scale: float

    def mixed(self, positive: Floats, negative: Floats) -> Floats:
        """The guided mix of two rows of logits (V,) float32.

        Logits differ from log-probabilities by a number for each row, which no probability depends on. A
        token that the model excludes stays excluded, whatever the negative row says.
        """
        scale = np.float32(self.scale)
        with np.errstate(invalid="ignore"):  # tokens that both rows exclude
            mixed: Floats = positive * scale + negative * (np.float32(1) - scale)
        mixed[positive == -np.inf] = -np.inf
        return mixed


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One sequence to generate.

    Attributes:
        ids: the prompt.
        stops: settings, which add to the model's own stop tokens, or rules, which stand alone.
        filters: constraints besides those that `constraint` asks for; used by this sequence only.
        prefer_end: end as soon as the filters allow it.
        tables: token ids for the sampler; None derives them from `sampler` and `constraint`.
        top_tokens: how many of the likeliest tokens after all sampler steps to report.
        logits: report the model's own logits of each token.
        given: how many of the last `ids` are the beginning of the reply, which the filters see too.
        heal: choose the last id again, among the tokens that begin with its text.
        seed: takes precedence over the sampler's; with neither, a random one is drawn.
        started: when the request arrived, in `time.perf_counter` seconds; None is now.
        shown: control tokens that are shown as text.
        channel_calls: messages to functions, of a model that writes in channels, are written as calls.
        replayed: the passes that read an earlier sequence with the same ids (`StreamingGenerator.reading`).
        may_cut: a text in a format that needs more tokens than it may have is cut rather than refused.
    """

    ids: Sequence[int]
    sampler: SamplerSettings = SamplerSettings()
    stops: StopSettings | StopRules = StopSettings()
    speculation: SpeculationSettings = SpeculationSettings()
    constraint: ConstraintSettings = ConstraintSettings()
    guidance: Guidance | None = None
    output: OutputSettings = OutputSettings(alternatives=0)
    filters: Sequence[Filter] = ()
    prefer_end: bool = False
    tables: TokenTables | None = None
    top_tokens: int = 0
    logits: bool = False
    given: int = 0
    heal: bool = False
    seed: int | None = None
    started: float | None = None
    replayed: Sequence[Sequence[tuple[int, int]]] = ()
    shown: frozenset[int] = frozenset()
    channel_calls: bool = False
    may_cut: bool = False

    @property
    def fixed_seed(self) -> int | None:
        """The seed that was asked for; None for a random one."""
        return self.seed if self.seed is not None else self.sampler.seed

    def params(self, tokenizer: Tokenizer, seed: int) -> GenerationParams:
        """The request in the tokenizer's ids. Raises `BadSetting` for settings that do not fit this model."""
        stops, constraint = self.stops, self.constraint
        return GenerationParams(
            self.sampler,
            seed,
            stops
            if isinstance(stops, StopRules)
            else StopRules.from_settings(stops, tokenizer.stop_token_ids),
            ReturnOptions(
                self.top_tokens,
                self.output.alternatives,
                self.logits,
                self.output.show_special,
                self.shown,
                self.channel_calls,
            ),
            self.tables or token_tables(tokenizer, self.sampler, constraint),
            (*make_filters(constraint, tokenizer), *self.filters),
            self.prefer_end,
            constraint.banned_strings,
            constraint.ban_ignore_case,
            self.given,
            self.heal,
            self.speculation.method in ("model", "mtp"),
            self.may_cut,
        )
