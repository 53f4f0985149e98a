"""StreamingGenerator: one sequence at a time, with the lowest latency."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.core import Done, Prefill, Running, Text
from engine.errors import BadSetting, ContextTooLong
from engine.generator.decode import Steps, check_prompt, decode, events
from engine.generator.drafters import Drafters
from engine.generator.request import GenerationRequest, Guidance
from engine.generator.runner import SequenceRunner
from engine.generator.sequence import TokenSequence
from engine.generator.stats import SequenceStats
from engine.models.paged import PagedCache
from engine.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from engine.models.base import Model

TokenEvent = Prefill | Text | Running | Done
"""What `stream` yields."""


def new_seed() -> int:
    """A random seed, short enough to be read aloud."""
    return secrets.randbits(32)


@dataclass(frozen=True, slots=True)
class OpenSequence:
    """A sequence that is ready to run: `steps` yields what each token made certain."""

    steps: Steps
    sequence: TokenSequence
    stats: SequenceStats
    runner: SequenceRunner


class StreamingGenerator:
    """Generates one sequence at a time with a model, its cache and its tokenizer.

    Keys and values stay in the cache, so that a prompt which begins like an earlier one is only read from
    where it differs. One thread uses a generator; one sequence is open at a time. `drafters` holds the draft
    model, if there is one.
    """

    def __init__(self, model: Model, cache: PagedCache, tokenizer: Tokenizer) -> None:
        """Raises ValueError for a cache of another model."""
        if cache.model is not model:
            raise ValueError("the cache was made for another model")
        self.model = model
        self.cache = cache
        self.tokenizer = tokenizer
        self.drafters = Drafters(cache, tokenizer.vocab_size)
        self._open: OpenSequence | None = None

    def stream(
        self, request: GenerationRequest, stop: threading.Event | None = None
    ) -> Generator[TokenEvent, None, None]:
        """The events of a sequence: `Prefill` progress, then `Text` and sometimes `Running`, then one `Done`.

        Setting `stop` ends it after the running step. Raises `ContextTooLong` and `BadSetting` before
        anything runs, and `NothingAllowed` from the iterator when constraints leave no token to choose.
        """
        opened = self.open(request, stop)
        return events(opened.steps, opened.sequence, opened.stats, request.output.stream_interval)

    def open(self, request: GenerationRequest, stop: threading.Event | None = None) -> OpenSequence:
        """Close the open sequence and get the requested one ready to run. Raises as `stream` does."""
        ids, guidance, seed = request.ids, request.guidance, request.fixed_seed
        params = request.params(self.tokenizer, new_seed() if seed is None else seed)
        drafting = self.drafters.drafting(request.speculation, params, stop, fixed=seed is not None)
        length = self._length(request)
        self.close()
        stats = SequenceStats(request.started or time.perf_counter())
        sequence = TokenSequence(self.tokenizer, ids, params, context_length=length, started=stats.started)
        if guidance is not None and len(sequence.ids) < len(ids):  # the healed token goes from both rows
            if guidance.negative_ids[-1:] != tuple(ids[-1:]) or len(guidance.negative_ids) < 2:
                raise BadSetting(
                    "Token healing with guidance needs a negative prompt that ends in the same token as "
                    "the prompt."
                )
            guidance = Guidance(guidance.negative_ids[:-1], guidance.scale)
        runner = SequenceRunner(
            self.cache, sequence.ids, guidance, [list(passes) for passes in request.replayed]
        )
        steps = decode(runner, sequence, stats, stop, drafting)
        self._open = OpenSequence(steps, sequence, stats, runner)
        return self._open

    def reading(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The passes over the prompt of the open sequence, and over its negative one: (first position, rows)
        each; 0 rows where that is not known. Ask at its first event, before anything of it has run.
        """
        return self._open.runner.reading() if self._open is not None else ()

    def close(self) -> None:
        """End the open sequence, if any, and return its pages; what was run stays cached."""
        if self._open is not None:
            self._open.steps.close()
        self._open = None

    def _length(self, request: GenerationRequest) -> int:
        """How long the sequence may become. Raises for a prompt that cannot be run."""
        vocabulary, length = self.model.config.vocab_size, self.cache.context_length
        check_prompt(request.ids, vocabulary, length)
        if request.guidance is None:
            return length
        negative = request.guidance.negative_ids
        check_prompt(negative, vocabulary, length)
        # The longer row fills the context, or both rows fill the cache.
        growth = self.cache.growth(len(request.ids), len(negative))
        if growth < 0:
            raise ContextTooLong(
                f"The prompt has {len(request.ids)} tokens and the negative one {len(negative)}, which is "
                "more than the cache holds of both; shorten them, or give the cache more memory."
            )
        return len(request.ids) + growth
