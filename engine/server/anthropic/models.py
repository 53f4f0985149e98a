"""GET /v1/models and /v1/models/{id} in Anthropic's form. Source: Anthropic's API reference, "Models"."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from engine.server.host import ServedModel
from engine.server.http.exchange import Exchange
from engine.server.openai.models import asked_for
from engine.server.service import Service

_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_NEVER = ("batch", "citations", "code_execution", "pdf_input", "context_management")
"""What no model can do here."""
_TOOLS = ("code_execution", "web_search")


async def models(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """All models, on one page; the loaded one first."""
    cards = [_card(model) for model in service.host.models()]
    ends = {"first_id": cards[0]["id"], "last_id": cards[-1]["id"]} if cards else {}
    return {"data": cards, "has_more": False, "first_id": None, "last_id": None, **ends}


async def model(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """One model."""
    return _card(asked_for(service, exchange))


def is_anthropic_client(exchange: Exchange) -> bool:
    """Whether the client is one of Anthropic's: they all name the version of the API."""
    return b"anthropic-version" in dict(exchange.scope["headers"])


def _card(model: ServedModel) -> dict[str, Any]:
    """What is not known of a model that is not loaded is null."""
    return {
        "type": "model", "id": model.id, "display_name": model.id, "lifecycle": "active",
        "created_at": datetime.fromtimestamp(model.created, UTC).isoformat(),
        "max_input_tokens": model.context_length or None, "max_tokens": model.context_length or None,
        "capabilities": _capabilities(model) if model.loaded else None,
    }  # fmt: skip


def _capabilities(model: ServedModel) -> dict[str, Any]:
    """What the model can do. All kinds of `thinking` are accepted, whether a model thinks or not."""
    thinks, writes = "thinking" in model.capabilities, "completion" in model.capabilities
    kinds = {kind: _supported(thinks) for kind in ("enabled", "adaptive")}
    kinds |= {kind: _supported(True) for kind in ("disabled", "between_tools")}
    return {
        **{name: _supported(False) for name in _NEVER},
        "server_tools": {name: _supported(False) for name in _TOOLS} | _supported(False),
        "image_input": _supported(model.reads_pictures), "structured_outputs": _supported(writes),
        "effort": {**_supported(thinks), **{effort: _supported(thinks) for effort in _EFFORTS}},
        "thinking": {**_supported(thinks), "types": kinds},
    }  # fmt: skip


def _supported(value: bool) -> dict[str, bool]:
    return {"supported": value}
