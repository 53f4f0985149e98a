"""What a body asks for is the same at each endpoint, under the names that each of them has for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.core import ChatRequest
from engine.server.anthropic.messages import message_request
from engine.server.failure import ApiError
from engine.server.fields import Fields
from engine.server.host import ServedModel
from engine.server.openai.chat import chat_call
from engine.server.responses.create import response_call
from engine.server.responses.stored import StoredResponses

MODEL = ServedModel("tiny", True, 1024, defaults=(("temperature", 0.5), ("top_k", 7)))
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
ALIKE = {
    "top_p": 0.25, "seed": 3, "logit_bias": {"5": 2}, "min_tokens": 2, "chat_template_kwargs": {"a": 1},
    "stop_token_ids": [9],
}  # fmt: skip
FORMAT = {"type": "json_schema", "schema": SCHEMA}
HELLO = [{"role": "user", "content": "Hi"}]
COUNT = {"name": "count", "description": "Counts.", "parameters": SCHEMA}


def by_chat(**fields: Any) -> ChatRequest:
    return chat_call(Fields({"messages": HELLO, **ALIKE, **fields}), MODEL, 4).requests[0]


def by_messages(**fields: Any) -> ChatRequest:
    return message_request(Fields({"messages": HELLO, **ALIKE, **fields}), MODEL)


def by_responses(**fields: Any) -> ChatRequest:
    found = response_call(Fields({"input": "Hi", **ALIKE, **fields}), MODEL, StoredResponses()).request
    assert found is not None
    return found


REQUESTS = {
    "chat": lambda: by_chat(
        max_tokens=8, stop="x", reasoning_effort="low", response_format=FORMAT, parallel_tool_calls=False,
        tools=[{"type": "function", "function": COUNT}],
    ),
    "messages": lambda: by_messages(
        max_tokens=8, stop_sequences=["x"], output_config={"effort": "low", "format": FORMAT},
        tools=[{"name": "count", "description": "Counts.", "input_schema": SCHEMA}],
        tool_choice={"type": "auto", "disable_parallel_tool_use": True},
    ),
    "responses": lambda: by_responses(
        max_output_tokens=8, stop="x", reasoning={"effort": "low"}, text={"format": FORMAT},
        tools=[{"type": "function", **COUNT}], parallel_tool_calls=False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REQUESTS)
def test_every_endpoint_asks_for_the_same(name: str) -> None:
    request = REQUESTS[name]()
    sampler, stops, constraint = request.sampler, request.stops, request.constraint
    assert (sampler.temperature, sampler.top_k, sampler.top_p, sampler.seed) == (0.5, 7, 0.25, 3)
    assert (stops.max_tokens, stops.min_tokens, stops.stop_strings) == (8, 2, ("x",))
    assert (stops.stop_token_ids, stops.when_full) == ((9,), "stop")
    assert constraint.format == "json_schema"
    assert json.loads(constraint.pattern) == SCHEMA  # it is closed where the grammar is made
    assert constraint.logit_bias == ("5 = 2.0",)
    assert json.loads(request.template_variables) == {"a": 1}
    assert (request.thinking.thinking, request.report_prompt) == ("low", True)
    (tool,) = request.tools
    assert (tool.name, tool.description, json.loads(tool.parameters)) == ("count", "Counts.", SCHEMA)
    assert (request.tool_choice, request.parallel_tool_calls) == ("auto", False)
    assert [(each.role, each.content) for each in request.messages] == [("user", "Hi")]
    assert not request.continue_last


def test_what_endpoints_have_of_their_own() -> None:
    begun = [*HELLO, {"role": "assistant", "content": "So"}]
    assert by_messages(messages=begun).continue_last
    assert by_chat(messages=begun, continue_final_message=True).continue_last
    assert by_chat(messages=[*HELLO, {**begun[-1], "prefix": True}]).continue_last
    assert not by_chat(messages=begun).continue_last
    assert [by_chat(add_generation_prompt=flag).begin_reply for flag in (True, False, None)] == [
        True,
        False,
        True,
    ]
    with pytest.raises(ApiError, match="exclude each other"):
        by_chat(messages=begun, continue_final_message=True, add_generation_prompt=True)
    assert by_chat(max_tokens=8, max_completion_tokens=3).stops.max_tokens == 3
    assert by_responses(truncation="auto").stops.when_full == "drop_oldest"
    assert [by_messages(thinking={"type": kind}).thinking.thinking for kind in ("adaptive", "disabled")] == [
        "on",
        "off",
    ]


def test_choices_differ_by_their_seeds_only() -> None:
    call = chat_call(Fields({"messages": HELLO, "seed": 5, "n": 3, "stream": True}), MODEL, 4)
    assert [each.sampler.seed for each in call.requests] == [5, 6, 7]
    assert len({(each.sampler.top_k, each.messages) for each in call.requests}) == 1
    assert (call.stream, call.include_usage, len(call.writers())) == (True, False, 3)
