"""JSON schemas as programs write them: what means nothing in the standard makes no grammar fail."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.constraint.calls.schema import argument_schema
from engine.constraint.grammar import GrammarFilter
from engine.constraint.grammar_source import schema_source
from engine.constraint.written_schema import as_meant, meant_pattern
from engine.core import Tool
from engine.errors import BadSetting
from tests.engine.generator.fakes import tokenizer

TEXT, NUMBER = {"type": "string"}, {"type": "integer"}


def one(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema}, "required": ["a"], **more}


def allows(schema: dict[str, Any], value: Any) -> bool:
    return GrammarFilter(tokenizer(), schema_source(schema)).follow(json.dumps(value).encode())


@pytest.mark.parametrize(
    ("schema", "fits", "other"),
    [
        (one(NUMBER, **{"$id": "Output Format", "$schema": "https://json-schema.org/draft-07/schema"}),
         {"a": 1}, {"a": "x"}),
        (one({**NUMBER, "$id": "no id"}), {"a": 1}, {"a": "x"}),
        (one({"$ref": "https://x.org/y#/$defs/A"}, **{"$id": "https://x.org/y", "$defs": {"A": NUMBER}}),
         {"a": 1}, {"a": "x"}),
        (one({**TEXT, "format": "password"}), {"a": "x"}, {"a": 1}),
        (one({**TEXT, "enum": None, "format": None, "minLength": None, "description": None}, allOf=None),
         {"a": "x"}, {"a": 1}),
        ({"type": "object", "properties": {"a": NUMBER}, "required": None}, {}, {"a": "x"}),
        (one({**TEXT, "minLength": 1.0, "maxLength": 2.0}), {"a": "xy"}, {"a": "xyz"}),
        ({"properties": {"a": NUMBER}, "required": ["a", "b"], "type": "object"},
         {"a": 1, "b": []}, {"a": 1, "b": 1, "c": 1}),
        (one({**TEXT, "pattern": "^{[[]}$"}), {"a": "{[}"}, {"a": "[]"}),
    ],
)  # fmt: skip
def test_what_means_nothing_is_left_out(schema: dict[str, Any], fits: Any, other: Any) -> None:
    assert allows(schema, fits)
    assert not allows(schema, other)
    argument_schema(Tool("look", parameters=json.dumps(schema)), lenient=False)


def test_members_and_values_may_have_the_names_of_keywords() -> None:
    schema = {
        "properties": {
            "format": {"const": None, "default": None},
            "$id": {"enum": [None, {"format": "x y"}]},
        },
        "$id": "urn:x",
    }
    assert as_meant(schema) == schema
    closed = one(NUMBER, required=["a", "b"], additionalProperties=False)
    assert as_meant(closed) == closed


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("^{.*}$", r"^\{.*}$"), ("x{,3}y{2}z{2,}", r"x\{,3}y{2}z{2,}"), (r"\{a\}\p{L}", r"\{a\}\p{L}"),
        (r"[a[^b]{", r"[a\[^b]\{"), (r"[^[\]]", r"[^\[\]]"), ("[^][]", r"[^]\[]"), ("[a[]{", r"[a\[]\{"),
        ("[[:alpha:]{]", "[[:alpha:]{]"), ("[a&&b~~]&&", r"[a&\&b~\~]&&"),
        (r"\cA\0[\b]\b", r"\x01\x00[\x08]\b"), (r"[[]a]b", r"[\[]a]b"),
    ],
)  # fmt: skip
def test_patterns_are_those_of_ecmascript(pattern: str, meant: str) -> None:
    assert meant_pattern(pattern) == meant


@pytest.mark.parametrize(
    "part", [{**TEXT, "pattern": "^(?!x)"}, {**TEXT, "pattern": r"\bx\b"}, {**TEXT, "enum": []}]
)
def test_only_where_a_call_is_free_a_tool_may_ask_for_what_no_grammar_follows(part: Any) -> None:
    schema = {"type": "object", "properties": {"a": part, "b": NUMBER}, "required": ["a", "b"]}
    tool = Tool("look", parameters=json.dumps(schema))
    assert argument_schema(tool, lenient=True)["properties"] == {"a": TEXT, "b": NUMBER}
    with pytest.raises(BadSetting):
        argument_schema(tool, lenient=False)
