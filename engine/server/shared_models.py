"""GET /v1/models and /v1/models/{id}, the address that clients of several APIs share: each gets its form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.server.anthropic import models as anthropic
from engine.server.cohere import models as cohere
from engine.server.gemini import models as gemini
from engine.server.http.exchange import Exchange
from engine.server.openai import models as openai
from engine.server.service import Service


async def models(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """All models; the loaded one first."""
    if gemini.is_google_client(exchange):
        return await gemini.models(service, exchange)
    if cohere.is_cohere_client(exchange):
        return await cohere.models(service, exchange)
    if anthropic.is_anthropic_client(exchange):
        return await anthropic.models(service, exchange)
    return await openai.models(service, exchange)


async def model(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """One model."""
    if gemini.is_google_client(exchange):
        return await gemini.model(service, exchange)
    if cohere.is_cohere_client(exchange):
        return await cohere.model(service, exchange)
    if anthropic.is_anthropic_client(exchange):
        return await anthropic.model(service, exchange)
    return await openai.model(service, exchange)
