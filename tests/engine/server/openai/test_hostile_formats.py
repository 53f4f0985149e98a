"""Formats that are made to be expensive: each gets a sentence or a reply."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.engine.server.served import Served, complete

pytestmark = [pytest.mark.loopback, pytest.mark.slow]
NUMBER = {"type": "number"}


def array(count: int, items: Any = NUMBER) -> dict[str, Any]:
    return {"type": "array", "minItems": count, "items": items}


def doubled(depth: int) -> dict[str, Any]:
    names = [f"d{i}" for i in range(depth + 1)]
    definitions: dict[str, Any] = {
        name: {
            "type": "object",
            "properties": {key: {"$ref": f"#/$defs/d{i + 1}"} for key in "ab"},
            "required": ["a", "b"],
        }
        for i, name in enumerate(names[:-1])
    }
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, names[-1]: NUMBER}}


def required(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties]}


SCHEMAS: dict[str, Any] = {
    "items": array(10**9),
    "some items": array(3000),
    "nested items": array(100, array(100, array(100))),
    "length": {"type": "string", "minLength": 10**9},
    "some length": required(a={"type": "string", "minLength": 5000}),
    "properties": {"type": "object", "minProperties": 2000, "additionalProperties": NUMBER},
    "pattern properties": {
        "type": "object",
        "minProperties": 1,
        "patternProperties": {"^[a-z]{50,2000}$": array(400)},
        "additionalProperties": False,
    },
    "constant": {"const": "x" * 100_000},
    "enum": {"enum": [f"{i}{'y' * 1000}" for i in range(180)]},
    "pattern": required(a={"type": "string", "pattern": "^[a-z]{5000}$"}),
    "required": required(**{f"p{i}": NUMBER for i in range(2000)}),
    "doubled": doubled(40),
    "all": {"allOf": [array(count) for count in range(1, 300)]},
    "multiple": {"type": "integer", "multipleOf": 999999937},
}
PATTERNS = ["[a-z]{5000}", "(ab|cd){50000}", "(([a-z]{100}){100}){100}", "(.*a.{20}){20}"]


def judged(found: Any) -> None:
    """A whole reply, one that is cut at its limit, or one sentence."""
    if found.status == 200:
        assert found.json["choices"][0]["finish_reason"] in ("stop", "length")
        return
    assert found.status == 400
    message = found.error["message"]
    assert message.endswith(".")
    assert len(message) < 300
    assert "Traceback" not in message


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas(served: Served, name: str) -> None:
    format = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMAS[name]}}
    found = complete(served, response_format=format)
    judged(found)
    if found.status == 200 and found.json["choices"][0]["finish_reason"] == "stop":
        json.loads(found.json["choices"][0]["message"]["content"])
    assert served.idle()


@pytest.mark.parametrize("pattern", PATTERNS)
def test_expressions(served: Served, pattern: str) -> None:
    judged(complete(served, structured_outputs={"regex": pattern}))
    assert served.idle()


def test_choices(served: Served) -> None:
    judged(complete(served, structured_outputs={"choice": [f"{i} {'z' * 170}" for i in range(1000)]}))
    assert served.idle()


def test_arguments_of_a_tool(served: Served) -> None:
    tool = {"type": "function", "function": {"name": "add", "parameters": required(a=array(3000))}}
    judged(complete(served, tools=[tool], tool_choice="required"))
    assert served.idle()
