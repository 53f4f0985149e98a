"""Clients that leave, read slowly or do not finish; and the end of the server. Passes of the model are
counted and held, nothing is timed.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from engine.server.http.channel import Channel
from engine.server.options import Bounds, ServerOptions
from tests.engine.server.served import (
    HELLO,
    LOADING,
    TOKEN,
    WAIT,
    Collected,
    Gate,
    Served,
    ask,
    complete,
    opened,
    read_until,
)

pytestmark = pytest.mark.loopback
CHAT = "/v1/chat/completions"


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Released whenever the server has noticed that a client left."""
    found, real = threading.Semaphore(0), Channel.leave

    def leave(channel: Channel) -> None:
        real(channel)
        found.release()

    monkeypatch.setattr(Channel, "leave", leave)
    return found


@pytest.fixture
def gate(served: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    found = Gate(served.chat, monkeypatch)
    yield found
    found.open()


def body(**more: Any) -> dict[str, Any]:
    return {"messages": HELLO, "max_tokens": 200, "ignore_eos": True, "temperature": 0, **more}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("passes", [0, 1, 5])
def test_leaving_frees_the_pages_within_one_step(
    served: Served, gate: Gate, gone: threading.Semaphore, stream: bool, passes: int
) -> None:
    served_before = served.idle()
    with opened(served, CHAT, body(stream=stream)):
        for _ in range(passes):
            gate.wait()
            gate.let()
        gate.wait()  # in the prompt or in the reply, before a further pass
    assert gone.acquire(timeout=WAIT)
    before = gate.passes
    gate.let()
    assert served_before
    assert served.idle()
    assert gate.passes <= before + 1


def test_leaving_the_queue_touches_nobody_else(served: Served, gate: Gate, gone: threading.Semaphore) -> None:
    with opened(served, CHAT, body(stream=True, max_tokens=20)) as first:
        gate.wait()
        with opened(served, CHAT, body(stream=True)):
            pass  # the model's thread is busy: this one is still in the queue
        assert gone.acquire(timeout=WAIT)
        gate.open()
        rest = read_until(first, b"data: [DONE]")
    assert b'"finish_reason":"length"' in rest
    assert served.idle()


def test_leaving_ends_the_prompts_that_wait_for_their_turn(
    served: Served, gate: Gate, gone: threading.Semaphore
) -> None:
    with opened(served, "/v1/completions", {"prompt": ["Hello"] * 100, "max_tokens": 50}):
        gate.wait()
    assert gone.acquire(timeout=WAIT)
    before = gate.passes
    gate.open()
    assert served.idle()
    assert gate.passes <= before + 1


def test_one_of_two_leaves_and_the_other_gets_the_same_text(
    served: Served, gate: Gate, gone: threading.Semaphore, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted, submit = threading.Event(), served.host.submit
    with opened(served, CHAT, body(max_tokens=30)) as stays:
        gate.wait()

        def noted(*work: Any) -> Any:
            ticket = submit(*work)
            submitted.set()
            return ticket

        monkeypatch.setattr(served.host, "submit", noted)
        with opened(served, CHAT, body(stream=True, temperature=1)) as leaves:
            assert submitted.wait(WAIT)
            gate.let(8)
            read_until(leaves, b'"role":"assistant"')
        assert gone.acquire(timeout=WAIT)
        gate.open()
        found = read_until(stays, b'"completion_tokens_details"')
    alone = complete(served, max_tokens=30, temperature=0, ignore_eos=True).json
    text = alone["choices"][0]["message"]["content"]
    assert json.dumps(text, ensure_ascii=False).encode() in found
    assert served.idle()


@pytest.fixture
def own(tiny_folder: Path) -> Iterator[Any]:
    """Makes servers of its own."""
    made: list[Served] = []

    def make(**bounds: Any) -> Served:
        made.append(Served(tiny_folder, ServerOptions(token=TOKEN, bounds=Bounds(**bounds))))
        return made[-1]

    yield make
    for served in made:
        served.close()


def test_what_a_client_leaves_unread_is_bounded(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    served = own(unread=2000)
    gate = Gate(served.chat, monkeypatch)
    held, free = threading.Event(), threading.Event()

    def hold() -> None:
        """The server's thread does not go on, as if the client's connection were full."""
        held.set()
        free.wait(WAIT)

    with opened(served, CHAT, body(stream=True, max_tokens=900)) as connection:
        gate.wait()
        gate.let()
        read_until(connection, b'"role":"assistant"')
        served.server._loop.call_soon_threadsafe(hold)
        assert held.wait(WAIT)
        gate.open()
        while not served.idle():
            pass
        assert gate.passes < 100  # the reply was ended while nobody read
        free.set()
        rest = read_until(connection, b"client_too_slow")
    assert b"[DONE]" not in rest
    assert complete(served).status == 200


def test_headers_and_bodies_must_arrive_in_time(own: Any) -> None:
    served = own(head_seconds=0.2, body_seconds=0.2)
    with socket.create_connection(("127.0.0.1", served.port), timeout=WAIT) as silent:
        assert silent.recv(100) == b""
    with socket.create_connection(("127.0.0.1", served.port), timeout=WAIT) as half:
        half.sendall(b"GET /health HTTP/1.1\r\nHost: lo")
        with suppress(ConnectionResetError):
            assert half.recv(100) == b""
    head = (
        f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        "Content-Type: application/json\r\nContent-Length: 50\r\n\r\n{"
    )
    with socket.create_connection(("127.0.0.1", served.port), timeout=WAIT) as slow:
        slow.sendall(head.encode())
        assert slow.recv(100).startswith(b"HTTP/1.1 408")
    assert ask(served, "/health").status == 200


def test_large_headers_and_too_many_connections_are_cut(own: Any) -> None:
    served = own(head=4096, connections=3)
    with socket.create_connection(("127.0.0.1", served.port), timeout=WAIT) as large:
        large.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 8192)
        assert large.recv(100).startswith(b"HTTP/1.1 400")
    held = [socket.create_connection(("127.0.0.1", served.port), timeout=WAIT) for _ in range(3)]
    try:
        for sock in held:  # each is known to the server
            sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert sock.recv(100).startswith(b"HTTP/1.1 200")
        fourth = socket.create_connection(("127.0.0.1", served.port), timeout=WAIT)
        with fourth, suppress(ConnectionResetError):
            assert fourth.recv(100) == b""
    finally:
        for sock in held:
            sock.close()


def test_the_end_of_the_server_ends_streams_with_an_error(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    served = own()
    gate = Gate(served.chat, monkeypatch)
    with opened(served, CHAT, body(stream=True)) as connection:
        gate.wait()
        gate.let()
        read_until(connection, b'"role":"assistant"')
        served.server.close()
        gate.open()
        rest = b""
        while part := connection.recv(65536):
            rest += part
    assert b"shutting_down" in rest
    assert b"[DONE]" not in rest
    served.server.close()  # can be called again
    served.host.close()
    assert not served.server._thread.is_alive()
    assert not served.host._thread.is_alive()


def test_requests_meet_a_model_that_is_loaded_or_replaced(own: Any) -> None:
    served = own()
    begun, free, opener = threading.Event(), threading.Event(), served.host._openers["other"]

    def held(stop: threading.Event) -> Any:
        begun.set()
        assert free.wait(WAIT)
        return opener(stop)

    served.host._openers["other"] = held
    waits, asked = Collected(), Collected()
    loads = served.host.load("other", Collected())
    served.host.submit(lambda chat, stop: iter(("answered",)), waits)  # it is in the queue behind that
    assert begun.wait(WAIT)
    refused = complete(served)
    assert (refused.status, refused.error["code"]) == (503, "model_loading")
    assert refused.headers["retry-after"] == "5"
    served.host.submit(lambda chat, stop: iter(("answered",)), asked)
    free.set()
    assert waits.wait(LOADING).code == asked.wait().code == "model_changed"
    assert waits.events == asked.events == []
    assert complete(served).json["model"] == "other"
    loads.cancel()


def test_models_are_loaded_and_released(own: Any) -> None:
    served = own()
    assert ask(served, "/v1/models/unload", {"model": "tiny"}).json == {"success": True, "model": "tiny"}
    assert ask(served, "/health").json["status"] != "ok"
    answer = complete(served)
    assert (answer.status, answer.error["code"]) == (503, "model_not_loaded")
    assert ask(served, "/v1/models/load", {"model": "none"}).status == 404
    assert ask(served, "/v1/models/load", {"model": "other"}).json == {"success": True, "model": "other"}
    assert complete(served).json["model"] == "other"
    listed = ask(served, "/v1/models").json["data"]
    assert {model["id"]: "max_model_len" in model for model in listed} == {"other": True, "tiny": False}
    assert all(model["created"] > 1.7e9 for model in listed)
    assert ask(served, "/v1/models/unload", {}).json == {"success": True, "model": "other"}
