"""POST /v1/chat: chats in the form of the first version of Cohere's API, which LangChain's client for
JavaScript speaks. Its requests become those of the second version.

Source: Cohere's API reference (docs.cohere.com), "Chat", version 1.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engine.server.cohere.request import chat_request
from engine.server.failure import Failure, bad_request
from engine.server.fields import Fields
from engine.server.host import ServedModel
from engine.server.http.exchange import Exchange
from engine.server.openai.tools import calls_json
from engine.server.replies import Begun, Ended, ReplyEvent, Writer, chat_work
from engine.server.service import Service

_ROLES = {"USER": "user", "CHATBOT": "assistant", "SYSTEM": "system"}
_TYPES = {
    "str": "string", "string": "string", "int": "integer", "integer": "integer", "float": "number",
    "number": "number", "bool": "boolean", "boolean": "boolean", "list": "array", "dict": "object",
}  # fmt: skip
"""JSON's words for the types of parameters, which are Python's; others may be anything."""
_TRUNCATION = {"OFF": "stop", "AUTO": "drop_oldest", "AUTO_PRESERVE_ORDER": "drop_oldest"}
_REFUSED = {
    "conversation_id": "send the conversation as chat_history", "connectors": "send documents",
    "raw_prompting": "use /v1/completions", "search_queries_only": "leave it out",
}  # fmt: skip


async def chat(service: Service, exchange: Exchange) -> Mapping[str, Any] | None:
    """A reply to a message; of a stream the events are lines."""
    fields = Fields(await exchange.read())
    model = service.model(fields)
    truncation = fields.text("prompt_truncation", "OFF")
    if truncation not in _TRUNCATION:
        raise fields.wrong("prompt_truncation", "one of " + ", ".join(_TRUNCATION))
    request = chat_request(as_second(fields), model, when_full=_TRUNCATION[truncation])
    reply, stream = _Reply(model), fields.flag("stream")
    service.start(exchange, [chat_work(request, None)])
    exchange.failure_events = lambda failure: ((reply.failed(failure), ""),)
    exchange.ping = lambda: (_more(""), "")
    async for _, event in service.events(exchange):
        if stream and isinstance(event, Begun):
            await exchange.start_stream(lines=True)
        for found in reply.feed(event):
            if stream:
                await exchange.send_event(found)
    if not stream:
        return reply.whole()
    await exchange.end_stream(done=False)
    return None


def as_second(fields: Fields) -> Fields:
    """The body of a request in the form of the second version. Raises `ApiError`."""
    for name, advice in _REFUSED.items():
        if fields.get(name):
            raise bad_request(f"{name} is not supported; {advice}.", name)
    documents, tools = fields.get("documents"), fields.get("tools")
    return fields.changed({
        "messages": _messages(fields),
        "tools": None if tools is None else [_tool(tool) for tool in fields.parts("tools")],
        "documents": None if documents is None else [_document(one) for one in fields.parts("documents")],
        "logprobs": None, "thinking": None,
    })  # fmt: skip


def _messages(fields: Fields) -> Sequence[dict[str, Any]]:
    preamble, message = fields.text("preamble"), fields.text("message")
    found = [{"role": "system", "content": preamble}] if preamble else []
    history = () if fields.get("chat_history") is None else fields.parts("chat_history")
    for item in history:
        found += _turn(item, found)
    results = () if fields.get("tool_results") is None else fields.parts("tool_results")
    if not message and not results:
        raise fields.wrong("message", "a text")
    if message:
        found.append({"role": "user", "content": message})
    return [*found, *_results(results, found)]


def _turn(item: Fields, before: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """The messages of an item of the history, which follow others."""
    role = item.text("role").upper()
    if role == "TOOL":
        return _results(() if item.get("tool_results") is None else item.parts("tool_results"), before)
    if role not in _ROLES:
        raise item.wrong("role", "one of " + ", ".join((*_ROLES, "TOOL")))
    message: dict[str, Any] = {"role": _ROLES[role], "content": item.text("message")}
    if item.get("tool_calls"):
        message["tool_calls"] = [_call(call) for call in item.parts("tool_calls")]
    return [message]


def _results(results: Sequence[Fields], before: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """The results of calls as messages; after another message than that which made the calls, these, too."""
    if not results:
        return ()
    made = before[-1].get("tool_calls", ()) if before else ()
    calls = [_call(_answered(one)) for one in results]
    first = [] if made else [{"role": "assistant", "content": "", "tool_calls": calls}]
    ids = [call["id"] for call in made or calls]
    ids += [call["id"] for call in calls[len(ids) :]]
    return first + [
        {
            "role": "tool",
            "tool_call_id": id,
            "content": json.dumps(one.get("outputs") or [], ensure_ascii=False),
        }
        for id, one in zip(ids, results, strict=False)
    ]


def _answered(result: Fields) -> Fields:
    """The call whose result this is."""
    call = result.part("call")
    if call is None:
        raise result.wrong("call", "an object")
    return call


def _call(call: Fields) -> dict[str, Any]:
    """A call, which has no id in this version."""
    parameters = call.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise call.wrong("parameters", "an object")
    function = {"name": call.text("name"), "arguments": json.dumps(parameters, ensure_ascii=False)}
    return {"id": "call_" + secrets.token_hex(12), "type": "function", "function": function}


def _tool(tool: Fields) -> dict[str, Any]:
    """A tool, whose parameters become a schema."""
    definitions = tool.part("parameter_definitions") or Fields({})
    properties: dict[str, Any] = {}
    required = []
    for name, _ in definitions.items():
        one = definitions.part(name) or Fields({})
        kind = _TYPES.get(one.text("type").partition("[")[0].lower())
        properties[name] = {"type": kind} if kind else {}
        if one.text("description"):
            properties[name]["description"] = one.text("description")
        if one.flag("required"):
            required.append(name)
    schema = {"type": "object", "properties": properties, "required": required}
    function = {"name": tool.text("name"), "description": tool.text("description"), "parameters": schema}
    return {"type": "function", "function": function}


def _document(document: Fields) -> dict[str, Any]:
    return {"data": {name: value for name, value in document.items() if name not in ("id", "_excludes")}}


class _Reply:
    """A reply while it is written. Its thoughts are left out: this version has no place for them."""

    def __init__(self, model: ServedModel) -> None:
        self._id = secrets.token_hex(16)
        self._writer = Writer(model.thinking)
        self._text = ""
        self._pieces: list[Any] = []

    def feed(self, event: ReplyEvent) -> Iterator[dict[str, Any]]:
        """The events that an event of the reply becomes."""
        if isinstance(event, Begun):
            yield {"event_type": "stream-start", "is_finished": False, "generation_id": self._id}
        delta = self._writer.feed(event)
        if delta is not None and delta.text:
            self._text += delta.text
            yield _more(delta.text)
        if delta is not None and delta.call is not None:
            self._pieces.append(delta.call)
        if isinstance(event, Ended):
            whole = self.whole()
            if calls := whole.get("tool_calls"):
                yield {
                    "event_type": "tool-calls-generation", "is_finished": False, "text": self._text,
                    "tool_calls": calls,
                }  # fmt: skip
            yield _end(whole["finish_reason"], whole)

    def failed(self, failure: Failure) -> dict[str, Any]:
        """The last event of a reply that failed."""
        return {**_end("ERROR", {"text": self._text, "generation_id": self._id}), "error": failure.message}

    def whole(self) -> dict[str, Any]:
        """The answer."""
        assert self._writer.ended is not None
        stats = self._writer.ended.stats
        tokens = {"input_tokens": stats.prompt_tokens, "output_tokens": stats.new_tokens}
        found: dict[str, Any] = {
            "response_id": self._id, "generation_id": self._id, "text": self._text,
            "finish_reason": "MAX_TOKENS" if self._writer.finish_reason == "length" else "COMPLETE",
            "meta": {"api_version": {"version": "1"}, "billed_units": tokens, "tokens": tokens},
        }  # fmt: skip
        calls = [made for call in calls_json(self._pieces) if (made := _made(call["function"])) is not None]
        return {**found, "tool_calls": calls} if calls else found


def _more(text: str) -> dict[str, Any]:
    return {"event_type": "text-generation", "is_finished": False, "text": text}


def _end(reason: str, response: Mapping[str, Any]) -> dict[str, Any]:
    return {"event_type": "stream-end", "is_finished": True, "finish_reason": reason, "response": response}


def _made(function: Mapping[str, str]) -> dict[str, Any] | None:
    """A call of a reply; None where it was cut."""
    try:
        return {"name": function["name"], "parameters": json.loads(function["arguments"])}
    except (ValueError, RecursionError):
        return None
