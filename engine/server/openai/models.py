"""GET /health and /, GET /v1/models and /v1/models/{id}, POST /v1/models/load and /v1/models/unload (in the
form of llama.cpp's server).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any

from engine.core import Loading
from engine.server.failure import ApiError
from engine.server.fields import Fields
from engine.server.host import ServedModel
from engine.server.http.exchange import Exchange
from engine.server.model_thread import unknown_model
from engine.server.openai.chat import MISTRALS
from engine.server.service import Service


async def health(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """Whether the server is there, and whether a model is loaded."""
    loaded = any(model.loaded for model in service.host.models())
    return {"status": "ok" if loaded else "no model loaded"}


async def models(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """All models; the loaded one first. Anthropic's clients read such a list page by page."""
    cards = [_card(model, exchange) for model in service.host.models()]
    ends = {"first_id": cards[0]["id"], "last_id": cards[-1]["id"]} if cards else {}
    return {"object": "list", "data": cards, "has_more": False, "first_id": None, "last_id": None, **ends}


async def model(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """One model."""
    return _card(asked_for(service, exchange), exchange)


def asked_for(service: Service, exchange: Exchange) -> ServedModel:
    """The model that is named in the address. Raises `ApiError`."""
    name = exchange.scope["path_params"]["id"]
    for found in service.host.models():
        if found.id == name:
            return found
    raise ApiError(unknown_model(name))


async def load(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """Load the model that is named instead of the present one; answers when it is loaded."""
    name = Fields(await exchange.read()).text("model")
    await load_named(service, exchange, name)
    return {"success": True, "model": name}


async def load_named(service: Service, exchange: Exchange, name: str) -> None:
    """Load this model. Raises `ApiError`."""
    async for _ in loading(service, exchange, name):
        pass


async def loading(service: Service, exchange: Exchange, name: str) -> AsyncIterator[Loading]:
    """Load this model, and how far that is. Raises `ApiError`."""
    if all(found.id != name for found in service.host.models()):
        raise ApiError(unknown_model(name))
    exchange.channel.hold(service.host.load(name, exchange.channel.outlet()))
    while events := await exchange.channel.take():
        for _, event in events:
            if isinstance(event, Loading):
                yield event


async def unload(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """Release the loaded model once its replies are complete; without a model this does nothing."""
    name = await unload_named(service, exchange, Fields(await exchange.read()).text("model"))
    return {"success": True, "model": name}


async def unload_named(service: Service, exchange: Exchange, name: str) -> str:
    """Release this model if it is loaded, or without a name the loaded one; its name. Raises `ApiError`."""
    loaded = next((found.id for found in service.host.models() if found.loaded), "")
    if name and all(found.id != name for found in service.host.models()):
        raise ApiError(unknown_model(name))
    if loaded and name in ("", loaded):
        exchange.channel.hold(service.host.unload(exchange.channel.outlet()))
        while await exchange.channel.take():
            pass
    return name or loaded


def _card(model: ServedModel, exchange: Exchange) -> dict[str, Any]:
    """A model in OpenAI's form and, at the same time, in Anthropic's; for Mistral's clients in theirs, which
    has another meaning of `type`.
    """
    card: dict[str, Any] = {
        "id": model.id,
        "object": "model",
        "created": model.created,
        "owned_by": "inglenook",
        "type": "model",
        "display_name": model.id,
        "created_at": datetime.fromtimestamp(model.created, UTC).isoformat(),
        "loaded": model.loaded,
    }
    if model.loaded:
        card["max_model_len"] = card["max_input_tokens"] = model.context_length
        # in the forms of OpenRouter, Groq and llama.cpp
        card["context_length"] = card["context_window"] = model.context_length
        card["meta"] = {"n_ctx": model.context_length, "n_params": model.parameters, "size": model.file_bytes}
        inputs = ["text", "image"] if model.reads_pictures else ["text"]
        card["architecture"] = {"input_modalities": inputs, "output_modalities": ["text"]}
        able = ["completion", "multimodal"] if model.reads_pictures else ["completion"]
        card["capabilities"] = able
    if exchange.program.startswith(MISTRALS):
        known = {"completion_chat": True, "function_calling": True, "completion_fim": True}
        card |= {"type": "base", "capabilities": {**known, "vision": model.reads_pictures}}
    return card
