"""POST /v2/chat. Streams are server-sent events, or lines of JSON where JSON is all that a client accepts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.server.cohere.message import Reply
from engine.server.cohere.request import chat_request, scored
from engine.server.fields import Fields
from engine.server.http.exchange import Exchange
from engine.server.replies import Begun, chat_work
from engine.server.service import Service

_NOTHING = {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": ""}}}}


async def chat(service: Service, exchange: Exchange) -> Mapping[str, Any] | None:
    """A reply to messages."""
    fields = Fields(await exchange.read())
    model = service.model(fields)
    request, logprobs, stream = chat_request(fields, model), scored(fields), fields.flag("stream")
    lines = dict(exchange.scope["headers"]).get(b"accept") == b"application/json"  # LiteLLM's
    reply = Reply(model, scored=logprobs is not None)
    service.start(exchange, [chat_work(request, logprobs)])
    if lines:  # which have no comments
        exchange.ping = lambda: (_NOTHING, "")
    exchange.failure_events = lambda failure: ((reply.failed(failure), "message-end"),)
    async for _, event in service.events(exchange):
        if stream and isinstance(event, Begun):
            await exchange.start_stream(lines=lines)
        for found in reply.feed(event):
            if stream:
                await exchange.send_event(found, found["type"])
    if not stream:
        return reply.whole()
    await exchange.end_stream(done=not lines)
    return None
