"""Tools in chat requests: what is offered and how it is refused, and the calls of answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.core import CallPiece, Message, ToolCall
from engine.server.failure import ApiError
from engine.server.fields import Fields
from engine.server.openai.conversation import messages_of
from engine.server.openai.tools import Offer, call_deltas, calls_json, offer_of
from tests.engine.server.served import HELLO, NUMBERS, Served, ask, complete


def function(name: str = "look", **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **more}}


def offer(**fields: Any) -> Offer:
    return offer_of(Fields(fields))


def test_what_is_offered() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    found = offer(tools=[function("a-b.c/d", description="Looks.", parameters=schema, strict=True)])
    assert [(tool.name, tool.description) for tool in found.tools] == [("a-b.c/d", "Looks.")]
    assert json.loads(found.tools[0].parameters) == schema
    assert (found.choice, found.parallel) == ("auto", True)
    assert offer(tools=[{"function": {"name": "a"}}]).tools[0].parameters == ""
    assert offer() == offer(tools=[]) == offer(tools=None, tool_choice=None) == Offer()
    assert offer(tool_choice="none").choice == "none"
    assert not offer(tools=[function()], parallel_tool_calls=False).parallel


@pytest.mark.parametrize(
    ("choice", "chosen", "names"),
    [
        ("none", "none", "ab"),
        ("required", "required", "ab"),
        ("any", "required", "ab"),
        ({"type": "function", "function": {"name": "b"}}, "b", "ab"),
        ({"type": "function", "name": "b"}, "b", "ab"),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [function("b")]}},
            "required",
            "b",
        ),
        ({"type": "allowed_tools", "allowed_tools": {"tools": [{"name": "a"}]}}, "auto", "a"),
        ({"type": "allowed_tools", "tools": [{"type": "web_search"}, {"name": "b"}]}, "auto", "b"),
    ],
)
def test_choices(choice: Any, chosen: str, names: str) -> None:
    found = offer(tools=[function("a"), function("b")], tool_choice=choice)
    assert (found.choice, "".join(tool.name for tool in found.tools)) == (chosen, names)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": "look"}, "tools"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [function("")]}, "tools[0].function.name"),
        ({"tools": [function("a b")]}, "tools[0].function.name"),
        ({"tools": [function("x" * 129)]}, "tools[0].function.name"),
        ({"tools": [function("required")]}, "tools[0].function.name"),
        ({"tools": [function(parameters=[])]}, "tools[0].function.parameters"),
        ({"tools": [function(parameters={"type": "string"})]}, "tools[0].function.parameters"),
        ({"tools": [function(parameters=json.loads('{"a":' * 101 + "1" + "}" * 101))]},
         "tools[0].function.parameters"),
        ({"tools": [function("a"), function("a")]}, "tools"),
        ({"tools": [function(f"f{n}") for n in range(513)]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [function()], "tool_choice": "some"}, "tool_choice"),
        ({"tools": [function()], "tool_choice": function("other")}, "tool_choice.function.name"),
        ({"tools": [function()], "tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"tools": [function()], "tool_choice": {"type": "custom"}}, "tool_choice.name"),
        (
            {"tools": [function()],
             "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "x", "tools": []}}},
            "tool_choice.allowed_tools.mode",
        ),
        ({"tools": [function()], "parallel_tool_calls": "no"}, "parallel_tool_calls"),
        ({"functions": [{"name": "a b"}]}, "functions[0].name"),
        ({"functions": [{"name": "a"}, {"name": "a"}]}, "functions"),
        ({"functions": [{"name": "a"}], "function_call": "required"}, "function_call"),
        ({"functions": [{"name": "a"}], "function_call": {"name": "b"}}, "function_call.name"),
    ],
)  # fmt: skip
def test_bad_offers_get_one_sentence(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        offer(**fields)
    assert caught.value.failure.param == param
    assert caught.value.failure.status == 400


@pytest.mark.parametrize("choice", [{"type": "function", "name": "look"}, function("look")])
def test_tools_in_the_form_of_responses_are_the_same(choice: dict[str, Any]) -> None:
    usual = function("look", parameters=NUMBERS)
    flat = {"type": "function", **usual["function"]}
    named = {"tool_choice": choice}
    assert offer(tools=[flat], **named) == offer(tools=[usual], **named)


@pytest.mark.parametrize("kind", ["image_url", "input_image", "file", "input_audio"])
def test_what_a_tool_found_may_be_a_picture(kind: str) -> None:
    parts = [{"type": "text", "text": "Read:"}, {"type": kind, kind: {}}]
    result = {"role": "tool", "tool_call_id": "a", "content": parts}
    (found,) = messages_of(Fields({"messages": [result]}))
    assert found.content == f"Read:[{kind}: left out, because you read only the text of results]"
    with pytest.raises(ApiError, match="keeps no files" if kind == "file" else "text only"):
        messages_of(Fields({"messages": [{"role": "user", "content": parts}]}))


def test_calls_and_results_in_messages() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}
    sent = [
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "Hm."},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "rain"}]},
        {"role": "function", "name": "look", "content": "rain"},
    ]
    assert messages_of(Fields({"messages": sent})) == (
        Message("assistant", "", (ToolCall("call_1", "look", '{"a": 1}'),), reasoning="Hm."),
        Message("tool", "rain", tool_call_id="call_1"),
        Message("tool", "rain", name="look"),
    )


@pytest.mark.parametrize("call", [{}, {"function": {}}, {"function": {"name": "a", "arguments": [1]}}])
def test_calls_without_a_name_or_with_other_arguments_are_refused(call: dict[str, Any]) -> None:
    with pytest.raises(ApiError, match=r"messages\[0\].tool_calls\[0\]"):
        messages_of(Fields({"messages": [{"role": "assistant", "tool_calls": [call]}]}))


def test_pieces_of_calls() -> None:
    pieces = [
        CallPiece(0, "x", "look", "{"), CallPiece(0, arguments="}"), CallPiece(1, "y", "see"),
        CallPiece(1, arguments='{"a": 1}'),
    ]  # fmt: skip
    assert [one for piece in pieces for delta in call_deltas(piece) for one in delta["tool_calls"]] == [
        {"index": 0, "id": "x", "type": "function", "function": {"name": "look", "arguments": ""}},
        {"index": 0, "function": {"arguments": "{"}},
        {"index": 0, "function": {"arguments": "}"}},
        {"index": 1, "id": "y", "type": "function", "function": {"name": "see", "arguments": ""}},
        {"index": 1, "function": {"arguments": '{"a": 1}'}},
    ]
    assert call_deltas(None) == []
    assert calls_json(pieces) == [
        {"id": "x", "type": "function", "function": {"name": "look", "arguments": "{}"}},
        {"id": "y", "type": "function", "function": {"name": "see", "arguments": '{"a": 1}'}},
    ]


@pytest.mark.loopback
def test_tools_that_may_not_be_called_change_nothing(served: Served) -> None:
    plain = complete(served, seed=5).json["choices"][0]
    assert complete(served, seed=5, tools=[function()], tool_choice="none").json["choices"][0] == plain


COUNTING = [function("count", parameters=NUMBERS), function("turn-it.on", parameters=NUMBERS)]


def calling(served: Served, **fields: Any) -> Any:
    """The first choice of a reply that must call a tool."""
    sent = {"tools": COUNTING, "tool_choice": function("count"), "max_tokens": 200, "seed": 3} | fields
    answer = complete(served, **sent)
    assert answer.status == 200, answer.body
    return answer.json["choices"][0]


@pytest.mark.loopback
def test_the_named_function_is_calling(served: Served) -> None:
    choice = calling(served)
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    (call,) = choice["message"]["tool_calls"]
    assert set(call) == {"id", "type", "function"}
    assert call["id"].startswith("call_")
    assert (call["type"], call["function"]["name"]) == ("function", "count")
    assert 0 <= json.loads(call["function"]["arguments"])["n"] <= 99


@pytest.mark.slow
@pytest.mark.loopback
def test_a_streamed_call_is_the_same_in_pieces(served: Served) -> None:
    whole = calling(served)["message"]["tool_calls"][0]["function"]
    answer = complete(
        served, tools=COUNTING, tool_choice=function("count"), max_tokens=200, seed=3, stream=True, n=2
    )
    chunks = [event["choices"][0] for event in answer.events[:-1]]
    assert answer.events[-1] == "[DONE]"
    first = [chunk for chunk in chunks if chunk["index"] == 0]
    assert first[0]["delta"] == {"role": "assistant", "content": None}
    deltas = [call for chunk in first for call in chunk["delta"].get("tool_calls", ())]
    assert deltas[0]["function"] == {"name": "count", "arguments": ""}
    assert set(deltas[0]) == {"index", "id", "type", "function"}
    assert all(delta == {"index": 0, "function": delta["function"]} for delta in deltas[1:])
    assert len(deltas) > 2
    assert "".join(delta["function"]["arguments"] for delta in deltas) == whole["arguments"]
    assert (first[-1]["delta"], first[-1]["finish_reason"]) == ({}, "tool_calls")
    assert {chunk["index"] for chunk in chunks} == {0, 1}


def test_the_old_form() -> None:
    found = offer(functions=[{"name": "a"}, {"name": "b"}], function_call={"name": "b"})
    assert ([tool.name for tool in found.tools], found.choice) == (["a", "b"], "b")
    assert found.old_form
    assert not found.parallel
    assert offer(functions=[{"name": "a"}]).choice == "auto"
    assert not offer(functions=[{"name": "a"}], tools=[function()]).old_form
    sent = [{"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}}]
    assert messages_of(Fields({"messages": sent}))[0].tool_calls == (ToolCall("", "look", "{}"),)


@pytest.mark.loopback
def test_the_old_form_is_answered_in_the_old_form(served: Served) -> None:
    asked = {
        "functions": [{"name": "count", "parameters": NUMBERS}], "function_call": {"name": "count"},
        "max_tokens": 200, "seed": 3,
    }  # fmt: skip
    choice = complete(served, **asked).json["choices"][0]
    assert choice["finish_reason"] == "function_call"
    assert "tool_calls" not in choice["message"]
    assert choice["message"]["function_call"]["name"] == "count"
    chunks = [event["choices"][0] for event in complete(served, **asked, stream=True).events[:-1]]
    calls = [chunk["delta"]["function_call"] for chunk in chunks if "function_call" in chunk["delta"]]
    assert calls[0] == {"name": "count", "arguments": ""}
    arguments = "".join(call["arguments"] for call in calls)
    assert arguments == choice["message"]["function_call"]["arguments"]
    assert chunks[-1]["finish_reason"] == "function_call"


@pytest.mark.slow
@pytest.mark.loopback
def test_a_call_that_is_cut_off_stays_incomplete(served: Served) -> None:
    whole = calling(served)["message"]["tool_calls"][0]["function"]["arguments"]
    spent = complete(served, tools=COUNTING, tool_choice=function("count"), seed=3, max_tokens=200).json
    choice = calling(served, max_tokens=spent["usage"]["completion_tokens"] - 20)
    assert choice["finish_reason"] == "length"
    for call in choice["message"].get("tool_calls", ()):
        assert whole.startswith(call["function"]["arguments"])
        assert call["function"]["arguments"] != whole


@pytest.mark.loopback
@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_that_cannot_be_enforced_is_refused(served: Served, stream: bool) -> None:
    wrong = [function("look", parameters={"type": "object", "properties": {"a": {"type": "nonsense"}}})]
    for choice in ("auto", "required", function("look")):
        answer = complete(served, tools=wrong, tool_choice=choice, stream=stream)
        assert answer.status == 400
        assert "the schema of the tool 'look'" in answer.error["message"].lower()


@pytest.mark.loopback
def test_log_probabilities_go_with_calls(served: Served) -> None:
    choice = calling(served, logprobs=True)
    assert choice["logprobs"]["content"]
    assert choice["message"]["tool_calls"]


@pytest.mark.loopback
def test_the_template_is_applied_with_tools_and_calls(served: Served) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "count", "arguments": '{"n": 7}'}}
    messages = [
        {"role": "user", "content": "Hi"}, {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "seven"},
    ]  # fmt: skip
    body = {"messages": messages, "tools": COUNTING}
    prompt = ask(served, "/apply-template", body).json["prompt"]
    for part in ('"name": "turn-it.on"', '{"name": "count", "arguments": {"n": 7}}', "seven"):
        assert part in prompt
    none = ask(served, "/apply-template", {**body, "tool_choice": "none"}).json["prompt"]
    assert "turn-it.on" not in none
    tokens = ask(served, "/tokenize", body).json["tokens"]
    assert ask(served, "/detokenize", {"tokens": tokens}).json["prompt"] == prompt
    assert ask(served, "/apply-template", {**body, "tools": 7}).status == 400


@pytest.mark.loopback
def test_a_conversation_with_calls_goes_on(served: Served) -> None:
    message = calling(served)["message"]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "42"}
    hello = {"role": "user", "content": "Hello there"}
    answer = complete(served, messages=[hello, message, result], tools=COUNTING, tool_choice="none")
    assert answer.status == 200
    assert "tool_calls" not in answer.json["choices"][0]["message"]


@pytest.mark.loopback
def test_mistrals_clients_get_whole_calls(served: Served) -> None:
    """Their models of a delta need the name in each piece of a call, and other clients join the names."""
    tool = function("count", parameters=NUMBERS)
    body = {
        "messages": [{"role": "user", "content": "Count"}], "tools": [tool], "tool_choice": "any", "seed": 3,
        "temperature": 0, "stream": True, "max_tokens": 200, "parallel_tool_calls": False,
    }  # fmt: skip

    def calls(**headers: str) -> tuple[list[Any], Any]:
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = ask(served, "/v1/chat/completions", body, headers=headers)
        choices = [event["choices"][0] for event in answer.events[:-1]]
        assert ("usage" in answer.events[-2]) == ("OpenAI" not in headers["User-Agent"])
        found = [call for one in choices for call in one["delta"].get("tool_calls", ())]
        return [{**call, "id": call.get("id") and "x"} for call in found], choices[-1]["finish_reason"]

    pieces, end = calls(User_Agent="OpenAI/Python 3.57")
    whole, same = calls(User_Agent="mistral-client-python/3.7.0")
    assert (whole, same) == calls(User_Agent="ai-sdk/xai/3.0.138 runtime/node.js")
    assert (whole, same) == calls(User_Agent="python-httpx/0.28.1", Accept="text/event-stream")  # LangChain
    assert end == same == "tool_calls"
    assert len(pieces) > len(whole) > 0
    assert all(call["function"]["name"] == "count" and call["id"] for call in whole)
    assert [call["index"] for call in whole] == [*range(len(whole))]
    assert "".join(call["function"]["arguments"] for call in whole) == "".join(
        piece["function"]["arguments"] for piece in pieces
    )
    assert all(json.loads(call["function"]["arguments"])["n"] in range(100) for call in whole)


@pytest.mark.loopback
@pytest.mark.parametrize(
    "part",
    [
        {"type": "string", "format": "password"}, {"type": "string", "enum": None, "maxLength": None},
        {"type": "integer", "$id": "No Address"}, {"type": "string", "pattern": "^{[^[]}$"},
    ],
)  # fmt: skip
def test_schemas_as_programs_write_them(served: Served, part: dict[str, Any]) -> None:
    """Words that say nothing in JSON Schema, and patterns as JavaScript has them."""
    schema = {"type": "object", "properties": {"a": part}, "required": ["a"]}
    body = {"messages": HELLO, "max_tokens": 60, "seed": 1}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    assert ask(served, "/v1/chat/completions", {**body, "response_format": wanted}).status == 200
    asked = {**body, "tools": [function(parameters=schema)], "tool_choice": "required"}
    assert ask(served, "/v1/chat/completions", asked).status == 200


@pytest.mark.loopback
def test_a_pattern_that_looks_ahead_is_no_reason_to_refuse_a_chat(served: Served) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(?!x)"}}}
    body = {"messages": HELLO, "max_tokens": 4, "tools": [function(parameters=schema)]}
    assert ask(served, "/v1/chat/completions", body).status == 200
    answer = ask(served, "/v1/chat/completions", {**body, "tool_choice": "required"})
    assert (answer.status, "schema of the tool 'look'" in answer.error["message"]) == (400, True)
