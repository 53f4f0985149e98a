"""Schemas of all sorts, in all forms of calls: whatever the grammar allows satisfies the schema."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest

from engine.constraint.calls.grammar import CallGrammar
from engine.constraint.calls.values import raw_pattern
from engine.constraint.grammar import GrammarFilter
from engine.core import CallPiece, Tool
from engine.text.tools.form import CDATA, HERMES, KNOWN, CallForm
from engine.text.tools.parser import ToolParser
from engine.text.tools.writing import written_calls
from tests.engine.constraint.test_call_grammars import walk
from tests.engine.generator.fakes import tokenizer

WRAPPED = CallForm(
    "tagged", call=('<function name="', "</function>"), after_name=('">', ""),
    parameter=('<param name="', '">', "</param>"), wrapped=CDATA,
)  # fmt: skip
TYPED = CallForm(
    "tagged", section=("<calls>", "</calls>"), call=('\n<invoke name="', "\n</invoke>"),
    after_name=('">', ""), parameter=('\n<p name="', '" string="true">', "</p>"),
    json_value='" string="false">',
)  # fmt: skip
FORMS = {"wrapped": WRAPPED, "typed": TYPED, "hermes": HERMES, **dict(KNOWN)}
PAIR = {"type": "object", "properties": {"q": {"enum": ["u", "v"]}, "n": {"type": "integer", "minimum": 0}},
        "required": ["q"]}  # fmt: skip
LEAVES: tuple[dict[str, Any], ...] = (
    {"type": "string", "maxLength": 4}, {"type": "string", "minLength": 1, "maxLength": 3},
    {"type": "integer"}, {"type": "integer", "minimum": -5, "maximum": 20},
    {"type": "number", "minimum": 0, "maximum": 1},
    {"type": "boolean"}, {"enum": ["a", "b", 3, None]}, {"enum": ["a", "b"]}, {"const": "c d"},
    {"type": ["string", "null"], "maxLength": 2}, {"type": "string", "pattern": "^[a-c]{1,3}$"},
    {"type": "string", "pattern": "^x|y$"}, {"type": "string", "pattern": "^\\d{2}$"},
    {"$ref": "#/$defs/Pair"},
)  # fmt: skip


def schema(rng: random.Random, depth: int) -> dict[str, Any]:
    kind = rng.random()
    if not depth or kind < 0.5:
        return rng.choice(LEAVES)
    if kind < 0.7:
        return {"type": "array", "items": schema(rng, depth - 1), "minItems": rng.randrange(3), "maxItems": 2}
    if kind < 0.85:
        return {"anyOf": [schema(rng, depth - 1), rng.choice([{"type": "null"}, {"$ref": "#/$defs/Pair"}])]}
    return object_schema(rng, depth - 1)


def object_schema(rng: random.Random, depth: int) -> dict[str, Any]:
    names = rng.sample(["a", "b", "city", "x_y"], rng.randrange(1, 4))
    return {
        "type": "object",
        "properties": {name: schema(rng, depth) for name in names},
        "required": names[: rng.randrange(len(names) + 1)],
    }


def arguments_of(form: CallForm, tool: Tool, text: str) -> Any:
    parser = ToolParser(form, (tool,))
    pieces = parser.feed(text) + parser.finish()
    assert not "".join(piece for piece in pieces if isinstance(piece, str)).strip(), text
    return json.loads("".join(piece.arguments for piece in pieces if isinstance(piece, CallPiece)))


@pytest.mark.parametrize("name", FORMS)
def test_whatever_is_allowed_satisfies_the_schema(name: str) -> None:
    form, ended = FORMS[name], 0
    for seed in range(8):
        found = {**object_schema(random.Random(seed), 2), "$defs": {"Pair": PAIR}}
        tool = Tool("look", parameters=json.dumps(found))
        text = walk(GrammarFilter(tokenizer(), CallGrammar(form, (tool,), several=False).whole()), seed)
        if text is not None:
            ended += 1
            jsonschema.validate(arguments_of(form, tool, text), found)
    assert ended > 2


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(
    ("one", "values", "wrong"),
    [
        ({"type": ["string", "integer"]}, ["a", "", 7], [None]),
        ({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}]}, ["abc", [1, 2]],
         [7]),
        ({"enum": ["a", 1, None, True]}, ["a", 1, None, True], ["b", 2]),
        ({"type": "string", "enum": ["x y", "z"]}, ["x y", "z"], ["x", ""]),
        ({"type": "object", "properties": {"b": {"type": "number"}}, "required": ["b"]}, [{"b": 0.5}], [{}]),
        ({"type": "string", "format": "date-time"}, ["2024-02-29T12:00:00Z"], ["2024-02-29"]),
    ],
)  # fmt: skip
def test_values_as_models_write_them(
    name: str, one: dict[str, Any], values: list[Any], wrong: list[Any]
) -> None:
    form = FORMS[name]
    tool = Tool("look", parameters=json.dumps({"properties": {"a": one}, "required": ["a"]}))
    filter = GrammarFilter(tokenizer(), CallGrammar(form, (tool,)).whole())
    for value in values:
        filter.begin(b"")
        text = written_calls(form, [("look", {"a": value})]).strip()
        assert filter.follow(text.encode()), text
        assert arguments_of(form, tool, text) == {"a": value}
    for value in wrong:
        filter.begin(b"")
        text = written_calls(form, [("look", {"a": value})]).strip()
        fits = filter.follow(text.encode()) and filter.may_end
        assert not fits or arguments_of(form, tool, text) != {"a": value}


@pytest.mark.parametrize(
    ("pattern", "expression"),
    [
        ("^a$", "((a))"), ("a", "((?s:.*)(a)(?s:.*))"), ("^a|b$", "((a)(?s:.*)|(?s:.*)(b))"),
        ("^[|(]$", r"(([|(]))"), ("^(a|b)$", "(((a|b)))"), ("(?=a)b", "(?s:.*)"), ("(", "(?s:.*)"),
        ("a^b", "(?s:.*)"), (r"^\|$", r"((\|))"),
    ],
)  # fmt: skip
def test_patterns_of_whole_texts(pattern: str, expression: str) -> None:
    assert raw_pattern({"pattern": pattern}) == expression
