"""Bodies of every shape: each gets an answer in OpenAI's form, and leaves nothing behind."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.server.served import HELLO, Served, ask

pytestmark = pytest.mark.loopback

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
NAMES = (
    "messages", "prompt", "model", "stream", "stream_options", "n", "stop", "seed", "temperature", "top_p",
    "top_k", "logprobs", "top_logprobs", "logit_bias", "response_format", "max_tokens", "echo", "suffix",
    "chat_template_kwargs", "continue_final_message", "add_generation_prompt", "tokens", "min_tokens", "user",
)  # fmt: skip
BODIES = st.dictionaries(st.sampled_from(NAMES) | st.text(), JSON, max_size=6)
PATHS = ("/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize", "/apply-template")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(PATHS), body=BODIES, valid=st.booleans())
def test_any_object_is_answered(served: Served, path: str, body: dict[str, Any], valid: bool) -> None:
    sent = {**body, "max_tokens": 2, **({"messages": HELLO, "prompt": "Hello"} if valid else {})}
    answer = ask(served, path, sent)
    assert answer.status in (200, 400)
    if answer.status == 400:
        assert "Traceback" not in answer.error["message"]
    elif answer.headers["content-type"].startswith("text/event-stream"):
        assert answer.events[-1] == "[DONE]" or "error" in answer.events[-1]
    else:
        assert isinstance(answer.json, dict)
    assert served.idle()


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_any_bytes_are_answered(served: Served, body: bytes) -> None:
    answer = ask(served, "/v1/chat/completions", body)
    assert answer.status == 400
    assert answer.error["message"]
