"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's form of a chat."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.core import CallPiece, Message, ToolCall
from engine.server.anthropic.blocks import Blocks
from engine.server.anthropic.conversation import messages_of, offer_of
from engine.server.failure import ApiError
from engine.server.fields import Fields
from engine.server.replies import Delta
from tests.engine.server.served import HELLO, NUMBERS, TOKEN, Answer, Served, ask, break_third_pass, complete

COUNT = {"name": "count", "description": "Counts.", "input_schema": NUMBERS}
CHOSEN = {"type": "tool", "name": "count"}


def write(served: Served, path: str = "/v1/messages", **fields: Any) -> Answer:
    """A request of a client that has the token as Anthropic's do."""
    sent = {"model": "tiny", "messages": HELLO, "max_tokens": 8, "seed": 5, **fields}
    headers = {"Authorization": None, "x-api-key": TOKEN, "anthropic-version": "2023-06-01"}
    return ask(served, path, sent, headers=headers)


def text_of(message: Any) -> str:
    return "".join(block["text"] for block in message["content"] if block["type"] == "text")


def chat_text(served: Served, **fields: Any) -> str:
    return str(complete(served, seed=5, **fields).json["choices"][0]["message"]["content"])


def error_of(answer: Answer) -> Any:
    value = answer.json
    assert set(value) == {"type", "error", "request_id"}
    assert value["type"] == "error"
    return value["error"]


@pytest.mark.loopback
def test_a_whole_message_says_what_a_chat_says(served: Served) -> None:
    write(served)
    value = write(served).json
    assert value.pop("id").startswith("msg_")
    usage = complete(served, seed=5).json["usage"]
    cached = value["usage"]["cache_read_input_tokens"]
    assert cached > 0
    assert value == {
        "type": "message", "role": "assistant", "model": "tiny",
        "content": [{"type": "text", "text": chat_text(served)}], "stop_reason": "max_tokens",
        "stop_sequence": None,
        "usage": {"input_tokens": usage["prompt_tokens"] - cached, "cache_creation_input_tokens": 0,
                  "cache_read_input_tokens": cached, "output_tokens": 8},
    }  # fmt: skip


@pytest.mark.loopback
def test_a_stream_has_the_documented_events_in_order(served: Served) -> None:
    whole = write(served).json
    answer = write(served, stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = answer.named_events
    kinds = [event["type"] for event in events]
    deltas = kinds.count("content_block_delta")
    assert deltas >= 1
    assert kinds == [
        "message_start", "content_block_start", *["content_block_delta"] * deltas, "content_block_stop",
        "message_delta", "message_stop",
    ]  # fmt: skip
    start = events[0]["message"]
    assert (start["content"], start["stop_reason"], start["role"]) == ([], None, "assistant")
    assert start["usage"] == {**whole["usage"], "output_tokens": 0}
    assert events[1] == {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "text", "text": ""},
    }
    found = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert "".join(delta["text"] for delta in found) == text_of(whole)
    assert {delta["type"] for delta in found} == {"text_delta"}
    assert events[-2]["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
    assert events[-2]["usage"] == whole["usage"]


@pytest.mark.loopback
def test_the_system_prompt_and_blocks(served: Served) -> None:
    messages = [
        {"role": "system", "content": "Be brief.\n\nBe kind."},
        {"role": "user", "content": "Hi\n\nyou"},
    ]
    blocks = [
        {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "you"},
    ]
    system = [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}]
    value = write(served, system=system, messages=[{"role": "user", "content": blocks}]).json
    assert text_of(value) == chat_text(served, messages=messages)


@pytest.mark.loopback
def test_the_last_message_of_the_assistant_is_continued(served: Served) -> None:
    messages = [*HELLO, {"role": "assistant", "content": "The best is"}]
    expected = chat_text(served, messages=messages, continue_final_message=True)
    assert text_of(write(served, messages=messages).json) == expected
    answered = [*messages, *HELLO]
    assert text_of(write(served, messages=answered).json) == chat_text(served, messages=answered)


