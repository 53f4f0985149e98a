"""GET and DELETE /v1/responses/{id}, its input items, and why no response is cancelled."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl

from engine.core import Message
from engine.server.failure import bad_request
from engine.server.fields import Fields
from engine.server.http.exchange import Exchange
from engine.server.openai.custom import INPUT, InputText
from engine.server.pictures import data_address, parts_of
from engine.server.responses.output import Event
from engine.server.responses.stored import Stored
from engine.server.service import Service

_LAST_NUMBER = 1 << 31
_MOST_ITEMS = 100
_DEFAULT_ITEMS = 20


async def retrieve(service: Service, exchange: Exchange) -> Mapping[str, Any] | None:
    """A response; with `stream` its events again, those after the number `starting_after`."""
    query = _query(exchange)
    stored = service.responses.get(_id(exchange))
    after = query.whole("starting_after", 0, _LAST_NUMBER)
    if not query.flag("stream"):
        if after is not None:
            raise bad_request("starting_after needs stream=true.", "starting_after")
        return stored.response
    exchange.watch()
    await exchange.start_stream()
    for number, event in enumerate(_events(stored)):
        if after is None or number > after:
            numbered = {"type": event["type"], "sequence_number": number, **event}
            await exchange.send_event(numbered, event["type"])
    await exchange.end_stream(done=False)
    return None


async def delete(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """Forget a response."""
    id = _id(exchange)
    service.responses.remove(id)
    return {"id": id, "object": "response", "deleted": True}


async def cancel(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """Only background responses can be cancelled, and there are none. Raises `ApiError`."""
    service.responses.get(_id(exchange))
    raise bad_request(
        "Only background responses can be cancelled, and this one is complete; to cancel a response while it "
        "is written, close the connection."
    )


async def input_items(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """The conversation that a response answers, as items; the latest first unless `order` is "asc"."""
    query, id = _query(exchange), _id(exchange)
    items = list(_items(id, service.responses.get(id)))
    order, after = query.text("order", "desc"), query.text("after")
    if order not in ("asc", "desc"):
        raise query.wrong("order", '"asc" or "desc"')
    if order == "desc":
        items.reverse()
    if after:
        place = next((at for at, item in enumerate(items) if item["id"] == after), None)
        if place is None:
            raise query.wrong("after", "the id of an item of this response")
        items = items[place + 1 :]
    shown = items[: query.whole("limit", 1, _MOST_ITEMS) or _DEFAULT_ITEMS]
    return {
        "object": "list", "data": shown, "has_more": len(shown) < len(items),
        "first_id": shown[0]["id"] if shown else None, "last_id": shown[-1]["id"] if shown else None,
    }  # fmt: skip


def _id(exchange: Exchange) -> str:
    return str(exchange.scope["path_params"]["id"])


def _query(exchange: Exchange) -> Fields:
    """The query of the address; numbers and truth values as in JSON."""
    found: dict[str, Any] = {}
    for name, value in parse_qsl(exchange.scope["query_string"].decode("latin-1")):
        is_number = value.isascii() and value.isdigit() and len(value) < 12
        found[name] = int(value) if is_number else {"true": True, "false": False}.get(value, value)
    return Fields(found)


def _events(stored: Stored) -> Iterator[Event]:
    """All events of a response, as they were sent while it was written."""
    response = stored.response
    begun = {**response, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    for kind in ("response.created", "response.in_progress"):
        yield {"type": kind, "response": begun if stored.events else response}
    for event in stored.events:
        yield json.loads(event)
    yield {"type": f"response.{response['status']}", "response": response}


def _items(id: str, stored: Stored) -> Iterator[dict[str, Any]]:
    """What a response answers, as items, whose ids are made of the response's and their place."""
    custom, calls = stored.custom, set[str]()
    items = (item for message in stored.messages[:-1] for item in _items_of(message, custom, calls))
    for number, item in enumerate(items):
        name = f"{_PREFIXES[item['type']]}_{id.removeprefix('resp_')}_{number}"
        yield {"id": name, "status": "completed", **item}


_PREFIXES = {
    "message": "msg", "reasoning": "rs", "function_call": "fc", "function_call_output": "fco",
    "custom_tool_call": "ctc", "custom_tool_call_output": "ctco",
}  # fmt: skip


def _items_of(message: Message, custom: Collection[str], calls: set[str]) -> Iterator[dict[str, Any]]:
    """What a message was, or could have been, as items of a request. Calls of the tools `custom` add their
    ids to `calls`, by which their results are known.
    """
    if message.reasoning:
        content = [{"type": "reasoning_text", "text": message.reasoning}]
        yield {"type": "reasoning", "summary": [], "content": content}
    if message.role == "tool":
        call = message.tool_call_id
        kind = "custom_tool_call_output" if call in calls else "function_call_output"
        yield {"type": kind, "call_id": call, "output": message.content}
    elif message.content or not message.tool_calls:
        yield {"type": "message", "role": message.role, "content": _content(message)}
    for made in message.tool_calls:
        if made.name in custom:
            calls.add(made.id)
            text = InputText().feed(made.arguments)
            yield {"type": "custom_tool_call", "call_id": made.id, "name": made.name, INPUT: text}
            continue
        named = {"name": made.name, "arguments": made.arguments}
        yield {"type": "function_call", "call_id": made.id, **named}


def _content(message: Message) -> list[dict[str, Any]]:
    """The parts of a message's content."""
    if message.role == "assistant":
        return [{"type": "output_text", "text": message.content, "annotations": []}]
    return [
        {"type": "input_text", "text": part}
        if isinstance(part, str)
        else {"type": "input_image", "image_url": data_address(part), "detail": "auto"}
        for part in [*parts_of(message)] or [""]
    ]
