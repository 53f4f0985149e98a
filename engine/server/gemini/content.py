"""POST models/{model}:generateContent, :streamGenerateContent, :countTokens, :embedContent and
:batchEmbedContents. Source: Google's API reference.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs

from engine.chat import LocalChat
from engine.server.fields import Fields
from engine.server.gemini.candidate import Candidate, joined, usage
from engine.server.gemini.request import asked_of, object_of, part_of, parts_of, text_of
from engine.server.host import ServedModel
from engine.server.http.exchange import Exchange, to_json
from engine.server.llama_cpp.tokens import asked
from engine.server.replies import Begun, Ended, chat_work
from engine.server.service import Service
from engine.server.texts.embedding import embeddings_of

_LONGEST = 1 << 20


def model_of(service: Service, exchange: Exchange) -> ServedModel:
    """The loaded model, for a request whose address names a model. Raises `ApiError`."""
    return service.model(Fields({"model": exchange.scope["path_params"]["model"]}))


async def generate(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """The answer as one object."""
    fields = Fields(await exchange.read())
    return await _whole(service, exchange, fields)


async def _whole(service: Service, exchange: Exchange, fields: Fields) -> Mapping[str, Any]:
    model, candidates = _start(service, exchange, fields)
    chunks: list[list[Mapping[str, Any]]] = [[] for _ in candidates]
    async for number, event in service.events(exchange):
        if (chunk := candidates[number].feed(event)) is not None:
            chunks[number].append(chunk)
    writers = [candidate.writer for candidate in candidates]
    return {
        "candidates": [joined(one) for one in chunks], "usageMetadata": usage(writers), **_head(model),
    }  # fmt: skip


async def stream(service: Service, exchange: Exchange) -> None:
    """The answer as events; as a list of objects unless the address has `alt=sse`."""
    fields = Fields(await exchange.read())
    query = parse_qs(exchange.scope.get("query_string", b"").decode("latin-1"))
    if query.get("alt") != ["sse"]:
        await exchange.send_body(b"[" + to_json(await _whole(service, exchange, fields)) + b"]")
        return
    model, candidates = _start(service, exchange, fields)
    head, writers = _head(model), [candidate.writer for candidate in candidates]
    exchange.ping = lambda: (head, "")  # these clients take comments for data
    async for number, event in service.events(exchange):
        if isinstance(event, Begun) and not exchange.streaming:
            await exchange.start_stream()
        if (chunk := candidates[number].feed(event)) is None:
            continue
        ended = isinstance(event, Ended) and all(writer.ended is not None for writer in writers)
        counts = {"usageMetadata": usage(writers)} if ended else {}
        await exchange.send_event({"candidates": [chunk], **counts, **head})
    await exchange.end_stream(done=False)


def _head(model: ServedModel) -> dict[str, Any]:
    return {"modelVersion": model.id, "responseId": secrets.token_hex(12)}


def _start(service: Service, exchange: Exchange, fields: Fields) -> tuple[ServedModel, Sequence[Candidate]]:
    """Hand over the work of a request. Raises `ApiError`."""
    model = model_of(service, exchange)
    found = asked_of(fields, model, service.options.bounds.choices)
    service.start(exchange, [chat_work(request, found.logprobs) for request in found.requests])
    return model, [
        Candidate(index, model, request, found.logprobs, shown=found.thoughts)
        for index, request in enumerate(found.requests)
    ]


async def count_tokens(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """How many tokens the prompt of a request has."""
    fields = object_of(Fields(await exchange.read()))
    model = model_of(service, exchange)
    fields = part_of(fields, "generateContentRequest") or fields
    (request, *_) = asked_of(fields, model, service.options.bounds.choices).requests

    def answer(chat: LocalChat) -> Mapping[str, Any]:
        return {"totalTokens": len(chat.render(request)[1])}

    return await asked(service, exchange, answer)


async def embed(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """The vector of a content."""
    fields = object_of(Fields(await exchange.read()))
    model_of(service, exchange)
    (vector,) = await _embedded(service, exchange, [fields])
    return {"embedding": vector}


async def embed_all(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """The vectors of several contents."""
    fields = object_of(Fields(await exchange.read()))
    model_of(service, exchange)
    requests, most = parts_of(fields, "requests"), service.options.bounds.prompts
    if not 0 < len(requests) <= most:
        raise fields.wrong("requests", f"a list of 1 to {most} objects")
    return {"embeddings": await _embedded(service, exchange, requests)}


async def _embedded(service: Service, exchange: Exchange, requests: Sequence[Fields]) -> list[dict[str, Any]]:
    """The vectors of contents, all cut to the first one's `outputDimensionality`. Raises `ApiError`."""
    texts = []
    for one in requests:
        content = part_of(one, "content")
        text = "" if content is None else text_of(content)
        if not text:
            raise one.wrong("content", "a content with text")
        texts.append(text)
    sizes = {one.whole("outputDimensionality", 1, _LONGEST) or 0 for one in requests}
    if len(sizes) > 1:
        raise requests[-1].wrong("outputDimensionality", "the same number for all contents")
    found = await embeddings_of(service, exchange, texts, "", sizes.pop())
    exchange.memory.take(3 * sum(one.weight for one in found))  # numbers take more than their digits
    return [{"values": json.loads(one.json)} for one in found]
