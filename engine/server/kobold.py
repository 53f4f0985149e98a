"""KoboldCpp's API: texts (/api/v1/generate, /api/extra/generate/stream), counts of tokens, and names.

Source: KoboldCpp's API documentation (lite.koboldai.net/koboldcpp_api).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from engine.chat import LocalChat
from engine.core import ChatRequest, Message, Stats
from engine.server.failure import bad_request
from engine.server.fields import Fields
from engine.server.host import ServedModel
from engine.server.http.exchange import Exchange
from engine.server.llama_cpp.tokens import asked, text_of
from engine.server.openai import parameters
from engine.server.openai.aliases import by_our_names
from engine.server.pictures import checked_number, decoded, message_of
from engine.server.replies import Begun, Ended, ReplyEvent, Written
from engine.server.service import KoboldText, Service
from engine.server.texts.cut import Cut
from engine.server.texts.scoring import completion_work

VERSION = "1.90"
"""The version of KoboldCpp whose API this is."""
_DEFAULTS = {"temperature": 0.7, "top_k": 100, "top_p": 0.92, "repetition_penalty": 1.07}
"""KoboldCpp's, where neither the request nor the model's authors say otherwise."""
_TOKENS = 200
_NAMES = {
    "rep_pen": "repeat_penalty", "rep_pen_range": "repeat_last_n", "typical": "typical_p", "tfs": "tfs_z",
    "nsigma": "top_n_sigma", "sampler_seed": "seed", "stop_sequence": "stop",
}  # fmt: skip
"""KoboldCpp's names of parameters: those of `parameters`."""


