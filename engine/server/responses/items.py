"""The items of a request to the Responses API, as the messages of a conversation."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import replace

from engine.core import Message, ToolCall
from engine.server.fields import Fields
from engine.server.openai.conversation import content_of, user_message
from engine.server.openai.custom import INPUT, input_json
from engine.server.pictures import checked_number
from engine.server.responses.stored import StoredResponses

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


def input_of(
    fields: Fields, before: Sequence[Message], stored: StoredResponses, *, pictures: bool = False
) -> tuple[Message, ...]:
    """The messages `before`, and those that the `input` of a request adds: a text of the user, or items.
    `pictures` as in the conversations of chats. Raises `ApiError`.
    """
    value = fields.get("input")
    conversation = _Conversation(before)
    if isinstance(value, str):
        if value:
            conversation.add(Message("user", value))
    elif value is not None:
        for item in fields.parts("input"):
            _add(conversation, item, stored, pictures=pictures)
    checked_number(conversation.messages, "input")
    return tuple(conversation.messages)


def called_custom(fields: Fields) -> frozenset[str]:
    """The names of the custom tools that items of the `input` of a request call."""
    items = fields.parts("input") if isinstance(fields.get("input"), list) else ()
    return frozenset(_name(item) for item in items if item.text("type") == "custom_tool_call")


def instructed(instructions: str, messages: Sequence[Message]) -> tuple[Message, ...]:
    """Instructions, and the system messages that a conversation begins with, as one system message: many chat
    templates accept only one.
    """
    count = next((i for i, message in enumerate(messages) if message.role != "system"), len(messages))
    texts = [text for text in (instructions, *(message.content for message in messages[:count])) if text]
    system = (Message("system", "\n\n".join(texts)),) if texts else ()
    return (*system, *messages[count:])


class _Conversation:
    """Messages to which items are added: what the assistant thinks, says and calls becomes one message."""

    def __init__(self, before: Sequence[Message]) -> None:
        self.messages = list(before)
        self._reasoning = ""

    def add(self, message: Message) -> None:
        if message.role == "assistant":
            message = replace(message, reasoning=self._reasoning)
        self._reasoning = ""
        self.messages.append(message)

    def think(self, text: str) -> None:
        self._reasoning += text

    def call(self, call: ToolCall) -> None:
        last = self.messages[-1] if self.messages else None
        if last is None or last.role != "assistant" or self._reasoning:
            self.add(Message("assistant", ""))
        self.messages[-1] = replace(self.messages[-1], tool_calls=(*self.messages[-1].tool_calls, call))


def _add(conversation: _Conversation, item: Fields, stored: StoredResponses, *, pictures: bool) -> None:
    """Add one item. Items of tools that the server does not run are left out."""
    kind = item.text("type", "message")
    if kind == "item_reference":
        found = stored.item(item.text("id"))
        if found is None:
            raise item.wrong("id", "the id of an item that the server keeps")
        item = Fields(found, item.place("item"))
        kind = item.text("type")
    if kind == "message":
        role = item.text("role")
        if role not in _ROLES:
            raise item.wrong("role", "one of " + ", ".join(_ROLES))
        is_user = role == "user"
        conversation.add(
            user_message(item, pictures=pictures) if is_user else Message(_ROLES[role], content_of(item))
        )
    elif kind == "reasoning":
        conversation.think(_thought(item))
    elif kind == "function_call":
        conversation.call(ToolCall(item.text("call_id"), _name(item), item.text("arguments")))
    elif kind == "custom_tool_call":
        conversation.call(ToolCall(item.text("call_id"), _name(item), input_json(item.text(INPUT))))
    elif kind == "local_shell_call":
        action = item.get("action") if item.part("action") is not None else {}
        arguments = json.dumps({name: value for name, value in action.items() if name != "type"})
        conversation.call(ToolCall(item.text("call_id"), "local_shell", arguments))
    elif kind in ("function_call_output", "custom_tool_call_output", "local_shell_call_output"):
        result = content_of(item, "output", result=True)
        conversation.add(Message("tool", result, tool_call_id=item.text("call_id") or item.text("id")))


def _name(item: Fields) -> str:
    name = item.text("name")
    if not name:
        raise item.wrong("name", "the name of a tool")
    return name


def _thought(item: Fields) -> str:
    """The text of a reasoning item; its summary where there is no other."""
    for name in ("content", "summary"):
        if item.get(name) is not None and (text := "".join(part.text("text") for part in item.parts(name))):
            return text
        if text := _unsealed(item.text("encrypted_content")):
            return text
    return ""


_SEAL = "inglenook:"


def sealed(text: str) -> str:
    """A thought as `encrypted_content`, which clients give back as it is where they leave out its text. It is
    not secret here: the client has the text, too.
    """
    return _SEAL + base64.b64encode(text.encode("utf-8", "replace")).decode()


def _unsealed(content: str) -> str:
    """The thought that `sealed` was given; "" for those of other servers."""
    if not content.startswith(_SEAL):
        return ""
    try:
        return base64.b64decode(content[len(_SEAL) :], validate=True).decode()
    except ValueError:
        return ""
