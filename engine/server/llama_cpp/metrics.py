"""GET /metrics: counts of all replies in Prometheus' text format, under the names of llama.cpp's server.

Source: llama.cpp's `tools/server/README.md`, "GET /metrics".
"""

from __future__ import annotations

from engine.server.http.exchange import Exchange
from engine.server.service import Service


async def metrics(service: Service, exchange: Exchange) -> None:
    """The endpoint. It needs no model."""
    exchange.watch()
    totals = service.totals
    visits = [visit for visit in service.visits() if visit.number != id(exchange)]
    writing = sum(visit.tokens > 0 for visit in visits)
    found: tuple[tuple[str, str, str, float], ...] = (
        ("prompt_tokens_total", "counter", "Prompt tokens that were read", totals.read),
        ("prompt_seconds_total", "counter", "Seconds spent on reading prompts", totals.read_seconds),
        ("tokens_predicted_total", "counter", "Tokens that were written", totals.written),
        ("tokens_predicted_seconds_total", "counter", "Seconds spent on writing", totals.written_seconds),
        ("prompt_tokens_seconds", "gauge", "Prompt tokens read per second",
         totals.read / totals.read_seconds if totals.read_seconds else 0),
        ("predicted_tokens_seconds", "gauge", "Tokens written per second",
         totals.written / totals.written_seconds if totals.written_seconds else 0),
        ("requests_processing", "gauge", "Requests that are being written", writing),
        ("requests_deferred", "gauge", "Requests that wait or whose prompt is read", len(visits) - writing),
    )  # fmt: skip
    text = "".join(
        f"# HELP llamacpp:{name} {help}\n# TYPE llamacpp:{name} {kind}\nllamacpp:{name} {value:.15g}\n"
        for name, kind, help, value in found
    )
    await exchange.send_body(text.encode(), headers={"content-type": "text/plain; version=0.0.4"})
