"""`uniqueItems`: lists of a few known values are enforced; what cannot be is refused."""

from __future__ import annotations

import json
import random
from itertools import product
from typing import Any

import jsonschema
import pytest

from engine.constraint.grammar import GrammarFilter
from engine.errors import BadSetting
from tests.engine.generator.fakes import tokenizer

ENUM: dict[str, Any] = {"enum": ["a", "b", 1]}
KNOWN: tuple[tuple[dict[str, Any], tuple[Any, ...]], ...] = (
    ({"type": "array", "items": ENUM}, ("a", "b", 1, 2)),
    ({"type": "array", "items": ENUM, "minItems": 1, "maxItems": 2, "title": "T"}, ("a", "b", 1)),
    ({"type": ["array", "null"], "items": ENUM}, ("a", "b", 1)),
    ({"type": "array", "items": {"type": "boolean"}}, (True, False, None)),
    ({"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 3}}, (0, 1, 2, 3, 4)),
    ({"type": "array", "items": {"enum": ["a", "b", 1], "type": "string"}}, ("a", "b", 1)),
    ({"type": "array", "items": {"const": "a"}, "minItems": 1}, ("a", "b")),
    ({"type": "array", "items": {"$ref": "#/$defs/T"}, "$defs": {"T": {"enum": ["a"]}}}, ("a", "b")),
    ({"type": "array", "items": {"enum": [*"abcdefghijklmnopqrst"]}, "maxItems": 2}, ("a", "b", "t", "u")),
)


@pytest.mark.parametrize(("schema", "values"), KNOWN, ids=[str(number) for number in range(len(KNOWN))])
def test_lists_of_known_values_have_each_once(schema: dict[str, Any], values: tuple[Any, ...]) -> None:
    schema = {**schema, "uniqueItems": True}
    made = GrammarFilter.json_schema(tokenizer(), schema)
    validator = jsonschema.Draft202012Validator(schema)
    lists = [list(one) for count in range(5) for one in product(values, repeat=count)]
    for value in [*random.Random(0).sample(lists, min(80, len(lists))), [], None, "a", {}]:
        follows = made.copy()
        taken = follows.follow(json.dumps(value).encode()) and follows.may_end
        assert taken == validator.is_valid(value), value


def test_any_list_may_be_one_of_a_larger_schema() -> None:
    schema = {
        "type": "object",
        "properties": {
            "tags": {"type": "array", "items": {"$ref": "#/$defs/Tag"}, "uniqueItems": True},
            "words": {"type": "array", "items": {"type": "string"}, "uniqueItems": False},
            "uniqueItems": {"type": "boolean"},
        },
        "required": ["tags", "words", "uniqueItems"],
        "$defs": {"Tag": {"title": "Tag", "type": "string", "enum": ["red", "blue"]}},
    }
    rest = '"words": ["x", "x"], "uniqueItems": true}'
    made = GrammarFilter.json_schema(tokenizer(), schema)
    assert made.can_begin(f'{{"tags": ["blue", "red"], {rest}'.encode())
    assert not made.can_begin(b'{"tags": ["blue", "blue"')


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "uniqueItems": False}, {"type": "string", "uniqueItems": True},
        {"type": "array", "maxItems": 1, "uniqueItems": True}, {"enum": [{"uniqueItems": True}]},
    ],
)  # fmt: skip
def test_where_it_says_nothing_it_is_no_hindrance(schema: dict[str, Any]) -> None:
    GrammarFilter.json_schema(tokenizer(), schema)


@pytest.mark.parametrize(
    "schema",
    [
        {}, {"items": {"type": "string"}}, {"items": {"enum": [*"abcdefghij"]}}, {"items": [ENUM]},
        {"items": ENUM, "contains": {}}, {"items": ENUM, "prefixItems": [{}]}, {"items": {}},
        {"items": {"type": "integer", "minimum": 1}}, {"items": {"$ref": "#/nowhere"}},
        {"items": {"enum": ["a", "b"], "not": {"const": "a"}}},
        {"items": {"$ref": "#/$defs/T", "enum": ["a"]}, "$defs": {"T": ENUM}},
        {"items": {"$ref": "#/$defs/T"}, "$defs": {"T": {"$ref": "#/$defs/U", "type": "string"}, "U": ENUM}},
        {"type": "object", "properties": {
            name: {"type": "array", "items": {"enum": [*"abcdef"]}, "uniqueItems": True} for name in "xy"}},
    ],
)  # fmt: skip
def test_what_cannot_be_enforced_is_refused_in_a_sentence(schema: dict[str, Any]) -> None:
    with pytest.raises(BadSetting, match=r'"uniqueItems".* cannot be enforced'):
        GrammarFilter.json_schema(tokenizer(), {"type": "array", "uniqueItems": True} | schema)


@pytest.mark.parametrize(
    "wrong",
    [
        {"maxItems": "2"}, {"minItems": [1]}, {"maxItems": -1}, {"uniqueItems": "yes"}, {"uniqueItems": 1},
        {"items": {"type": 5, "enum": [1]}}, {"items": {"enum": [1], "minimum": "a"}}, {"items": {"enum": 3}},
    ],
)  # fmt: skip
def test_values_of_a_wrong_kind_are_refused_in_a_sentence(wrong: dict[str, Any]) -> None:
    schema = {"type": "array", "items": ENUM, "uniqueItems": True} | wrong
    with pytest.raises(BadSetting, match="JSON schema"):
        GrammarFilter.json_schema(tokenizer(), schema)


def test_more_items_than_values_are_refused() -> None:
    schema = {"type": "array", "items": ENUM, "minItems": 4, "uniqueItems": True}
    with pytest.raises(BadSetting, match="JSON schema"):
        GrammarFilter.json_schema(tokenizer(), schema)
