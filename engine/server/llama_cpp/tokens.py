"""POST /tokenize, /detokenize and GET /tokenizer_info in vLLM's form, /apply-template in llama.cpp's, and
/extras/... in that of llama-cpp-python's server. The first two are also Cohere's.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any

from engine.chat import LocalChat
from engine.core import ChatRequest
from engine.generator.decode import check_prompt
from engine.server.fields import Fields
from engine.server.host import ServedModel
from engine.server.http.exchange import Exchange
from engine.server.openai.conversation import messages_of
from engine.server.openai.parameters import chat_thinking, template_variables
from engine.server.openai.tools import offer_of
from engine.server.service import Service
from engine.text.tokenizer import aside
from engine.text.tokenizer.aside import elsewhere, encoded_aside, made_aside


async def tokenize(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """The token ids of a text (`prompt`) or of `messages`."""
    fields = Fields(await exchange.read())
    model = service.model(fields)
    if fields.get("messages") is not None:
        render = _rendering(fields, model)
        return await asked(service, exchange, lambda chat: _counted(chat, render(chat)[1], fields))
    if fields.get("content") is not None:  # llama.cpp's form
        text, special = fields.text("content"), fields.flag("add_special")
    elif fields.get("text") is not None:
        return await _cohere_tokens(service, exchange, fields.text("text"))
    elif fields.get("prompt") is not None:
        text, special = fields.text("prompt"), fields.flag("add_special_tokens", True)
    else:
        raise fields.wrong("prompt", "a text, or messages in its place,")

    def ids(chat: LocalChat) -> list[int]:
        return chat.tokenizer.encode(text, special=True, add_bos=special and chat.tokenizer.add_bos)

    return await asked(service, exchange, lambda chat: _counted(chat, ids(chat), fields))


async def _cohere_tokens(service: Service, exchange: Exchange, text: str) -> Mapping[str, Any]:
    """The token ids of a text, without a BOS token, and their texts."""

    def answer(chat: LocalChat) -> Mapping[str, Any]:
        ids = chat.tokenizer.encode(text, special=True, add_bos=False)
        return {"tokens": ids, "token_strings": _written(ids, chat.tokenizer.piece)}

    return await asked(service, exchange, answer)


async def detokenize(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """The text of token ids (`tokens`)."""
    fields = Fields(await exchange.read())
    service.model(fields)
    ids = fields.ids("tokens")

    def answer(chat: LocalChat) -> Mapping[str, Any]:
        text = text_of(chat, ids)
        return {"prompt": text, "content": text, "text": text}  # vLLM's, llama.cpp's and Cohere's

    return await asked(service, exchange, answer)


async def extra_tokenize(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """The token ids of `input`."""
    return {"tokens": await _ids_of_input(service, exchange)}


async def extra_count(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """How many they are."""
    return {"count": len(await _ids_of_input(service, exchange))}


async def _ids_of_input(service: Service, exchange: Exchange) -> list[int]:
    fields = Fields(await exchange.read())
    service.model(fields)
    text = fields.text("input")

    def answer(chat: LocalChat) -> Mapping[str, Any]:
        return {"tokens": chat.tokenizer.encode(text, special=True, add_bos=chat.tokenizer.add_bos)}

    found: list[int] = (await asked(service, exchange, answer))["tokens"]
    return found


async def extra_detokenize(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """The text of token ids (`tokens`)."""
    return {"text": (await detokenize(service, exchange))["content"]}


def text_of(chat: LocalChat, ids: Sequence[int], *, special: bool = True) -> str:
    """The text of token ids, without control tokens unless they are `special`. Raises `BadSetting`."""
    if ids:
        check_prompt(ids, chat.vocabulary, len(ids))
    return chat.tokenizer.decode(ids, skip_special=not special)


async def tokenizer_info(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """What the tokenizer adds to texts, and the chat template, under the names of tokenizer_config.json."""
    exchange.watch()
    service.model(Fields({}))

    def answer(chat: LocalChat) -> Mapping[str, Any]:
        tokenizer = chat.tokenizer
        ids = {"bos_token": tokenizer.bos_token_id, "eos_token": tokenizer.eos_token_id}
        return {
            **{name: None if id is None else tokenizer.piece(id) for name, id in ids.items()},
            "add_bos_token": tokenizer.add_bos,
            "chat_template": chat.template.source,
        }

    return await asked(service, exchange, answer)


async def apply_template(service: Service, exchange: Exchange) -> Mapping[str, Any]:
    """The prompt that `messages` become."""
    fields = Fields(await exchange.read())
    render = _rendering(fields, service.model(fields))
    return await asked(service, exchange, lambda chat: {"prompt": render(chat)[0]})


def _rendering(fields: Fields, model: ServedModel) -> Callable[[LocalChat], tuple[str, list[int]]]:
    """Makes the prompt's text and ids of a request with `messages`. Raises `ApiError`."""
    continued, offer = fields.flag("continue_final_message"), offer_of(fields)
    request = ChatRequest(
        messages_of(fields, pictures=model.reads_pictures),
        continue_last=continued,
        tools=offer.tools,
        tool_choice=offer.choice,
        template_variables=template_variables(fields),
        begin_reply=fields.flag("add_generation_prompt", True),
        thinking=chat_thinking(fields),
    )
    return lambda chat: chat.render(request)


def _counted(chat: LocalChat, ids: list[int], fields: Fields) -> Mapping[str, Any]:
    tokenizer = chat.tokenizer
    pieces = _written(ids, tokenizer.piece) if fields.flag("return_token_strs") else None
    tokens: list[Any] = ids
    if fields.flag("with_pieces"):  # llama.cpp's
        tokens = _written(ids, lambda id: {"id": id, "piece": _piece(tokenizer.token_bytes(id))})
    return {
        "tokens": tokens, "count": len(ids), "max_model_len": chat.context_length, "token_strs": pieces,
    }  # fmt: skip


def _written(ids: Sequence[int], make: Callable[[int], Any]) -> list[Any]:
    """What `make` makes of each id; of many, while other replies go on."""

    def made() -> list[Any]:
        return [make(id) for id in ids]

    return made() if len(ids) < aside.LONG else made_aside("pieces", made)


def _piece(data: bytes) -> str | list[int]:
    """The text of a token; its bytes where these are no whole characters."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)


async def asked(
    service: Service, exchange: Exchange, answer: Callable[[LocalChat], Mapping[str, Any]]
) -> Mapping[str, Any]:
    """What `answer` returns on the model's thread."""

    def work(chat: LocalChat, stop: threading.Event) -> Generator[Any, None, None]:
        found = yield from encoded_aside(chat.tokenizer, lambda: answer(chat))
        many = len(found.get("tokens", ())) >= aside.LONG
        written = partial(json.dumps, found)
        yield (yield from elsewhere(written)) if many else written()

    service.start(exchange, [work])
    found: Mapping[str, Any] = {}
    while events := await exchange.channel.take():
        for _, event in events:
            found = json.loads(event) if event is not None else found
    return found
