"""GET /api/v0/models, /api/v0/models/{id} and /api/v1/models; POST /api/v1/models/load and /unload."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from engine.server.fields import Fields
from engine.server.host import ServedModel
from engine.server.http.exchange import Exchange
from engine.server.openai.models import asked_for, load_named, unload_named
from engine.server.service import Service


async def greeting(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """What LM Studio's SDKs ask before they connect: whether its WebSocket API is here."""
    return {"lmstudio": True}


async def models(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """All models in the form of /api/v0; the loaded one first."""
    return {"object": "list", "data": [_card(model) for model in service.host.models()]}


async def model(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """One model in the form of /api/v0."""
    return _card(asked_for(service, exchange))


def _card(model: ServedModel) -> dict[str, Any]:
    card: dict[str, Any] = {
        "id": model.id, "object": "model", "type": _type(model), "publisher": "",
        "arch": model.architecture,
        "compatibility_type": "mlx" if model.format == "safetensors" else "gguf",  # Zed knows no others
        "quantization": model.quantisation,
        "capabilities": ["tool_use"] if "tools" in model.capabilities else [],
        "state": "loaded" if model.loaded else "not-loaded",
    }  # fmt: skip
    if model.loaded:
        card["max_context_length"] = card["loaded_context_length"] = model.context_length
    return card


def _type(model: ServedModel) -> str:
    if "embedding" in model.capabilities:
        return "embeddings"
    return "vlm" if model.reads_pictures else "llm"


async def models_v1(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """All models in the form of /api/v1; the loaded one first. What is not known is null."""
    return {"models": [_card_v1(model) for model in service.host.models()]}


def _card_v1(model: ServedModel) -> dict[str, Any]:
    instance = {"id": model.id, "config": {"context_length": model.context_length}}
    quantisation = {"name": model.quantisation, "bits_per_weight": None} if model.quantisation else None
    return {
        "type": "embedding" if "embedding" in model.capabilities else "llm", "publisher": "",
        "key": model.id, "display_name": model.id,
        "architecture": model.architecture or None, "quantization": quantisation,
        "size_bytes": model.file_bytes,
        "params_string": model.parameter_size or None, "format": model.format or None, "description": None,
        "loaded_instances": [instance] if model.loaded else [], "max_context_length": model.context_length,
        "capabilities": {"vision": model.reads_pictures, "trained_for_tool_use": True},
    }  # fmt: skip


async def load(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """Load the model that is named instead of the present one; answers when it is loaded."""
    name, begun = Fields(await exchange.read()).text("model"), time.monotonic()
    await load_named(service, exchange, name)
    spent = {"status": "loaded", "load_time_seconds": time.monotonic() - begun}
    return {"type": "llm", "instance_id": name, "model_instance_id": name, **spent}


async def unload(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """Release the model that is named, if it is loaded."""
    fields = Fields(await exchange.read())
    name = fields.text("instance_id")
    if not name:
        raise fields.wrong("instance_id", "the name of a model")
    return {"instance_id": await unload_named(service, exchange, name)}
