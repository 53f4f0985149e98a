"""POST /v1/responses: whole responses and streams, and what they have in common with chats."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.core import CallPiece, Message, ToolCall
from engine.server.failure import Failure
from engine.server.fields import Fields
from engine.server.host import ServedModel
from engine.server.openai.chat import scores_json
from engine.server.replies import Delta, Score
from engine.server.responses.create import _Response, response_call
from engine.server.responses.items import input_of
from engine.server.responses.output import Output
from engine.server.responses.stored import StoredResponses
from tests.engine.server.served import HELLO, NUMBERS, TOKEN, Answer, Served, ask, break_third_pass, complete

pytestmark = pytest.mark.loopback
COUNT = {"type": "function", "name": "count", "description": "Counts.", "parameters": NUMBERS, "strict": True}
CHOSEN = {"type": "function", "name": "count"}


def respond(served: Served, **fields: Any) -> Answer:
    sent = {"input": "Hello there", "max_output_tokens": 8, "seed": 5, **fields}
    return ask(served, "/v1/responses", sent)


def texts(response: Any) -> str:
    return "".join(
        part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"]
    )


def chat_text(served: Served, **fields: Any) -> str:
    return str(complete(served, seed=5, **fields).json["choices"][0]["message"]["content"])


def test_a_whole_response_says_what_a_chat_says(served: Served) -> None:
    answer = respond(served, metadata={"a": "b"}, top_p=0.9, user="me")
    value = answer.json
    assert answer.status == 200
    assert (value["object"], value["status"], value["model"]) == ("response", "incomplete", "tiny")
    assert value["incomplete_details"] == {"reason": "max_output_tokens"}
    assert value["id"].startswith("resp_")
    (item,) = value["output"]
    assert (item["type"], item["role"], item["status"]) == ("message", "assistant", "incomplete")
    (part,) = item["content"]
    assert part == {
        "type": "output_text", "text": chat_text(served, top_p=0.9), "annotations": [], "logprobs": [],
    }  # fmt: skip
    usage = complete(served, seed=5).json["usage"]
    assert value["usage"]["input_tokens"] == usage["prompt_tokens"]
    assert value["usage"]["output_tokens"] == 8
    assert value["usage"]["total_tokens"] == usage["prompt_tokens"] + 8
    assert value["metadata"] == {"a": "b"}
    assert (value["top_p"], value["user"], value["error"]) == (0.9, "me", None)
    assert (value["tools"], value["tool_choice"], value["parallel_tool_calls"]) == ([], "auto", True)


def test_a_complete_response(served: Served) -> None:
    answer = respond(served, max_output_tokens=None, text={"format": {"type": "json_schema", "name": "a",
                     "schema": {"const": 7}}}).json  # fmt: skip
    assert (answer["status"], answer["incomplete_details"], texts(answer)) == ("completed", None, "7")
    assert answer["output"][0]["status"] == "completed"
    assert answer["text"]["format"]["name"] == "a"


def test_a_stream_has_the_documented_events_in_order(served: Served) -> None:
    whole = respond(served).json
    answer = respond(served, stream=True)
    events = answer.named_events
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    kinds = [event["type"] for event in events]
    deltas = kinds.count("response.output_text.delta")
    assert deltas >= 1
    assert kinds == [
        "response.created", "response.in_progress", "response.output_item.added",
        "response.content_part.added", *["response.output_text.delta"] * deltas, "response.output_text.done",
        "response.content_part.done", "response.output_item.done", "response.incomplete",
    ]  # fmt: skip
    assert events[0]["response"]["status"] == events[1]["response"]["status"] == "in_progress"
    assert events[0]["response"]["output"] == []
    text = "".join(event["delta"] for event in events if event["type"].endswith("text.delta"))
    assert text == texts(whole) == texts(events[-1]["response"]) == events[-4]["text"]
    (item,) = events[-1]["response"]["output"]
    assert {event["item_id"] for event in events if "item_id" in event} == {item["id"]}
    assert {event["output_index"] for event in events if "output_index" in event} == {0}
    assert events[2]["item"]["content"] == []
    assert events[-2]["item"] == item
    assert events[-1]["response"]["usage"]["output_tokens"] == 8
    assert len({event["response"]["id"] for event in events if "response" in event}) == 1


def test_items_say_the_same_as_messages(served: Served) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "count", "arguments": '{"n": 7}'}}
    messages = [
        {"role": "system", "content": "Be brief.\n\nBe kind."}, {"role": "user", "content": "Count"},
        {"role": "assistant", "content": "Well", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "seven"}, {"role": "user", "content": "Thanks"},
    ]  # fmt: skip
    items = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be kind."}]},
        {"role": "user", "content": "Count"},
        {"type": "web_search_call", "id": "w", "status": "completed"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Well"}]},
        {"type": "function_call", "call_id": "c", "name": "count", "arguments": '{"n": 7}'},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "seven"}]},
        {"role": "user", "content": "Thanks"},
    ]
    answer = respond(served, input=items, instructions="Be brief.")
    assert texts(answer.json) == chat_text(served, messages=messages)
    assert answer.json["instructions"] == "Be brief."


@pytest.mark.parametrize("stream", [False, True])
def test_calls(served: Served, stream: bool) -> None:
    other = [{"type": "web_search"}, {"type": "local_shell"}, {"type": "namespace", "tools": []}]
    answer = respond(
        served, tools=[*other, COUNT], tool_choice=CHOSEN, seed=3, max_output_tokens=200, stream=stream
    )
    value = answer.named_events[-1]["response"] if stream else answer.json
    assert value["status"] == "completed"
    (call,) = value["output"]
    assert (call["type"], call["name"], call["status"]) == ("function_call", "count", "completed")
    assert call["call_id"].startswith("call_")
    assert call["call_id"] != call["id"]
    assert 0 <= json.loads(call["arguments"])["n"] <= 99
    assert value["tools"] == [COUNT]
    if stream:
        events = answer.named_events[2:-1]
        kinds = [event["type"] for event in events]
        middle = ["response.function_call_arguments.delta"] * (len(kinds) - 3)
        assert middle
        assert kinds == [
            "response.output_item.added", *middle, "response.function_call_arguments.done",
            "response.output_item.done",
        ]  # fmt: skip
        assert events[0]["item"]["arguments"] == ""
        assert "".join(event["delta"] for event in events[1:-2]) == call["arguments"]
        assert (events[-2]["arguments"], events[-2]["name"]) == (call["arguments"], "count")
        assert events[-1]["item"] == call


def test_log_probabilities(served: Served) -> None:
    found = complete(served, seed=5, logprobs=True, top_logprobs=2).json["choices"][0]["logprobs"]["content"]
    answer = respond(served, top_logprobs=2, stream=True).named_events
    deltas = [event for event in answer if event["type"] == "response.output_text.delta"]
    assert [score for event in deltas for score in event["logprobs"]] == found
    assert answer[-1]["response"]["output"][0]["content"][0]["logprobs"] == found
    bare = respond(served, include=["message.output_text.logprobs"]).json["output"][0]["content"][0]
    assert [score["top_logprobs"] for score in bare["logprobs"]] == [[]] * len(found)


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_is_continued(served: Served, stream: bool) -> None:
    answer = respond(served, instructions="Be kind.", stream=stream)
    first = answer.named_events[-1]["response"] if stream else answer.json
    second = respond(served, previous_response_id=first["id"], input="More", instructions="Be brief.").json
    messages = [
        {"role": "system", "content": "Be brief."}, *HELLO, {"role": "assistant", "content": texts(first)},
        {"role": "user", "content": "More"},
    ]  # fmt: skip
    assert second["previous_response_id"] == first["id"]
    assert texts(second) == chat_text(served, messages=messages)
    third = respond(served, previous_response_id=second["id"], input="Again").json
    messages = [*messages[1:], {"role": "assistant", "content": texts(second)},
                {"role": "user", "content": "Again"}]  # fmt: skip
    assert texts(third) == chat_text(served, messages=messages)


def test_a_call_is_continued_with_its_result(served: Served) -> None:
    first = respond(served, tools=[COUNT], tool_choice=CHOSEN, seed=3, max_output_tokens=200).json
    (item,) = first["output"]
    result = {"type": "function_call_output", "call_id": item["call_id"], "output": "seven"}
    by_id = respond(served, previous_response_id=first["id"], input=[result]).json
    whole = respond(served, input=[{"role": "user", "content": "Hello there"}, item, result]).json
    reference = {"type": "item_reference", "id": item["id"]}
    referred = respond(served, input=[{"role": "user", "content": "Hello there"}, reference, result]).json
    assert texts(by_id) == texts(whole) == texts(referred)
    wrong = respond(served, input=[{"type": "item_reference", "id": "fc_x"}])
    assert wrong.error["param"] == "input[0].id"


def test_what_is_kept_can_be_read_and_removed(served: Served) -> None:
    made = respond(served).json
    path = f"/v1/responses/{made['id']}"
    assert ask(served, path).json == made
    removed = ask(served, path, method="DELETE")
    assert removed.json == {"id": made["id"], "object": "response", "deleted": True}
    assert ask(served, path).status == ask(served, path, method="DELETE").status == 404
    gone = respond(served, previous_response_id=made["id"])
    assert (gone.status, gone.error["code"]) == (400, "previous_response_not_found")
    unkept = respond(served, store=False).json
    assert unkept["store"] is False
    assert ask(served, f"/v1/responses/{unkept['id']}").status == 404


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("input", ["", [], None])
def test_an_empty_probe_is_answered_at_once(served: Served, stream: bool, input: Any) -> None:
    answer = respond(
        served, input=input, instructions="You are a coding agent.", max_output_tokens=1, stream=stream
    )
    value = answer.named_events[-1]["response"] if stream else answer.json
    assert (value["status"], value["output"], value["usage"]["total_tokens"]) == ("completed", [], 0)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": 7}, "input"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
         "input[0].content[0].type"),
        ({"input": [{"type": "function_call", "call_id": "c"}]}, "input[0].name"),
        ({"previous_response_id": "resp_unknown"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"truncation": "some"}, "truncation"),
        ({"reasoning": {"effort": "some"}}, "reasoning.effort"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"tool_choice": "required", "tools": [{"type": "web_search"}]}, "tool_choice"),
        ({"tools": [{**COUNT, "name": "a b"}]}, "tools[0].name"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
    ],
)  # fmt: skip
def test_bad_requests_get_one_sentence(served: Served, fields: dict[str, Any], param: str) -> None:
    answer = respond(served, **fields)
    assert (answer.status, answer.error["param"]) == (400, param)
    assert answer.error["message"].endswith(".")


def test_a_long_input_is_refused_or_its_beginning_left_out(served: Served) -> None:
    items = [{"role": "user", "content": "word " * 300}, {"role": "assistant", "content": "Yes"}] * 8
    items += [{"role": "user", "content": "Hello there"}]
    assert respond(served, input=items).error["code"] == "context_length_exceeded"
    assert respond(served, input=items, truncation="auto").status == 200


def test_a_failure_in_mid_stream_is_a_response_that_failed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_third_pass(served, monkeypatch)
    last = respond(served, stream=True).named_events[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["status"] == "failed"
    assert "ValueError" in last["response"]["error"]["message"]
    assert ask(served, f"/v1/responses/{last['response']['id']}", headers={"x-api-key": TOKEN}).status == 404


def test_messages_of_a_stored_response_keep_calls_and_thoughts() -> None:
    output = Output()
    deltas = [
        Delta("Hm", ""), Delta(".", "Well, "), Delta("", "yes."),
        Delta(call=CallPiece(0, "call_1", "look", "{")),
        Delta(call=CallPiece(0, arguments="}")), Delta("", "Done."),
    ]  # fmt: skip
    events = [event for delta in deltas for event in output.feed(delta)] + list(output.finish(whole=True))
    assert output.message() == Message(
        "assistant", "Well, yes.Done.", (ToolCall("call_1", "look", "{}"),), reasoning="Hm."
    )
    assert [item["type"] for item in output.items] == ["reasoning", "message", "function_call", "message"]
    assert {item["status"] for item in output.items} == {"completed"}
    thought = [event for event in events if event.get("output_index") == 0]
    assert [event["type"] for event in thought] == [
        "response.output_item.added", "response.content_part.added", "response.reasoning_text.delta",
        "response.reasoning_text.delta", "response.reasoning_text.done", "response.content_part.done",
        "response.output_item.done",
    ]  # fmt: skip
    assert thought[-3]["text"] == "Hm."
    assert thought[-1]["item"]["content"] == [{"type": "reasoning_text", "text": "Hm."}]


def test_tokens_without_text_keep_their_scores() -> None:
    """Parts of characters, and control tokens: however the pieces of a reply are divided."""
    one, two, three, four = (Score(id, b"x", -1.0) for id in range(4))
    thought, call = Delta("Hm", "", (one,)), Delta(call=CallPiece(0, "call_1", "look", "{}"))
    for deltas, expected in (
        ([Delta(scores=(one,)), Delta("", "a", (two,)), Delta(scores=(three,))], [one, two, three]),
        ([Delta("", "a", (one, two, three))], [one, two, three]),
        ([thought, Delta(scores=(two,)), Delta("", "a", (three,))], [two, three]),
        ([Delta(scores=(one,)), thought, Delta("", "a", (two,))], [two]),
        ([Delta("", "a", (one,)), Delta(scores=(two,)), call, Delta(scores=(three,))], [one]),
        ([Delta(scores=(four,))], [four]),
    ):
        output = Output(scored=True)
        events = [event for delta in deltas for event in output.feed(delta)] + list(output.finish(whole=True))
        reported = [score for event in events if event["type"] == "response.output_text.delta"
                    for score in event["logprobs"]]  # fmt: skip
        (message,) = (item for item in output.items if item["type"] == "message")
        assert reported == message["content"][0]["logprobs"] == scores_json(expected)
        done = next(event for event in events if event["type"] == "response.output_text.done")
        assert done["logprobs"] == reported


def test_the_tokens_of_an_input_are_counted(served: Served) -> None:
    body = {"input": "Hello there", "instructions": "Be brief."}
    whole = ask(served, "/v1/responses", {**body, "max_output_tokens": 1}).json
    counted = ask(served, "/v1/responses/input_tokens", body).json
    assert counted == {"object": "response.input_tokens", "input_tokens": whole["usage"]["input_tokens"]}
    assert ask(served, "/v1/responses/input_tokens", {}).json["input_tokens"] == 0


def test_a_thought_goes_back_in_what_a_client_keeps_of_it() -> None:
    """Codex leaves out the text and gives back `encrypted_content`: the thoughts before a call stay."""
    asked = {"input": "a", "include": ["reasoning.encrypted_content"], "store": False}
    assert response_call(Fields(asked), ServedModel("tiny"), StoredResponses()).seals
    assert not response_call(Fields({"input": "a"}), ServedModel("tiny"), StoredResponses()).seals
    output = Output(seals=True)
    for delta in (Delta(reasoning="H\u00e4 \u2026"), Delta(call=CallPiece(0, "call_1", "look", "{}"))):
        assert [*output.feed(delta)]
    assert [*output.finish(whole=True)]
    thought, call = output.items
    assert "H\u00e4" not in thought["encrypted_content"]
    without = {**thought, "content": None}
    for sent in (thought, without, {**without, "content": []}, {**without, "summary": [{"text": "s"}]}):
        (found,) = input_of(Fields({"input": [sent, call]}), (), StoredResponses())
        assert (found.reasoning, found.tool_calls[0].name) == ("H\u00e4 \u2026", "look")
    for foreign in ("gAAAAA", "inglenook:%", "inglenook:/w==", None):
        sent = {**without, "encrypted_content": foreign, "summary": [{"text": "short"}]}
        (found,) = input_of(Fields({"input": [sent, call]}), (), StoredResponses())
        assert found.reasoning == "short"
        (found,) = input_of(Fields({"input": [{**sent, "summary": []}, call]}), (), StoredResponses())
        assert found.reasoning == ""
    plain = Output()
    assert [*plain.feed(Delta(reasoning="Hm")), *plain.finish(whole=True)]
    assert plain.items[0]["encrypted_content"] is None


@pytest.mark.parametrize(
    ("code", "shown"), [(None, "server_error"), ("model_not_loaded", "model_not_loaded")]
)
def test_a_response_that_failed_says_why(code: str | None, shown: str) -> None:
    asked = response_call(Fields({"input": "a"}), ServedModel("tiny"), StoredResponses())
    event = _Response(asked).failed(Failure(503, "No model.", code=code))
    assert event["type"] == "response.failed"
    assert event["response"]["status"] == "failed"
    assert event["response"]["error"] == {"code": shown, "message": "No model."}


def test_a_call_of_codexs_shell_without_an_action() -> None:
    call = {"type": "local_shell_call", "call_id": "call_1", "action": None}
    (found,) = input_of(Fields({"input": [call]}), (), StoredResponses())
    assert found.tool_calls == (ToolCall("call_1", "local_shell", "{}"),)


def test_calls_of_codexs_shell_stay_with_their_results() -> None:
    action = {"type": "exec", "command": ["ls"], "timeout_ms": 10}
    call = {"type": "local_shell_call", "id": "lsh_1", "call_id": "call_1", "action": action}
    for result in (
        {"type": "function_call_output", "call_id": "call_1", "output": "a"},
        {"type": "local_shell_call_output", "id": "call_1", "output": "a"},
    ):
        assert input_of(Fields({"input": [call, result]}), (), StoredResponses()) == (
            Message(
                "assistant", "", (ToolCall("call_1", "local_shell", '{"command": ["ls"], "timeout_ms": 10}'),)
            ),
            Message("tool", "a", tool_call_id="call_1"),
        )
