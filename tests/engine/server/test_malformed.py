"""Bodies of every shape: each gets an answer in the form of its endpoint, and leaves nothing behind."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.server.bodies import VALID, WITHOUT_BODY, check, check_error, requests
from tests.engine.server.served import Served, ask

pytestmark = pytest.mark.loopback
NAMES = ("messages", "prompt", "input", "tokens", "model", "instance_id", "genkey", "text", "name",
    "model_name", "contents", "content", "requests",
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests())
def test_any_object_is_answered(served: Served, request: tuple[str, dict[str, Any]]) -> None:
    path, body = request
    check(path, ask(served, path, body))
    assert served.idle()


@pytest.mark.parametrize("path", VALID)
def test_every_endpoint_answers_what_it_accepts(served: Served, path: str) -> None:
    answer = ask(served, path, VALID[path])
    assert answer.status == (404 if path.endswith("/unload") else 200)
    refused = ask(served, path, {**VALID[path], **dict.fromkeys(NAMES, 5)})
    assert refused.status == 400
    check_error(path, refused.json)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(VALID)), st.binary(max_size=200))
def test_any_bytes_are_answered(served: Served, path: str, body: bytes) -> None:
    answer = ask(served, path, body)
    if path in WITHOUT_BODY and not body:
        assert answer.status == 200
    else:
        assert answer.status == 400
        check_error(path, answer.json)
