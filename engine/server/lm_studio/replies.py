"""POST /api/v0/chat/completions and /completions: OpenAI's answers, with statistics; streams have none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.platform.version import version
from engine.server.host import ServedModel
from engine.server.http.exchange import Exchange
from engine.server.openai import chat
from engine.server.replies import Ended
from engine.server.service import Service
from engine.server.texts import completions as texts

STOP_REASONS = {
    "stop_token": "eosFound", "end_filter": "eosFound", "stop_string": "stopStringFound",
    "max_tokens": "maxPredictedTokensReached", "context_full": "contextLengthReached",
}  # fmt: skip
"""LM Studio's words for the ends of replies; other replies were stopped."""


async def chat_completions(service: Service, exchange: Exchange) -> Mapping[str, Any] | None:
    """A reply to messages."""
    return _with_statistics(service, exchange, await chat.chat_completions(service, exchange))


async def completions(service: Service, exchange: Exchange) -> Mapping[str, Any] | None:
    """The text that follows a prompt."""
    return _with_statistics(service, exchange, await texts.completions(service, exchange))


def _with_statistics(
    service: Service, exchange: Exchange, answer: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    """An answer with what LM Studio tells beside it; of several choices, of the one that ended first."""
    if answer is None or not exchange.ends:
        return answer
    model = next((one for one in service.host.models() if one.id == answer["model"]), ServedModel(""))
    called = answer["choices"][0]["finish_reason"] in ("tool_calls", "function_call")
    return {
        **answer,
        "stats": _statistics(exchange.ends[0]) | ({"stop_reason": "toolCalls"} if called else {}),
        "model_info": {
            "arch": model.architecture, "quant": model.quantisation, "format": model.format,
            "context_length": model.context_length,
        },
        "runtime": {
            "name": "inglenook", "version": version(), "supported_formats": ["gguf", "safetensors"],
        },
    }  # fmt: skip


def _statistics(ended: Ended) -> dict[str, Any]:
    """Times are in seconds."""
    return {
        "tokens_per_second": ended.stats.decode_tokens_per_second,
        "time_to_first_token": ended.stats.first_token_seconds,
        "generation_time": ended.stats.decode_seconds,
        "stop_reason": STOP_REASONS.get(ended.reason, "userStopped"),
    }