@pytest.mark.loopback
def test_stop_sequences(served: Served) -> None:
    text = chat_text(served, max_tokens=40)
    word = text[len(text) // 2 :][:3]
    value = write(served, max_tokens=40, stop_sequences=["never there", word]).json
    assert (value["stop_reason"], value["stop_sequence"]) == ("stop_sequence", word)
    assert text_of(value) == text[: text.index(word)]


@pytest.mark.loopback
def test_the_end_of_a_turn(served: Served) -> None:
    format = {"type": "json_schema", "schema": {"const": 7}}
    for fields in ({"output_config": {"format": format}}, {"output_format": format}):
        value = write(served, max_tokens=100, **fields).json
        assert (value["stop_reason"], text_of(value)) == ("end_turn", "7")


@pytest.mark.slow
@pytest.mark.loopback
def test_a_full_context(served: Served) -> None:
    assert (
        write(served, max_tokens=2000, min_tokens=2000).json["stop_reason"] == "model_context_window_exceeded"
    )


@pytest.mark.loopback
@pytest.mark.parametrize("stream", [False, True])
def test_calls(served: Served, stream: bool) -> None:
    other = [{"type": "web_search_20250305", "name": "web_search"}]
    answer = write(served, tools=[*other, COUNT], tool_choice=CHOSEN, seed=3, max_tokens=200, stream=stream)
    if not stream:
        value = answer.json
        (block,) = value["content"]
        assert set(block) == {"type", "id", "name", "input"}
        assert (block["type"], block["name"], value["stop_reason"]) == ("tool_use", "count", "tool_use")
        assert 0 <= block["input"]["n"] <= 99
        return
    events = answer.named_events
    assert events[1]["content_block"] == {
        "type": "tool_use", "id": events[1]["content_block"]["id"], "name": "count", "input": {},
    }  # fmt: skip
    pieces = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert {piece["type"] for piece in pieces} == {"input_json_delta"}
    assert 0 <= json.loads("".join(piece["partial_json"] for piece in pieces))["n"] <= 99
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


@pytest.mark.loopback
def test_a_call_goes_on_with_its_result(served: Served) -> None:
    made = write(served, tools=[COUNT], tool_choice=CHOSEN, seed=3, max_tokens=200).json
    result = {"type": "tool_result", "tool_use_id": made["content"][0]["id"], "content": "seven"}
    messages = [
        *HELLO,
        {"role": "assistant", "content": made["content"]},
        {"role": "user", "content": [result]},
    ]
    arguments = json.dumps(made["content"][0]["input"])
    call = {"id": "c", "type": "function", "function": {"name": "count", "arguments": arguments}}
    chat = [*HELLO, {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "seven"}]  # fmt: skip
    assert text_of(write(served, messages=messages).json) == chat_text(served, messages=chat)


@pytest.mark.loopback
def test_tokens_are_counted(served: Served) -> None:
    for fields in ({}, {"system": "Be brief."}, {"tools": [COUNT]}):
        written = write(served, **fields).json["usage"]
        counted = write(served, "/v1/messages/count_tokens", **fields).json
        read = written["input_tokens"] + written["cache_read_input_tokens"]
        assert counted == {"input_tokens": read}
    assert (
        error_of(write(served, "/v1/messages/count_tokens", messages=[]))["type"] == "invalid_request_error"
    )


@pytest.mark.loopback
def test_errors_have_anthropics_form(served: Served) -> None:
    path = "/v1/messages"
    assert error_of(write(served, max_tokens="x"))["message"].startswith("max_tokens is")
    long = write(served, messages=[{"role": "user", "content": "word " * 3000}])
    assert (long.status, error_of(long)["type"]) == (400, "invalid_request_error")
    for answer, status, kind in (
        (ask(served, path, {}, headers={"Authorization": None}), 401, "authentication_error"),
        (ask(served, path, {}, headers={"Origin": "https://x.test"}), 403, "permission_error"),
        (ask(served, path + "/batches", {}), 404, "not_found_error"),
        (ask(served, path, b"{}", headers={"Content-Length": "99999999"}), 413, "request_too_large"),
        (ask(served, path, {**HELLO[0], "model": "other"}), 503, "overloaded_error"),
    ):
        assert (answer.status, error_of(answer)["type"]) == (status, kind)


@pytest.mark.loopback
def test_a_failure_in_mid_stream_is_an_error_event(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    break_third_pass(served, monkeypatch)
    last = write(served, stream=True).named_events[-1]
    assert (last["type"], last["error"]["type"]) == ("error", "api_error")


def messages(*items: Any, **fields: Any) -> tuple[Message, ...]:
    return messages_of(Fields({"messages": list(items), **fields}))


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def test_blocks_of_messages() -> None:
    text = {"type": "text", "text": "Hi"}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [text, text], "is_error": True}
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Doc"}}
    made = {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "Made"}]}}
    found_text = {"type": "search_result", "source": "a.md", "title": "A", "content": [text]}
    assistant = [
        {"type": "thinking", "thinking": "Hm.", "signature": "x"}, {"type": "redacted_thinking", "data": "x"},
        text, {"type": "tool_use", "id": "a", "name": "look", "input": {"n": 1}},
    ]  # fmt: skip
    found = messages(
        user(text, document), {"role": "assistant", "content": assistant}, user(result, made, found_text),
        {"role": "user", "content": "More"}, {"role": "system", "content": "Now"}, system="Be kind.",
    )  # fmt: skip
    assert found == (
        Message("system", "Be kind."), Message("user", "Hi\n\nDoc"),
        Message("assistant", "Hi", (ToolCall("a", "look", '{"n": 1}'),), reasoning="Hm."),
        Message("tool", "Hi\n\nHi", tool_call_id="a"), Message("user", "Made\n\nA\n\na.md\n\nHi\n\nMore"),
        Message("system", "Now"),
    )  # fmt: skip


