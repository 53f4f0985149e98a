"""Chats in the form of the first version of Cohere's API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from engine.server.cohere.first import as_second
from engine.server.fields import Fields
from tests.engine.server.served import NUMBERS, Served, ask, break_third_pass, complete

pytestmark = pytest.mark.loopback
GREEDY = {"message": "Hello there", "max_tokens": 8, "temperature": 0}
COUNT = {
    "name": "count", "description": "Counts.",
    "parameter_definitions": {
        "n": {"type": "int", "required": True, "description": "how far"}, "words": {"type": "List[str]"},
        "loud": {"type": "bool"}, "other": {"type": "Decimal"},
    },
}  # fmt: skip


def chat(served: Served, **fields: Any) -> Any:
    answer = ask(served, "/v1/chat", {**GREEDY, **fields})
    assert answer.status == 200, answer.body
    return answer.lines if fields.get("stream") else answer.json


def test_a_chat_is_that_of_openais_api(served: Served) -> None:
    history = [{"role": "USER", "message": "Hi"}, {"role": "CHATBOT", "message": "Yes?"}]
    messages = [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "Hello there"},
    ]  # fmt: skip
    expected = complete(served, messages=messages, temperature=0, ignore_eos=True).json
    found = chat(served, preamble="Be brief.", chat_history=history, ignore_eos=True)
    assert found["text"] == expected["choices"][0]["message"]["content"]
    assert found["finish_reason"] == "MAX_TOKENS"
    tokens = {"input_tokens": expected["usage"]["prompt_tokens"], "output_tokens": 8}
    assert found["meta"]["tokens"] == tokens
    assert "tool_calls" not in found
    start, *texts, end = chat(
        served, preamble="Be brief.", chat_history=history, ignore_eos=True, stream=True
    )
    assert start["event_type"] == "stream-start"
    assert {event["event_type"] for event in texts} == {"text-generation"}
    assert "".join(event["text"] for event in texts) == end["response"]["text"] == found["text"]
    assert (end["event_type"], end["is_finished"], end["finish_reason"]) == ("stream-end", True, "MAX_TOKENS")
    assert end["response"]["meta"] == found["meta"]


def test_calls_of_tools(served: Served) -> None:
    tool = {
        "name": "count",
        "description": "",
        "parameter_definitions": {"loud": {"type": "bool", "required": True}},
    }
    asked = {"tools": [tool], "tool_choice": "REQUIRED", "max_tokens": 300, "seed": 3, "temperature": 1}
    found = chat(served, **asked)
    assert found["tool_calls"]
    assert found["finish_reason"] == "COMPLETE"
    assert {call["name"] for call in found["tool_calls"]} == {"count"}
    assert all(call["parameters"]["loud"] in (True, False) for call in found["tool_calls"])
    *_, calls, end = chat(served, **asked, stream=True)
    assert (calls["event_type"], calls["tool_calls"]) == ("tool-calls-generation", found["tool_calls"])
    assert end["response"]["tool_calls"] == found["tool_calls"]
    cut = chat(served, **{**asked, "max_tokens": 12})
    assert (cut["finish_reason"], "tool_calls" in cut) == ("MAX_TOKENS", False)


def test_a_tool_becomes_a_schema() -> None:
    second = as_second(Fields({**GREEDY, "tools": [COUNT]}))
    assert second.get("tools") == [{"type": "function", "function": {
        "name": "count", "description": "Counts.",
        "parameters": {
            "type": "object", "required": ["n"],
            "properties": {
                "n": {"type": "integer", "description": "how far"}, "words": {"type": "array"},
                "loud": {"type": "boolean"}, "other": {},
            },
        },
    }}]  # fmt: skip


@pytest.mark.parametrize("called", [True, False])
def test_results_follow_the_calls(called: bool) -> None:
    """The history has the calls, or the message was asked before and its results come with it."""
    call, outputs = {"name": "count", "parameters": {"n": 1}}, [{"sum": 1}]
    asked = [
        {"role": "USER", "message": "Count"},
        {"role": "CHATBOT", "message": "", "tool_calls": [call, call]},
    ]
    results = [{"call": call, "outputs": outputs}, {"call": call, "outputs": [{"sum": 2}]}]
    body = {"message": "", "chat_history": asked} if called else {"message": "Count"}
    user, made, *answers = as_second(Fields({**body, "tool_results": results})).get("messages")
    assert (user["role"], user["content"], made["role"]) == ("user", "Count", "assistant")
    assert [one["function"]["arguments"] for one in made["tool_calls"]] == ['{"n": 1}'] * 2
    assert [one["tool_call_id"] for one in answers] == [one["id"] for one in made["tool_calls"]]
    assert [json.loads(one["content"]) for one in answers] == [outputs, [{"sum": 2}]]


def test_formats_and_documents(served: Served) -> None:
    format = {"type": "json_object", "schema": NUMBERS}
    found = chat(served, response_format=format, max_tokens=100)
    assert json.loads(found["text"])["n"] in range(100)
    second = as_second(Fields({**GREEDY, "documents": [{"id": "1", "title": "Fire", "text": "Hot"}]}))
    assert second.get("documents") == [{"data": {"title": "Fire", "text": "Hot"}}]


def test_a_long_conversation_is_cut_if_it_may_be(served: Served) -> None:
    history = [{"role": "USER", "message": "fox " * 3000}, {"role": "CHATBOT", "message": "Yes?"}]
    answer = ask(served, "/v1/chat", {**GREEDY, "chat_history": history})
    assert "the context holds" in answer.json["message"]
    assert (
        chat(served, chat_history=history, prompt_truncation="AUTO")["meta"]["tokens"]["input_tokens"] < 100
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"message": None}, "message is missing"), ({"conversation_id": "x"}, "chat_history"),
        ({"chat_history": [{"role": "BOSS"}]}, "chat_history[0].role"), ({"prompt_truncation": "ALL"}, "OFF"),
        ({"tool_results": [{"outputs": []}]}, "tool_results[0].call"),
        ({"tools": [{"name": "x", "parameter_definitions": {"n": 5}}]}, "parameter_definitions.n"),
    ],
)  # fmt: skip
def test_errors(served: Served, fields: Mapping[str, Any], words: str) -> None:
    answer = ask(served, "/v1/chat", {**GREEDY, **fields})
    assert answer.status == 400
    assert set(answer.json) == {"message"}
    assert words in answer.json["message"]


def test_a_failure_in_mid_stream(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    break_third_pass(served, monkeypatch)
    last = chat(served, stream=True, ignore_eos=True)[-1]
    assert (last["event_type"], last["finish_reason"]) == ("stream-end", "ERROR")
    assert last["error"]
