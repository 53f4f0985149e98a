"""GET /slots and /lora-adapters in the form of llama.cpp's server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.server.fields import Fields
from engine.server.http.exchange import Exchange, to_json
from engine.server.service import Service


async def slots(service: Service, exchange: Exchange) -> None:
    """One slot for each request that writes, and free ones up to the replies that are written at a time."""
    exchange.watch()
    model = service.model(Fields({}))
    visits = [visit for visit in service.visits() if visit.number != id(exchange)]
    found: list[dict[str, Any]] = [
        {
            "id": place, "n_ctx": model.context_length, "speculative": False,
            "is_processing": place < len(visits),
            "next_token": [{"n_decoded": visits[place].tokens if place < len(visits) else 0}],
        }
        for place in range(max(len(visits), service.options.bounds.choices))
    ]  # fmt: skip
    await exchange.send_body(b"[" + b",".join(map(to_json, found)) + b"]")


async def lora_adapters(service: Service, exchange: Exchange) -> None:
    """Those that the server was started with: the name of each file or folder, and its strength."""
    exchange.watch()
    found = [
        {"id": number, "path": Path(path).name, "scale": strength}
        for number, (path, strength) in enumerate(service.model(Fields({})).adapters)
    ]
    await exchange.send_body(b"[" + b",".join(map(to_json, found)) + b"]")
