"""The tools that a chat request offers, and the calls that a reply makes, in OpenAI's form."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.core import TOOL_CHOICES, CallPiece, Tool
from engine.lazy_dataclass import dataclass
from engine.server.failure import bad_request
from engine.server.fields import Fields
from engine.server.openai.custom import INPUT, check_enforced, input_schema

__all__ = [
    "Offer",
    "call_deltas",
    "called",
    "calls_json",
    "checked_offer",
    "checked_tool",
    "flat_offer_of",
    "offer_of",
    "whole_calls",
]

MOST_TOOLS = 512
MOST_LEVELS = 100
_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools that the model may call: `choice` and `parallel` as in `ChatRequest`. In the `old_form` they
    came as `functions`, of which a reply calls one.
    """

    tools: tuple[Tool, ...] = ()
    choice: str = "auto"
    parallel: bool = True
    old_form: bool = False
    custom: frozenset[str] = frozenset()
    """The names of those whose input is a text (`custom`)."""


def offer_of(fields: Fields) -> Offer:
    """What a chat request offers; its tools may have the form of responses, too, which some programs send to
    both. Raises `ApiError`.
    """
    if fields.get("functions") and not fields.get("tools"):
        return _old_offer(fields)
    items = () if fields.get("tools") is None else fields.parts("tools")
    for item in items:
        if _kind(item) not in _KINDS:
            raise item.wrong("type", '"function" or "custom"')
        if item.part(_kind(item)) is None and not item.text("name"):
            raise item.wrong(_kind(item), "an object")
    return _offered(fields, [(_kind(item), item.part(_kind(item)) or item) for item in items])


def flat_offer_of(fields: Fields) -> Offer:
    """What a request of the Responses API offers: tools whose type is not "function" or "custom" are ignored.

    Raises `ApiError`.
    """
    items = () if fields.get("tools") is None else fields.parts("tools")
    return _offered(fields, [(_kind(item), item) for item in items if _kind(item) in _KINDS])


def _offered(fields: Fields, items: Sequence[tuple[str, Fields]]) -> Offer:
    """These tools, (type, definition) each, and the choice among them."""
    found, custom, described = list[Tool](), set[str](), set[str]()
    for kind, part in items:
        if kind == "custom":
            schema, note = input_schema(part)
            description = "\n\n".join(text for text in (part.text("description"), note) if text)
            found.append(checked_tool(part, part.text("name"), description, schema))
            custom.add(found[-1].name)
            if note and "pattern" not in schema["properties"][INPUT]:
                described.add(found[-1].name)
        else:
            found.append(_function(part))
    tools, choice = _choice(fields, tuple(found))
    check_enforced(described, tools, choice)
    offer = checked_offer(tools, choice, fields.flag("parallel_tool_calls", True))
    return replace(offer, custom=frozenset(custom))


def checked_offer(tools: tuple[Tool, ...], choice: str, parallel: bool) -> Offer:
    """These tools. Raises `ApiError` if they cannot be offered."""
    _check_names(tools, "tools")
    if choice not in ("auto", "none") and not tools:
        raise bad_request("tool_choice requires a call, but there are no tools; send some.", "tool_choice")
    return Offer(tools, choice, parallel)


def _old_offer(fields: Fields) -> Offer:
    """The functions of OpenAI's first form: `functions` and `function_call`."""
    tools = tuple(_function(part) for part in fields.parts("functions"))
    _check_names(tools, "functions")
    choice = fields.get("function_call")
    if isinstance(choice, dict):
        choice = _chosen(Fields(choice, "function_call"), tools)
    elif choice not in (None, "none", "auto"):
        raise fields.wrong("function_call", '"none", "auto" or an object that names a function')
    return Offer(tools, choice or "auto", parallel=False, old_form=True)


def _check_names(tools: Sequence[Tool], field: str) -> None:
    if len(tools) > MOST_TOOLS:
        raise bad_request(f"There are {len(tools)} {field}; at most {MOST_TOOLS} are accepted.", field)
    names = [tool.name for tool in tools]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise bad_request(f"Two of the {field} are named {twice!r}; names must differ.", field)


def checked_tool(
    place: Fields, name: str, description: str, parameters: Any, field: str = "parameters"
) -> Tool:
    """A tool whose name is at `place`, and whose parameters are its `field`. Raises `ApiError`."""
    if not _NAME.fullmatch(name) or name in TOOL_CHOICES:
        raise place.wrong("name", "a name of up to 128 letters, digits and any of _ - . / for the function")
    if parameters is None:
        return Tool(name, description)
    if not isinstance(parameters, dict) or parameters.get("type", "object") != "object":
        raise place.wrong(field, "the JSON schema of an object")
    if _deeper(parameters, MOST_LEVELS):
        raise bad_request(
            f"{place.place(field)} is nested more than {MOST_LEVELS} levels deep; use $ref for what repeats.",
            place.place(field),
        )
    return Tool(name, description, json.dumps(parameters, ensure_ascii=False))


