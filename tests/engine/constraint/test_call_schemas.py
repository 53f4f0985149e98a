"""Schemas of all sorts, in all forms of calls: whatever the grammar allows satisfies the schema."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest

from engine.constraint.calls.grammar import CallGrammar
from engine.constraint.calls.texts import FREE, texts_of
from engine.constraint.grammar import GrammarFilter
from engine.core import CallPiece, Tool
from engine.errors import BadSetting
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
NESTED = CallForm(
    "elements", section=("=<calls>", "\n=</calls>"), call=('\n=<call of="', "=</call>"),
    after_name=('">', ""), parameter=("=<", ">", "=</"), item="one",
)  # fmt: skip
FORMS = {"wrapped": WRAPPED, "typed": TYPED, "nested": NESTED, "hermes": HERMES, **dict(KNOWN)}
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
        ("^[|(]$", r"(([|(]))"), ("^(a|b)$", "((a)|(b))"), (r"^\|$", r"((\|))"),
        ("(^a|b$)", "((a)(?s:.*)|(?s:.*)(b))"), ("^(?:a|b$)", "((a)(?s:.*)|(b))"), ("^[]|$]$", "(([]|$]))"),
        ("(?i)^a$", "(((?i)a))"), ("^(?P<x>a)b$", "(((a)b))"), (r"^a\\\\$", r"((a\\\\))"),
        (r"^a\$", r"((a\$)(?s:.*))"),
        ("^[^]a[b]]$", "(([^]a[b]]))"), ("^a]b$", "((a]b))"), ("^(a]|b)$", "((a])|(b))"),
    ],
)  # fmt: skip
def test_patterns_of_whole_texts(pattern: str, expression: str) -> None:
    assert texts_of({"pattern": pattern}, {}, lenient=False) == f"/{expression}/"


@pytest.mark.parametrize("pattern", ["(?=a)b", "a^b", r"\bword", "(a^|b)c", "(a)\\1", r"\Aa"])
def test_patterns_that_cannot_be_enforced_are_named(pattern: str) -> None:
    with pytest.raises(BadSetting, match="cannot be enforced"):
        texts_of({"pattern": pattern}, {}, lenient=False)
    assert texts_of({"pattern": pattern}, {}, lenient=True) == FREE


STRINGS: list[tuple[dict[str, Any], list[str], list[str]]] = [
    (
        {"type": "string", "pattern": "^a*$", "minLength": 2, "maxLength": 3},
        ["aa", "aaa"],
        ["a", "aaaa", "ab"],
    ),
    ({"type": "string", "pattern": "b", "maxLength": 2}, ["b", "ab"], ["a", "abc", ""]),
    ({"type": "string", "format": "date", "pattern": "^2"}, ["2024-01-02"], ["1999-01-02", "2"]),
    ({"type": "string", "allOf": [{"pattern": "^a"}, {"pattern": "b$"}]}, ["ab", "acb"], ["a", "b"]),
    (
        {"allOf": [{"type": "string", "maxLength": 3}, {"minLength": 2}, {"maxLength": 5}]},
        ["ab"],
        ["a", "abcd"],
    ),
    (
        {"anyOf": [{"type": "string", "pattern": "^a$"}, {"type": "string", "minLength": 3}]},
        ["a", "bcd"],
        ["b"],
    ),
    ({"type": "string", "oneOf": [{"const": "x"}, {"enum": ["y", "z"]}], "maxLength": 1}, ["x", "z"], ["w"]),
    ({"type": "string", "enum": ["ab", "b", "abc"], "pattern": "a", "maxLength": 2}, ["ab"], ["b", "abc"]),
    ({"$ref": "#/$defs/Word", "maxLength": 2}, ["ab"], ["abc", "a1"]),
    ({"type": ["string", "null"], "anyOf": [{"pattern": "^a"}, {"type": "null"}]}, ["a"], ["b"]),
    ({"type": "string", "pattern": "^\\p{Lu}+$"}, ["AB"], ["ab"]),
    ({"type": "string", "format": "hostname"}, ["a.example"], ["a b", "-a"]),
    ({"type": "string", "format": "ipv6"}, ["::1", "2001:db8::8:800"], ["1", "1::2::3", ":::"]),
    ({"type": "string", "format": "duration"}, ["P1DT2H", "PT5M"], ["P", "1D", "PT"]),
]


@pytest.mark.slow_after(60)
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(("one", "right", "wrong"), STRINGS)
def test_all_that_a_schema_says_of_a_string_holds(
    name: str, one: dict[str, Any], right: list[str], wrong: list[str]
) -> None:
    form = FORMS[name]
    parameters = {
        "properties": {"a": one}, "required": ["a"],
        "$defs": {"Word": {"type": "string", "pattern": "^[a-z]+$"}},
    }  # fmt: skip
    tool = Tool("look", parameters=json.dumps(parameters))
    filter = GrammarFilter(tokenizer(), CallGrammar(form, (tool,)).whole())
    for value, fits in [*((one, True) for one in right), *((one, False) for one in wrong)]:
        filter.begin(b"")
        text = written_calls(form, [("look", {"a": value})]).strip()
        assert (filter.follow(text.encode()) and filter.may_end) == fits, text


OBJECTS: list[tuple[dict[str, Any], list[Any], list[Any]]] = [
    ({"type": "array", "items": False}, [[]], [[1]]),
    ({"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "boolean"}, "minItems": 2},
     [[1, True], [1, True, False]], [[1], [True, True], [1, 2]]),
    ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}], "items": {"type": "null"},
      "maxItems": 3}, [[], [1], [1, True], [1, True, None]], [[True], [1, True, None, None]]),
    ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}], "items": False,
      "maxItems": 1}, [[], [1]], [[1, True]]),
    ({"type": "array", "allOf": [{"items": {"type": "integer"}}, {"items": {"minimum": 3}, "minItems": 1}]},
     [[3, 4]], [[], [2]]),
    ({"type": "object", "required": ["z"], "additionalProperties": {"type": "integer"}}, [{"z": 1}],
     [{}, {"z": True}]),
    ({"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 2, "maxProperties": 3},
     [{"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}], [{"a": 1}, {"a": 1, "b": 2, "c": 3, "d": 4}]),
    ({"type": "object", "properties": {"x": {"type": "integer"}, "y": False}}, [{"x": 1}, {}],
     [{"x": 1, "y": 2}]),
    ({"allOf": [{"type": "object", "properties": {"x": {"type": "integer"}}},
                {"properties": {"x": {"maximum": 3}}, "required": ["x"]}]}, [{"x": 3}], [{"x": 4}, {}]),
    ({"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
      "anyOf": [{"required": ["x"]}, {"required": ["y"]}]}, [{"x": 1}, {"y": 1}], [{}]),
    ({"anyOf": [{"type": "object", "properties": {"y": False}, "required": ["y"]},
                {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}]},
     [{"x": 1}], [{}]),
    ({"type": "integer", "allOf": [{"multipleOf": 2}, {"multipleOf": 3}]}, [6, 12], [2, 3]),
    ({"enum": [1, 2, "a", 30], "maximum": 9, "type": ["integer", "string"]}, [1, "a"], [30]),
    ({"type": ["integer", "boolean"], "allOf": [{"type": ["number", "null"]}]}, [1], [True, None]),
    ({"type": "integer", "allOf": [{"minimum": 1, "maximum": 9}, {"minimum": 3, "maximum": 12}]}, [3, 9],
     [2, 10]),
    ({"allOf": [{"type": "object", "properties": {"x": {"type": "integer"}}},
                {"properties": {"y": {"type": "boolean"}}}]}, [{"x": 1, "y": True}, {}], [{"y": 1}]),
    ({"enum": [True, None, "x", 2], "type": ["boolean", "null", "integer"]}, [True, None, 2], ["x"]),
    ({"enum": [1, 2, 3, 4], "exclusiveMinimum": 1, "exclusiveMaximum": 4}, [2, 3], [1, 4]),
    ({"enum": [4, 6, 9], "multipleOf": 2, "allOf": [{"multipleOf": 3}]}, [6], [4, 9]),
    ({"enum": [1, 2], "const": 2}, [2], [1]),
    ({"items": {"type": "integer"}}, [[1]], []),
    ({"properties": {"x": {"type": "integer"}}, "required": ["x"]}, [{"x": 1}], []),
    ({"type": "array", "items": [{"type": "integer"}], "additionalItems": {"type": "boolean"}},
     [[1], [1, True]], [[True], [1, 2]]),
    ({"type": "object", "required": ["x1"],
      "patternProperties": {"^y": {"type": "boolean"}, "^x": {"type": "integer"}}}, [{"x1": 1}],
     [{"x1": True}, {}]),
]  # fmt: skip


@pytest.mark.slow_after(100)
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(("one", "right", "wrong"), OBJECTS)
def test_all_that_a_schema_says_of_other_values_holds(
    name: str, one: dict[str, Any], right: list[Any], wrong: list[Any]
) -> None:
    form = FORMS[name]
    tool = Tool("look", parameters=json.dumps({"properties": {"a": one}, "required": ["a"]}))
    filter = GrammarFilter(tokenizer(), CallGrammar(form, (tool,)).whole())
    for value, fits in [*((one, True) for one in right), *((one, False) for one in wrong)]:
        filter.begin(b"")
        text = written_calls(form, [("look", {"a": value})]).strip()
        assert (filter.follow(text.encode()) and filter.may_end) == fits, text


@pytest.mark.parametrize("name", FORMS)
def test_branches_of_the_arguments_themselves_hold(name: str) -> None:
    form, number = FORMS[name], {"type": "integer"}
    parameters = {
        "properties": {"x": number, "y": number},
        "anyOf": [{"required": ["x"]}, {"required": ["y"]}],
    }
    tool = Tool("look", parameters=json.dumps(parameters))
    filter = GrammarFilter(tokenizer(), CallGrammar(form, (tool,)).whole())
    for value, fits in (({"x": 1}, True), ({"y": 1}, True), ({"x": 1, "y": 2}, True), ({}, False)):
        filter.begin(b"")
        text = written_calls(form, [("look", value)]).strip()
        assert (filter.follow(text.encode()) and filter.may_end) == fits, text


NUMBERED = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
FLAGGED = {"properties": {"y": {"type": "boolean"}}}
EMPTY = {"properties": {"z": {"type": "null"}}}
BASE = {"$ref": "#/$defs/Base"}
COMPOSED: tuple[dict[str, Any], ...] = (
    {"allOf": [NUMBERED, FLAGGED]}, {"allOf": [BASE, FLAGGED]}, {"allOf": [BASE], **FLAGGED},
    {**BASE, **FLAGGED}, {"allOf": [{"allOf": [BASE]}, FLAGGED]}, {**NUMBERED, "anyOf": [FLAGGED, EMPTY]},
    {"allOf": [NUMBERED, {"anyOf": [FLAGGED, EMPTY]}]},
)  # fmt: skip


@pytest.mark.parametrize("name", ["hermes", "wrapped", "<|tool_call_start|>"])
@pytest.mark.parametrize("one", COMPOSED)
def test_objects_made_of_several_parts_have_the_members_of_all_and_no_others(
    name: str, one: dict[str, Any]
) -> None:
    """As the parts are written in OpenAPI and by inheritance: none of them forbids what another one names."""
    form = FORMS[name]
    for parameters, place in ((one, ()), ({"properties": {"a": one}, "required": ["a"]}, ("a",))):
        tool = Tool("look", parameters=json.dumps({**parameters, "$defs": {"Base": NUMBERED}}))
        filter = GrammarFilter(tokenizer(), CallGrammar(form, (tool,)).whole())
        for value, fits in (
            ({"x": 1, "y": True}, True), ({"x": 1}, True), ({"y": True}, False), ({"x": 1, "q": 2}, False),
        ):  # fmt: skip
            found = []
            for ordered in (value, dict(reversed(value.items()))):  # members come in the order of the schema
                filter.begin(b"")
                text = written_calls(form, [("look", {"a": ordered} if place else ordered)]).strip()
                found.append(filter.follow(text.encode()) and filter.may_end)
            assert any(found) == fits, value


def test_a_part_that_says_which_other_members_there_may_be_is_left_as_it_is() -> None:
    free = {**NUMBERED, "additionalProperties": {"type": "boolean"}}
    parameters = {"allOf": [{"$ref": "#/$defs/Free"}, FLAGGED], "$defs": {"Free": free}}
    filter = GrammarFilter(
        tokenizer(), CallGrammar(HERMES, (Tool("look", parameters=json.dumps(parameters)),)).whole()
    )
    for value, fits in (({"x": 1, "q": True}, True), ({"x": 1, "q": 2}, False)):
        filter.begin(b"")
        text = written_calls(HERMES, [("look", value)]).strip()
        assert (filter.follow(text.encode()) and filter.may_end) == fits, text


@pytest.mark.parametrize("name", FORMS)
def test_arguments_that_cannot_be_are_refused(name: str) -> None:
    for one in (
        False, {"anyOf": [False, {"type": "array", "items": False, "minItems": 1}]},
        {"type": "object", "properties": {"x": {}}, "additionalProperties": False, "minProperties": 2},
    ):  # fmt: skip
        tool = Tool("look", parameters=json.dumps({"properties": {"a": one}, "required": ["a"]}))
        with pytest.raises(BadSetting, match="the tool 'look'"):
            CallGrammar(FORMS[name], (tool,)).whole()


@pytest.mark.parametrize(
    ("one", "words"),
    [
        ({"allOf": [{"prefixItems": [{}]}, {"prefixItems": [{}, {}]}]}, "two things of 'prefixItems'"),
        ({"allOf": [{"anyOf": [{"maximum": n} for n in range(k, k + 9)]} for k in (0, 1)]}, "more than 64"),
        ({"enum": ["A"], "pattern": "^\\p{Lu}$"}, "beside enum or const"),
        ({"anyOf": [{"$ref": "#/properties/a"}] * 2}, "more than 4096"),
        ({"allOf": [{"oneOf": [{"$ref": "#/properties/a"}] * 9}]}, "more than 4096"),
    ],
)
def test_what_cannot_be_joined_is_refused_in_a_sentence(one: dict[str, Any], words: str) -> None:
    tool = Tool("look", parameters=json.dumps({"properties": {"a": one}, "required": ["a"]}))
    with pytest.raises(BadSetting, match=words):
        CallGrammar(dict(KNOWN)["<start_function_call>"], (tool,)).whole()
