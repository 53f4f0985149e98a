"""LocalChat: a conversation with a model in this process. Request -> template -> ids -> generator -> events."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from engine.core import ChatEvent, ChatRequest, Done, Loading, Message, ModelInfo, Text, Trimmed
from engine.errors import BadSetting, Cancelled, ContextTooLong
from engine.generator.context import OldestFirst, WrittenReplies, reply_room
from engine.settings import CacheSettings, LoadSettings
from engine.text.template import ChatTemplate, encode_chat
from engine.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from engine.generator.streaming import StreamingGenerator
    from engine.weights.checkpoint import Checkpoint


def open_text(checkpoint: Checkpoint) -> tuple[Tokenizer, ChatTemplate]:
    """The tokenizer and chat template of a model, without its weights."""
    if checkpoint.format == "gguf":
        metadata = dict(checkpoint.metadata)
        tokenizer = Tokenizer.from_gguf(metadata)
        return tokenizer, ChatTemplate.from_gguf(metadata, tokenizer)
    tokenizer = Tokenizer.from_folder(checkpoint.path)
    return tokenizer, ChatTemplate.from_folder(checkpoint.path, tokenizer)


class LocalChat:
    """A loaded model that answers (`core.ChatSource`), made by `open_chat`. One thread uses it.

    `generator`, `tokenizer` and `template` are there for those who want the parts.
    """

    def __init__(self, info: ModelInfo, generator: StreamingGenerator, template: ChatTemplate) -> None:
        self.info = info
        self.generator = generator
        self.tokenizer = generator.tokenizer
        self.template = template
        self.context_length = generator.cache.context_length
        self._window = OldestFirst(self.context_length)
        self._written = WrittenReplies(self.tokenizer)

    def stream(self, request: ChatRequest, stop: threading.Event) -> Iterator[ChatEvent]:
        """The events of one reply: `Trimmed` when turns had to be left out, `Prefill`, `Text`, one `Done`.

        Setting `stop` ends it after the running step with reason "cancelled". Raises `ContextTooLong` when the messages cannot
        fit under `stops.when_full`, `BadTemplate` when the template refuses them, `BadSetting` for nothing to continue.
        """
        started = time.perf_counter()
        dropped, ids = self._prompt(request)
        if dropped:
            yield Trimmed(dropped)
        stops = dataclasses.replace(request.stops, stop_strings=request.stops.stop_strings + self.template.stop_strings)
        reply: list[int] = []
        with closing(self.generator.stream(ids, request.sampler, stops, stop_event=stop, started=started)) as events:
            for event in events:
                if isinstance(event, Text):
                    reply += (token.id for token in event.tokens)
                if isinstance(event, Done):
                    self._written.remember(ids, reply)
                yield event

    def count_tokens(self, messages: Sequence[Message]) -> int:
        """Tokens that these messages take as the prompt of a reply; 0 for none."""
        return len(encode_chat(self.tokenizer, self.template, messages)[1]) if messages else 0

    def close(self) -> None:
        """Release the model's memory and threads; the chat cannot answer afterwards."""
        self.generator.close()
        self.generator.cache.close()
        self.generator.model.close()

    def _prompt(self, request: ChatRequest) -> tuple[int, list[int]]:
        """How many messages are left out, and the prompt's ids. Raises `ContextTooLong`."""
        if request.continue_last and (not request.messages or request.messages[-1].role != "assistant"):
            raise BadSetting("There is no reply to continue: the last message is not the assistant's.")

        def encode(messages: Sequence[Message]) -> list[int]:
            last = request.continue_last
            ids = encode_chat(self.tokenizer, self.template, messages, add_generation_prompt=not last, continue_last=last)[1]
            return self._written.restore(ids)

        if request.stops.when_full == "drop_oldest":
            return self._window.fit(request.messages, encode, reply_room(self.context_length, request.stops.max_tokens))
        ids = encode(request.messages)
        if len(ids) > self.context_length:
            raise ContextTooLong(
                f"The conversation has {len(ids)} tokens, but the context holds {self.context_length}; let the oldest turns be "
                "dropped, start a new conversation, or choose a larger context length."
            )
        return 0, ids


def open_chat(
    path: str | Path,
    load: LoadSettings = LoadSettings(),
    cache: CacheSettings = CacheSettings(),
    stop: threading.Event | None = None,
) -> Generator[Loading, None, LocalChat]:
    """Load a model for chatting: yields progress and returns the chat (`chat = yield from open_chat(path)`).

    Setting `stop` raises `Cancelled` at the next progress. Raises `ModelNotFound`, `BadCheckpoint`, `UnsupportedModel`,
    `NotEnoughMemory`, `BadSetting`.
    """
    # Numba and torch come in here, not when the module is imported.
    from engine.backends import make_backend
    from engine.generator.streaming import StreamingGenerator
    from engine.models import describe, read_model
    from engine.models.paged import PagedCache, chosen_context
    from engine.weights.checkpoint import open_checkpoint

    def steps() -> Generator[Loading, None, LocalChat]:
        yield Loading("Reading the headers", 0, 1)
        info = describe(path)
        chosen_context(cache, info.context_length)  # a context that cannot be is told before the weights are read
        checkpoint = open_checkpoint(path)
        try:
            tokenizer, template = open_text(checkpoint)
            model = yield from read_model(checkpoint, make_backend(load), cache.dtype)
        finally:
            checkpoint.close()
        yield Loading("Making room for the context", 0, 1)
        return LocalChat(info, StreamingGenerator(model, PagedCache(model, cache), tokenizer), template)

    loading = steps()
    while True:
        try:
            progress = next(loading)
        except StopIteration as end:
            chat: LocalChat = end.value
            return chat
        yield progress
        if stop is not None and stop.is_set():
            loading.close()
            raise Cancelled(f"Loading {Path(path).name} was stopped.")


def finished(loading: Generator[Loading, None, LocalChat]) -> LocalChat:
    """Run `open_chat` to its end without looking at the progress."""
    while True:
        try:
            next(loading)
        except StopIteration as end:
            chat: LocalChat = end.value
            return chat
