"""POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from typing import Any

from engine.chat import LocalChat
from engine.core import ChatRequest
from engine.server.anthropic.blocks import Blocks, Event
from engine.server.anthropic.conversation import messages_of, offer_of
from engine.server.anthropic.threads import Turn
from engine.server.failure import MESSAGES_PATH, bad_request
from engine.server.fields import Fields
from engine.server.host import ServedModel
from engine.server.http.exchange import Exchange
from engine.server.llama_cpp.tokens import asked
from engine.server.openai import parameters
from engine.server.replies import Begun, Ended, Reading, Writer, chat_work
from engine.server.service import Service

_THINKING = {"enabled": True, "adaptive": True, "disabled": False, "between_tools": False}


def message_request(fields: Fields, model: ServedModel) -> ChatRequest:
    """What a body asks for. A last message of the assistant is continued. Raises `ApiError`."""
    messages, offer = messages_of(fields, pictures=model.reads_pictures), offer_of(fields)
    continued = messages[-1].role == "assistant"
    if continued and messages[-1].tool_calls:
        raise bad_request("The last message calls tools; send their results after it.", "messages")
    config = fields.part("output_config")
    format = fields.part("output_format") or (config and config.part("format"))
    return ChatRequest(
        messages,
        sampler=parameters.sampler(fields, dict(model.defaults)),
        stops=parameters.stops(fields, fields.count("max_tokens", 1), "stop_sequences"),
        continue_last=continued,
        constraint=parameters.constraint(fields, format),
        report_prompt=True,
        tools=offer.tools,
        tool_choice=offer.choice,
        parallel_tool_calls=offer.parallel,
        template_variables=parameters.template_variables(fields),
        thinking=parameters.thinking(config, "effort", _thinking(fields)),
    )


def _thinking(fields: Fields) -> bool | None:
    """Whether the model shall think; None if the request leaves it to the model."""
    thinking = fields.part("thinking")
    if thinking is None:
        return None
    kind = thinking.text("type")
    if kind not in _THINKING:
        raise thinking.wrong("type", '"enabled", "adaptive", "disabled" or "between_tools"')
    return _THINKING[kind]


async def messages(service: Service, exchange: Exchange) -> Mapping[str, Any] | None:
    """The endpoint that writes a message."""
    with service.threads.turn(Fields(await exchange.read())) as turn:
        return await _reply(service, exchange, turn)


async def _reply(service: Service, exchange: Exchange, turn: Turn) -> Mapping[str, Any] | None:
    """The message that answers a turn, unless it was sent as events."""
    model = service.model(turn.fields)
    request = message_request(turn.fields, model)
    message = _Message(model, request)
    service.start(exchange, [chat_work(request, None)])
    if not turn.fields.flag("stream"):
        async for _, event in service.events(exchange):
            for _ in message.feed(event):
                pass
        service.threads.keep(turn, message.whole())
        return message.whole()
    exchange.ping = lambda: ({"type": "ping"}, "ping")
    exchange.failure_events = lambda failure: ((failure.body_for(MESSAGES_PATH), "error"),)
    async for _, event in service.events(exchange):
        if isinstance(event, Begun):
            await exchange.start_stream()
        events = [*message.feed(event)]
        if isinstance(event, Ended):  # the client may continue it as soon as it knows
            service.threads.keep(turn, message.whole())
        for found in events:
            await exchange.send_event(found, found["type"])
    await exchange.end_stream(done=False)
    return None


async def count_tokens(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """How many tokens the prompt of a request has."""
    fields = Fields(await exchange.read())
    request = message_request(fields, service.model(fields))

    def answer(chat: LocalChat) -> Mapping[str, Any]:
        return {"input_tokens": len(chat.render(request)[1])}

    return await asked(service, exchange, answer)


class _Message:
    """A message while it is written."""

    def __init__(self, model: ServedModel, request: ChatRequest) -> None:
        self._model, self._request = model, request
        self._id = "msg_" + secrets.token_hex(12)
        begun = request.messages[-1].content if request.continue_last else ""
        self._writer, self._blocks = Writer(model.thinking, begun), Blocks()
        self._started = False

    def feed(self, event: Any) -> Iterator[Event]:
        """The events that an event of the reply becomes."""
        delta = self._writer.feed(event)
        if not self._started and (delta is not None or isinstance(event, Reading | Ended)):
            self._started = True
            read = (event.total, event.cached) if isinstance(event, Reading) else (0, 0)
            yield {"type": "message_start", "message": self._message(_usage(*read, 0))}
        if delta is not None:
            yield from self._blocks.feed(delta)
        if isinstance(event, Ended):
            yield from self._blocks.finish()
            yield {"type": "message_delta", "delta": self._end, "usage": self._usage}
            yield {"type": "message_stop"}

    def whole(self) -> dict[str, Any]:
        """The message at its end."""
        return {**self._message(self._usage), "content": self._blocks.content, **self._end}

    def _message(self, usage: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "id": self._id, "type": "message", "role": "assistant", "model": self._model.id, "content": [],
            "stop_reason": None, "stop_sequence": None, "usage": usage,
        }  # fmt: skip

    @property
    def _end(self) -> dict[str, Any]:
        """Why the message ended."""
        ended, trigger = self._writer.ended, self._writer.stop_reason
        assert ended is not None
        reason, sequence = "end_turn", None
        if ended.reason == "context_full":
            reason = "model_context_window_exceeded"
        elif self._writer.finish_reason == "length":
            reason = "max_tokens"
        elif self._writer.finish_reason == "tool_calls":
            reason = "tool_use"
        elif trigger in self._request.stops.stop_strings:
            reason, sequence = "stop_sequence", trigger
        return {"stop_reason": reason, "stop_sequence": sequence}

    @property
    def _usage(self) -> dict[str, Any]:
        assert self._writer.ended is not None
        stats = self._writer.ended.stats
        return _usage(stats.prompt_tokens, stats.cached_tokens, stats.new_tokens)


def _usage(prompt: int, cached: int, new: int) -> dict[str, Any]:
    """Counts of tokens; those that were cached are not among the input's."""
    return {
        "input_tokens": prompt - cached, "cache_creation_input_tokens": 0, "cache_read_input_tokens": cached,
        "output_tokens": new,
    }  # fmt: skip
