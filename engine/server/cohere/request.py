"""The body of a request to /v2/chat, as the engine's request."""

from __future__ import annotations

import json
from typing import Any

from engine.core import ChatRequest, Message
from engine.server.failure import bad_request
from engine.server.fields import Fields
from engine.server.host import ServedModel
from engine.server.openai import parameters
from engine.server.openai.conversation import messages_of
from engine.server.openai.tools import offer_of

_NAMES = {"p": "top_p", "k": "top_k", "stop_sequences": "stop"}
_DEFAULTS = {"temperature": 0.3, "top_p": 0.75}
"""Cohere's, where neither the request nor the model's authors say otherwise."""
_CHOICES = {"REQUIRED": "required", "NONE": "none"}
_THINKING = {"enabled": True, "disabled": False}


def chat_request(fields: Fields, model: ServedModel, when_full: str = "stop") -> ChatRequest:
    """What a body asks for; `when_full` as in `StopSettings`. Raises `ApiError`."""
    fields = fields.renamed(_NAMES)
    messages = _messages(fields, pictures=model.reads_pictures)
    offer = offer_of(fields.changed({"tool_choice": _choice(fields), "functions": None}))
    format, thinking = fields.part("response_format"), fields.part("thinking")
    return ChatRequest(
        messages,
        sampler=parameters.sampler(fields, {**_DEFAULTS, **dict(model.defaults)}),
        stops=parameters.stops(fields, parameters.most_tokens(fields, "max_tokens"), when_full=when_full),
        constraint=parameters.constraint(fields, format and format.renamed({"json_schema": "schema"})),
        output=parameters.output(scored(fields)),
        report_prompt=True,
        tools=offer.tools,
        tool_choice=offer.choice,
        template_variables=parameters.template_variables(fields.changed({"documents": None})),
        thinking=parameters.thinking(None, "", None if thinking is None else _is_on(thinking)),
    )


def scored(fields: Fields) -> int | None:
    """How many alternatives each token is reported with, 0; None without `logprobs`. Raises `ApiError`."""
    return 0 if fields.flag("logprobs") else None


def _choice(fields: Fields) -> Any:
    """The choice among tools in OpenAI's word, which some clients send themselves."""
    value = fields.get("tool_choice")
    return _CHOICES.get(value, value) if isinstance(value, str) else value


def _is_on(thinking: Fields) -> bool:
    kind = thinking.text("type")
    if kind not in _THINKING:
        raise thinking.wrong("type", '"enabled" or "disabled"')
    return _THINKING[kind]


def _messages(fields: Fields, *, pictures: bool) -> tuple[Message, ...]:
    """The messages, of which the user's last one begins with the documents."""
    items = fields.parts("messages")
    found = [_message(item) for item in items]
    if documents := _documents(fields):
        last = next((at for at in reversed(range(len(items))) if items[at].text("role") == "user"), None)
        if last is None:
            raise bad_request("documents need a message of the user.", "documents")
        found[last]["content"] = _with_documents(found[last].get("content"), documents)
    return messages_of(fields.changed({"messages": found}), pictures=pictures)


def _message(item: Fields) -> dict[str, Any]:
    """A message as OpenAI's API has it. Its parts keep their places, by which errors name them."""
    message = dict(item.items())
    if isinstance(item.get("content"), list):
        parts = item.parts("content")
        message["content"] = [_part(part) for part in parts]
        thoughts = "".join(part.text("thinking") for part in parts if part.text("type") == "thinking")
        message["reasoning_content"] = thoughts
    if not message.get("content"):
        message["content"] = item.get("tool_plan")  # what it said before it called tools
    return message


def _part(part: Fields) -> dict[str, Any]:
    kind = part.text("type")
    if kind == "thinking":
        return {"type": "text", "text": ""}
    if kind == "document":
        return {"type": "text", "text": _document(part.part("document") or part)}
    return dict(part.items())


def _documents(fields: Fields) -> str:
    """All documents as a text; "" if there are none."""
    documents = fields.get("documents")
    if documents is None:
        return ""
    if not isinstance(documents, list) or not all(isinstance(one, str | dict) for one in documents):
        raise fields.wrong("documents", "a list of texts and objects")
    texts = [
        one if isinstance(one, str) else _document(Fields(one, fields.place(f"documents[{at}]")))
        for at, one in enumerate(documents)
    ]
    return "\n\n".join(f"Document {number}:\n{text}" for number, text in enumerate(texts, 1))


def _document(document: Fields) -> str:
    """The text of a document: a line for each of its data."""
    data = document.get("data")
    if isinstance(data, str):
        return data
    if not isinstance(data, dict):
        raise document.wrong("data", "an object or a text")
    return "\n".join(
        f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in data.items()
    )


def _with_documents(content: Any, documents: str) -> Any:
    """The content of a message after documents: in its first text, or as one at its end."""
    if not content:
        return documents
    if not isinstance(content, list):
        return f"{documents}\n\n{content}" if isinstance(content, str) else content
    parts: list[dict[str, Any]] = [dict(part) for part in content]
    for part in parts:
        if part.get("type") == "text" and isinstance(part.get("text"), str):
            part["text"] = f"{documents}\n\n{part['text']}"
            return parts
    return [*parts, {"type": "text", "text": documents}]
