"""StreamingGenerator: one sequence at a time, with the lowest latency."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import TYPE_CHECKING

from engine.core import Done, Prefill, Running, Text
from engine.generator.decode import events
from engine.generator.drafting.drafters import Drafters
from engine.generator.opening import OpenSequence, checked
from engine.generator.request import GenerationRequest
from engine.models.paged import PagedCache
from engine.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from engine.models.base import Model

TokenEvent = Prefill | Text | Running | Done
"""What `stream` yields."""


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
        return events(opened.steps, opened.writer)

    def open(self, request: GenerationRequest, stop: threading.Event | None = None) -> OpenSequence:
        """Close the open sequence and get the requested one ready to run. Raises as `stream` does."""
        opened = checked(request, self.cache, self.tokenizer).open(self.cache, self.drafters, stop)
        self.close()
        self._open = opened
        return opened

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
