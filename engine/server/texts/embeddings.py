"""POST /v1/embeddings, and /embedding in the form of llama.cpp's server.

Source: OpenAI's API reference, "Embeddings"; llama.cpp's `tools/server/README.md`, "POST /embeddings".
"""

from __future__ import annotations

import secrets

from engine.chat.embedding import POOLINGS
from engine.server.fields import Fields
from engine.server.http.exchange import Exchange, to_json
from engine.server.service import Service
from engine.server.texts.completions import prompts_of
from engine.server.texts.embedding import embeddings_of

_LONGEST = 1 << 20


async def embeddings(service: Service, exchange: Exchange) -> None:
    """The endpoint."""
    fields = Fields(await exchange.read())
    model = service.model(fields)
    texts = prompts_of(fields, "input", service.options.bounds.prompts)
    format, pooling = fields.text("encoding_format", "float"), fields.text("pooling")
    if format not in ("float", "base64"):
        raise fields.wrong("encoding_format", '"float" or "base64"')
    if pooling and pooling not in POOLINGS:
        raise fields.wrong("pooling", "one of " + ", ".join(POOLINGS))
    if fields.text("task"):
        raise fields.wrong("task", "no task (adapters for tasks are not supported)")
    dimensions = fields.whole("dimensions", 1, _LONGEST) or 0
    base64 = format == "base64"
    found = await embeddings_of(service, exchange, texts, pooling, dimensions, as_base64=base64)
    items = [
        b'{"object":"embedding","index":%d,"embedding":%s}' % (index, one.json)
        for index, one in enumerate(found)
    ]
    tokens = sum(one.tokens for one in found)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    rest = to_json({"id": "embd-" + secrets.token_hex(12), "model": model.id, "usage": usage})
    await exchange.send_body(b'{"object":"list","data":[%s],%s' % (b",".join(items), rest[1:]))


async def embedding(service: Service, exchange: Exchange) -> None:
    """The vectors of `content` or `input`, each in a list of its own."""
    fields = Fields(await exchange.read())
    service.model(fields)
    name = "input" if fields.get("content") is None else "content"
    texts = prompts_of(fields, name, service.options.bounds.prompts)
    found = await embeddings_of(service, exchange, texts, "", 0)
    items = [b'{"index":%d,"embedding":[%s]}' % (index, one.json) for index, one in enumerate(found)]
    await exchange.send_body(b"[%s]" % b",".join(items))
