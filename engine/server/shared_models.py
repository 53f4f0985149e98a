"""GET /v1/models and /v1/models/{id}, the address that clients of several APIs share: each gets its form."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from engine.server.cohere import models as cohere
from engine.server.gemini import models as gemini
from engine.server.http.exchange import Exchange
from engine.server.openai import models as openai
from engine.server.service import Service

_Answer = Callable[[Service, Exchange], Awaitable[Mapping[str, Any]]]


async def models(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """All models; the loaded one first."""
    answer = _form(exchange, openai.models, gemini.models, cohere.models)
    return await answer(service, exchange)


async def model(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """One model."""
    answer = _form(exchange, openai.model, gemini.model, cohere.model)
    return await answer(service, exchange)


def _form(exchange: Exchange, usual: _Answer, googles: _Answer, coheres: _Answer) -> _Answer:
    """The one of these that answers a client in the form that it reads. The usual one is OpenAI's and, at the
    same time, Anthropic's.
    """
    if gemini.is_google_client(exchange):
        return googles
    return coheres if cohere.is_cohere_client(exchange) else usual
