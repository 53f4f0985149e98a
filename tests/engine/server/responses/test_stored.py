"""What is kept of responses is bounded."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core import Message, ToolCall
from engine.server.failure import ApiError
from engine.server.responses.stored import StoredResponses

MESSAGES = (Message("user", "x" * 1000),)


def response(number: int) -> dict[str, Any]:
    return {"id": f"resp_{number}", "output": [{"id": f"msg_{number}", "type": "message"}]}


def test_the_least_recently_used_are_forgotten() -> None:
    stored = StoredResponses(most_bytes=20_000)
    for number in range(4):
        stored.keep(response(number), MESSAGES)
    for number in range(4, 40):
        assert stored.get("resp_0").messages == MESSAGES
        stored.keep(response(number), MESSAGES)
    with pytest.raises(ApiError):
        stored.get("resp_1")
    assert stored.get("resp_39").response == response(39)
    assert stored.item("msg_39") == {"id": "msg_39", "type": "message"}
    assert stored.item("msg_1") is None


@pytest.mark.parametrize(
    "large",
    [
        Message("user", "x" * 10_000), Message("assistant", "", reasoning="x" * 10_000),
        Message("assistant", "", (ToolCall("c", "f", "x" * 10_000),)),
    ],
)  # fmt: skip
def test_what_is_too_large_is_not_kept(large: Message) -> None:
    stored = StoredResponses(most_bytes=20_000)
    stored.keep(response(0), MESSAGES)
    stored.keep(response(1), (large,))
    assert stored.get("resp_0")
    with pytest.raises(ApiError):
        stored.get("resp_1")


def test_removing_frees_what_it_took() -> None:
    stored = StoredResponses(most_bytes=20_000)
    stored.keep(response(0), MESSAGES)
    for number in range(1, 100):
        stored.keep(response(number), MESSAGES)
        stored.remove(f"resp_{number}")
    assert stored.get("resp_0")


@pytest.mark.parametrize(("param", "status"), [(None, 404), ("previous_response_id", 400)])
def test_what_is_not_there(param: str | None, status: int) -> None:
    with pytest.raises(ApiError) as caught:
        StoredResponses().get("resp_x", param)
    assert (caught.value.failure.status, caught.value.failure.param) == (status, param)
    assert "'resp_x'" in caught.value.failure.message
