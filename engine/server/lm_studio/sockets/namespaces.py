"""The calls and channels of each namespace. A call has one answer; a channel yields packets."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import field
from functools import partial
from typing import Any

from engine.chat import LocalChat
from engine.core import ChatRequest
from engine.lazy_dataclass import dataclass
from engine.platform.version import version
from engine.server.failure import bad_request
from engine.server.fields import Fields
from engine.server.http.exchange import Exchange
from engine.server.llama_cpp.tokens import asked
from engine.server.lm_studio.sockets.models import (
    Packet,
    card,
    get_or_load,
    instance,
    load,
    loaded_models,
    no_such_model,
    specified,
)
from engine.server.lm_studio.sockets.prediction import predict
from engine.server.lm_studio.sockets.settings import messages_of
from engine.server.lm_studio.sockets.trouble import NoSuchModel
from engine.server.openai.conversation import messages_of as engine_messages
from engine.server.openai.models import unload_named
from engine.server.openai.tools import offer_of
from engine.server.pictures import data_address, decoded
from engine.server.service import Service
from engine.server.texts.embedding import embeddings_of

Call = Callable[[Service, Exchange, Fields], Awaitable[Any]]
"""Answers a call with these parameters; the answer is JSON, None for none. Raises `ApiError`."""
Channel = Callable[[Service, Exchange, Fields], AsyncGenerator[Packet, None]]
"""The packets of a channel with these parameters. Raises `ApiError`."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """What a connection offers. `refusal` says why what its client asks for is not there."""

    name: str
    calls: Mapping[str, Call] = field(default_factory=dict)
    channels: Mapping[str, Channel] = field(default_factory=dict)
    refusal: str = "LM Studio's {endpoint} is not supported by this server."


async def _listed(service: Service, exchange: Exchange, fields: Fields) -> Any:
    """`listDownloadedModels`: all models that can be named."""
    return [card(model) for model in service.host.models()]


async def _version(service: Service, exchange: Exchange, fields: Fields) -> Any:
    return {"version": version(), "build": 1}


async def _loaded(service: Service, exchange: Exchange, fields: Fields) -> Any:
    return [instance(model) for model in loaded_models(service)]


async def _none(service: Service, exchange: Exchange, fields: Fields) -> Any:
    """`listLoaded` of embedding models: the loaded model writes text; it embeds, too, where it is named."""
    return []


async def _unload(service: Service, exchange: Exchange, fields: Fields) -> Any:
    name = fields.text("identifier")
    if all(model.id != name for model in loaded_models(service)):
        raise no_such_model(service, {"identifier": name})
    await unload_named(service, exchange, name)


async def _info(service: Service, exchange: Exchange, fields: Fields, *, kind: str) -> Any:
    try:
        return instance(specified(service, fields, "specifier"), kind)
    except NoSuchModel:
        if fields.flag("throwIfNotFound", True):
            raise
        return None


async def _load_config(service: Service, exchange: Exchange, fields: Fields, *, kind: str) -> Any:
    model = specified(service, fields, "specifier")
    return {"fields": [{"key": f"{kind}.load.contextLength", "value": model.context_length}]}


async def _prediction_config(service: Service, exchange: Exchange, fields: Fields) -> Any:
    specified(service, fields, "specifier")
    return {"fields": []}


async def _tokenize(service: Service, exchange: Exchange, fields: Fields) -> Any:
    """The token ids of a text, without a BOS token: a chat's prompt has its own."""
    specified(service, fields, "specifier")
    if fields.get("inputString") is None:
        raise fields.wrong("inputString", "a text")
    text = fields.text("inputString")
    return await asked(
        service, exchange, lambda chat: {"tokens": chat.tokenizer.encode(text, special=True, add_bos=False)}
    )


async def _count(service: Service, exchange: Exchange, fields: Fields) -> Any:
    return {"tokenCount": len((await _tokenize(service, exchange, fields))["tokens"])}


async def _template(service: Service, exchange: Exchange, fields: Fields) -> Any:
    """`applyPromptTemplate`: the prompt that a chat becomes."""
    model = specified(service, fields, "specifier")
    options = fields.part("opts") or Fields({})
    tools = options.get("toolDefinitions")
    messages = messages_of(fields, service.files)
    body = Fields({"messages": messages} | ({"tools": tools} if tools else {}))
    found = engine_messages(body, pictures=model.reads_pictures)
    request = ChatRequest(found, tools=offer_of(body).tools)
    without_bos = options.flag("omitBosToken")

    def answer(chat: LocalChat) -> Mapping[str, Any]:
        text, bos = chat.render(request)[0], chat.tokenizer.bos_token_id
        begin = chat.tokenizer.piece(bos) if without_bos and bos is not None else ""
        return {"formatted": text.removeprefix(begin)}

    return await asked(service, exchange, answer)


async def _embed(service: Service, exchange: Exchange, fields: Fields) -> Any:
    specified(service, fields, "modelSpecifier")
    if fields.get("inputString") is None:
        raise fields.wrong("inputString", "a text")
    found = await embeddings_of(service, exchange, [fields.text("inputString")], "", 0)
    return {"embedding": json.loads(found[0].json)}


async def _upload(service: Service, exchange: Exchange, fields: Fields) -> Any:
    """`uploadFileBase64`: a picture that messages can name then."""
    loaded = loaded_models(service)
    if loaded and not loaded[0].reads_pictures:
        raise bad_request(
            "This model reads text only; files and pictures cannot be sent.", fields.text("name")
        )
    picture = decoded(fields.text("contentBase64"), fields.text("name") or "contentBase64")
    kept = service.files.keep(data_address(picture), len(picture.data))
    return {"identifier": kept.id, "fileType": "image", "sizeBytes": kept.size}


def _of_models(kind: str) -> dict[str, Call]:
    """The calls of a namespace of models, whose `kind` is "llm" or "embedding"."""
    return {
        "unloadModel": _unload, "getModelInfo": partial(_info, kind=kind), "tokenize": _tokenize,
        "countTokens": _count, "getLoadConfig": partial(_load_config, kind=kind),
        "getBasePredictionConfig": _prediction_config,
    }  # fmt: skip


def _loadings(kind: str) -> dict[str, Channel]:
    return {"loadModel": partial(load, kind=kind), "getOrLoad": partial(get_or_load, kind=kind)}


NAMESPACES = (
    Namespace(
        "llm", {**_of_models("llm"), "listLoaded": _loaded, "applyPromptTemplate": _template},
        {**_loadings("llm"), "predict": predict, "completeRawText": predict},
    ),
    Namespace(
        "embedding", {**_of_models("embedding"), "listLoaded": _none, "embedString": _embed},
        _loadings("embedding"),
    ),
    Namespace("system", {"listDownloadedModels": _listed, "version": _version}),
    Namespace("files", {"uploadFileBase64": _upload}),
    Namespace(
        "repository", refusal="LM Studio's {endpoint} is not supported: clients cannot search for models or "
        "download them here; download them with Inglenook.",
    ),
    Namespace("diagnostics"), Namespace("plugins"), Namespace("runtime"),
)  # fmt: skip
