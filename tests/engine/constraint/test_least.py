"""The least length of a schema's texts: what its keywords add up to, no more than the shortest."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import pytest

from engine.constraint.grammar import GrammarFilter
from engine.constraint.grammar_source import schema_source
from engine.constraint.least import least_bytes
from engine.errors import BadSetting
from tests.engine.constraint.fakes import tokenizer_of

ANY = tokenizer_of([bytes([byte]) for byte in range(0x20, 0x7F)])
ITEMS = {"type": "array", "minItems": 1000}


@pytest.mark.parametrize(
    ("schema", "least"),
    [
        (True, 1),
        (False, 1),
        ({}, 1),
        ({"type": "null"}, 1),
        ({"type": "string", "minLength": 10**9}, 10**9 + 2),
        ({"minLength": 10**9}, 1),
        ({"type": ["string", "array"], "minLength": 50, "minItems": 7}, 9),
        (ITEMS, 1002),
        ({**ITEMS, "items": {**ITEMS, "items": {"type": "string"}}}, 2 + 1000 * (2 + 1000 * 2)),
        ({**ITEMS, "prefixItems": [{"type": "string", "minLength": 8}, {}]}, 2 + 10 + 1 + 998),
        ({"type": "object", "minProperties": 100}, 402),
        (
            {"type": "object", "required": ["name"], "properties": {"name": {"const": "x" * 50}}},
            2 + 6 + 1 + 52,
        ),
        ({"const": ["abc", {"k": 1}]}, 2 + 5 + 2 + 3 + 1 + 1),
        ({"enum": ["x" * 100, "y" * 40, None]}, 1),
        ({"enum": ["x" * 100, "y" * 40]}, 42),
        ({"anyOf": [{"type": "string", "minLength": 5}, ITEMS]}, 7),
        ({"oneOf": [ITEMS, {"type": "string", "minLength": 5}]}, 7),
        ({"allOf": [{"type": "string", "minLength": 5}, ITEMS]}, 1002),
        ({"$ref": "#/$defs/a", "$defs": {"a": ITEMS}}, 1002),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": ITEMS}}, 1002),
        ({"$ref": "#/$defs/a", "minItems": 10**9, "type": "array", "$defs": {"a": {}}}, 1),
        ({"$ref": "#name", "$defs": {"a": {"$anchor": "name", **ITEMS}}}, 1),
        ({"$ref": "https://example.com/a"}, 1),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$id": "https://example.com/a", **ITEMS}}}, 1),
        ({"type": "array", "minItems": 3, "items": {"$ref": "#"}}, 2 + 3 * (2 + 3)),  # it has no end
        ({"type": "array", "minItems": -4, "maxItems": "x"}, 2),
        ({"type": 5}, 1),
    ],
)
def test_what_a_schema_asks_for(schema: Any, least: int) -> None:
    assert least_bytes(schema) == least


def test_references_that_double_are_counted_and_not_followed() -> None:
    names = [f"d{i}" for i in range(61)]
    definitions: dict[str, Any] = {
        name: {
            "type": "array",
            "minItems": 2,
            "prefixItems": [{"$ref": f"#/$defs/{after}"}, {"$ref": f"#/$defs/{after}"}],
        }
        for name, after in pairwise(names)
    }
    schema = {"$ref": "#/$defs/d0", "$defs": {**definitions, "d60": {"type": "null"}}}
    assert least_bytes(schema) == 2**60 + 2 * (2**60 - 1)


def test_nested_too_deeply_is_no_error() -> None:
    schema: Any = {"type": "array", "minItems": 5}
    for _ in range(3000):
        schema = {"type": "array", "minItems": 1, "items": schema}
    assert least_bytes(schema) == 1


def any_schema(dice: random.Random, depth: int = 0) -> dict[str, Any]:
    kinds = ["string", "array", "object", "const", "enum", "anyOf", "ref", "two", "integer"]
    kind = dice.choice(kinds if depth < 3 else ["string", "const", "integer"])
    if kind == "string":
        return {"type": "string", "minLength": dice.randrange(4)}
    if kind == "array":
        first = [any_schema(dice, depth + 1) for _ in range(dice.randrange(2))]
        more = {"prefixItems": first} if first else {}
        return {"type": "array", "minItems": dice.randrange(4), "items": any_schema(dice, depth + 1), **more}
    if kind == "object":
        names = dice.sample(["a", "bc", "long name"], dice.randrange(3))
        properties = {name: any_schema(dice, depth + 1) for name in names}
        required = dice.sample(names, dice.randrange(len(names) + 1))
        return {"type": "object", "properties": properties, "required": required}
    values: list[Any] = ["text", 'a "quoted" one', 100000, 1.5, None, [1, "x"], {"k": "v"}]
    if kind == "const":
        return {"const": dice.choice(values)}
    if kind == "enum":
        return {"enum": dice.sample(values, 2)}
    if kind == "anyOf":
        return {"anyOf": [any_schema(dice, depth + 1) for _ in range(2)]}
    if kind == "two":
        return {"type": ["string", "array"], "minLength": dice.randrange(5), "minItems": dice.randrange(3)}
    return {"$ref": "#/$defs/one"} if kind == "ref" else {"type": "integer", "minimum": 10}


def test_no_more_than_the_shortest_text() -> None:
    dice, checked, exact = random.Random(4), 0, 0
    while checked < 30:
        schema = {**any_schema(dice), "$defs": {"one": {"type": "string", "minLength": 3}}}
        try:
            one = GrammarFilter(ANY, source := schema_source(schema))
        except BadSetting:
            continue
        shortest = one.completion(b"")
        assert shortest is not None
        assert source.least == least_bytes(schema) <= len(shortest), schema
        json.loads(shortest)
        checked += 1
        exact += source.least == len(shortest)
    assert exact > 5
