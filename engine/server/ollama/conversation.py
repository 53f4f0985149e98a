"""The body of a request in Ollama's form, as the engine's request."""

from __future__ import annotations

from engine.core import ChatRequest, Message
from engine.server.failure import bad_request
from engine.server.fields import Fields
from engine.server.host import ServedModel
from engine.server.ollama.context import said_before
from engine.server.openai import parameters
from engine.server.openai.conversation import messages_of
from engine.server.openai.tools import offer_of
from engine.server.pictures import checked_number, decoded, message_of
from engine.settings import ThinkingSettings

_DEFAULTS = {"temperature": 0.8, "top_k": 40, "top_p": 0.9}
"""Ollama's, where neither the request nor the model's authors say otherwise."""
_FILL = -2
"""Ollama's word for a reply that may fill the context."""


def chat_request(fields: Fields, model: ServedModel) -> ChatRequest | None:
    """What a body of /api/chat asks for; None without messages. Raises `ApiError`."""
    if not fields.get("messages"):
        return None
    items, messages = fields.parts("messages"), messages_of(fields)
    pairs = zip(items, messages, strict=True)
    found = tuple(_with_pictures(item, message, model) for item, message in pairs)
    checked_number(found, "messages")
    return _request(fields, model, found)


def text_request(fields: Fields, model: ServedModel) -> ChatRequest | None:
    """What a body of /api/generate asks for; None without a prompt. Raises `ApiError`."""
    _refuse(fields, "template", "the model's own template is used; send the whole prompt with raw: true")
    prompt, system = fields.text("prompt"), fields.text("system")
    if not prompt:
        return None
    before = said_before(fields)
    if system:
        before = (Message("system", system), *(one for one in before if one.role != "system"))
    plain = fields.flag("raw") or bool(fields.text("suffix"))
    asked = _with_pictures(fields, Message("user", prompt), model)
    if plain:
        for name, what in (("images", "pictures need"), ("context", "a conversation needs")):
            _refuse(fields, name, what + " the model's own template; leave out raw and suffix")
    checked_number((asked,), "images")
    return _request(fields, model, (*before, asked), plain=plain)


def _with_pictures(fields: Fields, message: Message, model: ServedModel) -> Message:
    """A message after its `images`. Raises `ApiError`."""
    images = fields.get("images")
    if not images:
        return message
    if not model.reads_pictures:
        _refuse(fields, "images", "this model reads text only")
    if message.role != "user":
        _refuse(fields, "images", "only messages of the user can have pictures")
    if not isinstance(images, list) or not all(isinstance(image, str) for image in images):
        raise fields.wrong("images", "a list of pictures in base64")
    pictures = [decoded(image, fields.place(f"images[{at}]")) for at, image in enumerate(images)]
    return message_of([*pictures, message.content], "\n")


def _refuse(fields: Fields, name: str, reason: str) -> None:
    if fields.get(name):
        raise bad_request(f"{fields.place(name)} is not supported: {reason}.", fields.place(name))


def options_of(fields: Fields) -> Fields:
    """The options, none of which need be there. Raises `ApiError`."""
    return fields.part("options") or Fields({}, "options")


def _request(
    fields: Fields, model: ServedModel, messages: tuple[Message, ...], *, plain: bool = False
) -> ChatRequest:
    options, offer = options_of(fields), offer_of(fields)
    if options.get("num_predict") == _FILL:
        most_tokens: int | None = 0
    else:
        most_tokens = parameters.most_tokens(options, "num_predict")
    drop = not plain and fields.flag("truncate", True)
    return ChatRequest(
        () if plain else messages,
        sampler=parameters.sampler(options, {**_DEFAULTS, **dict(model.defaults)}),
        stops=parameters.stops(options, most_tokens, when_full="drop_oldest" if drop else "stop"),
        continue_last=not plain and messages[-1].role == "assistant" and not messages[-1].tool_calls,
        constraint=parameters.constraint(options, _format(fields)),
        output=parameters.output(parameters.logprobs(fields)),
        report_prompt=not plain,
        tools=offer.tools,
        tool_choice=offer.choice,
        parallel_tool_calls=offer.parallel,
        thinking=_thinking(fields),
        plain=plain,
    )


def _format(fields: Fields) -> Fields | None:
    """The format as OpenAI's `response_format` has it."""
    value = fields.get("format")
    if value in (None, ""):
        return None
    if value == "json":
        return Fields({"type": "json_object"}, "format")
    if not isinstance(value, dict):
        raise fields.wrong("format", '"json" or a JSON schema')
    return Fields({"type": "json_schema", "schema": value}, "format")


def _thinking(fields: Fields) -> ThinkingSettings:
    """How much the model thinks: on, off, or an effort."""
    if isinstance(fields.get("think"), bool):
        return parameters.thinking(None, "", fields.flag("think"))
    return parameters.thinking(fields, "think")
