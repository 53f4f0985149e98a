"""Reply: a message in Cohere's form while it is written, and the events that report it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Any

from engine.core import CallPiece
from engine.server.failure import Failure
from engine.server.host import ServedModel
from engine.server.openai.tools import calls_json
from engine.server.replies import Begun, Delta, Ended, ReplyEvent, Score, Writer

Event = dict[str, Any]


class Reply:
    """Takes the events of a reply; its thoughts and texts become parts of the content."""

    def __init__(self, model: ServedModel, *, scored: bool) -> None:
        self._id = secrets.token_hex(16)
        self._writer = Writer(model.thinking)
        self._scored = scored
        self._parts: list[dict[str, Any]] = []
        self._pieces: list[CallPiece] = []
        self._scores: list[Score] = []
        self._waiting: tuple[Score, ...] = ()
        """Of tokens without text of their own, such as parts of characters: the next text gets them."""
        self._calls = 0
        self._open = ""
        """What has begun and not ended: "content" or "tool-call"."""

    def feed(self, event: ReplyEvent) -> Iterator[Event]:
        """The events that an event of the reply becomes."""
        if isinstance(event, Begun):
            message = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
            yield {"type": "message-start", "id": self._id, "delta": {"message": message}}
        if (delta := self._writer.feed(event)) is not None:
            yield from self._add(delta)
        if isinstance(event, Ended):
            if self._waiting and self._open == "content":
                yield from self._content(self._parts[-1]["type"], "")
            if self._open == "content" or self._reason != "MAX_TOKENS":  # the arguments are whole
                yield from self._close()
            end = {"finish_reason": self._reason, "usage": self._usage}
            yield {"type": "message-end", "id": self._id, "delta": end}

    def failed(self, failure: Failure) -> Event:
        """The last event of a message that failed."""
        delta = {"finish_reason": "ERROR", "error": failure.message}
        return {"type": "message-end", "id": self._id, "delta": delta}

    def whole(self) -> dict[str, Any]:
        """The message at its end, as an answer."""
        message: dict[str, Any] = {"role": "assistant", "content": self._parts or None}
        if self._pieces:
            message["tool_calls"] = calls_json(self._pieces)
        elif not self._parts:
            message["content"] = [{"type": "text", "text": ""}]
        scores = {"logprobs": [_scored([score]) for score in self._scores]} if self._scored else {}
        return {
            "id": self._id, "finish_reason": self._reason, "message": message, "usage": self._usage, **scores,
        }  # fmt: skip

    def _add(self, delta: Delta) -> Iterator[Event]:
        if self._scored:
            self._scores += delta.scores
            self._waiting += delta.scores
        if delta.reasoning:
            yield from self._content("thinking", delta.reasoning)
        if delta.text:
            yield from self._content("text", delta.text)
        if delta.call is not None:
            self._pieces.append(delta.call)
            yield from self._call(delta.call)

    def _content(self, kind: str, text: str) -> Iterator[Event]:
        """More of a text, or of a thought."""
        if self._open != "content" or self._parts[-1]["type"] != kind:
            yield from self._close()
            self._open = "content"
            self._parts.append({"type": kind, kind: ""})
            yield self._event("content-start", content=dict(self._parts[-1]))
        self._parts[-1][kind] += text
        more = {"logprobs": _scored(self._waiting)} if self._waiting else {}
        self._waiting = ()
        yield {**self._event("content-delta", content={kind: text}), **more}

    def _call(self, piece: CallPiece) -> Iterator[Event]:
        """More of a call."""
        if piece.name:
            yield from self._close()
            self._open = "tool-call"
            self._calls += 1
            function = {"name": piece.name, "arguments": ""}
            call = {"id": piece.id, "type": "function", "function": function}
            yield self._event("tool-call-start", tool_calls=call)
        if piece.arguments:
            more = {"function": {"arguments": piece.arguments}}
            yield self._event("tool-call-delta", tool_calls=more)

    def _close(self) -> Iterator[Event]:
        """End what is open, if anything is."""
        if self._open:
            yield {"type": f"{self._open}-end", "index": self._index}
        self._open = ""

    def _event(self, kind: str, **message: Any) -> Event:
        return {"type": kind, "index": self._index, "delta": {"message": message}}

    @property
    def _index(self) -> int:
        """The number of what is open among its like."""
        return (len(self._parts) if self._open == "content" else self._calls) - 1

    @property
    def _reason(self) -> str:
        """Why the message ended."""
        if self._writer.stop_reason is not None:
            return "STOP_SEQUENCE"
        return _REASONS[self._writer.finish_reason]

    @property
    def _usage(self) -> dict[str, Any]:
        assert self._writer.ended is not None
        stats = self._writer.ended.stats
        tokens = {"input_tokens": stats.prompt_tokens, "output_tokens": stats.new_tokens}
        return {"billed_units": tokens, "tokens": tokens, "cached_tokens": stats.cached_tokens}


_REASONS = {"stop": "COMPLETE", "length": "MAX_TOKENS", "tool_calls": "TOOL_CALL"}
"""The reasons of OpenAI's API in Cohere's words."""


def _scored(scores: Sequence[Score]) -> dict[str, Any]:
    """The log-probabilities of the tokens of a piece of text."""
    return {
        "text": b"".join(score.bytes for score in scores).decode("utf-8", "replace"),
        "token_ids": [score.id for score in scores],
        "logprobs": [score.logprob for score in scores],
    }
