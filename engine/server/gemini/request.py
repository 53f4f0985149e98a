"""The body of a request in Google's form, as the engine's request.

Source: Google's API reference, "Generating content", "Function calling" and "Content".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.core import ChatRequest, Message, Picture, Tool, ToolCall
from engine.lazy_dataclass import dataclass
from engine.server.failure import bad_request
from engine.server.fields import Fields
from engine.server.gemini.schema import camel, json_schema
from engine.server.host import ServedModel
from engine.server.openai import parameters
from engine.server.openai.conversation import left_out
from engine.server.openai.formats import is_choice
from engine.server.openai.tools import Offer, checked_offer, checked_tool
from engine.server.pictures import checked_number, decoded, message_of
from engine.server.text_files import file_text, may_be_text
from engine.settings import ConstraintSettings, ThinkingSettings

_NAMES = {
    "topP": "top_p", "topK": "top_k", "stopSequences": "stop", "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty", "candidateCount": "n",
}  # fmt: skip
"""Fields of `generationConfig`: those of `parameters`."""
_CHOICES = {
    "AUTO": "auto",
    "ANY": "required",
    "NONE": "none",
    "VALIDATED": "auto",
    "MODE_UNSPECIFIED": "auto",
}
_SCHEMAS = ("responseSchema", "responseJsonSchema", "_responseJsonSchema")
"""Fields of `generationConfig` for a schema: the first in Google's form, the others JSON schemas."""
_OTHER = ("inlineData", "fileData")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a body asks for: a request for each candidate, `logprobs` as in `chat_work`, and whether thoughts
    are to be shown.
    """

    requests: tuple[ChatRequest, ...]
    logprobs: int | None
    thoughts: bool


def object_of(fields: Fields) -> Fields:
    """An object whose fields have their names in JSON, however the client writes them."""
    return Fields({camel(name): value for name, value in fields.items()}, fields.place("").removesuffix("."))


def part_of(fields: Fields, name: str) -> Fields | None:
    """An object in an object."""
    part = fields.part(name)
    return None if part is None else object_of(part)


def parts_of(fields: Fields, name: str) -> Sequence[Fields]:
    """A list of objects in an object; a missing one is empty."""
    return () if fields.get(name) is None else [object_of(part) for part in fields.parts(name)]


def asked_of(body: Fields, model: ServedModel, most_choices: int) -> Asked:
    """What a body asks for. Raises `ApiError`."""
    fields = object_of(body)
    if fields.get("cachedContent"):
        raise bad_request("cachedContent is not supported; send all contents.", "cachedContent")
    config = part_of(fields, "generationConfig") or Fields({}, "generationConfig")
    renamed = config.renamed(_NAMES)
    modalities = config.texts("responseModalities", 8)
    if modalities and "TEXT" not in [one.upper() for one in modalities]:
        raise config.wrong("responseModalities", "TEXT, which is all that this model writes,")
    messages, offer = messages_of(fields, pictures=model.reads_pictures), _offer(fields)
    continued = messages[-1].role == "assistant"
    if continued and messages[-1].tool_calls:
        raise bad_request("The last content calls functions; send their responses after it.", "contents")
    thinking = part_of(config, "thinkingConfig") or Fields({}, config.place("thinkingConfig"))
    logprobs = config.whole("logprobs", 0, parameters.MOST_LOGPROBS) or 0
    scored = logprobs if config.flag("responseLogprobs") else None
    most_tokens = parameters.most_tokens(config, "maxOutputTokens")
    base = ChatRequest(
        messages,
        stops=parameters.stops(renamed, most_tokens),
        continue_last=continued,
        constraint=_constraint(config),
        output=parameters.output(scored),
        report_prompt=True,
        tools=offer.tools,
        tool_choice=offer.choice,
        thinking=_thinking(thinking),
    )
    count, defaults = parameters.checked_choices(renamed, most_choices), dict(model.defaults)
    samplers = [parameters.sampler(renamed, defaults, choice) for choice in range(count)]
    requests = tuple(replace(base, sampler=each) for each in samplers)
    return Asked(requests, scored, thinking.flag("includeThoughts"))


def _thinking(fields: Fields) -> ThinkingSettings:
    """How much the model thinks: `thinkingLevel`, or not at all by a `thinkingBudget` of 0."""
    level, budget = fields.text("thinkingLevel").lower(), fields.whole("thinkingBudget", -1, 1 << 20)
    if level and level != "thinking_level_unspecified":
        return parameters.thinking(fields.changed({"thinkingLevel": level}), "thinkingLevel")
    return parameters.thinking(None, "", None if budget in (None, -1) else bool(budget))


def _constraint(config: Fields) -> ConstraintSettings:
    """The format of the reply: any text, JSON, or one of several texts."""
    kind = config.text("responseMimeType") or "text/plain"
    name = next((name for name in _SCHEMAS if config.get(name) is not None), _SCHEMAS[0])
    schema = json_schema(config.get(name)) if name == _SCHEMAS[0] else config.get(name)
    if kind == "text/plain":
        return ConstraintSettings()
    if kind == "application/json":
        if schema is None:
            return parameters.constraint(Fields({}), Fields({"type": "json_object"}))
        if not isinstance(schema, dict | bool):
            raise config.wrong(name, "a JSON schema")
        requested = Fields({"type": "json_schema", "schema": schema})
        return parameters.constraint(Fields({}), requested)
    if kind != "text/x.enum":
        raise config.wrong("responseMimeType", '"text/plain", "application/json" or "text/x.enum"')
    texts = schema.get("enum") if isinstance(schema, dict) else None
    texts = texts if isinstance(texts, list) else []
    if not texts or not all(isinstance(one, str) and is_choice(one) for one in texts):
        raise config.wrong(name, "a schema with an enum of one-line texts without spaces at their ends")
    return parameters.constraint(Fields({"guided_choice": texts}), None)


# -- messages


def messages_of(fields: Fields, *, pictures: bool = False) -> tuple[Message, ...]:
    """The system instruction and the contents; those of the user may have `pictures` if the model reads them.
    Raises `ApiError`.
    """
    found: list[Message] = []
    if isinstance(fields.get("systemInstruction"), str):
        found.append(Message("system", fields.text("systemInstruction")))
    elif (system := part_of(fields, "systemInstruction")) is not None:
        found.append(Message("system", text_of(system)))
    contents = parts_of(fields, "contents")
    if not contents:
        raise bad_request("contents is empty; at least one content was expected.", "contents")
    ids = _Ids()
    for item in contents:
        role = item.text("role") or "user"
        if role == "model":
            found.append(_model(item, ids))
        elif role in ("user", "function"):
            _add_user(found, item, ids, pictures=pictures)
        else:
            raise item.wrong("role", '"user" or "model"')
    checked_number(found, "contents")
    return tuple(found)


class _Ids:
    """Ids of calls. Without one, a response belongs to the oldest open call of its function."""

    def __init__(self) -> None:
        self._open: dict[str, list[str]] = {}
        self._count = 0

    def call(self, name: str, id: str) -> str:
        """The id of a call."""
        self._count += 1
        id = id or f"call_{self._count}"
        self._open.setdefault(name, []).append(id)
        return id

    def response(self, name: str, id: str) -> str:
        """The id of the call that a response belongs to."""
        waiting = self._open.get(name, [])
        if id in waiting:
            waiting.remove(id)
            return id
        return id or (waiting.pop(0) if waiting else "")


def _add_user(found: list[Message], item: Fields, ids: _Ids, *, pictures: bool) -> None:
    """Texts and pictures are the user's, responses the tools'. A content without any is an empty text."""
    own, before = list[str | Picture](), len(found)
    for part in parts_of(item, "parts"):
        if (answer := part_of(part, "functionResponse")) is None:
            own.append((_picture(part) if pictures else None) or _part_text(part, pictures=pictures))
            continue
        name = answer.text("name")
        answer.part("response")
        content = json.dumps(answer.get("response") or {}, ensure_ascii=False)
        more = [left_out(kind) for one in parts_of(answer, "parts") for kind in _OTHER if one.get(kind)]
        id = ids.response(name, answer.text("id"))
        found.append(Message("tool", "\n".join((content, *more)), tool_call_id=id, name=name))
    message = message_of(own)
    if message.content or len(found) == before:
        found.append(message)


def _picture(part: Fields) -> Picture | None:
    """The picture of a part; None for a part without one."""
    blob = part_of(part, "inlineData")
    if blob is None or not blob.text("mimeType").startswith("image/"):
        return None
    return decoded(blob.text("data"), blob.place("data"))


def _model(item: Fields, ids: _Ids) -> Message:
    texts, thoughts, calls = list[str](), list[str](), list[ToolCall]()
    for part in parts_of(item, "parts"):
        if (call := part_of(part, "functionCall")) is not None:
            name = call.text("name")
            if not name:
                raise call.wrong("name", "the name of a function")
            call.part("args")
            arguments = json.dumps(call.get("args") or {}, ensure_ascii=False)
            calls.append(ToolCall(ids.call(name, call.text("id")), name, arguments))
        elif part.flag("thought"):
            thoughts.append(part.text("text"))
        else:
            texts.append(_part_text(part))
    return Message("assistant", "".join(texts), tuple(calls), reasoning="".join(thoughts))


def text_of(content: Fields) -> str:
    """The text of a content. Raises `ApiError` for what is not text."""
    return "".join(_part_text(part) for part in parts_of(content, "parts"))


def _part_text(part: Fields, *, pictures: bool = False) -> str:
    blob = part_of(part, "inlineData")
    if blob is not None and (type := blob.text("mimeType")) and may_be_text(type):
        return file_text(blob.text("displayName"), blob.text("data"), blob.place("data"))
    kind = next((kind for kind in _OTHER if part.get(kind) is not None), "")
    if kind and pictures:
        raise bad_request(
            f"{part.place(kind)} is not supported: this model reads text and pictures only; send "
            "parts with text, or with inlineData of a picture, whose mimeType begins with image/.",
            part.place(kind),
        )
    if kind:
        raise bad_request(
            f"{part.place(kind)} is not supported: this model reads text only; send parts with text.",
            part.place(kind),
        )
    return part.text("text")  # tools that only Google's servers run have none


# -- tools


def _offer(fields: Fields) -> Offer:
    """The functions that the model may call; tools that only Google's servers run are left out."""
    tools = tuple(
        _tool(one) for tool in parts_of(fields, "tools") for one in parts_of(tool, "functionDeclarations")
    )
    config = part_of(fields, "toolConfig") or Fields({})
    calling = part_of(config, "functionCallingConfig") or Fields({}, "toolConfig.functionCallingConfig")
    mode = calling.text("mode") or "AUTO"
    if mode.upper() not in _CHOICES:
        raise calling.wrong("mode", '"AUTO", "ANY", "NONE" or "VALIDATED"')
    if allowed := calling.texts("allowedFunctionNames", 512):
        names = [tool.name for tool in tools]
        if any(name not in names for name in allowed):
            raise calling.wrong("allowedFunctionNames", "names of functions that are declared")
        tools = tuple(tool for tool in tools if tool.name in allowed)
    return checked_offer(tools, _CHOICES[mode.upper()], parallel=True)


def _tool(declaration: Fields) -> Tool:
    name = "parametersJsonSchema" if declaration.get("parametersJsonSchema") is not None else "parameters"
    schema: Mapping[str, Any] | None = declaration.get(name)
    if name == "parameters":
        schema = json_schema(schema)
    return checked_tool(declaration, declaration.text("name"), declaration.text("description"), schema, name)
