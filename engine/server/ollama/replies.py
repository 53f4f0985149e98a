"""POST /api/chat and /api/generate: replies as lines of JSON, or as one object with `stream: false`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from engine.core import CallPiece, ChatRequest
from engine.server.fields import Fields
from engine.server.host import ServedModel, Work
from engine.server.http.exchange import Exchange
from engine.server.ollama.context import context_of
from engine.server.ollama.conversation import chat_request, text_request
from engine.server.openai import parameters
from engine.server.openai.chat import scores_json
from engine.server.openai.tools import calls_json
from engine.server.replies import Begun, Delta, Ended, Prompted, Writer, chat_work
from engine.server.service import Service
from engine.server.texts.infill import Infill
from engine.server.texts.scoring import completion_work

_NANOSECONDS = 1e9


async def chat(service: Service, exchange: Exchange) -> Mapping[str, Any] | None:
    """A reply to messages."""
    return await _reply(service, exchange, chat_request, _message)


async def generate(service: Service, exchange: Exchange) -> Mapping[str, Any] | None:
    """A reply to one prompt; with `raw` the prompt goes on, with `suffix` it goes on up to that."""
    return await _reply(service, exchange, text_request, _response)


def _message(text: str, more: Mapping[str, Any]) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": text, **more}}


def _response(text: str, more: Mapping[str, Any]) -> dict[str, Any]:
    return {"response": text, **more}


async def _reply(
    service: Service,
    exchange: Exchange,
    read: Callable[[Fields, ServedModel], ChatRequest | None],
    form: Callable[[str, Mapping[str, Any]], dict[str, Any]],
) -> Mapping[str, Any] | None:
    """The answer to a request that `read` reads, whose text and calls have a form. Without a prompt it says
    at once that the model is there.
    """
    fields = Fields(await exchange.read())
    model = service.model(fields)
    request, stream = read(fields, model), fields.flag("stream", True)
    lines = _Lines(model, request, form)
    if request is None:
        return lines.line(done=True, done_reason="load")
    scored = parameters.logprobs(fields)
    service.start(exchange, [_work(fields, request, scored)])
    if not stream:
        found = [delta async for _, event in service.events(exchange) if (delta := lines.take(event))]
        return lines.line(found, calls=True, **lines.end())
    exchange.ping = lambda: (lines.line(), "")  # lines have no comments; an empty text adds nothing
    async for _, event in service.events(exchange):
        if isinstance(event, Begun | Prompted) and not exchange.streaming:
            await exchange.start_stream(lines=True)
        for line in lines.feed(event):
            await exchange.send_event(line)
    await exchange.end_stream(done=False)
    return None


def _work(fields: Fields, request: ChatRequest, scored: int | None) -> Work:
    if request.plain:
        prompt, suffix = fields.text("prompt"), fields.text("suffix")
        gap = Infill(prompt, suffix) if suffix else prompt
        return completion_work(gap, request, scored, echo=False, write=True)
    return chat_work(request, scored)


class _Lines:
    """A reply while it is written, as the objects of a stream."""

    def __init__(
        self,
        model: ServedModel,
        request: ChatRequest | None,
        form: Callable[[str, Mapping[str, Any]], dict[str, Any]],
    ) -> None:
        chats = request is not None and not request.plain
        begun = request.messages[-1].content if request is not None and request.continue_last else ""
        self._model, self._form = model, form
        self._said = request.messages if request is not None and form is _response else ()
        self._texts: list[str] = []
        self._writer = Writer(model.thinking if chats else (), begun)
        self._calls: list[CallPiece] = []

    def take(self, event: Any) -> Delta | None:
        """The piece that an event adds; calls are kept until they are complete."""
        delta = self._writer.feed(event)
        if delta is not None:
            self._texts.append(delta.text)
            self._calls += [delta.call] if delta.call is not None else []
        return delta

    def feed(self, event: Any) -> Iterator[Mapping[str, Any]]:
        """The objects that an event becomes."""
        delta = self.take(event)
        if delta is not None and (delta.text or delta.reasoning or delta.scores):
            yield self.line([delta])
        if isinstance(event, Ended):
            if self._calls:
                yield self.line(calls=True)
            yield self.line(**self.end())

    def line(
        self, deltas: Sequence[Delta] = (), *, calls: bool = False, done: bool = False, **rest: Any
    ) -> dict[str, Any]:
        """An object with some pieces, and with the calls."""
        more: dict[str, Any] = {}
        if thinking := "".join(delta.reasoning for delta in deltas):
            more["thinking"] = thinking
        if calls and self._calls:
            more["tool_calls"] = _calls(self._calls)
        if scores := [score for delta in deltas for score in delta.scores]:
            rest = {"logprobs": scores_json(scores), **rest}
        text = "".join(delta.text for delta in deltas)
        head = {"model": self._model.id, "created_at": datetime.now(UTC).isoformat()}
        return {**head, **self._form(text, more), "done": done, **rest}

    def end(self) -> dict[str, Any]:
        """Why the reply ended, with counts of tokens and times in nanoseconds."""
        ended = self._writer.ended
        assert ended is not None
        stats, said = ended.stats, self._said
        keeps = bool(said) and not any(message.pictures for message in said)
        return {
            "done": True,
            "done_reason": "length" if self._writer.finish_reason == "length" else "stop",
            **({"context": context_of(said, "".join(self._texts))} if keeps else {}),
            "total_duration": round((stats.first_token_seconds + stats.decode_seconds) * _NANOSECONDS),
            "load_duration": 0,
            "prompt_eval_count": stats.prompt_tokens,
            "prompt_eval_duration": round(stats.prefill_seconds * _NANOSECONDS),
            "eval_count": stats.new_tokens,
            "eval_duration": round(stats.decode_seconds * _NANOSECONDS),
        }


def _calls(pieces: Sequence[CallPiece]) -> Sequence[Mapping[str, Any]]:
    """Calls with their arguments as objects; those of a call that was cut are empty."""
    found = []
    for index, call in enumerate(calls_json(pieces)):
        function = call["function"]
        try:
            arguments = json.loads(function["arguments"])
        except (ValueError, RecursionError):
            arguments = {}
        found.append(
            {"id": call["id"], "function": {"index": index, "name": function["name"], "arguments": arguments}}
        )
    return found
