"""POST /embed, /similarity and /, and GET /info, in the form of Hugging Face's servers.

Source: the API reference of Text Embeddings Inference (huggingface.github.io/text-embeddings-inference),
"embed", "similarity" and "info"; that of Text Generation Inference, "compat_generate" and "info".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from engine.server.failure import bad_request
from engine.server.fields import Fields
from engine.server.http.exchange import Exchange
from engine.server.hugging_face.generate import generate_either
from engine.server.openai.parameters import MOST_STOPS
from engine.server.service import Service
from engine.server.texts.completions import prompts_of
from engine.server.texts.embedding import embeddings_of

VERSION = "3.3.4"
"""The version of Text Generation Inference whose API this is."""
_LONGEST = 1 << 20


async def embed(service: Service, exchange: Exchange) -> None:
    """The vector of each text of `inputs`."""
    await _embedded(service, exchange, Fields(await exchange.read()))


async def root(service: Service, exchange: Exchange) -> None:
    """Where `huggingface_hub` sends all it asks of an address: a text goes on if there are `parameters` or a
    `stream`; without them it becomes a vector, and texts beside a `source_sentence` are compared with it.
    """
    fields = Fields(await exchange.read())
    if isinstance(fields.get("inputs"), dict):
        await _compared(service, exchange, fields)
        return
    writes = fields.get("parameters") is not None or fields.get("stream") is not None
    await (generate_either if writes else _embedded)(service, exchange, fields)


async def similarity(service: Service, exchange: Exchange) -> None:
    """How near the vectors of some texts are to that of another one: their cosines."""
    await _compared(service, exchange, Fields(await exchange.read()))


async def _compared(service: Service, exchange: Exchange, fields: Fields) -> None:
    service.model(fields)
    inputs = fields.part("inputs") or Fields({}, "inputs")
    source, most = inputs.text("source_sentence"), service.options.bounds.prompts
    if not source:
        raise inputs.wrong("source_sentence", "a text")
    others = inputs.texts("sentences", most - 1)
    if not others:
        raise inputs.wrong("sentences", "a list of texts")
    cut = (fields.part("parameters") or Fields({})).flag("truncate")
    found = await embeddings_of(service, exchange, (source, *others), "", 0, cut=cut)
    exchange.memory.take(3 * sum(one.weight for one in found))  # numbers take more than their digits
    first, *rest = (json.loads(one.json) for one in found)
    near = [sum(a * b for a, b in zip(first, vector, strict=True)) for vector in rest]
    await exchange.send_body(json.dumps(near).encode())


async def _embedded(service: Service, exchange: Exchange, fields: Fields) -> None:
    service.model(fields)
    if not fields.flag("normalize", True):
        raise bad_request("normalize: false is not supported; vectors have length 1.", "normalize")
    if fields.text("prompt_name"):
        raise bad_request("prompt_name is not supported; put the prompt before the text.", "prompt_name")
    texts = prompts_of(fields, "inputs", service.options.bounds.prompts)
    dimensions, cut = fields.whole("dimensions", 1, _LONGEST) or 0, fields.flag("truncate")
    found = await embeddings_of(service, exchange, texts, "", dimensions, cut=cut)
    await exchange.send_body(b"[%s]" % b",".join(one.json for one in found))


async def info(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """What the loaded model is, and how much a request may have."""
    model, bounds = service.model(Fields({})), service.options.bounds
    return {
        "model_id": model.id, "max_concurrent_requests": bounds.replies, "max_best_of": 1,
        "max_stop_sequences": MOST_STOPS, "max_client_batch_size": bounds.prompts,
        "max_input_tokens": model.context_length, "max_input_length": model.context_length,
        "max_total_tokens": model.context_length, "auto_truncate": False, "version": VERSION,
    }  # fmt: skip
