"""GET models and models/{id} in Google's form. Source: Google's API reference, "Models"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from engine.server.host import ServedModel
from engine.server.http.exchange import Exchange
from engine.server.openai import models as openai_models
from engine.server.service import Service

_METHODS = ("generateContent", "streamGenerateContent", "countTokens", "embedContent", "batchEmbedContents")
_HEADERS = ("x-goog-api-client", "x-goog-api-key")


async def models(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """All models; the loaded one first."""
    return {"models": [_card(model) for model in service.host.models()]}


async def model(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """One model."""
    return _card(openai_models.asked_for(service, exchange))


def is_google_client(exchange: Exchange) -> bool:
    """Whether the client is one of Google's."""
    names = {name.decode("latin-1") for name, _ in exchange.scope["headers"]}
    query = parse_qs(exchange.scope.get("query_string", b"").decode("latin-1"))
    return "key" in query or not names.isdisjoint(_HEADERS)


def _card(model: ServedModel) -> dict[str, Any]:
    return {
        "name": f"models/{model.id}", "baseModelId": model.id, "version": "1", "displayName": model.id,
        "description": "", "inputTokenLimit": model.context_length, "outputTokenLimit": model.context_length,
        "supportedGenerationMethods": list(_METHODS),
    }  # fmt: skip
