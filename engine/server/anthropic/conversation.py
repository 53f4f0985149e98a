"""The messages and tools of a request in Anthropic's form, as the engine's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from engine.core import Message, Picture, Tool, ToolCall
from engine.server.failure import bad_request
from engine.server.fields import Fields
from engine.server.openai.conversation import left_out
from engine.server.openai.tools import Offer, checked_offer, checked_tool
from engine.server.pictures import at_address, checked_number, decoded, message_of, parts_of, unreadable

_BETWEEN = "\n\n"
"""What stands between the texts of one message."""
_CHANGES = ("tool_addition", "tool_removal")
"""Blocks of system messages, from which on a tool is offered, or is not."""
_LEFT_OUT = (
    "redacted_thinking", "server_tool_use", "web_search_tool_result", "web_fetch_tool_result",
    "code_execution_tool_result", "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result", "tool_search_tool_result", "advisor_tool_result",
    "mcp_tool_use", "mcp_tool_result", "mcp_tool_listing", "container_upload", "fallback", *_CHANGES,
)  # fmt: skip
"""Blocks of tools that only Anthropic's servers run, thoughts that nobody else can read, and what `offer_of`
reads.
"""


def messages_of(fields: Fields, *, pictures: bool = False) -> tuple[Message, ...]:
    """The system prompt and the messages; neighbours of one role become one. `pictures` as in OpenAI's
    conversations. Raises `ApiError`.
    """
    found: list[Message] = []
    if system := _text(fields, "system"):
        found.append(Message("system", system))
    items = fields.parts("messages")
    if not items:
        raise bad_request("messages is empty; at least one message was expected.", "messages")
    for item in items:
        role = item.text("role")
        if role == "user":
            _add_user(found, item, pictures=pictures)
        elif role == "assistant":
            _add(found, _assistant(item))
        elif role == "system":
            if text := _text(item, "content"):
                _add(found, Message("system", text))
        else:
            raise item.wrong("role", '"user" or "assistant"')
    checked_number(found, "messages")
    return tuple(found)


def _add(found: list[Message], message: Message) -> None:
    """Add a message, joined with the one before if both are of one role."""
    last = found[-1] if found else None
    if last is None or last.role != message.role or message.role == "tool":
        found.append(message)
        return
    if last.pictures or message.pictures:
        found[-1] = message_of([*parts_of(last, _BETWEEN), *parts_of(message, _BETWEEN)], _BETWEEN)
        return
    found[-1] = replace(
        last,
        content=_joined((last.content, message.content)),
        tool_calls=last.tool_calls + message.tool_calls,
        reasoning=_joined((last.reasoning, message.reasoning)),
    )


def _add_user(found: list[Message], item: Fields, *, pictures: bool) -> None:
    """Texts and pictures are the user's, results the tools'."""
    if not isinstance(item.get("content"), list):
        _add(found, Message("user", _text(item, "content")))
        return
    for block in item.parts("content"):
        kind = block.text("type")
        if kind == "tool_result":
            content = _text(block, "content", result=True)
            found.append(Message("tool", content, tool_call_id=block.text("tool_use_id")))
        elif kind not in _LEFT_OUT:
            picture = _picture(block) if pictures else None
            _add(found, message_of([picture or _block_text(block, pictures=pictures)]))


def _picture(block: Fields) -> Picture | None:
    """The picture of a block; None for a block of another type."""
    if block.text("type") != "image":
        return None
    source = block.part("source")
    if source is None:
        raise block.wrong("source", "an object with the data of a picture")
    if source.text("type") == "url":
        return at_address(source.text("url"), source.place("url"))
    if source.text("type") != "base64":
        raise source.wrong("type", '"base64"')
    return decoded(source.text("data"), source.place("data"))


def _assistant(item: Fields) -> Message:
    if not isinstance(item.get("content"), list):
        return Message("assistant", _text(item, "content"))
    texts, thoughts, calls = list[str](), list[str](), list[ToolCall]()
    for block in item.parts("content"):
        kind = block.text("type")
        if kind == "thinking":
            thoughts.append(block.text("thinking"))
        elif kind == "tool_use":
            if not block.text("name"):
                raise block.wrong("name", "the name of a tool")
            block.part("input")
            arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
            calls.append(ToolCall(block.text("id"), block.text("name"), arguments))
        elif kind not in _LEFT_OUT:
            texts.append(_block_text(block))
    return Message("assistant", _joined(texts), tuple(calls), reasoning=_joined(thoughts))


def _text(fields: Fields, name: str, *, result: bool = False) -> str:
    """A text, or the texts of a list of blocks; `result` as in `content_of` of OpenAI's conversations."""
    value = fields.get(name)
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, list):
        raise fields.wrong(name, "a text or a list of content blocks")
    blocks = [block for block in fields.parts(name) if block.text("type") not in _LEFT_OUT]
    return _joined([_block_text(block, result=result) for block in blocks])


