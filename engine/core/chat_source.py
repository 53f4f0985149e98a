"""The protocol of everything that answers a chat request."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Protocol

from engine.core.events import ChatEvent
from engine.core.model_info import ModelInfo
from engine.core.requests import ChatRequest, Foreseen, PromptSize


class ChatSource(Protocol):
    """Something that answers: a local model or a remote endpoint. Used by one thread only."""

    info: ModelInfo

    def stream(self, request: ChatRequest, stop: threading.Event) -> Iterator[ChatEvent]:
        """The events of one reply. Several replies may be open: asking one for its next event goes on with
        all of them, and gives `Waiting` where it has nothing new itself.

        Setting `stop` ends it within one token, also during prefill, with reason "cancelled".
        """
        ...

    def count(self, text: str) -> int:
        """The number of tokens of a text."""
        ...

    def size(self, request: ChatRequest) -> PromptSize:
        """The length of a request's whole prompt; nothing is run."""
        ...

    def foresee(self, request: ChatRequest) -> Foreseen:
        """What reading the prompt of a request would take now; nothing is run.

        Raises as `stream` does before it begins.
        """
        ...

    def described(self, adapters: Sequence[str]) -> ModelInfo:
        """`info` as it is with these lines of `AdapterSettings`, whose chat template may have other tags for
        thoughts and another switch. Raises what reading adapters raises.
        """
        ...

    def close(self) -> None:
        """Release the model's memory and threads."""
        ...
