"""GET /v1/model, /v1/model/list and /v1/model/draft/list; POST /v1/model/load and /v1/model/unload.

Source: TabbyAPI's API reference (theroyallab.github.io/tabbyAPI).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.server.fields import Fields
from engine.server.host import ServedModel
from engine.server.http.exchange import Exchange
from engine.server.openai.models import loading, unload_named
from engine.server.service import Service
from engine.server.tabby.fixed import TEMPLATE


async def model(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """The loaded model."""
    return _card(service.model(Fields({})))


async def models(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """All models; the loaded one first."""
    return {"object": "list", "data": [_card(found) for found in service.host.models()]}


async def draft_models(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """No draft models: none can be loaded over HTTP."""
    return {"object": "list", "data": []}


def _card(model: ServedModel) -> dict[str, Any]:
    card = {"id": model.id, "object": "model", "created": model.created, "owned_by": "inglenook"}
    if not model.loaded:
        return {**card, "parameters": None}
    length = model.context_length
    parameters = {
        "max_seq_len": length, "cache_size": length, "rope_scale": 1.0, "rope_alpha": 1.0,
        "prompt_template": TEMPLATE, "use_vision": model.reads_pictures, "draft": None,
    }  # fmt: skip
    return {**card, "parameters": parameters}


async def load(service: Service, exchange: Exchange) -> None:
    """Load the model that is named instead of the present one; events say how far that is."""
    fields = Fields(await exchange.read())
    name = fields.text("model_name") or fields.text("name")
    if not name:
        raise fields.wrong("model_name", "the name of a model")
    total = 1

    def progress(done: int, status: str) -> dict[str, Any]:
        return {"model_type": "model", "module": done, "modules": total, "status": status}

    async for event in loading(service, exchange, name):
        total = max(1, event.total)
        if not exchange.streaming:
            await exchange.start_stream()
        await exchange.send_event(progress(min(event.done, total), "processing"))
    if not exchange.streaming:
        await exchange.start_stream()
    await exchange.send_event(progress(total, "finished"))
    await exchange.end_stream(done=False)


async def unload(service: Service, exchange: Exchange) -> None:
    """Release the loaded model once its replies are complete. Without a model it fails."""
    await exchange.read(optional=True)
    await unload_named(service, exchange, service.model(Fields({})).id)
    await exchange.send_body(b"null")