def test_what_a_tool_found_may_be_a_picture() -> None:
    """A picture that a program has read stays in the conversation, whose every later request has it."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}}
    content = [{"type": "text", "text": "Read:"}, image, pdf, {"type": "tool_reference", "tool_name": "look"}]
    (found,) = messages(user({"type": "tool_result", "tool_use_id": "a", "content": content}))
    note = "left out, because you read only the text of results]"
    assert found.content == f"Read:\n\n[image: {note}\n\n[document: {note}\n\nlook"


def test_neighbours_of_one_role_are_joined() -> None:
    call = {"type": "tool_use", "id": "a", "name": "look", "input": {}}
    one, two = {"role": "assistant", "content": "One"}, {"role": "assistant", "content": [call]}
    assert messages(one, two, user({"type": "tool_result", "tool_use_id": "a"})) == (
        Message("assistant", "One", (ToolCall("a", "look", "{}"),)), Message("tool", "", tool_call_id="a"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": "x"}, "messages"),
        ({"messages": [{"role": "robot"}]}, "messages[0].role"),
        (
            {"messages": [user({"type": "image", "source": {"type": "base64"}})]},
            "messages[0].content[0].type",
        ),
        (
            {"messages": [user({"type": "document", "source": {"type": "base64"}})]},
            "messages[0].content[0].type",
        ),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "tool_use"}]}]},
            "messages[0].content[0].name",
        ),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        ({"messages": HELLO, "system": 7}, "system"),
    ],
)
def test_bad_messages_get_one_sentence(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        messages_of(Fields(fields))
    assert (caught.value.failure.status, caught.value.failure.param) == (400, param)


@pytest.mark.loopback
@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"thinking": {"type": "some"}}, "thinking.type"),
        ({"output_config": {"effort": "some"}}, "output_config.effort"),
        (
            {"messages": [*HELLO, {"role": "assistant", "content": [{"type": "tool_use", "name": "a"}]}]},
            "tools",
        ),
    ],
)
def test_bad_requests_get_one_sentence(served: Served, fields: dict[str, Any], name: str) -> None:
    answer = write(served, **fields)
    assert answer.status == 400
    assert name in error_of(answer)["message"]


@pytest.mark.parametrize(
    ("choice", "chosen", "parallel"),
    [
        (None, "auto", True),
        ({"type": "auto"}, "auto", True),
        ({"type": "any", "disable_parallel_tool_use": True}, "required", False),
        ({"type": "none"}, "none", True),
        (CHOSEN, "count", True),
    ],
)
def test_tools(choice: Any, chosen: str, parallel: bool) -> None:
    found = offer_of(
        Fields({"tools": [COUNT, {"type": "bash_20250124", "name": "bash"}], "tool_choice": choice})
    )
    assert [tool.name for tool in found.tools] == ["count"]
    assert json.loads(found.tools[0].parameters) == NUMBERS
    assert (found.choice, found.parallel) == (chosen, parallel)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"name": "a", "input_schema": []}]}, "tools[0].input_schema"),
        ({"tools": [{"name": "a b"}]}, "tools[0].name"),
        ({"tools": [COUNT, COUNT]}, "tools"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [COUNT], "tool_choice": {"type": "tool", "name": "b"}}, "tool_choice.name"),
        ({"tools": [COUNT], "tool_choice": {"type": "some"}}, "tool_choice.type"),
    ],
)
def test_bad_tools_get_one_sentence(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        offer_of(Fields(fields))
    assert caught.value.failure.param == param


def test_blocks_of_a_reply() -> None:
    blocks = Blocks()
    deltas = [
        Delta("Hm", ""), Delta(".", "Well"), Delta("", "."), Delta(call=CallPiece(0, "a", "look", '{"n"')),
        Delta(call=CallPiece(0, arguments=": 1}")), Delta(call=CallPiece(1, "b", "see", "{")),
    ]  # fmt: skip
    events = [event for delta in deltas for event in blocks.feed(delta)] + list(blocks.finish())
    assert blocks.content == [
        {"type": "thinking", "thinking": "Hm.", "signature": ""}, {"type": "text", "text": "Well."},
        {"type": "tool_use", "id": "a", "name": "look", "input": {"n": 1}},
        {"type": "tool_use", "id": "b", "name": "see", "input": {}},
    ]  # fmt: skip
    found = [(event["type"].removeprefix("content_block_"), event["index"]) for event in events]
    assert found == [
        ("start", 0), ("delta", 0), ("delta", 0), ("delta", 0), ("stop", 0),
        ("start", 1), ("delta", 1), ("delta", 1), ("stop", 1),
        ("start", 2), ("delta", 2), ("delta", 2), ("stop", 2), ("start", 3), ("delta", 3), ("stop", 3),
    ]  # fmt: skip
    assert [event["delta"] for event in events[1:4]] == [
        {"type": "thinking_delta", "thinking": "Hm"}, {"type": "thinking_delta", "thinking": "."},
        {"type": "signature_delta", "signature": ""},
    ]  # fmt: skip
