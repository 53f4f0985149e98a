"""Models as LM Studio describes them: found by a query, and loaded with progress."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

from engine.server.failure import ENDED, ApiError, Failure, bad_request
from engine.server.fields import Fields
from engine.server.host import ServedModel
from engine.server.http.exchange import Exchange
from engine.server.lm_studio.sockets.trouble import NoSuchModel
from engine.server.openai.models import loading
from engine.server.service import Service

_FORMATS = ("gguf", "safetensors")
Packet = dict[str, Any]


def card(model: ServedModel, kind: str = "llm") -> dict[str, Any]:
    """A model that can be loaded (`ModelInfo`); `kind` is "llm" or "embedding". What the server does not tell
    its clients is empty, and the size 0.
    """
    found: dict[str, Any] = {
        "type": kind, "modelKey": model.id, "displayName": model.id, "path": model.id, "publisher": "",
        "format": model.format if model.format in _FORMATS else _FORMATS[0], "sizeBytes": 0,
        "indexedModelIdentifier": model.id, "deviceIdentifier": None,
        "maxContextLength": model.context_length,
    }  # fmt: skip
    if kind == "llm":
        found |= {"vision": model.reads_pictures, "trainedForToolUse": True}
    return found | ({"architecture": model.architecture} if model.architecture else {})


def instance(model: ServedModel, kind: str = "llm") -> dict[str, Any]:
    """The loaded model (`ModelInstanceInfo`)."""
    return {
        **card(model, kind), "identifier": model.id, "instanceReference": model.id, "ttlMs": None,
        "lastUsedTime": None, "contextLength": model.context_length,
    }  # fmt: skip


def loaded_models(service: Service) -> list[ServedModel]:
    """The loaded model, if there is one."""
    return [model for model in service.host.models() if model.loaded]


def no_such_model(service: Service, query: Mapping[str, Any]) -> NoSuchModel:
    """The error of a query that no loaded model answers."""
    names, asked = [model.id for model in loaded_models(service)], next(iter(query.values()), "")
    there = f"the loaded model is {names[0]!r}" if names else "no model is loaded"
    message = (
        f"No loaded model is named {str(asked)[:200]!r}; {there}." if asked else f"{there.capitalize()}."
    )
    return NoSuchModel(Failure(404, message, code="model_not_found"), query, names)


def specified(service: Service, fields: Fields, name: str) -> ServedModel:
    """The loaded model that a specifier means: by its name or reference, or any. Raises `ApiError`."""
    specifier = fields.part(name)
    if specifier is None:
        raise fields.wrong(name, "a model specifier")
    kind = specifier.text("type")
    if kind not in ("query", "instanceReference"):
        raise specifier.wrong("type", '"query" or "instanceReference"')
    query = specifier.part("query") if kind == "query" else specifier
    named = {} if query is None else {
        key: query.text(key) for key in ("identifier", "path", "instanceReference") if query.text(key)
    }  # fmt: skip
    for model in loaded_models(service):
        if all(text == model.id for text in named.values()):
            if query is not None and query.flag("vision") and not model.reads_pictures:
                raise bad_request(
                    "The loaded model does not read pictures; leave vision out, or load one that does.",
                    query.place("vision"),
                )
            return model
    raise no_such_model(service, named)


async def load(
    service: Service, exchange: Exchange, fields: Fields, kind: str
) -> AsyncGenerator[Packet, None]:
    """Channel `loadModel`: load a model instead of the present one."""
    name = fields.text("modelKey")
    if fields.text("identifier") not in ("", name):
        raise bad_request(
            "A loaded model has the name of the model and no other; leave the identifier out.", "identifier"
        )
    model = _known(service, name)
    yield {"type": "resolved", "info": card(model, kind)}
    async for done in _loaded(service, exchange, fields, name):
        yield {"type": "progress", "progress": done}
    yield {"type": "success", "info": instance(specified_now(service, name), kind)}


async def get_or_load(
    service: Service, exchange: Exchange, fields: Fields, kind: str
) -> AsyncGenerator[Packet, None]:
    """Channel `getOrLoad`: the loaded model if it is the one that is named, else this one is loaded. As in LM
    Studio, settings for loading do not matter to a model that is loaded.
    """
    name = fields.text("identifier")
    model = _known(service, name)
    if model.loaded:
        yield {"type": "alreadyLoaded", "info": instance(model, kind)}
        return
    yield {"type": "startLoading", "identifier": name, "info": card(model, kind)}
    async for done in _loaded(service, exchange, fields, name):
        yield {"type": "loadProgress", "progress": done}
    yield {"type": "loadSuccess", "info": instance(specified_now(service, name), kind)}


def specified_now(service: Service, name: str) -> ServedModel:
    """The loaded model of this name. Raises `ApiError` where loading was ended."""
    for model in loaded_models(service):
        if model.id == name:
            return model
    raise ApiError(ENDED)


def _known(service: Service, name: str) -> ServedModel:
    for model in service.host.models():
        if model.id == name:
            return model
    raise no_such_model(service, {"identifier": name})


async def _loaded(service: Service, exchange: Exchange, fields: Fields, name: str) -> AsyncIterator[float]:
    """Load a model; how much of it is done, from 0 to 1. Raises `ApiError`."""
    stack = fields.part("loadConfigStack") or Fields({})
    layers = stack.parts("layers") if stack.get("layers") is not None else ()
    for layer in layers:
        config = layer.part("config") or Fields({})
        for field in config.parts("fields") if config.get("fields") is not None else ():
            raise bad_request(
                f"{field.text('key')[:100]} cannot be set by a client: the server loads models with its own "
                "settings; leave it out.",
                field.place("key"),
            )
    best = 0.0
    async for event in loading(service, exchange, name):
        done = event.done / event.total if event.total else 0.0
        if done > best:  # each of several stages counts from 0
            best = min(done, 1.0)
            yield best
