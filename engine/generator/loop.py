"""The one loop of generation: lease pages, read the prompt, then run, draw and emit until something ends it."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from engine.core import Prefill, Stats
from engine.errors import BadSetting, ContextTooLong
from engine.generator.job import Emission, Job
from engine.generator.prefill import prefill
from engine.models.paged import PagedCache

Steps = Generator[Prefill | Emission, None, None]
"""What `write` returns: progress of the prompt, then what each token made certain."""


@dataclass
class Clock:
    """Times of one sequence, seconds of `time.perf_counter`; `started` may lie before the loop (the request)."""

    started: float
    prefill_started: float = 0.0
    prefill_ended: float = 0.0
    first_token: float = 0.0
    ended: float = 0.0
    prefilled: int = 0
    cached: int = 0

    def stats(self, job: Job, seed: int) -> Stats:
        """The counts and times so far."""
        return Stats(
            prompt_tokens=job.prompt_tokens,
            prefill_tokens=self.prefilled,
            cached_tokens=self.cached,
            new_tokens=job.new_tokens,
            context_tokens=len(job.ids),
            context_length=job.context_length,
            prefill_seconds=self.prefill_ended - self.prefill_started,
            first_token_seconds=self.first_token - self.started if self.first_token else 0.0,
            decode_seconds=self.ended - self.first_token if self.first_token else 0.0,
            seed=seed,
        )


def check_prompt(ids: Sequence[int], vocab_size: int, context_length: int) -> None:
    """Raise `BadSetting` for no ids or ids outside the vocabulary, and `ContextTooLong` when they do not fit."""
    if not ids:
        raise BadSetting("The prompt is empty, but a model needs at least one token to go on from; give it some text.")
    outside = next((token for token in ids if not 0 <= token < vocab_size), None)
    if outside is not None:
        raise BadSetting(f"Token id {outside} is not in the model's vocabulary; ids go from 0 to {vocab_size - 1}.")
    if len(ids) > context_length:
        raise ContextTooLong(
            f"The prompt has {len(ids)} tokens, but the context holds {context_length}; shorten it by "
            f"{len(ids) - context_length} tokens or choose a larger context length."
        )


def write(cache: PagedCache, job: Job, clock: Clock, stop: threading.Event | None = None) -> Steps:
    """Yield `Prefill` until the prompt is read, then one `Emission` a token; the last one carries the reason.

    Closing the iterator at any point, or setting `stop`, gives the pages back with everything that was run still cached.
    The token that ended the sequence is not run: it costs nothing then, and is read with the next turn's prompt.
    """
    clock.prefill_started = clock.prefill_ended = clock.ended = time.perf_counter()
    with cache.open(job.ids) as lease:
        clock.cached = lease.length
        reading = prefill(cache, lease, job.ids, stop)
        while True:
            try:
                progress = next(reading)
            except StopIteration as end:
                logits = end.value
                break
            clock.prefilled = progress.done - progress.cached
            clock.prefill_ended = clock.ended = time.perf_counter()
            yield progress
        while logits is not None and not (stop is not None and stop.is_set()):
            emission = job.step(logits)
            clock.ended = time.perf_counter()
            clock.first_token = clock.first_token or clock.ended
            yield emission
            if emission.reason:
                return
            if stop is not None and stop.is_set():
                break
            logits = cache.run(lease, job.ids[-1:])[-1]
        yield job.finish("cancelled")
