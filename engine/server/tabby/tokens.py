"""POST /v1/token/encode and /v1/token/decode. Source: TabbyAPI's API reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.chat import LocalChat
from engine.core import ChatRequest
from engine.server.fields import Fields
from engine.server.http.exchange import Exchange
from engine.server.llama_cpp.tokens import asked, text_of
from engine.server.openai.conversation import messages_of
from engine.server.service import Service


async def encode(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """The token ids of `text`: a text, or messages."""
    fields = Fields(await exchange.read())
    service.model(fields)
    if isinstance(fields.get("text"), list):
        request = ChatRequest(messages_of(fields, "text"), begin_reply=False)
        return await asked(service, exchange, lambda chat: _counted(chat.render(request)[1]))
    if fields.get("text") is None:
        raise fields.wrong("text", "a text or a list of messages")
    text = fields.text("text")
    begins, special = fields.flag("add_bos_token", True), fields.flag("encode_special_tokens", True)

    def answer(chat: LocalChat) -> Mapping[str, Any]:
        tokenizer = chat.tokenizer
        return _counted(tokenizer.encode(text, special=special, add_bos=begins and tokenizer.add_bos))

    return await asked(service, exchange, answer)


def _counted(ids: list[int]) -> dict[str, Any]:
    return {"tokens": ids, "length": len(ids)}


async def decode(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """The text of `tokens`."""
    fields = Fields(await exchange.read())
    service.model(fields)
    ids, special = fields.ids("tokens"), fields.flag("decode_special_tokens", True)
    return await asked(service, exchange, lambda chat: {"text": text_of(chat, ids, special=special)})
