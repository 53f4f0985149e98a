"""A reply in a chat, or the text that follows a prompt, while it is written: the channels `predict` and
`completeRawText`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from typing import Any

from engine.core import CallPiece
from engine.server.fields import Fields
from engine.server.host import ServedModel
from engine.server.http.exchange import Exchange
from engine.server.lm_studio.replies import STOP_REASONS
from engine.server.lm_studio.sockets.models import Packet, instance, specified
from engine.server.lm_studio.sockets.settings import Prediction, prediction_of
from engine.server.openai.chat import chat_call
from engine.server.replies import Delta, Ended, Reading, Score, Writer, chat_work
from engine.server.service import Service
from engine.server.texts.completions import completion_call


async def predict(service: Service, exchange: Exchange, fields: Fields) -> AsyncGenerator[Packet, None]:
    """The channel."""
    model, prediction = specified(service, fields, "modelSpecifier"), prediction_of(fields, service.files)
    if prediction.is_text:
        text = completion_call(prediction.fields, model, service.options.bounds)
        work, writer, logprobs = text.works[0], Writer(()), text.logprobs
    else:
        call = chat_call(prediction.fields, model, 1)
        request = replace(
            call.requests[0], stops=replace(call.requests[0].stops, when_full=prediction.when_full)
        )
        work, writer, logprobs = chat_work(request, call.logprobs), call.writers()[0], call.logprobs
    reply = _Reply(model, prediction, writer, with_scores=logprobs is not None)
    service.start(exchange, [work])
    async for _, event in service.events(exchange):
        for packet in reply.feed(event):
            yield packet
    yield reply.success()


class _Reply:
    """The packets of a reply. Thoughts stand in the model's tags, which are packets of their own."""

    def __init__(
        self, model: ServedModel, prediction: Prediction, writer: Writer, *, with_scores: bool
    ) -> None:
        self._model, self._prediction, self._writer = model, prediction, writer
        self._with_scores = with_scores
        self._tags = model.thinking[0] if model.thinking else ("<think>", "</think>")
        self._thinking = False
        self._call: CallPiece | None = None
        """The call that is being written, with what there is of its arguments."""
        self._tokens = 0

    def feed(self, event: Any) -> Iterator[Packet]:
        """The packets that an event of the reply becomes."""
        delta = self._writer.feed(event)
        self._tokens += getattr(event, "tokens", 0)
        if isinstance(event, Reading):
            yield _progress(event)
        if delta is not None:
            yield from self._text(delta)
            if delta.call is not None:
                yield from self._called(delta.call)
        if isinstance(event, Ended):
            yield from self._end_thought()
            yield from self._end_call()

    def _text(self, delta: Delta) -> Iterator[Packet]:
        if delta.reasoning and not self._thinking:
            self._thinking = True
            yield _fragment(self._tags[0], "reasoningStartTag")
        if delta.reasoning:
            yield self._written(delta.reasoning, "reasoning", () if delta.text else delta.scores)
        if delta.text:
            yield from self._end_thought()
            yield self._written(delta.text, "none", delta.scores)

    def _written(self, text: str, kind: str, scores: tuple[Score, ...]) -> Packet:
        tokens, self._tokens = self._tokens, 0
        packet = _fragment(text, kind, tokens)
        if self._with_scores:
            packet["fragment"]["tokens"] = [
                {**_score(score), "candidates": [_score(one) for one in score.top]} for score in scores
            ]
        return packet

    def _end_thought(self) -> Iterator[Packet]:
        if self._thinking:
            self._thinking = False
            yield _fragment(self._tags[1], "reasoningEndTag")

    def _called(self, piece: CallPiece) -> Iterator[Packet]:
        if piece.name:
            yield from self._end_thought()
            yield from self._end_call()
            self._call = replace(piece, arguments="")
            yield {"type": "toolCallGenerationStart", "toolCallId": piece.id}
            yield {"type": "toolCallGenerationNameReceived", "name": piece.name}
        assert self._call is not None
        self._call = replace(self._call, arguments=self._call.arguments + piece.arguments)
        if piece.arguments:
            yield {"type": "toolCallGenerationArgumentFragmentGenerated", "content": piece.arguments}

    def _end_call(self) -> Iterator[Packet]:
        call, self._call = self._call, None
        if call is None:
            return
        try:
            arguments = json.loads(call.arguments or "{}")
        except (ValueError, RecursionError):
            title = f"The call of {call.name} is incomplete: its arguments are no JSON object."
            yield {
                "type": "toolCallGenerationFailed", "error": {"title": title}, "rawContent": call.arguments,
            }  # fmt: skip
            return
        request = {"type": "function", "id": call.id, "name": call.name, "arguments": arguments}
        yield {"type": "toolCallGenerationEnd", "toolCallRequest": request, "rawContent": call.arguments}

    def success(self) -> Packet:
        """The last packet."""
        ended = self._writer.ended
        assert ended is not None
        context = {"key": "llm.load.contextLength", "value": self._model.context_length}
        return {
            "type": "success", "stats": self._statistics(ended), "modelInfo": instance(self._model),
            "loadModelConfig": {"fields": [context]},
            "predictionConfig": {"fields": [*self._prediction.given]},
        }  # fmt: skip

    def _statistics(self, ended: Ended) -> dict[str, Any]:
        """Times are in seconds."""
        stats = ended.stats
        called = self._writer.finish_reason == "tool_calls"
        found: dict[str, Any] = {
            "stopReason": "toolCalls" if called else STOP_REASONS.get(ended.reason, "userStopped"),
            "promptTokensCount": stats.prompt_tokens, "predictedTokensCount": stats.new_tokens,
            "totalTokensCount": stats.prompt_tokens + stats.new_tokens,
        }  # fmt: skip
        times = {
            "tokensPerSecond": stats.decode_tokens_per_second,
            "timeToFirstTokenSec": stats.first_token_seconds,
            "totalTimeSec": stats.first_token_seconds + stats.decode_seconds,
        }
        found |= {name: value for name, value in times.items() if value > 0}  # 0 is not known
        return found | ({"stopString": ended.trigger} if ended.reason == "stop_string" else {})


def _fragment(text: str, kind: str, tokens: int = 0) -> Packet:
    fragment = {
        "content": text, "tokensCount": tokens, "containsDrafted": False, "reasoningType": kind,
        "isStructural": False,
    }  # fmt: skip
    return {"type": "fragment", "fragment": fragment}


def _progress(event: Reading) -> Packet:
    details = {
        "cachedTokenCount": event.cached, "totalPromptTokenCount": event.total,
        "processedPromptTokenCount": max(event.done - event.cached, 0),
        "unprocessedPromptTokenCount": event.total - max(event.done, event.cached),
    }  # fmt: skip
    return {
        "type": "promptProcessingProgress", "progress": event.done / event.total if event.total else 1.0,
        "details": details,
    }  # fmt: skip


def _score(score: Score) -> dict[str, Any]:
    return {"text": score.text, "id": score.id, "logProb": score.logprob}
