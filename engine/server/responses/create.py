"""POST /v1/responses and /v1/responses/input_tokens."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from typing import Any

from engine.chat import LocalChat
from engine.core import ChatRequest, Message
from engine.lazy_dataclass import dataclass
from engine.server.failure import Failure, bad_request
from engine.server.fields import Fields
from engine.server.host import ServedModel
from engine.server.http.exchange import Exchange, to_json
from engine.server.llama_cpp.tokens import asked
from engine.server.openai import parameters
from engine.server.openai.tools import flat_offer_of
from engine.server.replies import Begun, Ended, Writer, chat_work
from engine.server.responses.items import called_custom, input_of, instructed
from engine.server.responses.output import Event, Output
from engine.server.responses.stored import StoredResponses
from engine.server.service import Service

_SCORES = "message.output_text.logprobs"
_SEALED = "reasoning.encrypted_content"
_REFUSED = {
    "background": "Background responses are not supported; leave background out.",
    "conversation": "Conversations are not kept on the server; send input, or previous_response_id.",
    "prompt": "There are no stored prompts; send instructions and input.",
}


@dataclass(frozen=True, slots=True)
class ResponseCall:
    """What a request asks for: `request` is None if there is nothing to answer; `messages` are the
    conversation without the instructions, and `head` what the response repeats of the request.
    """

    model: ServedModel
    request: ChatRequest | None
    messages: tuple[Message, ...]
    head: Mapping[str, Any]
    logprobs: int | None
    stream: bool
    store: bool
    custom: frozenset[str]
    known_custom: frozenset[str]
    """The names of the custom tools of the whole conversation."""
    seals: bool
    """Whether thoughts have `encrypted_content`."""


def response_call(fields: Fields, model: ServedModel, stored: StoredResponses) -> ResponseCall:
    """What a body asks for. Raises `ApiError`."""
    for name, sentence in _REFUSED.items():
        if fields.get(name):
            raise bad_request(sentence, name)
    previous = fields.text("previous_response_id")
    before = stored.get(previous, "previous_response_id") if previous else None
    known = () if before is None else before.messages
    messages = input_of(fields, known, stored, pictures=model.reads_pictures)
    instructions = fields.text("instructions")
    whole = instructed(instructions, messages)
    offer = flat_offer_of(fields)
    text, reasoning = fields.part("text"), fields.part("reasoning")
    fields.part("metadata")
    truncation = fields.text("truncation", "disabled")
    if truncation not in ("auto", "disabled"):
        raise fields.wrong("truncation", '"auto" or "disabled"')
    most_tokens = fields.count("max_output_tokens", 1)
    count = fields.whole("top_logprobs", 0, parameters.MOST_LOGPROBS)
    included = fields.texts("include", 64)
    logprobs = (count or 0) if count or _SCORES in included else None
    request = ChatRequest(
        whole,
        sampler=parameters.sampler(fields, dict(model.defaults)),
        stops=parameters.stops(
            fields, most_tokens, when_full="drop_oldest" if truncation == "auto" else "stop"
        ),
        constraint=parameters.constraint(fields, None if text is None else text.part("format")),
        output=parameters.output(logprobs),
        report_prompt=True,
        tools=offer.tools,
        tool_choice=offer.choice,
        parallel_tool_calls=offer.parallel,
        template_variables=parameters.template_variables(fields),
        thinking=parameters.thinking(reasoning, "effort"),
    )
    head = {
        "instructions": instructions or None, "max_output_tokens": most_tokens,
        "metadata": fields.get("metadata") or {}, "previous_response_id": previous or None,
        "parallel_tool_calls": offer.parallel, "temperature": request.sampler.temperature,
        "top_p": request.sampler.top_p, "top_logprobs": count or 0, "truncation": truncation,
        "tool_choice": fields.get("tool_choice") or "auto",
        "tools": [tool for tool in fields.get("tools") or () if tool.get("type") in ("function", "custom")],
        "text": {"format": {"type": "text"}, **(fields.get("text") or {})},
        "reasoning": {"effort": None, "summary": None, **(fields.get("reasoning") or {})},
        "user": fields.get("user"), "store": fields.flag("store", True),
    }  # fmt: skip
    return ResponseCall(
        model,
        request if messages else None,
        messages,
        head,
        logprobs,
        fields.flag("stream"),
        head["store"],
        offer.custom,
        offer.custom | called_custom(fields) | (frozenset() if before is None else before.custom),
        _SEALED in included,
    )


async def create(service: Service, exchange: Exchange) -> Mapping[str, Any] | None:
    """The endpoint that writes a response."""
    fields = Fields(await exchange.read())
    call = response_call(fields, service.model(fields), service.responses)
    response = _Response(call)
    if call.request is not None:
        service.start(exchange, [chat_work(call.request, call.logprobs)])
    if call.stream:
        await _stream(service, exchange, response)
    else:
        async for _, event in service.events(exchange):
            for found in response.feed(event):
                response.keep(found, exchange)
    whole = response.whole()
    if call.store:
        messages = (*call.messages, response.output.message())
        service.responses.keep(whole, messages, response.events, call.known_custom)
    if not call.stream:
        return whole
    await exchange.send_event(*response.numbered({"type": f"response.{whole['status']}", "response": whole}))
    await exchange.end_stream(done=False)
    return None


async def count_input(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """How many tokens the prompt of a request has."""
    fields = Fields(await exchange.read())
    request = response_call(fields, service.model(fields), service.responses).request

    def answer(chat: LocalChat) -> Mapping[str, Any]:
        count = 0 if request is None else len(chat.render(request)[1])
        return {"object": "response.input_tokens", "input_tokens": count}

    return await asked(service, exchange, answer)


async def _stream(service: Service, exchange: Exchange, response: _Response) -> None:
    """The events of a response up to its last one."""

    async def begin() -> None:
        await exchange.start_stream()
        for kind in ("response.created", "response.in_progress"):
            await exchange.send_event(*response.numbered({"type": kind, "response": response.whole()}))

    exchange.ping = response.again
    exchange.failure_events = lambda failure: (response.numbered(response.failed(failure)),)
    async for _, event in service.events(exchange):
        if isinstance(event, Begun):
            await begin()
        for found in response.feed(event):
            response.keep(found, exchange)
            await exchange.send_event(*response.numbered(found))
    if not exchange.streaming:  # there was nothing to answer
        await begin()


class _Response:
    """A response while it is written."""

    def __init__(self, call: ResponseCall) -> None:
        self._call = call
        self._id, self._created = "resp_" + secrets.token_hex(24), int(time.time())
        self._writer = Writer(call.model.thinking, custom=call.custom)
        self.output = Output(scored=call.logprobs is not None, seals=call.seals)
        self.events: list[bytes] = []
        """Those of the items so far as JSON, if the response is stored."""
        self._next = 0

    def keep(self, event: Event, exchange: Exchange) -> None:
        """Keep an event for later readers. Raises `ApiError` when memory is short."""
        if self._call.store:
            self.events.append(to_json(event))
            exchange.memory.take(len(self.events[-1]))

    def numbered(self, event: Event) -> tuple[Event, str]:
        """An event with its number, and its name; the first has the number 0."""
        kind, number = event["type"], self._next
        self._next += 1
        return {"type": kind, "sequence_number": number, **event}, kind

    def again(self) -> tuple[Event, str]:
        """What a client knows, as a sign of life: programs such as Codex count events and skip comments. It
        has the number of the event before it, so that the numbers are those of the stored events.
        """
        kind = "response.in_progress"
        return {"type": kind, "sequence_number": self._next - 1, "response": self.whole()}, kind

    def feed(self, event: Any) -> Iterator[Event]:
        """The events that an event of the reply becomes."""
        if (delta := self._writer.feed(event)) is not None:
            yield from self.output.feed(delta)
        if isinstance(event, Ended):
            yield from self.output.finish(whole=self._writer.finish_reason != "length")

    def whole(self) -> dict[str, Any]:
        """The response as it is now."""
        call, ended = self._call, self._writer.ended
        usage = None
        status = "completed" if call.request is None else "in_progress"
        if ended is not None:
            status = "incomplete" if self._writer.finish_reason == "length" else "completed"
        if status != "in_progress":
            usage = self._usage()
        return {
            "id": self._id, "object": "response", "created_at": self._created, "status": status,
            "background": False, "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "model": call.model.id, "output": list(self.output.items), "usage": usage,
            "service_tier": "default", **call.head,
        }  # fmt: skip

    def failed(self, failure: Failure) -> Event:
        """The last event of a response that failed."""
        error = {"code": failure.code or "server_error", "message": failure.message}
        return {"type": "response.failed", "response": {**self.whole(), "status": "failed", "error": error}}

    def _usage(self) -> dict[str, Any]:
        ended = self._writer.ended
        prompt, new, cached = (
            (0, 0, 0)
            if ended is None
            else (ended.stats.prompt_tokens, ended.stats.new_tokens, ended.stats.cached_tokens)
        )
        return {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
            "output_tokens": new,
            "output_tokens_details": {"reasoning_tokens": self._writer.reasoning_tokens},
            "total_tokens": prompt + new,
        }
