"""POST /v1/fim/completions: text between `prompt` and `suffix`, in the form of Mistral's API.

Source: Mistral's API reference, "Fill in the middle completion".
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any

from engine.server.fields import Fields
from engine.server.http.exchange import Exchange
from engine.server.replies import Begun, Ended, Prompted, Written, usage
from engine.server.service import Service
from engine.server.texts.completions import completion_call, finish_reason

_ANY = -1
"""Without `max_tokens` the text ends where the model ends it."""


async def fim(service: Service, exchange: Exchange) -> Mapping[str, Any] | None:
    """The endpoint: what completions write, as the content of a message."""
    body = await exchange.read()
    fields = Fields({**body, "max_tokens": _ANY if body.get("max_tokens") is None else body["max_tokens"]})
    fields.text("prompt")
    call = completion_call(fields, service.model(fields), service.options.bounds)
    service.start(exchange, call.works[:1])
    kind = "chat.completion.chunk" if call.stream else "chat.completion"
    head = {"id": secrets.token_hex(16), "object": kind, "created": int(time.time()), "model": call.model.id}

    async def send(text: str, reason: str | None, **more: Any) -> None:
        choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": reason}
        await exchange.send_event({**head, "choices": [choice], **more})

    written, end = "", None
    async for _, event in service.events(exchange):
        if call.stream and isinstance(event, Begun | Prompted) and not exchange.streaming:
            await exchange.start_stream()
        if isinstance(event, Written):
            written += event.text
            if call.stream:
                await send(event.text, None)
        end = event if isinstance(event, Ended) else end
    assert end is not None
    reason, counts = finish_reason(end), usage([end])
    if call.stream:
        await send("", reason, usage=counts)
        await exchange.end_stream()
        return None
    message = {"role": "assistant", "content": written, "tool_calls": None, "prefix": False}
    return {**head, "choices": [{"index": 0, "message": message, "finish_reason": reason}], "usage": counts}