def _block_text(block: Fields, *, result: bool = False, pictures: bool | None = None) -> str:
    """The text of a block; of documents only plain ones and those made of blocks have any. `pictures` as in
    `unreadable`.
    """
    kind = block.text("type")
    if kind == "text":
        return block.text("text")
    if kind == "compaction":  # what came before, in short
        return block.text("content")
    if kind == "search_result":
        return _joined((block.text("title"), block.text("source"), _text(block, "content")))
    source = block.part("source") if kind == "document" else None
    if source is not None and source.text("type") == "text":
        return source.text("data")
    if source is not None and source.text("type") == "content":
        return _text(source, "content", result=result)
    if kind == "tool_reference":  # found by a search for tools
        return block.text("tool_name")
    if result and kind in ("image", "document"):
        return left_out(kind)
    raise unreadable(block, "blocks", "image", pictures=pictures)


def _joined(texts: Sequence[str]) -> str:
    return _BETWEEN.join(text for text in texts if text)


def offer_of(fields: Fields) -> Offer:
    """The tools that the model may call; those that only Anthropic's servers run are left out.

    Raises `ApiError`.
    """
    tools = _tools(fields)
    choice = fields.part("tool_choice")
    if choice is None:
        return checked_offer(tools, "auto", parallel=True)
    kind, name = choice.text("type"), choice.text("name")
    parallel = not choice.flag("disable_parallel_tool_use")
    if kind == "tool":
        if name not in [tool.name for tool in tools]:
            raise choice.wrong("name", "the name of one of the tools")
        return checked_offer(tools, name, parallel)
    if kind not in _CHOICES:
        raise choice.wrong("type", '"auto", "any", "tool" or "none"')
    return checked_offer(tools, _CHOICES[kind], parallel)


def _tools(fields: Fields) -> tuple[Tool, ...]:
    """The tools of a request, with what its system messages add and remove."""
    items = [] if fields.get("tools") is None else [*fields.parts("tools")]
    added, removed = list[Fields](), set[str]()
    for message in fields.parts("messages") if fields.get("messages") else ():
        if message.text("role") != "system" or not isinstance(message.get("content"), list):
            continue
        for block in message.parts("content"):
            if block.text("type") not in _CHANGES:
                continue
            tool = block.part("tool")
            if tool is None:
                raise block.wrong("tool", "an object that names or defines a tool")
            definition = tool.part("definition")
            name = (definition or tool).text("name")
            removed.discard(name)
            if block.text("type") == "tool_removal":
                removed.add(name)
            elif definition is not None:
                added = [one for one in added if one.text("name") != name] + [definition]
    inline = {one.text("name") for one in added}
    items = [item for item in items if item.text("name") not in inline] + added
    kept = [item for item in items if item.text("name") not in removed]
    return tuple(_tool(item) for item in kept if item.text("type", "custom") == "custom")


def _tool(item: Fields) -> Tool:
    name, schema = "input_schema", item.get("input_schema")
    return checked_tool(item, item.text("name"), item.text("description"), schema, name)


_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
