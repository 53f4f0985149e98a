"""POST /api/v1/chat: a reply to one input, which goes on from an earlier reply."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from typing import Any

from engine.core import ChatRequest, Message, Picture
from engine.lazy_dataclass import dataclass
from engine.server.failure import bad_request
from engine.server.fields import Fields
from engine.server.host import ServedModel
from engine.server.http.exchange import Exchange
from engine.server.openai import parameters
from engine.server.pictures import at_address, checked_number, message_of, unreadable
from engine.server.replies import Begun, Ended, Reading, Writer, chat_work
from engine.server.responses.stored import StoredResponses
from engine.server.service import Service
from engine.settings import ThinkingSettings

_SWITCHES = {"on": True, "off": False}
Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StudioCall:
    """What a request asks for."""

    model: ServedModel
    request: ChatRequest
    store: bool


def studio_call(fields: Fields, model: ServedModel, stored: StoredResponses) -> StudioCall:
    """What a body asks for: `input` follows the conversation up to `previous_response_id`, whose system
    prompt stays unless there is another. Raises `ApiError`.
    """
    if fields.get("integrations"):
        raise bad_request("integrations are not supported: this server runs no tools.", "integrations")
    previous, system = fields.text("previous_response_id"), fields.text("system_prompt")
    before = stored.get(previous, "previous_response_id").messages if previous else ()
    if system:
        before = (Message("system", system), *(one for one in before if one.role != "system"))
    messages = (*before, _input(fields, pictures=model.reads_pictures))
    checked_number(messages, "input")
    request = ChatRequest(
        messages,
        sampler=parameters.sampler(fields, dict(model.defaults)),
        stops=parameters.stops(fields, parameters.most_tokens(fields, "max_output_tokens")),
        report_prompt=True,
        thinking=_thinking(fields),
    )
    return StudioCall(model, request, fields.flag("store", True))


def _input(fields: Fields, *, pictures: bool) -> Message:
    """The message of `input`, which may be a list of parts."""
    value = fields.get("input")
    if isinstance(value, str) and value:
        return Message("user", value)
    if not isinstance(value, list) or not value:
        raise fields.wrong("input", "a text or a list of parts")
    found = list[str | Picture]()
    for part in fields.parts("input"):
        if pictures and part.text("type") == "image":
            found.append(at_address(part.text("data_url"), part.place("data_url")))
        elif part.text("type") not in ("text", "message"):
            raise unreadable(part, "parts", "image", pictures=pictures)
        else:
            found.append(part.text("content") or part.text("text"))
    return message_of(found, "\n")


def _thinking(fields: Fields) -> ThinkingSettings:
    """How much the model thinks: `reasoning` is on, off, or an effort."""
    if fields.get("reasoning") in ("on", "off"):
        return parameters.thinking(None, "", _SWITCHES[fields.text("reasoning")])
    return parameters.thinking(fields, "reasoning")


async def chat(service: Service, exchange: Exchange) -> Mapping[str, Any] | None:
    """The endpoint."""
    fields = Fields(await exchange.read())
    call, stream = studio_call(fields, service.model(fields), service.conversations), fields.flag("stream")
    reply = _Reply(call)
    service.start(exchange, [chat_work(call.request, None)])
    exchange.failure_events = lambda failure: (({"type": "error", **failure.body()}, "error"),)
    async for _, event in service.events(exchange):
        if stream and isinstance(event, Begun):
            await exchange.start_stream()
        for found in reply.feed(event):
            if stream:
                await exchange.send_event(found, found["type"])
    result = reply.result()
    if call.store:
        kept = {"id": result["response_id"], "output": []}
        service.conversations.keep(kept, (*call.request.messages, reply.message()))
    if not stream:
        return result
    await exchange.send_event({"type": "chat.end", "result": result}, "chat.end")
    await exchange.end_stream(done=False)
    return None


class _Reply:
    """A reply while it is written: items of reasoning and of text, and the events that report them."""

    def __init__(self, call: StudioCall) -> None:
        self._call, self._writer = call, Writer(call.model.thinking)
        self._items: list[dict[str, str]] = []
        self._open = ""
        """The kind of what is being reported: "prompt_processing", "reasoning" or "message"."""
        self._id = "resp_" + secrets.token_hex(24)

    def feed(self, event: Any) -> Iterator[Event]:
        """The events that an event of the reply becomes."""
        delta = self._writer.feed(event)
        if isinstance(event, Begun):
            yield {"type": "chat.start", "model_instance_id": self._call.model.id}
        if isinstance(event, Reading):
            yield from self._begin("prompt_processing")
            yield {"type": "prompt_processing.progress", "progress": event.done / event.total}
        if delta is not None:
            for kind, text in (("reasoning", delta.reasoning), ("message", delta.text)):
                if text:
                    yield from self._begin(kind)
                    self._items[-1]["content"] += text
                    yield {"type": f"{kind}.delta", "content": text}
        if isinstance(event, Ended):
            yield from self._begin("")

    def _begin(self, kind: str) -> Iterator[Event]:
        """Report that something begins, unless it has, and that what was before is over."""
        if kind == self._open:
            return
        if self._open:
            yield {"type": f"{self._open}.end"}
        self._open = kind
        if kind in ("reasoning", "message"):
            self._items.append({"type": kind, "content": ""})
        if kind:
            yield {"type": f"{kind}.start"}

    def message(self) -> Message:
        """The reply as a message of the conversation."""
        texts = {"reasoning": "", "message": ""}
        for item in self._items:
            texts[item["type"]] += item["content"]
        return Message("assistant", texts["message"], reasoning=texts["reasoning"])

    def result(self) -> dict[str, Any]:
        """The answer."""
        ended = self._writer.ended
        assert ended is not None
        stats = ended.stats
        found: dict[str, Any] = {
            "model_instance_id": self._call.model.id,
            "output": self._items,
            "stats": {
                "input_tokens": stats.prompt_tokens, "total_output_tokens": stats.new_tokens,
                "reasoning_output_tokens": self._writer.reasoning_tokens,
                "tokens_per_second": stats.decode_tokens_per_second,
                "time_to_first_token_seconds": stats.first_token_seconds,
            },
        }  # fmt: skip
        return found | ({"response_id": self._id} if self._call.store else {})
