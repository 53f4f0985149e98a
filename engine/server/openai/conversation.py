"""The messages of a chat request, as the engine's."""

from __future__ import annotations

import json

from engine.core import Message, ToolCall
from engine.server.failure import bad_request
from engine.server.fields import Fields
from engine.server.openai.custom import INPUT, input_json

_ROLES = {
    "system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool",
    "function": "tool",
}  # fmt: skip
_TEXT_PARTS = ("text", "input_text", "output_text", "refusal")
_OTHER_PARTS = ("image", "image_url", "input_image", "input_audio", "file", "input_file", "resource")


def messages_of(fields: Fields, name: str = "messages") -> tuple[Message, ...]:
    """The messages. Raises `ApiError` for what is not text."""
    found = tuple(_message(item) for item in fields.parts(name))
    if not found:
        raise bad_request(f"{name} is empty; at least one message was expected.", name)
    return found


def _message(fields: Fields) -> Message:
    role = fields.text("role")
    if role not in _ROLES:
        raise fields.wrong("role", "one of " + ", ".join(_ROLES))
    if role in ("tool", "function"):
        name = fields.text("name") or fields.text("tool_name")  # Ollama's word
        content = content_of(fields, result=True)
        return Message("tool", content, tool_call_id=fields.text("tool_call_id"), name=name)
    if role != "assistant":
        return Message(_ROLES[role], content_of(fields))
    names = ("reasoning_content", "reasoning", "thinking")
    reasoning = next((text for name in names if (text := fields.text(name))), "")
    return Message(role, content_of(fields), _calls_of(fields), reasoning=reasoning)


def _calls_of(fields: Fields) -> tuple[ToolCall, ...]:
    """The calls that a message of the assistant made."""
    if (old := fields.part("function_call")) is not None:
        return (ToolCall("", old.text("name"), old.text("arguments")),)
    if fields.get("tool_calls") is None:
        return ()
    found = []
    for item in fields.parts("tool_calls"):
        if (custom := item.part("custom")) is not None:
            found.append(ToolCall(item.text("id"), custom.text("name"), input_json(custom.text(INPUT))))
            continue
        function = item.part("function")
        if function is None or not function.text("name"):
            raise item.wrong("function", "an object with the name of a function")
        found.append(ToolCall(item.text("id"), function.text("name"), _arguments(function)))
    return tuple(found)


def _arguments(function: Fields) -> str:
    """The arguments of a call as JSON; Ollama's clients, and templates' authors, send the object itself."""
    value = function.get("arguments")
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else function.text("arguments")


def content_of(fields: Fields, name: str = "content", *, result: bool = False) -> str:
    """The text of a message: a text, or a list of parts whose texts are joined; "" if there is none. In the
    `result` of a tool, which no person chose to send, a note takes the place of pictures, sound and files.
    """
    value = fields.get(name)
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, list):
        raise fields.wrong(name, "a text or a list of parts")
    return "".join(part_text(part, result=result) for part in fields.parts(name))


def left_out(kind: str) -> str:
    """What the model reads in the place of a part that is no text."""
    return f"[{kind}: left out, because you read text only]"


def part_text(part: Fields, *, result: bool = False) -> str:
    """The text of one part of a message; of a tool's `result` as in `content_of`."""
    kind = part.text("type")
    if result and kind in _OTHER_PARTS:
        return left_out(kind)
    if kind not in _TEXT_PARTS:
        raise bad_request(
            f"{part.place('type')} is {kind[:40]!r}, but this model reads text only; send parts of type "
            '"text".',
            part.place("type"),
        )
    return part.text("refusal" if kind == "refusal" else "text")