def _deeper(value: Any, levels: int) -> bool:
    """Whether lists and objects are nested more than `levels` deep."""
    inside = [value]
    for _ in range(levels):
        inside = [
            part
            for one in inside
            for part in (one.values() if isinstance(one, dict) else one)
            if isinstance(part, dict | list)
        ]
        if not inside:
            return False
    return True


_KINDS = ("function", "custom")


def _kind(item: Fields) -> str:
    return item.text("type", "function")


def _function(part: Fields) -> Tool:
    return checked_tool(part, part.text("name"), part.text("description"), part.get("parameters"))


def _choice(fields: Fields, tools: tuple[Tool, ...]) -> tuple[tuple[Tool, ...], str]:
    """The tools that are left to choose from, and the choice."""
    value = fields.get("tool_choice")
    if value == "any":  # Mistral's word
        value = "required"
    if value is None or value in TOOL_CHOICES:
        return tools, value or "auto"
    expected = '"none", "auto", "required" or an object that names a function'
    if not isinstance(value, dict):
        raise fields.wrong("tool_choice", expected)
    choice = Fields(value, "tool_choice")
    kind = choice.text("type", "function")
    if kind == "allowed_tools":
        part = choice.part("allowed_tools") or choice
        mode = part.text("mode", "auto")
        if mode not in ("auto", "required"):
            raise part.wrong("mode", '"auto" or "required"')
        allowed = {_chosen(item, tools) for item in part.parts("tools") if _kind(item) in _KINDS}
        return tuple(tool for tool in tools if tool.name in allowed), mode
    if kind not in _KINDS:
        raise choice.wrong("type", '"function", "custom" or "allowed_tools"')
    return tools, _chosen(choice, tools)


def _chosen(choice: Fields, tools: Iterable[Tool]) -> str:
    """The name of a function, which must be one of the tools."""
    part = choice.part("function") or choice.part("custom") or choice
    name = part.text("name")
    if name not in [tool.name for tool in tools]:
        raise part.wrong("name", "the name of one of the tools")
    return name


# -- calls


def call_deltas(
    piece: CallPiece | None, *, custom: bool = False, old_form: bool = False
) -> list[dict[str, Any]]:
    """A piece of a call as the deltas of a streamed answer have it: the name alone, then arguments, or the
    input of a `custom` tool.
    """
    found = _numbered(piece, *_NAMES[custom])
    return [{"function_call": one["function"]} if old_form else {"tool_calls": [one]} for one in found]


_NAMES = (("function", "arguments"), ("custom", INPUT))


def whole_calls(pieces: Iterable[CallPiece], custom: Collection[str] = ()) -> list[Mapping[str, Any]]:
    """All pieces of a reply's calls as the `tool_calls` of one delta; `custom` as in `Offer`."""
    return [{"index": index, **call} for index, call in enumerate(calls_json(pieces, custom))]


def called(
    pieces: Iterable[CallPiece], custom: Collection[str] = (), *, old_form: bool = False
) -> dict[str, Any]:
    """All pieces of a reply's calls as the fields of a message; `custom` as in `Offer`."""
    calls = calls_json(pieces, custom)
    if not calls:
        return {}
    return {"function_call": calls[0]["function"]} if old_form else {"tool_calls": calls}


def _numbered(piece: CallPiece | None, kind: str, field: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if piece is not None and piece.name:
        found.append(
            {"index": piece.index, "id": piece.id, "type": kind, kind: {"name": piece.name, field: ""}}
        )
    if piece is not None and piece.arguments:
        found.append({"index": piece.index, kind: {field: piece.arguments}})
    return found


def calls_json(pieces: Iterable[CallPiece], custom: Collection[str] = ()) -> list[Mapping[str, Any]]:
    """All pieces of a reply's calls as the calls of a message; `custom` as in `Offer`."""
    found: list[dict[str, Any]] = []
    for piece in pieces:
        if piece.name:
            kind, field = _NAMES[piece.name in custom]
            found.append({"id": piece.id, "type": kind, kind: {"name": piece.name, field: piece.arguments}})
        else:
            kind = found[piece.index]["type"]
            found[piece.index][kind][dict(_NAMES)[kind]] += piece.arguments
    return [*found]
