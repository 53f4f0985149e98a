"""text-generation-webui's own endpoints (/v1/internal/...); its chats and texts are OpenAI's, with more names
of parameters (openai.aliases).

Source: the routes and models of text-generation-webui's API.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.chat import LocalChat
from engine.server.failure import bad_request
from engine.server.fields import Fields
from engine.server.http.exchange import Exchange
from engine.server.llama_cpp.tokens import apply_template, asked, text_of
from engine.server.openai.models import load_named, unload_named
from engine.server.service import Service
from engine.server.texts.next_token import next_token_work

MOST_LOGITS = 1000
_LOGITS = 50
_HALTED = ("/v1/chat/completions", "/v1/completions")
"""What can be halted: the endpoints that the webui has, too."""

chat_prompt = apply_template


async def health(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """Whether the server is there."""
    return {"status": "ok"}


async def encode(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """The token ids of `text`, with a BOS token if the tokenizer adds one."""
    ids = await _ids(service, exchange)
    return {"tokens": ids, "length": len(ids)}


async def token_count(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """The number of these."""
    return {"length": len(await _ids(service, exchange))}


async def _ids(service: Service, exchange: Exchange) -> list[int]:
    fields = Fields(await exchange.read())
    service.model(fields)
    if fields.get("text") is None:
        raise fields.wrong("text", "a text")
    text = fields.text("text")

    def answer(chat: LocalChat) -> Mapping[str, Any]:
        return {"tokens": chat.tokenizer.encode(text, special=True, add_bos=chat.tokenizer.add_bos)}

    found: list[int] = (await asked(service, exchange, answer))["tokens"]
    return found


async def decode(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """The text of `tokens`."""
    fields = Fields(await exchange.read())
    service.model(fields)
    ids = fields.ids("tokens")
    return await asked(service, exchange, lambda chat: {"text": text_of(chat, ids)})


async def logits(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """The likeliest tokens after a prompt, and their probabilities: of the model's own distribution."""
    fields = Fields(await exchange.read())
    service.model(fields)
    if fields.flag("use_samplers"):
        raise bad_request(
            "use_samplers is not supported; send false, and the numbers are the model's own.", "use_samplers"
        )
    count = fields.whole("top_logits", 1, MOST_LOGITS) or _LOGITS
    if fields.get("prompt") is None:
        raise fields.wrong("prompt", "a text")
    service.start(exchange, [next_token_work(fields.text("prompt"), count)])
    found: Mapping[str, Any] = {}
    while events := await exchange.channel.take():
        for _, event in events:
            found = json.loads(event) if event is not None else found
    return {"logits": found}


async def stop_generation(service: Service, exchange: Exchange) -> None:
    """End all chats and completions; their answers are what has been written."""
    await exchange.read(optional=True)
    service.halt(_HALTED)
    await _ok(exchange)


async def model_info(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """The loaded model and its adapters."""
    model = next((found for found in service.host.models() if found.loaded), None)
    names = [] if model is None else [Path(path).name for path, _ in model.adapters]
    return {"model_name": "None" if model is None else model.id, "lora_names": names}


async def model_list(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """The names of all models; the loaded one first."""
    return {"model_names": [found.id for found in service.host.models()]}


async def load(service: Service, exchange: Exchange) -> None:
    """Load the model that is named instead of the present one; answers when it is loaded."""
    fields = Fields(await exchange.read())
    if not fields.text("model_name"):
        raise fields.wrong("model_name", "the name of a model")
    await load_named(service, exchange, fields.text("model_name"))
    await _ok(exchange)


async def unload(service: Service, exchange: Exchange) -> None:
    """Release the loaded model once its replies are complete; without a model this does nothing."""
    await exchange.read(optional=True)
    await unload_named(service, exchange, "")
    await _ok(exchange)


async def lora_list(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """The names of the adapters that the server was started with."""
    return {"lora_names": (await model_info(service, exchange))["lora_names"]}


async def _ok(exchange: Exchange) -> None:
    await exchange.send_body(b'"OK"')
