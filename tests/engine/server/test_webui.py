"""text-generation-webui's endpoints."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.engine.server.served import HELLO, Gate, Served, ask, opened, read_until

pytestmark = pytest.mark.loopback


def test_tokens_and_prompts(served: Served) -> None:
    ids = ask(served, "/tokenize", {"prompt": "The quick"}).json["tokens"]
    assert ask(served, "/v1/internal/encode", {"text": "The quick"}).json == {
        "tokens": ids,
        "length": len(ids),
    }
    assert ask(served, "/v1/internal/token-count", {"text": "The quick"}).json == {"length": len(ids)}
    text = ask(served, "/detokenize", {"tokens": ids}).json["prompt"]
    assert ask(served, "/v1/internal/decode", {"tokens": ids}).json == {"text": text}
    prompt = ask(served, "/apply-template", {"messages": HELLO}).json
    assert ask(served, "/v1/internal/chat-prompt", {"messages": HELLO}).json == prompt
    assert ask(served, "/v1/internal/health").json == {"status": "ok"}
    assert ask(served, "/v1/internal/model/list").json == {"model_names": ["tiny", "other"]}


@pytest.mark.parametrize(
    ("path", "param"),
    [("encode", "text"), ("token-count", "text"), ("logits", "prompt"), ("model/load", "model_name")],
)
def test_a_request_without_what_it_is_about(served: Served, path: str, param: str) -> None:
    answer = ask(served, f"/v1/internal/{path}", {})
    assert (answer.status, answer.error["param"]) == (400, param)


@pytest.mark.parametrize("path", ["encode", "token-count"])
def test_a_model_that_is_not_loaded_is_not_answered_for(served: Served, path: str) -> None:
    assert ask(served, f"/v1/internal/{path}", {"text": "The quick", "model": "other"}).status == 503


@pytest.mark.parametrize("prompt", ["The quick", "The quick brown fox jumps. " * 30])
def test_the_likeliest_tokens(served: Served, prompt: str) -> None:
    found = ask(served, "/v1/internal/logits", {"prompt": prompt, "top_logits": 5}).json["logits"]
    sent = {"prompt": prompt, "max_tokens": 1, "logprobs": 5, "temperature": 0}
    scores = ask(served, "/v1/completions", sent).json["choices"][0]["logprobs"]["top_logprobs"][0]
    assert [*found] == [*scores]
    for text, probability in found.items():
        if text != "\ufffd":  # several tokens that are no text, which count together
            assert probability == pytest.approx(math.exp(scores[text]), rel=1e-4)
    assert len(ask(served, "/v1/internal/logits", {"prompt": prompt}).json["logits"]) > 20
    every = ask(served, "/v1/internal/logits", {"prompt": prompt, "top_logits": 1000}).json["logits"]
    assert sum(every.values()) == pytest.approx(1)
    assert ask(served, "/v1/internal/logits", {"prompt": prompt, "use_samplers": True}).status == 400
    assert served.idle()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_what_has_been_written_is_the_answer_of_a_stopped_reply(
    served: Served, path: str, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt: dict[str, Any] = {"messages": HELLO} if "chat" in path else {"prompt": ["The quick"] * 20}
    sent = {**prompt, "max_tokens": 900, "ignore_eos": True, "stream": stream, "temperature": 0}
    gate = Gate(served.chat, monkeypatch)
    with opened(served, path, sent) as connection:
        gate.wait()
        gate.let(12)
        if stream:
            begun = read_until(connection, b'"text":"' if "prompt" in sent else b'"content":"')
        else:
            begun = b""
            while not served.server.service.visits()[0].tokens:
                pass
        assert ask(served, "/v1/internal/stop-generation", b"", method="POST").json == "OK"
        gate.open()
        answer = begun + read_until(connection, b"\r\n0\r\n" if stream else b"}}}")
        assert b'"error"' not in answer
        assert answer.count(b'"finish_reason":"stop"') == (20 if "prompt" in sent else 1)
        if not stream:
            body = json.loads(answer.split(b"\r\n\r\n", 1)[1])
            assert body["usage"]["completion_tokens"] > 0
    assert served.idle()


def test_a_reply_that_is_stopped_before_it_begins(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(served.chat, monkeypatch)
    sent = {"prompt": "The quick", "max_tokens": 5, "stream": True}
    with opened(served, "/v1/completions", sent) as first:
        gate.wait()  # the model's thread stands still
        with opened(served, "/v1/completions", sent) as second:
            while len(served.server.service.visits()) < 2:
                pass
            ask(served, "/v1/internal/stop-generation", b"", method="POST")
            gate.open()
            for connection in (first, second):
                answer = read_until(connection, b"\r\n0\r\n")
                assert b'"error"' not in answer
                assert answer.startswith(b"HTTP/1.1 200")
                assert b'"finish_reason":"stop"' in answer
    assert served.idle()
