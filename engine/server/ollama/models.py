"""GET /api/tags, /api/ps and /api/version; POST /api/show, /api/pull, /api/embed and /api/embeddings."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from engine.chat import LocalChat
from engine.server.failure import ApiError
from engine.server.fields import Fields
from engine.server.host import ServedModel
from engine.server.http.exchange import Exchange
from engine.server.llama_cpp.tokens import asked
from engine.server.model_thread import unknown_model
from engine.server.service import Service
from engine.server.texts.completions import Prompt, prompts_of
from engine.server.texts.embedding import embeddings_of

VERSION = "0.13.0"
"""The version of Ollama whose API this is."""
_LONGEST = 1 << 20


async def version(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """Which version of Ollama's API is spoken."""
    return {"version": VERSION}


async def tags(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """All models; the loaded one first."""
    return {"models": [_card(model) for model in service.host.models()]}


async def running(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """The loaded model, which stays."""
    more = {"expires_at": (datetime.now(UTC) + timedelta(days=365)).isoformat(), "size_vram": 0}
    loaded = [model for model in service.host.models() if model.loaded]
    return {"models": [{**_card(model), "context_length": model.context_length, **more} for model in loaded]}


def _card(model: ServedModel) -> dict[str, Any]:
    """A model. Its digest is that of its name: Ollama's own program shows the beginning and needs one."""
    return {
        "name": model.id, "model": model.id, "modified_at": _modified(model), "size": model.file_bytes,
        "digest": hashlib.sha256(model.id.encode()).hexdigest(),
        "details": _details(model), "capabilities": list(model.capabilities),
    }  # fmt: skip


def _modified(model: ServedModel) -> str:
    return datetime.fromtimestamp(model.created, UTC).isoformat()


def _details(model: ServedModel) -> dict[str, Any]:
    """All of these; clients in languages with fixed types need each."""
    return {
        "parent_model": "", "format": model.format, "family": model.architecture,
        "families": [model.architecture], "parameter_size": model.parameter_size,
        "quantization_level": model.quantisation,
    }  # fmt: skip


async def show(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """What the loaded model is, and can do."""
    fields = Fields(await exchange.read())
    model = service.model(fields)

    def answer(chat: LocalChat) -> Mapping[str, Any]:
        info, config = chat.info, chat.generator.cache.model.config
        name = info.architecture
        return {
            "license": info.licence,
            "template": chat.template.source,
            "modified_at": _modified(model),
            "details": _details(model),
            "model_info": {
                "general.architecture": name,
                "general.basename": model.id,
                "general.parameter_count": info.parameters,
                f"{name}.context_length": model.context_length,
                f"{name}.embedding_length": config.width,
                f"{name}.block_count": info.layers,
            },
            "capabilities": list(model.capabilities),
        }  # fmt: skip

    return await asked(service, exchange, answer)


async def pull(service: Service, exchange: Exchange) -> Mapping[str, Any] | None:
    """Success for a model of the list, which many clients download before they use it. Raises `ApiError`."""
    fields = Fields(await exchange.read())
    name = fields.text("model") or fields.text("name")
    if not {name, name.removesuffix(":latest")} & {found.id for found in service.host.models()}:
        raise ApiError(unknown_model(name))
    if not fields.flag("stream", True):
        return {"status": "success"}
    await exchange.start_stream(lines=True)
    await exchange.send_event({"status": "success"})
    await exchange.end_stream(done=False)
    return None


async def embed(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """A vector of each text of `input`, with the time in nanoseconds."""
    fields = Fields(await exchange.read())
    model = service.model(fields)
    most = service.options.bounds.prompts
    texts = prompts_of(fields, "input", most) if fields.get("input") else ()  # without any it only loads
    dimensions, cut = fields.whole("dimensions", 1, _LONGEST) or 0, fields.flag("truncate", True)
    began = time.perf_counter_ns()
    vectors, tokens = await _embedded(service, exchange, texts, dimensions, cut=cut)
    return {
        "model": model.id, "embeddings": vectors, "total_duration": time.perf_counter_ns() - began,
        "load_duration": 0, "prompt_eval_count": tokens,
    }  # fmt: skip


async def embeddings(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """The vector of `prompt`: the older form."""
    fields = Fields(await exchange.read())
    service.model(fields)
    prompt = fields.text("prompt")
    vectors, _ = await _embedded(service, exchange, (prompt,) if prompt else (), 0, cut=True)
    return {"embedding": vectors[0] if vectors else []}


async def _embedded(
    service: Service, exchange: Exchange, texts: Sequence[Prompt], dimensions: int, *, cut: bool
) -> tuple[list[list[float]], int]:
    """The vectors of these texts, and how many tokens these have. Raises `ApiError`."""
    found = await embeddings_of(service, exchange, texts, "", dimensions, cut=cut)
    exchange.memory.take(3 * sum(one.weight for one in found))  # numbers take more than their digits
    return [json.loads(one.json) for one in found], sum(one.tokens for one in found)
