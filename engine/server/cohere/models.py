"""GET models and models/{id} in Cohere's form. Source: Cohere's API reference, "List Models"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.server.host import ServedModel
from engine.server.http.exchange import Exchange
from engine.server.openai.models import asked_for
from engine.server.service import Service

_ENDPOINTS = ("chat", "embed")


async def models(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """All models, on one page; the loaded one first."""
    return {"models": [_card(model) for model in service.host.models()], "next_page_token": None}


async def model(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """One model."""
    return _card(asked_for(service, exchange))


def is_cohere_client(exchange: Exchange) -> bool:
    """Whether the client is one of Cohere's."""
    name: bytes = dict(exchange.scope["headers"]).get(b"x-fern-sdk-name", b"")
    return name.startswith(b"cohere")


def _card(model: ServedModel) -> dict[str, Any]:
    return {
        "name": model.id, "is_deprecated": False, "endpoints": list(_ENDPOINTS), "finetuned": False,
        "context_length": model.context_length, "tokenizer_url": None, "default_endpoints": [],
        "features": None,
    }  # fmt: skip
