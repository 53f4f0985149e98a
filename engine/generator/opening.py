"""From a request to a sequence that is ready to run: what is checked when it arrives, and what is made when
its turn comes.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Generator
from dataclasses import field
from typing import TYPE_CHECKING

from engine.core import Prefill
from engine.errors import BadSetting, ContextTooLong
from engine.generator.decode import EventWriter, Steps, check_prompt, decode, driven
from engine.generator.drafting.sequence import Drafting
from engine.generator.params import GenerationParams
from engine.generator.request import GenerationRequest, Guidance
from engine.generator.runner import SequenceRunner
from engine.generator.sequence import StepOutput, TokenSequence
from engine.generator.stats import SequenceStats
from engine.lazy_dataclass import dataclass
from engine.models.paged import PagedCache
from engine.text.tokenizer.tokenizer import Tokenizer
from engine.words import _

if TYPE_CHECKING:
    from engine.generator.drafting.drafters import Drafters


def new_seed() -> int:
    """A random seed, short enough to be read aloud."""
    return secrets.randbits(32)


@dataclass(frozen=True, slots=True)
class OpenSequence:
    """A sequence that is ready to run.

    `loop` asks for passes and wants their logits; `steps` is the same loop with its passes run at once, and
    yields what each token made certain. Use one of them.
    """

    loop: Steps
    sequence: TokenSequence
    stats: SequenceStats
    runner: SequenceRunner
    drafting: Drafting
    writer: EventWriter
    steps: Generator[Prefill | StepOutput, None, None]

    def suspend(self) -> None:
        """Return all pages until `SequenceRunner.resume`. Not while a decode loop runs."""
        self.runner.suspend()
        self.drafting.suspend()


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """A request that fits the model, with its `tokenizer`: `length` is how long the sequence may become."""

    request: GenerationRequest
    params: GenerationParams
    tokenizer: Tokenizer
    length: int
    started: float = field(default_factory=time.perf_counter)

    def open(self, cache: PagedCache, drafters: Drafters, stop: threading.Event | None) -> OpenSequence:
        """The sequence. Raises `BadSetting` for drafting that is not possible, or guidance that does not go
        with healing.
        """
        request, guidance, ids = self.request, self.request.guidance, self.request.ids
        drafting = drafters.drafting(request.speculation, self.params, stop)
        stats = SequenceStats(request.started or self.started)
        sequence = TokenSequence(
            self.tokenizer, ids, self.params, context_length=self.length, started=stats.started
        )
        if guidance is not None and len(sequence.ids) < len(ids):  # the healed token goes from both rows
            if guidance.negative_ids[-1:] != tuple(ids[-1:]):
                raise BadSetting(
                    _(
                        "Token healing with guidance needs a negative prompt that ends in the same token as "
                        "the prompt."
                    )
                )
            if len(guidance.negative_ids) < 2:
                raise BadSetting(
                    _(
                        "The negative prompt has only the token that token healing writes again; give it "
                        "more text, or turn token healing off."
                    )
                )
            guidance = Guidance(guidance.negative_ids[:-1], guidance.scale)
        runner = SequenceRunner(cache, sequence.ids, guidance, [list(passes) for passes in request.replayed])
        loop = decode(runner, sequence, stats, stop, drafting)
        writer = EventWriter(sequence, stats, request.output.stream_interval)
        return OpenSequence(loop, sequence, stats, runner, drafting, writer, driven(loop, cache))


def checked(
    request: GenerationRequest, cache: PagedCache, tokenizer: Tokenizer, vocabulary: int = 0
) -> CheckedRequest:
    """The request, if it can be run with a `vocabulary` of this size (0: as it is now).

    Raises `BadSetting` and `ContextTooLong`.
    """
    seed = request.fixed_seed
    params = request.params(tokenizer, new_seed() if seed is None else seed)
    length = _length(request, cache, vocabulary or cache.model.config.vocab_size)
    return CheckedRequest(request, params, tokenizer, length)


def _length(request: GenerationRequest, cache: PagedCache, vocabulary: int) -> int:
    """How long the sequence may become. Raises for a prompt that cannot be run."""
    length, pictures = cache.context_length, cache.pictures is not None
    check_prompt(request.ids, vocabulary, length, pictures=pictures)
    if request.guidance is None:
        return length
    negative = request.guidance.negative_ids
    check_prompt(negative, vocabulary, length, pictures=pictures)
    # The longer row fills the context, or both rows fill the cache.
    growth = cache.growth(len(request.ids), len(negative))
    if growth < 0:
        raise ContextTooLong(
            _(
                "The prompt has {ids:,} tokens and the negative prompt {negative:,}, which is more "
                "than the cache holds; shorten them, or give the cache more memory.",
                ids=len(request.ids),
                negative=len(negative),
            )
        )
    return len(request.ids) + growth
