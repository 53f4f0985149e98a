"""What crosses the engine's border: messages, requests, the events of a stream, and statistics.

Everything here is frozen and holds only str, int, float and tuples, so that it can cross threads freely.

Shape letters used in all docstrings: T rows (tokens of one step), V vocabulary, E model width, H query heads, G key/value
heads, D head dimension, F feed-forward width, L layers, P pages, N out features, K in features.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from engine.settings import SamplerSettings, StopSettings

PAGE_TOKENS = 256
"""Token positions in one page of the key/value cache."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation: `role` is "system", "user", "assistant" or "tool"."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One question to a chat source.

    `continue_last` keeps the last (assistant) message open and writes on from its end instead of starting a new turn.
    """

    messages: tuple[Message, ...]
    sampler: SamplerSettings = field(default_factory=SamplerSettings)
    stops: StopSettings = field(default_factory=StopSettings)
    continue_last: bool = False


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts and times of one reply. Times are seconds; `first_token_seconds` counts from the request."""

    prompt_tokens: int = 0
    prefill_tokens: int = 0
    cached_tokens: int = 0
    new_tokens: int = 0
    context_tokens: int = 0
    context_length: int = 0
    prefill_seconds: float = 0.0
    first_token_seconds: float = 0.0
    decode_seconds: float = 0.0
    seed: int = 0

    @property
    def prefill_tokens_per_second(self) -> float:
        """Prompt tokens run through the model for each second of prefill; 0 when nothing was run."""
        return self.prefill_tokens / self.prefill_seconds if self.prefill_seconds > 0 else 0.0

    @property
    def decode_tokens_per_second(self) -> float:
        """Tokens after the first for each second of decoding; 0 when there was at most one."""
        return (self.new_tokens - 1) / self.decode_seconds if self.decode_seconds > 0 and self.new_tokens > 1 else 0.0


@dataclass(frozen=True, slots=True)
class Loading:
    """Progress of loading a model or compiling kernels: `stage` is a short text for people."""

    stage: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Prefill:
    """Progress of reading the prompt, in tokens. `cached` of the `total` were in the cache already."""

    done: int
    total: int
    cached: int


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The context was full: this many of the oldest messages were left out of the prompt."""

    dropped_messages: int


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """One token of a reply: `raw_probability` is the model's own, `probability` the one after all sampler steps.

    `top` holds (id, final probability) pairs, likeliest first, when asked for.
    """

    id: int
    text: str
    probability: float
    raw_probability: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the reply that is certain: never half a character, never part of a stop string."""

    text: str
    tokens: tuple[TokenInfo, ...] = ()


STOP_REASONS = ("stop_token", "stop_string", "max_tokens", "context_full", "cancelled")
"""Every value `Done.reason` can have."""


@dataclass(frozen=True, slots=True)
class Done:
    """The last event of a reply. `trigger` is what fired: the stop string, or the stop token's text."""

    reason: str
    trigger: str
    stats: Stats


ChatEvent = Loading | Prefill | Trimmed | Text | Done
"""What a chat source yields: any number of the first four kinds, then one `Done`."""


@dataclass(frozen=True, slots=True)
class Downloading:
    """Progress of a download in bytes; `total` is 0 while unknown. `stage` is a short text for people."""

    stage: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Downloaded:
    """The last event of a download: the finished, checked file."""

    path: str


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a model file's headers tell, without loading it. Sizes are bytes; `name` is for people.

    `stop_token_ids` are all ids that end a turn, from generation_config.json or the GGUF metadata.
    """

    path: str
    name: str
    architecture: str
    format: str
    parameters: int
    bits_per_weight: float
    weights_bytes: int
    layers: int
    context_length: int
    vocab_size: int
    kv_bytes_per_token: int
    stop_token_ids: tuple[int, ...]
    has_chat_template: bool


class ChatSource(Protocol):
    """Something that answers: a local model, later a remote endpoint. Used by one thread only."""

    info: ModelInfo

    def stream(self, request: ChatRequest, stop: threading.Event) -> Iterator[ChatEvent]:
        """The events of one reply. Setting `stop` ends it within one token, also during prefill, with reason "cancelled"."""
        ...

    def close(self) -> None:
        """Release the model's memory and threads."""
        ...
