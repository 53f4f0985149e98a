"""What TabbyAPI's clients may change and this server's may not: the chat template (/v1/template/...), LoRA
adapters (/v1/lora/...) and overrides of sampling (/v1/sampling/...). Lists are answered, changes are refused.

Source: TabbyAPI's API reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.server.failure import bad_request
from engine.server.fields import Fields
from engine.server.http.exchange import Exchange
from engine.server.service import Handler, Service

TEMPLATE = "model"
"""The only chat template: that of the model's files."""


async def templates(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """The names of chat templates."""
    return {"object": "list", "data": [TEMPLATE]}


async def overrides(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """No overrides of sampling."""
    return {"selected_preset": None, "overrides": {}, "presets": []}


async def loras(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """The adapters that the server was started with."""
    model = service.model(Fields({}))
    found = [
        {
            "id": Path(path).name, "object": "lora", "created": model.created, "owned_by": "inglenook",
            "scaling": strength,
        }
        for path, strength in model.adapters
    ]  # fmt: skip
    return {"object": "list", "data": found}


async def permission(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """What a client may do that has the token: everything."""
    return {"permission": "admin"}


def refused(what: str, advice: str) -> Handler:
    """An endpoint that refuses a change."""

    async def handler(service: Service, exchange: Exchange) -> Mapping[str, Any]:
        await exchange.read(optional=True)
        raise bad_request(f"{what} cannot be changed over HTTP; {advice}.")

    return handler


change_template = refused("The chat template", "send its variables as template_vars of a request")
change_adapters = refused("LoRA adapters", "start the server with --adapters")
change_sampling = refused("Overrides of sampling", "send parameters with each request")
