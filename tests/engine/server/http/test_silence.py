"""What a client gets while a long prompt is read: signs of life, and on request how far it is."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.server.options import Bounds, ServerOptions
from tests.engine.server.served import HELLO, TOKEN, Gate, Served, ask, complete, opened, read_until

pytestmark = pytest.mark.loopback
CHAT = {"messages": HELLO, "max_tokens": 3, "temperature": 0, "ignore_eos": True, "stream": True}
TEXT = {"prompt": "The quick", "max_tokens": 3, "temperature": 0, "stream": True}
OLLAMA = {"options": {"num_predict": 3, "temperature": 0, "ignore_eos": True}}
COMMENT = b": ping\n\n"


@pytest.fixture(scope="module")
def hasty(tiny_folder: Path) -> Iterator[Served]:
    """A server whose streams may be silent for a moment only."""
    found = Served(tiny_folder, ServerOptions(token=TOKEN, bounds=Bounds(ping_seconds=0.02)))
    yield found
    found.close()


@pytest.mark.parametrize(
    ("path", "body", "sign"),
    [
        ("/v1/chat/completions", CHAT, COMMENT),
        ("/v1/completions", TEXT, COMMENT),
        ("/completion", TEXT, COMMENT),
        ("/api/extra/generate/stream", TEXT, COMMENT),
        ("/v1/messages", CHAT, b'event: ping\ndata: {"type":"ping"}\n\n'),
        (
            "/v1/responses",
            {"input": "Hello", "max_output_tokens": 3, "stream": True},
            b'"sequence_number":1,',
        ),
        ("/api/chat", {"messages": HELLO, **OLLAMA}, b'"content":""},"done":false}\n'),
        ("/api/generate", {"prompt": "Hello", **OLLAMA}, b'"response":"","done":false}\n'),
        (
            "/v1/chat",
            {"message": "Hello", "max_tokens": 3, "stream": True},
            b'\n{"event_type":"text-generation","is_finished":false,"text":""}\n',
        ),
    ],
)
def test_a_silent_stream_gives_signs_of_life(
    hasty: Served, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any], sign: bytes
) -> None:
    gate = Gate(hasty.chat, monkeypatch)
    with opened(hasty, path, body) as connection:
        try:
            gate.wait()  # the prompt is being read, and nothing else can be sent
            for _ in range(3):
                assert b"failed" not in read_until(connection, sign)
        finally:
            gate.open()
        read_until(connection, b"0\r\n\r\n")  # the stream ends as ever


def test_a_response_repeats_that_it_is_in_progress(hasty: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signs have no numbers of their own, so that `starting_after` means the same later."""
    gate = Gate(hasty.chat, monkeypatch)
    body = {"input": "Count", "max_output_tokens": 3, "stream": True, "temperature": 0}
    with opened(hasty, "/v1/responses", body) as connection:
        gate.wait()
        found = read_until(connection, b'"sequence_number":1,')
        found += read_until(connection, b'"sequence_number":1,')
        gate.open()
        found += read_until(connection, b"0\r\n\r\n")
    events = [json.loads(line[6:]) for line in found.decode().splitlines() if line.startswith("data: ")]
    again = ask(hasty, f"/v1/responses/{events[-1]['response']['id']}?stream=true", method="GET").named_events
    numbers = [(event["type"], event["sequence_number"]) for event in events]
    assert numbers.count(("response.in_progress", 1)) > 1
    assert [*dict.fromkeys(numbers)] == [(event["type"], event["sequence_number"]) for event in again]
    assert {event["response"]["status"] for event in events if event["type"] == "response.in_progress"} == {
        "in_progress"
    }


def test_a_stream_that_is_written_has_no_signs(served: Served) -> None:
    body = complete(served, stream=True, max_tokens=3).body
    assert COMMENT not in body


def test_whole_answers_are_as_ever_while_they_wait(hasty: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(hasty.chat, monkeypatch)
    timer = threading.Timer(0.2, gate.open)
    timer.start()
    assert complete(hasty, max_tokens=3).json["choices"][0]["finish_reason"]
    timer.join()


LONG = "The quick brown fox jumps over the lazy dog. " * 10


def _chunks(served: Served, path: str, body: dict[str, Any]) -> list[Any]:
    return [event for event in ask(served, path, body).events if isinstance(event, dict)]


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": LONG}]},
            lambda chunk: chunk["choices"][0]["delta"].get("content") or "",
        ),
        ("/v1/completions", {"prompt": LONG}, lambda chunk: chunk["choices"][0]["text"]),
        ("/completion", {"prompt": LONG}, lambda chunk: chunk["content"]),
    ],
)
def test_a_stream_reports_how_far_the_prompt_is_read(
    served: Served, path: str, body: dict[str, Any], text: Callable[[Any], str]
) -> None:
    sent = {**body, "max_tokens": 3, "temperature": 0, "stream": True, "seed": 1}
    asked, plain = _chunks(served, path, {**sent, "return_progress": True}), _chunks(served, path, sent)
    found = [chunk["prompt_progress"] for chunk in asked if "prompt_progress" in chunk]
    assert len(found) > 1
    assert all(set(one) == {"total", "cache", "processed", "time_ms"} for one in found)
    assert found[0]["processed"] == found[0]["cache"]
    assert found[-1]["processed"] == found[-1]["total"] > 50
    assert found == sorted(found, key=lambda one: (one["processed"], one["time_ms"]))
    assert not any(text(chunk) for chunk in asked if "prompt_progress" in chunk)
    assert "".join(map(text, asked)) == "".join(map(text, plain))
    assert not any("prompt_progress" in chunk for chunk in plain)
