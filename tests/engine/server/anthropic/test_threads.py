"""Conversations that the server holds for Anthropic's clients, such as `tool_runner` of their SDK."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from engine.server.anthropic.conversation import messages_of, offer_of
from engine.server.anthropic.threads import Threads
from engine.server.failure import ApiError
from engine.server.fields import Fields
from tests.engine.server.served import HELLO, NUMBERS, TOKEN, Answer, Gate, Served, ask, opened, read_until

CREATE = {"type": "create"}
COUNT = {"name": "count", "input_schema": NUMBERS}
SQUARE = {"name": "square", "input_schema": NUMBERS}


def write(served: Served, **fields: Any) -> Answer:
    sent = {"messages": HELLO, "max_tokens": 8, "seed": 5, "temperature": 0, **fields}
    headers = {"Authorization": None, "x-api-key": TOKEN, "anthropic-beta": "message-threads-2026-08-12"}
    return ask(served, "/v1/messages", sent, headers=headers)


def after(message: Any) -> dict[str, str]:
    return {"type": "continue", "previous_message_id": message["id"]}


def code_of(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["error"]["details"]["error_code"]


@pytest.mark.loopback
@pytest.mark.parametrize("stream", [False, True])
def test_a_thread_says_what_the_whole_conversation_says(served: Served, stream: bool) -> None:
    fixed: dict[str, Any] = {"system": "You count.", "tools": [COUNT], "tool_choice": {"type": "any"}}
    more = [{"role": "user", "content": "And now?"}]
    first = write(served, **fixed, thread=CREATE, stream=stream)
    if stream:
        events = first.named_events
        message = {**events[0]["message"], "content": [{"type": "tool_use", "id": "x", "name": "count"}]}
        message["content"][0]["input"] = {}
        assert [event["type"] for event in events][-1] == "message_stop"
    else:
        message = first.json
    second = write(served, thread=after(message), messages=more, tool_choice={"type": "any"}).json
    if not stream:
        said = [*HELLO, {"role": "assistant", "content": message["content"]}, *more]
        whole = write(served, **fixed, messages=said).json
        assert read(second) == read(whole)
        assert [call["input"] for call in second["content"]] == [call["input"] for call in whole["content"]]
    third = write(served, thread=after(second), messages=more, tool_choice={"type": "any"}).json
    assert read(third) > read(second) > read(message)


def read(message: Any) -> int:
    """How many tokens its prompt had."""
    usage = message["usage"]
    return int(usage["input_tokens"] + usage["cache_read_input_tokens"])


@pytest.mark.loopback
def test_a_message_is_continued_once(served: Served) -> None:
    first = write(served, thread=CREATE).json
    assert write(served, thread=after(first)).status == 200
    again = write(served, thread=after(first))
    assert code_of(again) == (400, "thread_already_continued")
    assert 'send the whole conversation with thread: {"type": "create"}.' in again.json["error"]["message"]
    assert code_of(write(served, thread=after({"id": "msg_none"}))) == (404, "thread_not_found")
    outside = write(served).json
    assert code_of(write(served, thread=after(outside))) == (404, "thread_not_found")


@pytest.mark.loopback
def test_what_a_thread_began_with_cannot_change(served: Served) -> None:
    first = write(served, thread=CREATE, tools=[COUNT]).json
    for name, value in (("tools", [COUNT]), ("system", "x")):
        refused = write(served, thread=after(first), **{name: value})
        assert code_of(refused) == (400, "thread_fingerprint_mismatch")
        assert refused.json["error"]["message"].startswith(f"{name} cannot change")
    refused = write(served, thread=after(first), messages=5)
    assert refused.json["error"]["message"] == "messages is 5, but a list of objects was expected."
    assert write(served, thread={"type": "end"}).status == 400
    assert write(served, thread=after(first)).status == 200  # none of these has used it up


@pytest.mark.loopback
def test_a_client_that_leaves_can_continue_the_same_message(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write(served, thread=CREATE).json
    gate = Gate(served.chat, monkeypatch)
    body = {"messages": HELLO, "max_tokens": 50, "stream": True, "thread": after(first)}
    with opened(served, "/v1/messages", body) as connection:
        gate.let()
        read_until(connection, b"message_start")
        assert code_of(write(served, thread=after(first))) == (400, "thread_continue_in_flight")
    gate.open()
    while (found := write(served, thread=after(first))).status == 400:
        assert code_of(found) == (400, "thread_continue_in_flight")
    assert found.status == 200


def test_the_least_recently_used_are_forgotten() -> None:
    threads = Threads(3000)
    message = {"content": [{"type": "text", "text": "x" * 40}]}

    def keep(id: str) -> None:
        with threads.turn(Fields({"thread": CREATE, "messages": HELLO})) as turn:
            threads.keep(turn, {**message, "id": id})

    def known(id: str) -> bool:
        with (
            suppress(ApiError),
            threads.turn(Fields({"thread": {"type": "continue", "previous_message_id": id}})),
        ):
            return True
        return False

    for id in "ab":
        keep(id)
    assert known("a")
    keep("c")
    assert [id for id in "abc" if known(id)] == ["a", "c"]
    message["content"][0]["text"] = "x" * 3000
    keep("large")
    assert [id for id in ("a", "c", "large") if known(id)] == ["a", "c"]


def change(kind: str, **tool: Any) -> dict[str, Any]:
    return {"role": "system", "content": [{"type": f"tool_{kind}", "tool": tool}]}


def test_system_messages_add_and_remove_tools() -> None:
    added = change("addition", type="tool_definition", definition=SQUARE)
    removed = change("removal", type="tool_reference", name="count")
    back = change("addition", type="tool_reference", name="count")
    for changes, names in (
        ([], ["count"]), ([added], ["count", "square"]), ([added, removed], ["square"]), ([removed], []),
        ([removed, added, back], ["count", "square"]), ([added, added], ["count", "square"]),
    ):  # fmt: skip
        fields = Fields({"tools": [COUNT], "messages": [*HELLO, *changes]})
        assert [tool.name for tool in offer_of(fields).tools] == names
        assert [message.role for message in messages_of(fields)] == ["user"]
    with pytest.raises(ApiError, match=r"messages\[0\].content\[0\].tool is missing"):
        offer_of(Fields({"messages": [{"role": "system", "content": [{"type": "tool_removal"}]}]}))