async def generate(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """The text that follows a prompt."""
    text, ended = "", None
    async for _, event in _events(service, exchange, Fields(await exchange.read())):
        text += event.text if isinstance(event, Written) else ""
        ended = event if isinstance(event, Ended) else ended
    assert ended is not None
    counts = {"prompt_tokens": ended.stats.prompt_tokens, "completion_tokens": ended.stats.new_tokens}
    return {"results": [{"text": text, "finish_reason": _reason(ended), **counts}]}


async def stream(service: Service, exchange: Exchange) -> None:
    """The same as events."""
    async for _, event in _events(service, exchange, Fields(await exchange.read())):
        if isinstance(event, Begun) and not exchange.streaming:
            await exchange.start_stream()
        if isinstance(event, Written):
            await exchange.send_event({"token": event.text, "finish_reason": None}, "message")
        if isinstance(event, Ended):
            await exchange.send_event({"token": "", "finish_reason": _reason(event)}, "message")
    await exchange.end_stream(done=False)


async def abort(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """End the texts with the `genkey` of the request, or those without one. Their answer is what there is."""
    for one in _texts(service, Fields(await exchange.read(optional=True))):
        one.exchange.halt()
    return {"success": True}


async def check(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """What has been written of the text with the `genkey` of the request, or of that without one."""
    texts = _texts(service, Fields(await exchange.read(optional=True)))
    return {"results": [{"text": texts[-1].text if texts else ""}]}


def _texts(service: Service, fields: Fields) -> list[KoboldText]:
    key = fields.text("genkey")
    return [one for one in service.kobold if one.key == key]


async def _events(
    service: Service, exchange: Exchange, fields: Fields
) -> AsyncIterator[tuple[int, ReplyEvent]]:
    """What happens to the reply that a body asks for. Raises `ApiError`."""
    text = KoboldText(fields.text("genkey"), exchange)
    service.kobold.append(text)
    try:
        async for number, event in _begun(service, exchange, fields):
            text.text += event.text if isinstance(event, Written) else ""
            yield number, event
    finally:
        service.kobold.remove(text)


def _begun(service: Service, exchange: Exchange, fields: Fields) -> AsyncIterator[tuple[int, ReplyEvent]]:
    model = service.model(fields)
    most = fields.count("max_context_length", 1) or 0
    prompt: Cut | Message = Cut(fields.text("memory"), fields.text("prompt"), most)
    if images := fields.get("images"):
        prompt = _pictured(fields, images, model)
    request = _request(fields, model)
    service.start(exchange, [completion_work(prompt, request, None, echo=False, write=True)])
    return service.events(exchange)


def _pictured(fields: Fields, images: Any, model: ServedModel) -> Message:
    """A text with pictures, which stand between the memory and the prompt. Nothing of it is left out."""
    if not model.reads_pictures:
        raise bad_request("images is not supported: this model reads text only.", "images")
    if not isinstance(images, list) or not all(isinstance(image, str) for image in images):
        raise fields.wrong("images", "a list of pictures in base64")
    pictures = [decoded(image, f"images[{at}]") for at, image in enumerate(images)]
    message = message_of([fields.text("memory"), *pictures, fields.text("prompt")])
    checked_number((message,), "images")
    return message


def _request(fields: Fields, model: ServedModel) -> ChatRequest:
    banned = fields.get("banned_tokens")
    if isinstance(banned, list) and any(isinstance(one, str) for one in banned):  # texts, whatever the name
        fields = fields.renamed({"banned_tokens": "banned_strings"}).changed({"banned_tokens": None})
    renamed = by_our_names(fields.renamed(_NAMES))
    most = parameters.most_tokens(fields, "max_length")
    return ChatRequest(
        (),
        sampler=parameters.sampler(renamed, _DEFAULTS | dict(model.defaults)),
        stops=parameters.stops(renamed, _TOKENS if most is None else most),
        constraint=parameters.constraint(renamed, None),
        guidance=parameters.guidance(renamed),
        plain=True,
    )


def _reason(ended: Ended) -> str:
    return "length" if ended.reason in ("max_tokens", "context_full", "time_limit", "loop") else "stop"


async def token_count(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """The ids of a prompt, and how many they are."""
    fields = Fields(await exchange.read())
    service.model(fields)
    text, special = fields.text("prompt"), fields.flag("special", True)

    def answer(chat: LocalChat) -> Mapping[str, Any]:
        ids = chat.tokenizer.encode(text, special=True, add_bos=special and chat.tokenizer.add_bos)
        return {"value": len(ids), "ids": ids}

    return await asked(service, exchange, answer)


async def detokenize(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """The text of token ids (`ids`)."""
    fields = Fields(await exchange.read())
    service.model(fields)
    ids = fields.ids("ids")
    return await asked(service, exchange, lambda chat: {"result": text_of(chat, ids), "success": True})


async def model(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """The name of the loaded model."""
    return {"result": f"koboldcpp/{service.model(Fields({})).id}"}


async def context(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """How many tokens the context holds."""
    return {"value": service.model(Fields({})).context_length}


async def reply_length(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """How many tokens a text has unless its request says more."""
    return {"value": _TOKENS}


async def performance(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """Seconds and tokens of the reply that ended last, by whichever API, and whether one is being written."""
    totals = service.totals
    stats = Stats() if totals.last is None else totals.last.stats
    visits = [visit for visit in service.visits() if visit.number != id(exchange)]
    return {
        "last_process": stats.prefill_seconds, "last_eval": stats.decode_seconds,
        "last_token_count": stats.new_tokens, "last_input_count": stats.prompt_tokens,
        "total_gens": totals.replies, "stop_reason": _stop_reason(totals.last),
        "queue": max(0, len(visits) - 1), "idle": int(not visits),
    }  # fmt: skip


def _stop_reason(ended: Ended | None) -> int:
    """KoboldCpp's number for why a reply ended: -1 where none has, 0 length, 1 end token, 2 stop string."""
    if ended is None or ended.reason == "cancelled":
        return -1
    return 0 if _reason(ended) == "length" else 2 if ended.reason == "stop_string" else 1


async def version(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """Which version of KoboldCpp's API is spoken, and whether the loaded model reads pictures."""
    sees = any(model.reads_pictures for model in service.host.models())
    return {"result": "KoboldCpp", "version": VERSION, "vision": sees}


async def united_version(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """The version of the KoboldAI United API, which KoboldCpp extends."""
    return {"result": "1.2.5"}
