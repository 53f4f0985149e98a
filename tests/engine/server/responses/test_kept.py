"""Responses that were written: their events again, what they answer, and why none is cancelled."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.server.served import Served, ask

pytestmark = pytest.mark.loopback
ITEMS = [
    {"role": "user", "content": "How many?"},
    {"type": "function_call", "call_id": "call_1", "name": "count", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "call_1", "output": "7"},
    {"role": "user", "content": "Thanks"},
]


def respond(served: Served, **fields: Any) -> Any:
    return ask(served, "/v1/responses", {"input": "Hello there", "max_output_tokens": 8, "seed": 5, **fields})


@pytest.mark.parametrize("input", ["Hello there", ""])
def test_a_stream_is_repeated_as_it_was(served: Served, input: str) -> None:
    events = respond(served, stream=True, input=input).named_events
    path = f"/v1/responses/{events[0]['response']['id']}"
    assert ask(served, path + "?stream=true").named_events == events
    assert ask(served, path + "?stream=true&starting_after=1").named_events == events[2:]
    assert ask(served, path).json == events[-1]["response"]


def test_a_whole_response_has_events_too(served: Served) -> None:
    made = respond(served).json
    events = ask(served, f"/v1/responses/{made['id']}?stream=true").named_events
    text = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    assert text == made["output"][0]["content"][0]["text"]
    assert [event["sequence_number"] for event in events] == [*range(len(events))]


def test_what_a_response_answers(served: Served) -> None:
    made = respond(served, input=ITEMS, instructions="Be brief.").json
    path = f"/v1/responses/{made['id']}/input_items"
    found = ask(served, path + "?order=asc").json
    kinds = ["message", "function_call", "function_call_output", "message"]
    assert [item["type"] for item in found["data"]] == kinds
    assert found["data"][2]["output"] == "7"
    assert found["data"][3]["content"] == [{"type": "input_text", "text": "Thanks"}]
    assert len({item["id"] for item in found["data"]}) == 4
    first = ask(served, path + "?limit=3").json
    assert (first["data"], first["has_more"]) == (found["data"][:0:-1], True)
    rest = ask(served, f"{path}?limit=3&after={first['last_id']}").json
    assert (rest["data"], rest["has_more"]) == (found["data"][:1], False)
    assert (found["first_id"], found["last_id"]) == (found["data"][0]["id"], found["data"][3]["id"])
    assert ask(served, path + "?limit=4").json["has_more"] is False
    none = ask(served, f"{path}?after={rest['last_id']}").json
    assert [none[name] for name in ("data", "has_more", "first_id", "last_id")] == [[], False, None, None]


def test_what_the_model_said_and_thought_is_an_item_too(served: Served) -> None:
    thought = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}], "summary": []}
    made = respond(served, input=[ITEMS[0], thought, {"role": "assistant", "content": "7"}, ITEMS[3]]).json
    found = ask(served, f"/v1/responses/{made['id']}/input_items?order=asc").json["data"]
    assert [item["type"] for item in found] == ["message", "reasoning", "message", "message"]
    assert {name: found[1][name] for name in thought} == thought
    assert found[2]["role"] == "assistant"
    assert found[2]["content"] == [{"type": "output_text", "text": "7", "annotations": []}]


def test_twenty_items_are_a_page(served: Served) -> None:
    texts = [f"Number {number}" for number in range(22)]
    made = respond(served, input=[{"role": "user", "content": text} for text in texts]).json
    page = ask(served, f"/v1/responses/{made['id']}/input_items?order=asc").json
    assert [item["content"][0]["text"] for item in page["data"]] == texts[:20]
    assert (page["has_more"], page["last_id"]) == (True, page["data"][19]["id"])


@pytest.mark.parametrize(
    ("query", "param"),
    [("?starting_after=2", "starting_after"), ("?stream=maybe", "stream"),
     ("?stream=true&starting_after=x", "starting_after"),
     ("?stream=true&starting_after=%C2%B2", "starting_after"), ("/input_items?order=up", "order"),
     ("/input_items?limit=0", "limit"), ("/input_items?after=msg_x", "after")],
)  # fmt: skip
def test_a_wrong_query_is_refused(served: Served, query: str, param: str) -> None:
    made = respond(served).json
    answer = ask(served, f"/v1/responses/{made['id']}{query}")
    assert (answer.status, answer.error["param"]) == (400, param)


def test_nothing_can_be_cancelled(served: Served) -> None:
    made = respond(served).json
    answer = ask(served, f"/v1/responses/{made['id']}/cancel", method="POST", body={})
    assert answer.status == 400
    assert "background" in answer.error["message"]
    assert ask(served, "/v1/responses/resp_x/cancel", method="POST", body={}).status == 404
