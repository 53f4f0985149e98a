"""The messages of a chat request, as the engine's."""

from __future__ import annotations

import json

from engine.core import Message, Picture, ToolCall
from engine.server.failure import bad_request
from engine.server.fields import Fields
from engine.server.openai.custom import INPUT, input_json
from engine.server.pictures import at_address, checked_number, message_of, unreadable
from engine.server.text_files import part_text_file

_ROLES = {
    "system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool",
    "function": "tool",
}  # fmt: skip
_TEXT_PARTS = ("text", "input_text", "output_text", "refusal")
_PICTURE_PARTS = ("image_url", "input_image")
_FILE_PARTS = ("file", "input_file")
_OTHER_PARTS = (*_PICTURE_PARTS, *_FILE_PARTS, "image", "input_audio", "resource")


def messages_of(fields: Fields, name: str = "messages", *, pictures: bool = False) -> tuple[Message, ...]:
    """The messages; those of the user may have `pictures` if the model reads them. Raises `ApiError` for what
    else is not text.
    """
    found = tuple(_message(item, pictures=pictures) for item in fields.parts(name))
    if not found:
        raise bad_request(f"{name} is empty; at least one message was expected.", name)
    checked_number(found, name)
    return found


def _message(fields: Fields, *, pictures: bool) -> Message:
    role = fields.text("role")
    if role not in _ROLES:
        raise fields.wrong("role", "one of " + ", ".join(_ROLES))
    if role in ("tool", "function"):
        name = fields.text("name") or fields.text("tool_name")  # Ollama's word
        content = content_of(fields, result=True)
        return Message("tool", content, tool_call_id=fields.text("tool_call_id"), name=name)
    if role == "user":
        return user_message(fields, pictures=pictures)
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


def user_message(fields: Fields, *, pictures: bool) -> Message:
    """A message of the user, with its pictures if the model reads any. Raises `ApiError`."""
    if not isinstance(fields.get("content"), list):
        return Message("user", content_of(fields))
    return message_of([
        (_picture(part) if pictures else None) or part_text(part, pictures=pictures)
        for part in fields.parts("content")
    ])  # fmt: skip


def _picture(part: Fields) -> Picture | None:
    """The picture of a part: of `image_url`, an address or an object with one, or None for another part."""
    if part.text("type") not in _PICTURE_PARTS:
        return None
    if part.get("file_id"):
        raise bad_request(
            f"{part.place('file_id')} is not supported: this server keeps no files; send the picture as "
            "image_url.",
            part.place("file_id"),
        )
    if isinstance(part.get("image_url"), str):
        return at_address(part.text("image_url"), part.place("image_url"))
    source = part.part("image_url")
    if source is None:
        raise part.wrong("image_url", "an object with the url of a picture")
    return at_address(source.text("url"), source.place("url"))


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
    """What the model reads in the place of a part of a tool's result that is no text."""
    return f"[{kind}: left out, because you read only the text of results]"


def part_text(part: Fields, *, result: bool = False, pictures: bool | None = None) -> str:
    """The text of one part of a message; of a tool's `result` as in `content_of`, `pictures` as in
    `unreadable`.
    """
    kind = part.text("type")
    if result and kind in _OTHER_PARTS:
        return left_out(kind)
    if kind in _FILE_PARTS:
        return part_text_file(part)
    if kind not in _TEXT_PARTS:
        raise unreadable(part, "parts", _PICTURE_PARTS[0], pictures=pictures)
    return part.text("refusal" if kind == "refusal" else "text")
