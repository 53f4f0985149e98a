"""The drafters of one generator: which one proposes tokens, and how many are worth checking."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from engine.errors import BadSetting
from engine.generator.drafting.sequence import Drafting
from engine.generator.params import GenerationParams
from engine.models.drafting.assistant import AssistantModel
from engine.models.drafting.head import HeadModel
from engine.models.drafting.mtp import MtpModel
from engine.models.paged import PagedCache
from engine.sampling.sampler import Sampler
from engine.settings import CacheSettings, SpeculationSettings
from engine.speculation.assistant import AssistantDrafter
from engine.speculation.draft_length import GUESS_COST, DraftLengthController
from engine.speculation.draft_model import DraftModel
from engine.speculation.mtp import MtpDrafter, Tails
from engine.speculation.ngram import NgramDrafter
from engine.speculation.ngram_index import NgramIndex
from engine.words import _

if TYPE_CHECKING:
    from engine.models.base import Model

_ROW_COST = 0.1
"""The assumed cost of checking one more guess, in passes."""


class Drafters:
    """N-gram drafting is always available; a draft model after `set_model`."""

    def __init__(self, cache: PagedCache, vocabulary: int) -> None:
        self.threshold: float | None = None
        """A draft model continues while its likeliest token has this probability; None: `DraftModel` decides.
        """
        self._preloaded: list[int] = []
        self._references: dict[tuple[int, int], NgramIndex] = {}
        self._cache = cache
        self._vocabulary = vocabulary
        self._controllers: dict[tuple[str, int], DraftLengthController] = {}
        self._draft_cache: PagedCache | None = None
        self._owned = False
        self._assistant: AssistantModel | None = None
        self._tails: Tails = {}

    @property
    def has_model(self) -> bool:
        """Whether there is a draft model."""
        return self._model is not None

    @property
    def _model(self) -> Model | None:
        return self._assistant if self._draft_cache is None else self._draft_cache.model

    def set_model(self, model: Model, cache: PagedCache | None = None) -> None:
        """Draft with this model. Without a cache it gets one of the target's context length, or of its own
        where that is shorter; an assistant reads the target's.

        Raises ValueError for a cache of another model, and `NotEnoughMemory` if none can be made.
        """
        if cache is not None and cache.model is not model:
            raise ValueError("the draft cache was made for another model")
        self.drop_model()
        features = model.of_main if isinstance(model, HeadModel) else None
        try:
            self._cache.keep_hidden(isinstance(model, HeadModel | AssistantModel), features)
            if isinstance(model, AssistantModel):
                model.attach(self._cache.store, self._cache.context_length)
                self._assistant = model
                return
            length = min(self._cache.context_length, model.config.context_length)
            self._draft_cache, self._owned = (
                cache or PagedCache(model, CacheSettings(context_length=length)),
                cache is None,
            )
        except BaseException:
            self.keep_nothing()
            raise

    def keep_nothing(self) -> None:
        """Have the target's passes leave nothing for a draft model, after `drop_model` if none follows."""
        self._cache.keep_hidden(False)

    def drop_model(self) -> None:
        """Draft without a model. A cache that was made here is closed; the model belongs to its owner."""
        if self._draft_cache is not None and self._owned:
            self._draft_cache.close()
        if self._assistant is not None:
            self._assistant.detach()
        self._draft_cache, self._assistant, self._tails = None, None, {}
        self._controllers = {
            key: draft_length for key, draft_length in self._controllers.items() if key[0] == "ngram"
        }

    def drafting(
        self, settings: SpeculationSettings, params: GenerationParams, stop: threading.Event | None
    ) -> Drafting:
        """The drafting of one sequence. Raises `BadSetting` if the draft model is missing."""
        if settings.method == "none":
            return Drafting()
        if settings.method == "ngram":
            if settings.ngram_min > settings.ngram_max:
                raise BadSetting(
                    _(
                        "The shortest match for drafting is {ngram_min} tokens, but the longest is "
                        "{ngram_max}; make the longest at least as long.",
                        ngram_min=settings.ngram_min,
                        ngram_max=settings.ngram_max,
                    )
                )
            return Drafting(self._repeats(settings), self._draft_length(settings))
        head = settings.method == "mtp"
        if self._model is None or isinstance(self._model, MtpModel) != head:
            raise BadSetting(
                _(
                    "Drafting with the model's own head is on, but the head is not loaded; load it, or "
                    "turn off drafting."
                )
                if head
                else _(
                    "Drafting with a draft model is on, but no draft model is loaded; choose one, or "
                    "turn off drafting."
                )
            )
        # Guesses may come from any distribution; steps that learn from tokens or are random themselves are
        # left out.
        own = replace(params.sampler, mirostat=False, adaptive_target=0.0, xtc_probability=0.0, skew=0.0)
        make: Callable[..., DraftModel] = DraftModel
        if isinstance(self._model, HeadModel):
            make = partial(_head_drafter(self._model), tails=self._tails)
        if self._assistant is not None:
            make = partial(AssistantDrafter, assistant=self._assistant)
        # with adapters, the model may have fewer tokens than its tokenizer
        known = min(self._vocabulary, self._cache.model.config.vocab_size)
        model = make(
            self._draft_cache or self._cache,
            lambda: Sampler(own, params.seed, params.tables, races=params.races),
            vocabulary=known, threshold=self.threshold, stop=stop,
        )  # fmt: skip
        return Drafting(model, self._draft_length(settings))

    def preload(self, ids: Sequence[int]) -> None:
        """Draft from repeats of this text too, in every sequence from now on."""
        self._preloaded += ids
        self._references = {}

    def _repeats(self, settings: SpeculationSettings) -> NgramDrafter:
        """An n-gram drafter of these settings, with what was preloaded."""
        lengths = settings.ngram_min, settings.ngram_max
        if lengths not in self._references:
            self._references[lengths] = NgramIndex(*lengths)
            self._references[lengths].extend(self._preloaded)
        return NgramDrafter(*lengths, settings.ngram_prompt, self._references[lengths])

    def _draft_length(self, settings: SpeculationSettings) -> DraftLengthController:
        """The controller of earlier sequences with these settings, if it adapts."""
        free = settings.method == "ngram"
        cost = GUESS_COST if free else self._guess_share(settings.draft_tokens) + _ROW_COST
        if not settings.adaptive:
            return DraftLengthController(settings.draft_tokens, False, free=free, guess_cost=cost)
        key = (settings.method, settings.draft_tokens)
        return self._controllers.setdefault(
            key, DraftLengthController(settings.draft_tokens, True, free=free, guess_cost=cost)
        )

    def _guess_share(self, count: int) -> float:
        """The cost of one of `count` guesses in passes of the target, by the weights that are read."""
        assert self._model is not None
        share = self._model.weight_bytes_per_token / max(1, self._cache.model.weight_bytes_per_token)
        return share / count if isinstance(self._model, HeadModel) and self._model.in_blocks else share


def _head_drafter(model: HeadModel) -> type[MtpDrafter]:
    """What drafts with a head."""
    if not model.in_blocks:
        return MtpDrafter
    from engine.speculation.dflash import DFlashDrafter  # few use it, and every start would read it

    return DFlashDrafter
