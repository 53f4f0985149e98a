"""Statuses and forms of errors, as clients of OpenAI and Anthropic expect them."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import (
    BadSetting,
    Cancelled,
    ContextTooLong,
    DeviceLost,
    EngineError,
    NotEnoughMemory,
    NothingAllowed,
)
from engine.server.failure import ENDED, ApiError, Failure, bad_request, busy, failure_of

GOOGLES = {"error": {"code": 400, "message": "No.", "status": "INVALID_ARGUMENT"}}
OURS = {"error": {"message": "No.", "type": "own", "param": "n", "code": "c"}}


@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        (ContextTooLong("Long."), 400, "invalid_request_error", "context_length_exceeded"),
        (BadSetting("Bad."), 400, "invalid_request_error", None),
        (NothingAllowed("Nothing."), 400, "invalid_request_error", None),
        (NotEnoughMemory("Full."), 503, "server_error", None),
        (DeviceLost("Gone."), 503, "server_error", None),
        (EngineError("Odd."), 500, "server_error", None),
    ],
)
def test_errors_of_the_engine(error: EngineError, status: int, kind: str, code: str | None) -> None:
    assert failure_of(error) == Failure(status, str(error), kind, code=code)


def test_other_errors(caplog: pytest.LogCaptureFixture) -> None:
    assert failure_of(Cancelled()) is ENDED
    assert failure_of(ApiError(ENDED)) is ENDED
    found = failure_of(KeyError("secret"))
    assert (found.status, "KeyError" in found.message, "secret" in found.message) == (500, True, False)
    assert "a request failed" in caplog.text
    busied = busy("Come again.").failure
    assert (busied.status, busied.code, busied.retry_after > 0) == (503, "server_busy", True)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "invalid_request_error"), (401, "authentication_error"), (418, "invalid_request_error"),
     (429, "rate_limit_error"), (500, "api_error"), (503, "overloaded_error")],
)  # fmt: skip
def test_each_endpoint_answers_in_its_own_form(status: int, kind: str) -> None:
    failure = Failure(status, "No.", "own", "n", "c")
    theirs = {"type": "error", "error": {"type": kind, "message": "No."}, "request_id": None}
    assert failure.body_for("/v1/messages") == failure.body_for("/v1/messages/count_tokens") == theirs
    assert failure.body_for("/v1/messages2") == failure.body_for("/v1/chat/completions") == OURS


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1beta/models", GOOGLES),
        ("/v1/models/m:generateContent", GOOGLES),
        ("/api/chat", {"error": "No."}),
        ("/api/v1/chat", OURS),
        ("/api/v0/models", OURS),
    ],
)
def test_other_makers_endpoints_answer_in_their_forms(path: str, body: dict[str, Any]) -> None:
    assert Failure(400, "No.", "own", "n", "c").body_for(path) == body


def test_a_bad_request_names_its_field() -> None:
    assert bad_request("No.", "stop").failure == Failure(400, "No.", param="stop")
