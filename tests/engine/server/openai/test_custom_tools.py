"""Custom tools, whose input is a text, in chats and in the Responses API."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from engine.core import Message, ToolCall
from engine.server.failure import ApiError
from engine.server.fields import Fields
from engine.server.openai.conversation import messages_of
from engine.server.openai.custom import InputText
from engine.server.openai.tools import flat_offer_of, offer_of
from tests.engine.server.served import HELLO, Answer, Served, ask

REGEX = {"syntax": "regex", "definition": '"[a-c]{2}"\\n[0-9]{2}'}
LARK = {"syntax": "lark", "definition": "start: line+\nline: /[a-c]{2}/ LF\n%import common.LF"}
RECURSIVE = {"syntax": "lark", "definition": 'start: "(" start ")" | "x"'}
FLAT = {"type": "custom", "name": "patch", "description": "Changes.", "format": {"type": "grammar", **REGEX}}
NESTED = {
    "type": "custom",
    "custom": {"name": "patch", "description": "Changes.", "format": {"type": "grammar", "grammar": REGEX}},
}
INPUT = re.compile('"[a-c]{2}"\n[0-9]{2}')


@pytest.mark.parametrize("size", [1, 2, 5, 100])
@pytest.mark.parametrize(
    "text", ["", "plain", 'a"b\\c\n\t/', "\u00e4\U0001f600 \x00", "*** Begin Patch\n+x\n", "\ud83d lone"]
)
@pytest.mark.parametrize("ascii", [True, False])
def test_the_input_is_taken_out_of_its_json(text: str, size: int, ascii: bool) -> None:
    arguments = json.dumps({"input": text}, ensure_ascii=ascii, indent=1)
    reader = InputText()
    pieces = [reader.feed(arguments[at : at + size]) for at in range(0, len(arguments), size)]
    assert "".join(pieces) == text
    if size == 1 and len(text) > 4 and text.isascii():
        assert sum(map(bool, pieces)) == len(text)  # as it comes, not at the end


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"why": {"a": "{}"}, "input": "x}"}, "x}"), ({"input": 5}, "5"), ({}, "{}"),
        ({"input": {"a": "\u00e4"}}, '{"a": "\u00e4"}'), ({"patch": "+x"}, '{"patch": "+x"}'),
        ({"input": "x", "why": "}"}, "x"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_begin_with_the_input_lose_nothing(
    arguments: dict[str, Any], expected: str, size: int
) -> None:
    text, reader = json.dumps(arguments), InputText()
    assert "".join(reader.feed(text[at : at + size]) for at in range(0, len(text), size)) == expected


def test_what_is_offered() -> None:
    for found in (offer_of(Fields({"tools": [NESTED]})), flat_offer_of(Fields({"tools": [FLAT]}))):
        (tool,) = found.tools
        assert (tool.name, tool.description, found.custom) == ("patch", "Changes.", {"patch"})
        schema = json.loads(tool.parameters)
        assert schema["properties"]["input"]["pattern"] == f"^(?:{REGEX['definition']})$"
        assert schema["required"] == ["input"]
    lark = {**FLAT, "format": {"type": "grammar", **LARK}}
    (tool,) = flat_offer_of(Fields({"tools": [lark]})).tools
    assert tool.description.startswith("Changes.\n\n")
    assert LARK["definition"] in tool.description
    pattern = json.loads(tool.parameters)["properties"]["input"]["pattern"]
    assert re.fullmatch(pattern, "ab\ncc\n")
    assert not re.fullmatch(pattern, "abc\n")
    recursive = {**FLAT, "format": {"type": "grammar", **RECURSIVE}}
    (tool,) = flat_offer_of(Fields({"tools": [recursive]})).tools
    assert RECURSIVE["definition"] in tool.description
    assert "pattern" not in tool.parameters
    plain = {"type": "custom", "name": "say"}
    both = flat_offer_of(Fields({"tools": [plain, {"name": "look"}, {"type": "web_search"}]}))
    assert ([tool.name for tool in both.tools], both.custom) == (["say", "look"], {"say"})
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "custom", "name": "say"}]}
    found = flat_offer_of(Fields({"tools": [plain, {"name": "look"}], "tool_choice": allowed}))
    assert ([tool.name for tool in found.tools], found.choice) == (["say"], "required")


def with_format(**format: Any) -> dict[str, Any]:
    return {"type": "custom", "custom": {"name": "a", "format": format}}


@pytest.mark.parametrize(
    ("tool", "choice", "param"),
    [
        ({"type": "custom"}, "auto", "tools[0].custom"),
        ({"type": "custom", "custom": {}}, "auto", "tools[0].custom.name"),
        (with_format(type="x"), "auto", "tools[0].custom.format.type"),
        (with_format(type="grammar"), "auto", "tools[0].custom.format.syntax"),
        (
            with_format(type="grammar", grammar={"syntax": "regex"}),
            "auto",
            "tools[0].custom.format.grammar.definition",
        ),
        (with_format(type="grammar", grammar=RECURSIVE), "required", "tools"),
        (
            with_format(type="grammar", grammar=RECURSIVE),
            {"type": "custom", "custom": {"name": "a"}},
            "tools",
        ),
    ],
)
def test_bad_tools_get_one_sentence(tool: Any, choice: Any, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        offer_of(Fields({"tools": [tool], "tool_choice": choice}))
    assert (caught.value.failure.status, caught.value.failure.param) == (400, param)


def test_calls_in_messages() -> None:
    call = {"id": "call_1", "type": "custom", "custom": {"name": "patch", "input": 'a"b'}}
    sent = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "ok"},
    ]
    assert messages_of(Fields({"messages": sent})) == (
        Message("assistant", "", (ToolCall("call_1", "patch", '{"input": "a\\"b"}'),)),
        Message("tool", "ok", tool_call_id="call_1"),
    )


def chat(served: Served, **fields: Any) -> Answer:
    choice = {"type": "custom", "custom": {"name": "patch"}}
    sent = {"messages": HELLO, "tools": [NESTED], "tool_choice": choice, "temperature": 0, "max_tokens": 200}
    return ask(served, "/v1/chat/completions", {**sent, "parallel_tool_calls": False, **fields})


@pytest.mark.loopback
def test_a_chat_calls_a_custom_tool(served: Served) -> None:
    choice = chat(served).json["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert set(call) == {"id", "type", "custom"}
    assert (call["type"], call["custom"]["name"]) == ("custom", "patch")
    assert INPUT.fullmatch(call["custom"]["input"])
    events = [event["choices"][0] for event in chat(served, stream=True).events[:-1]]
    first, *rest = [piece for event in events for piece in event["delta"].get("tool_calls", ())]
    assert (first["type"], first["custom"], first["index"]) == ("custom", {"name": "patch", "input": ""}, 0)
    assert "".join(piece["custom"]["input"] for piece in rest) == call["custom"]["input"]
    assert all(set(piece) == {"index", "custom"} for piece in rest)
    sent = [*HELLO, choice["message"], {"role": "tool", "tool_call_id": call["id"], "content": "done"}]
    assert chat(served, messages=sent, tool_choice="none").status == 200


@pytest.mark.loopback
def test_a_lark_grammar_without_recursion_is_followed(served: Served) -> None:
    tool = {"type": "custom", "custom": {"name": "patch", "format": {"type": "grammar", "grammar": LARK}}}
    calls = []
    for seed in range(4):
        answer = chat(served, tools=[tool], seed=seed, temperature=1, max_tokens=400).json["choices"][0]
        calls += answer["message"]["tool_calls"] if answer["finish_reason"] == "tool_calls" else []
    assert calls
    assert all(re.fullmatch("([a-c]{2}\n)+", call["custom"]["input"]) for call in calls)


@pytest.mark.loopback
@pytest.mark.parametrize("stream", [False, True])
def test_a_response_calls_a_custom_tool(served: Served, stream: bool) -> None:
    sent = {
        "input": "Hello", "tools": [FLAT], "tool_choice": {"type": "custom", "name": "patch"},
        "stream": stream, "max_output_tokens": 200, "temperature": 0, "parallel_tool_calls": False,
    }  # fmt: skip
    answer = ask(served, "/v1/responses", sent)
    value = answer.named_events[-1]["response"] if stream else answer.json
    assert (value["status"], value["tools"]) == ("completed", [FLAT])
    (call,) = value["output"]
    assert (call["type"], call["name"], call["status"]) == ("custom_tool_call", "patch", "completed")
    assert call["id"].startswith("ctc_")
    assert INPUT.fullmatch(call["input"])
    if stream:
        added, *middle, done, end = answer.named_events[2:-1]
        assert (added["item"]["input"], end["item"]) == ("", call)
        assert {event["type"] for event in middle} == {"response.custom_tool_call_input.delta"}
        assert "".join(event["delta"] for event in middle) == done["input"] == call["input"]
        assert done["type"] == "response.custom_tool_call_input.done"
    result = {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "done"}
    more = {"tools": [FLAT], "tool_choice": "none", "max_output_tokens": 8, "temperature": 0}
    ways = [
        {"input": [result], "previous_response_id": value["id"]},
        {"input": [{"role": "user", "content": "Hello"}, call, result]},
    ]
    first, second = (ask(served, "/v1/responses", {**more, **way}).json for way in ways)
    assert first["usage"]["input_tokens"] == second["usage"]["input_tokens"]
    assert first["output"][0]["content"] == second["output"][0]["content"]
    listed = ask(served, f"/v1/responses/{first['id']}/input_items?order=asc").json["data"]
    kinds = ["message", "custom_tool_call", "custom_tool_call_output"]
    assert [item["type"] for item in listed] == kinds
    assert (listed[1]["name"], listed[1]["input"]) == ("patch", call["input"])
    assert listed[2]["output"] == "done"
    second = ask(served, f"/v1/responses/{second['id']}/input_items?order=asc").json["data"]
    assert [item["type"] for item in second] == kinds
