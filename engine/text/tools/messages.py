"""Offered tools, calls and results as a chat template takes them, or as text where it knows none."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.core import Message, Tool, ToolCall
from engine.json_value import json_value
from engine.text.template.turns import Turn
from engine.text.tools.detect import ToolStyle, named_id
from engine.text.tools.form import CallForm
from engine.text.tools.system_tools import with_tools
from engine.text.tools.values import parameters_of
from engine.text.tools.writing import written_calls

__all__ = ["conversation", "has_tools", "offered_tools"]

_OFFER = (
    "You may call one or more of these functions to help with the request. They are described in JSON:\n"
    "<tools>\n{tools}\n</tools>\n\n"
    "For each function call, write its name and arguments in exactly this form:\n{form}"
)
_ID_LENGTH = 9
"""Mistral's templates accept ids of no other length."""


def has_tools(messages: Sequence[Message]) -> bool:
    """Whether any message calls tools, or answers a call."""
    return any(message.tool_calls or message.tool_call_id for message in messages)


def offered_tools(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Tools in OpenAI's form, which chat templates take."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": parameters_of(tool),
            },
        }
        for tool in tools
    ]


def conversation(
    messages: Sequence[Message], tools: Sequence[Tool], style: ToolStyle, marks: Mapping[str, str] = {}
) -> tuple[list[Turn], list[dict[str, Any]] | None]:
    """The turns for a template of this `style`, and the tools to give it, None for none.

    Where the template does not show the tools, the system message does; where it does not write calls or
    results, they are text of the assistant and of the user. In such calls, the control tokens have the
    characters that `marks` has for them.
    """
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    ids = _Ids(style)
    if style.calls_alone:
        messages = [part for message in messages for part in _text_apart(message)]
    if style.one_call:
        messages = _one_by_one(messages)
    turns: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "tool":
            _add_result(turns, message, message.name or names.get(message.tool_call_id, ""), style, ids)
        else:
            turns.append(_turn(message, style, ids, marks))
    if not tools:
        return [*turns], None
    if style.system_tools:
        system = turns.pop(0) if turns and turns[0]["role"] == "system" else {"role": "system", "content": ""}
        return [with_tools(system, offered_tools(tools), style.system_tools), *turns], None
    if style.offers:
        return [*turns], offered_tools(tools)
    offer = _offer(tools, style)
    if turns and turns[0]["role"] == "system":
        text = f"{turns[0]['content']}\n\n{offer}" if turns[0]["content"] else offer
        turns[0] = {**turns[0], "content": text}
    else:
        turns.insert(0, {"role": "system", "content": offer})
    return [*turns], None


def _text_apart(message: Message) -> Sequence[Message]:
    """A message whose text stands in one of its own, before its calls."""
    if not message.tool_calls or not message.content:
        return (message,)
    return replace(message, tool_calls=()), replace(message, content="", reasoning="")


def _one_by_one(messages: Sequence[Message]) -> list[Message]:
    """Each call in a message of its own, before its result."""
    found: list[Message] = []
    placed = set[int]()
    for place, message in enumerate(messages):
        if place in placed:
            continue
        if len(message.tool_calls) < 2:
            found.append(message)
            continue
        for number, call in enumerate(message.tool_calls):
            alone = replace(message, tool_calls=(call,))
            found.append(replace(alone, content="", reasoning="") if number else alone)
            for later in range(place + 1, len(messages)):
                result = messages[later]
                if result.role != "tool":
                    break
                if result.tool_call_id == call.id and later not in placed:
                    placed.add(later)
                    found.append(result)
    return found


def _offer(tools: Sequence[Tool], style: ToolStyle) -> str:
    shown = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in offered_tools(tools))
    example = written_calls(style.form, [("NAME", {"KEY": "VALUE"})])
    return _OFFER.format(tools=shown, form=example.strip())


class _Ids:
    """The ids of calls as the template takes them: nine letters and digits, or with the tool's name."""

    def __init__(self, style: ToolStyle) -> None:
        self._named = style.named_ids
        self._given: dict[str, str] = {}
        self._count = 0

    def of_call(self, call: ToolCall) -> str:
        """The id of the next call of the chat."""
        self._given[call.id] = named_id(call.name, self._count) if self._named else _short_id(call.id)
        self._count += 1
        return self._given[call.id]

    def of_result(self, id: str) -> str:
        """The id of the call whose own one is `id`."""
        return self._given.get(id) or _short_id(id)


def _turn(message: Message, style: ToolStyle, ids: _Ids, marks: Mapping[str, str]) -> dict[str, Any]:
    turn: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.role != "assistant":
        return turn
    if message.reasoning:
        turn["reasoning_content"] = message.reasoning
    held = style.thoughts_hold_texts and (message.reasoning or style.drops_texts)
    if message.content and message.tool_calls and held:
        thought = "\n\n".join(filter(None, (message.reasoning, message.content)))
        turn |= {"content": "", "reasoning_content": thought}
    if not message.tool_calls:
        return turn
    if style.writes_calls:
        turn["tool_calls"] = [_call(call, style, ids) for call in message.tool_calls]
        if style.null_content and not turn["content"]:
            turn["content"] = None
        return turn
    calls = written_calls(
        _marked(style.form, marks), [(call.name, _arguments(call)) for call in message.tool_calls]
    )
    turn["content"] = f"{message.content}\n{calls.lstrip()}" if message.content else calls.lstrip()
    return turn


def _marked(form: CallForm, marks: Mapping[str, str]) -> CallForm:
    """The form with characters instead of control tokens."""

    def replaced(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(replaced, value))
        for name, mark in marks.items():
            value = value.replace(name, mark)
        return value

    names = ("section", "call", "between", "after_name", "parameter", "json_value", "quote")
    return replace(form, **{name: replaced(getattr(form, name)) for name in names})


def _call(call: ToolCall, style: ToolStyle, ids: _Ids) -> dict[str, Any]:
    arguments: Any = call.arguments if style.arguments_as_text else _arguments(call)
    return {
        "id": ids.of_call(call),
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def _arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments as an object; what is none, such as those of a call that was cut off, is its only
    member.
    """
    value = json_value(call.arguments or "{}", call.arguments)
    return value if isinstance(value, dict) else {"arguments": value}


def _short_id(id: str) -> str:
    """An id of nine letters and digits, the same for the same one."""
    if len(id) == _ID_LENGTH and id.isalnum() and id.isascii():
        return id
    return hashlib.sha256(id.encode("utf-8", "replace")).hexdigest()[:_ID_LENGTH]


def _add_result(
    turns: list[dict[str, Any]], message: Message, name: str, style: ToolStyle, ids: _Ids
) -> None:
    """Add the result of a call; without a role for it, to the message of the user that has others."""
    if style.writes_results:
        turns.append(
            {
                "role": "tool",
                "content": message.content,
                "name": name,
                "tool_call_id": ids.of_result(message.tool_call_id),
            }
        )
        return
    text = f"<tool_response>\n{message.content}\n</tool_response>"
    last: Mapping[str, Any] = turns[-1] if turns else {}
    if last.get("role") == "user" and str(last["content"]).endswith("</tool_response>"):
        turns[-1] = {**last, "content": f"{last['content']}\n{text}"}
    else:
        turns.append({"role": "user", "content": text})
