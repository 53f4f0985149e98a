"""Times and counts of one sequence while it is written."""

from __future__ import annotations

import time

from engine.core import Prefill, Stats
from engine.generator.drafting.sequence import Drafting
from engine.generator.sequence import TokenSequence
from engine.lazy_dataclass import dataclass


@dataclass
class SequenceStats:
    """Times and counts of one sequence. Times are `time.perf_counter` seconds; `started` is the request's."""

    started: float
    prefill_started: float = 0.0
    prefill_ended: float = 0.0
    prefilled: int = 0
    cached: int = 0
    passes: int = 0
    drafted: int = 0
    drafting: Drafting | None = None

    def begin(self, drafting: Drafting) -> None:
        """The prompt is about to be read."""
        self.drafting = drafting
        self.prefill_started = self.prefill_ended = time.perf_counter()

    def prefill(self, progress: Prefill) -> Prefill:
        """Note how far the prompt is read; returns `progress`."""
        self.prefilled = progress.done - progress.cached
        self.prefill_ended = time.perf_counter()
        return progress

    def summary(self, sequence: TokenSequence, seed: int) -> Stats:
        """What the events of the sequence report."""
        return Stats(
            prompt_tokens=sequence.prompt_tokens,
            prefill_tokens=self.prefilled,
            cached_tokens=self.cached,
            new_tokens=sequence.new_tokens,
            context_tokens=len(sequence.ids),
            context_length=sequence.context_length,
            prefill_seconds=self.prefill_ended - self.prefill_started,
            first_token_seconds=sequence.first_token - self.started if sequence.first_token else 0.0,
            decode_seconds=sequence.last_token - sequence.first_token,
            seed=seed,
            passes=self.passes,
            drafted_tokens=self.drafted,
            accepted_tokens=sequence.accepted_drafts,
            speedup=self.drafting.speedup if self.drafting is not None and self.passes else 0.0,
        )
