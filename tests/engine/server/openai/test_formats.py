"""The formats that requests want for their replies, under the names of several servers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.constraint import format_source
from engine.server.failure import ApiError
from engine.server.fields import Fields
from engine.server.openai.formats import format_of
from engine.settings import ConstraintSettings
from tests.engine.server.served import HELLO, Served, ask, complete

NUMBER = {"type": "integer"}
SCHEMA = ("json_schema", json.dumps(NUMBER))
OBJECT = ("json_schema", '{"type": "object"}')


def found(**body: Any) -> tuple[str, str]:
    fields = Fields(body)
    return format_of(fields, fields.part("response_format"))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, ("none", "")),
        ({"response_format": {"type": "text"}}, ("none", "")),
        ({"response_format": {"type": "json_object"}}, OBJECT),
        ({"response_format": {"type": "json_object", "schema": NUMBER}}, SCHEMA),
        ({"response_format": {"type": "json_object", "value": NUMBER}}, SCHEMA),  # huggingface_hub
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": NUMBER}}}, SCHEMA),
        ({"response_format": {"type": "json_schema", "schema": NUMBER}}, SCHEMA),
        ({"structured_outputs": {"json": NUMBER}}, SCHEMA),
        ({"structured_outputs": {"json": json.dumps(NUMBER)}}, SCHEMA),
        ({"structured_outputs": {"json_object": True}}, OBJECT),
        ({"structured_outputs": {"json_object": False, "regex": "a+"}}, ("regex", "a+")),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, ("choices", "yes\nno")),
        ({"structured_outputs": {"grammar": 'start: "a"'}}, ("grammar", 'start: "a"')),
        ({"structured_outputs": {}, "response_format": {"type": "json_object"}}, OBJECT),
        ({"response_format": {"type": "json", "value": NUMBER}}, SCHEMA),
        ({"response_format": {"type": "regex", "value": "a+"}}, ("regex", "a+")),
        ({"response_format": {"type": "grammar", "grammar": 'root ::= "a"'}}, ("grammar", 'root ::= "a"')),
        ({"guided_json": NUMBER}, SCHEMA), ({"json_schema": NUMBER}, SCHEMA),
        ({"grammar": 'root ::= "a"'}, ("grammar", 'root ::= "a"')), ({"grammar": ""}, ("none", "")),
        ({"guided_regex": "", "guided_grammar": "", "guided_json": ""}, ("none", "")),
        ({"guided_regex": "a+"}, ("regex", "a+")), ({"guided_choice": ["a"]}, ("choices", "a")),
        ({"regex": "a+"}, ("regex", "a+")), ({"ebnf": 'root ::= "a"'}, ("grammar", 'root ::= "a"')),
        ({"structured_outputs": {"regex": "a+"}, "guided_regex": "a+"}, ("regex", "a+")),
        ({"guided_grammar": 'start: "a"', "response_format": {"type": "text"}}, ("grammar", 'start: "a"')),
    ],
)  # fmt: skip
def test_formats(body: dict[str, Any], expected: tuple[str, str]) -> None:
    assert found(**body) == expected


@pytest.mark.parametrize(
    "body",
    [
        lambda schema: {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}},
        lambda schema: {"structured_outputs": {"json": json.dumps(schema)}},
        lambda schema: {"guided_json": schema},
    ],
)
def test_members_that_are_not_named_are_not_written_unless_the_schema_says_so(body: Any) -> None:
    named = {"type": "object", "properties": {"a": NUMBER}}
    compiled = format_source(ConstraintSettings(*found(**body(named))))
    assert compiled is not None
    assert json.loads(compiled.text)["grammars"][1]["json_schema"]["additionalProperties"] is False
    free = {**named, "additionalProperties": True}
    compiled = format_source(ConstraintSettings(*found(**body(free))))
    assert compiled is not None
    assert json.loads(compiled.text)["grammars"][1]["json_schema"]["additionalProperties"] is True


def test_a_text_that_is_no_schema_is_refused_later() -> None:
    assert found(guided_json="{") == ("json_schema", "{")
    deep = '{"not":' * 100_000 + "{}" + "}" * 100_000
    assert found(guided_json=deep) == ("json_schema", deep)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs.choice"),
        ({"guided_json": NUMBER, "response_format": {"type": "json_object"}}, "guided_json"),
        ({"structured_outputs": {"regex": 5}}, "structured_outputs.regex"),
        ({"structured_outputs": {"regex": ""}}, "structured_outputs.regex"),
        ({"structured_outputs": {"json": 5}}, "structured_outputs.json"),
        *(
            ({"structured_outputs": {"choice": [text]}}, "structured_outputs.choice")
            for text in (" a", "a\n", "a\nb", "a\rb", "a\u2028b")
        ),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        ({"structured_outputs": "json"}, "structured_outputs"),
        ({"grammar": 'root ::= "a"', "guided_regex": "a"}, "grammar"),
        ({"grammar": 5}, "grammar"),
        ({"response_format": {"type": "json_object", "schema": 5}}, "response_format.schema"),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
    ],
)
def test_what_is_no_format_is_refused_by_name(body: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        found(**body)
    assert caught.value.failure.param == param


@pytest.mark.loopback
def test_replies_have_them(served: Served) -> None:
    yes = complete(served, structured_outputs={"choice": ["yes", "no"]}, max_tokens=-1).json["choices"][0]
    assert yes["message"]["content"] in ("yes", "no")
    body = {"prompt": "Hello", "guided_regex": "[0-9]{3}", "max_tokens": -1}
    choice = ask(served, "/v1/completions", body).json["choices"][0]
    assert len(choice["text"]) == 3
    assert choice["text"].isdigit()
    assert complete(served, max_tokens=-2).error["param"] == "max_tokens"


LONG = {"type": "object", "properties": {"n": {"type": "string", "minLength": 40}}, "required": ["n"]}
CUT: list[tuple[str, dict[str, Any], tuple[str, str]]] = [
    (
        "/v1/chat/completions",
        {"max_tokens": 3, "response_format": {"type": "json_schema", "json_schema": {"schema": LONG}}},
        ("finish_reason", "length"),
    ),
    (
        "/v1/responses",
        {"max_output_tokens": 3, "text": {"format": {"type": "json_schema", "name": "x", "schema": LONG}}},
        ("status", "incomplete"),
    ),
    (
        "/v1/messages",
        {"max_tokens": 3, "output_config": {"format": {"type": "json_schema", "schema": LONG}}},
        ("stop_reason", "max_tokens"),
    ),
    (
        "/api/chat",
        {"options": {"num_predict": 3}, "format": LONG, "stream": False},
        ("done_reason", "length"),
    ),
    ("/v1/completions", {"max_tokens": 3, "guided_json": LONG}, ("finish_reason", "length")),
]


@pytest.mark.loopback
@pytest.mark.parametrize(("path", "body", "end"), CUT, ids=[path for path, _, _ in CUT])
def test_a_format_that_needs_more_tokens_than_a_reply_may_have_is_cut(
    served: Served, path: str, body: dict[str, Any], end: tuple[str, str]
) -> None:
    """Their clients tell their users so (openai's `LengthFinishReasonError`), which a refusal would not let
    them do.
    """
    said = {"/v1/responses": {"input": "Hello"}, "/v1/completions": {"prompt": "Hello"}}
    answer = ask(served, path, {**said.get(path, {"messages": HELLO}), **body})
    found = answer.json
    assert answer.status == 200, found
    assert {**found, **(found.get("choices") or [{}])[0]}[end[0]] == end[1]
