"""Schemas of replies are closed to members that they do not name, whoever asks for the reply."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from engine.constraint.closed_schema import closed
from engine.constraint.grammar import GrammarFilter
from tests.engine.generator.fakes import tokenizer

A: dict[str, Any] = {"a": {"type": "integer"}}
B: dict[str, Any] = {"b": {"type": "integer"}}
NOTED: dict[str, Any] = {"type": "object", "title": "T", "properties": A, "uniqueItems": True}
LIST: dict[str, Any] = {"type": "array", "items": {"type": "object", "properties": A}}
REFERRED: dict[str, Any] = {"$ref": "#/$defs/X", "$defs": {"X": {"type": "object", "properties": A}}}
JOINED: dict[str, Any] = {"allOf": [{"$ref": "#/$defs/X"}, {"properties": B}], "$defs": REFERRED["$defs"]}
CHOICE: dict[str, Any] = {
    "anyOf": [{"properties": A, "required": ["a"]}, {"properties": B, "required": ["b"]}]
}
OPEN: tuple[dict[str, Any], ...] = (
    {"type": "object"}, {"properties": {}}, {"properties": A, "additionalProperties": True},
    {"properties": A, "additionalProperties": {"type": "string"}},
    {"properties": A, "patternProperties": {"^x": {}}}, {"properties": A, "required": ["a", "z"]},
    {"properties": A, "minProperties": 2}, {"properties": A, "propertyNames": {"maxLength": 3}},
    {"properties": A, "unevaluatedProperties": False}, {"properties": A, "dependentRequired": {"a": ["z"]}},
    {"properties": A, "if": {"required": ["z"]}, "then": {}}, {"enum": [{"properties": A}]},
)  # fmt: skip


@pytest.mark.parametrize("schema", OPEN, ids=str)
def test_a_schema_that_says_or_needs_more_is_left_as_it_is(schema: dict[str, Any]) -> None:
    assert closed(schema) == schema


def test_objects_are_closed_at_any_depth_and_nothing_else_changes() -> None:
    assert closed(NOTED) == {**NOTED, "additionalProperties": False}
    assert closed(LIST)["items"]["additionalProperties"] is False
    assert closed(REFERRED)["$defs"]["X"]["additionalProperties"] is False
    assert closed({**REFERRED, "anyOf": [{"properties": B}]})["$defs"] == REFERRED["$defs"]
    assert closed({"allOf": [True, {"properties": A}]})["additionalProperties"] is False
    least = {"properties": A, "minProperties": 1, "required": ["a"]}
    assert closed(least) == {**least, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "more", "fits"),
    [
        ({"type": "object", "properties": A}, {"a": 1, "z": 1}, {"a": 1}),
        (LIST, [{"a": 1, "z": 1}], [{"a": 1}]),
        (REFERRED, {"a": 1, "z": 1}, {"a": 1}), (JOINED, {"a": 1, "b": 2, "z": 1}, {"a": 1, "b": 2}),
        (CHOICE, {"b": 1, "z": 1}, {"b": 1}),
    ],
    ids=["plain", "list", "reference", "joined", "choice"],
)  # fmt: skip
def test_members_that_a_schema_does_not_name_are_not_written(
    schema: dict[str, Any], more: Any, fits: Any
) -> None:
    jsonschema.validate(more, schema)  # open, it allows them
    jsonschema.validate(fits, closed(schema))
    filter = GrammarFilter.json_schema(tokenizer(), schema)
    for value, allowed in ((more, False), (fits, True)):
        filter.begin(b"")
        assert (filter.follow(json.dumps(value).encode()) and filter.may_end) is allowed


def test_parts_that_refer_to_themselves_are_looked_at_once() -> None:
    itself = {"properties": A, "anyOf": [{"$ref": "#/$defs/X"}] * 400}
    found = closed({"$ref": "#/$defs/X", "properties": B, "$defs": {"X": itself}})
    assert (set(found["properties"]), found["additionalProperties"]) == ({"a", "b"}, False)
