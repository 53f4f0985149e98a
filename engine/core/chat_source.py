"""Something that answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Protocol

from engine.core.events import ChatEvent
from engine.core.model_info import ModelInfo
from engine.core.requests import ChatRequest, Foreseen, PromptSize


class ChatSource(Protocol):
    """Something that answers: a local model, later a remote endpoint. Used by one thread only."""

    info: ModelInfo

    def stream(self, request: ChatRequest, stop: threading.Event) -> Iterator[ChatEvent]:
        """The events of one reply.

        Setting `stop` ends it within one token, also during prefill, with reason "cancelled".
        """
        ...

    def count(self, text: str) -> int:
        """How many tokens a text has."""
        ...

    def size(self, request: ChatRequest) -> PromptSize:
        """How long the prompt of a request is when nothing is left out of it, without running anything."""
        ...

    def foresee(self, request: ChatRequest) -> Foreseen:
        """What reading the prompt of a request would take now; nothing is read.

        Raises as `stream` does before it begins.
        """
        ...

    def close(self) -> None:
        """Release the model's memory and threads."""
        ...
