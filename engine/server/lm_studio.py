"""GET /api/v0/models and /api/v0/models/{id}: the models in the form of LM Studio's REST API. Its chats,
texts and vectors are those of OpenAI's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.server.exchange import Exchange
from engine.server.failure import ApiError
from engine.server.host import ServedModel
from engine.server.model_thread import unknown_model
from engine.server.service import Service


async def models(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """All models; the loaded one first."""
    return {"object": "list", "data": [_card(model) for model in service.host.models()]}


async def model(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """One model."""
    name = exchange.scope["path_params"]["id"]
    for found in service.host.models():
        if found.id == name:
            return _card(found)
    raise ApiError(unknown_model(name))


def _card(model: ServedModel) -> dict[str, Any]:
    card: dict[str, Any] = {
        "id": model.id, "object": "model", "type": "llm", "publisher": "", "arch": "",
        "compatibility_type": "", "quantization": "", "state": "loaded" if model.loaded else "not-loaded",
    }  # fmt: skip
    if model.loaded:
        card["max_context_length"] = card["loaded_context_length"] = model.context_length
    return card
