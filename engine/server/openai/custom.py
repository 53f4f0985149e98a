"""Custom tools of OpenAI's APIs: those whose input is a text, not JSON.

To the engine such a tool has one argument, `input`, which is a text; `InputText` takes it out of the JSON
while that is written.

Source: OpenAI's API reference, "Create chat completion" and "Create a model response", tools of the type
"custom".
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from engine.constraint.lark_regex import regex_of_lark
from engine.core import Tool
from engine.server.failure import bad_request
from engine.server.fields import Fields

INPUT = "input"
"""The argument of such a tool."""
_HEAD = re.compile(rf'\s*\{{\s*"{INPUT}"\s*:\s*"')
_HIGH, _LOW = r"\\u[dD][89abAB][0-9a-fA-F]{2}", r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_WHOLE = re.compile(
    rf'(?:[^"\\]|\\[^u]|{_HIGH}(?:{_LOW}|(?=.{{6}}|"))|(?!{_HIGH})\\u[0-9a-fA-F]{{4}})*', re.DOTALL
)
"""Characters of a JSON text whose ends are there; the halves of a surrogate pair belong together."""


class InputText:
    """The text of `input` while the JSON of a call's arguments comes.

    Arguments that do not begin with it, or with another value, give theirs at their end: that of `input`, or
    else all of them, as JSON.
    """

    def __init__(self) -> None:
        self._rest = ""
        self._begun = False

    def feed(self, arguments: str) -> str:
        """The further text that a piece of the JSON has."""
        self._rest += arguments
        if not self._begun:
            head = _HEAD.match(self._rest)
            if head is None:
                return self._at_end()
            self._begun, self._rest = True, self._rest[head.end() :]
        found = _WHOLE.match(self._rest)
        assert found is not None
        self._rest = self._rest[found.end() :]
        return str(json.loads(f'"{found[0]}"', strict=False))

    def _at_end(self) -> str:
        if not self._rest.endswith("}"):
            return ""
        try:
            given = json.loads(self._rest, strict=False)
        except ValueError:  # not the last brace
            return ""
        self._rest, value = "", given.get(INPUT, given)
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def input_json(text: str) -> str:
    """The arguments of a call with this input, as JSON."""
    return json.dumps({INPUT: text}, ensure_ascii=False)


def input_schema(place: Fields) -> tuple[Mapping[str, Any], str]:
    """The schema of the arguments of a tool whose `format` stands at `place`, and what its description says
    of a grammar, or "". A recursive Lark grammar is not in the schema. Raises `ApiError`.
    """
    format = place.part("format")
    kind = "text" if format is None else format.text("type", "text")
    text: dict[str, Any] = {"type": "string"}
    note = ""
    if format is not None and kind == "grammar":
        grammar = format.part("grammar") or format
        syntax, definition = grammar.text("syntax"), grammar.text("definition")
        if syntax not in ("lark", "regex"):
            raise grammar.wrong("syntax", '"lark" or "regex"')
        if not definition:
            raise grammar.wrong("definition", "a grammar")
        if syntax == "regex":
            text["pattern"] = f"^(?:{definition})$"
        else:
            note = f"The input follows this Lark grammar:\n\n{definition}"
            if (expression := regex_of_lark(definition)) is not None:
                text["pattern"] = f"^(?:{expression})$"
    elif kind != "text":
        assert format is not None
        raise format.wrong("type", '"text" or "grammar"')
    return {"type": "object", "properties": {INPUT: text}, "required": [INPUT]}, note


def check_enforced(described: Collection[str], tools: tuple[Tool, ...], choice: str) -> None:
    """Raise `ApiError` if a call is required that could be of a tool whose grammar is only `described`."""
    named = [tool.name for tool in tools] if choice == "required" else [choice]
    if found := next((name for name in named if name in described), ""):
        raise bad_request(
            f"The Lark grammar of the custom tool {found!r} is recursive or uses features that are not "
            'supported, so a call cannot be made to fit it. Send a simpler one, or the tool_choice "auto".',
            "tools",
        )
