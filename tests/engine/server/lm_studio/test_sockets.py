"""LM Studio's WebSocket API: the key, the messages, and what happens to connections."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from engine.server.lm_studio.sockets import connection
from engine.server.options import Bounds, ServerOptions
from tests.engine.server.lm_studio.wire import BRIEF, Refused, Wire, asked, setting
from tests.engine.server.served import TOKEN, Gate, Served, ask

pytestmark = pytest.mark.loopback
NO_TOKEN: dict[str, str | None] = {"Authorization": None}


def test_the_greeting_needs_no_key(served: Served) -> None:
    assert ask(served, "/lmstudio-greeting", headers=NO_TOKEN).json == {"lmstudio": True}


@pytest.mark.parametrize(
    ("key", "headers"),
    [(TOKEN, {}), ("other", {"Authorization": f"Bearer {TOKEN}"})],
    ids=["first message", "header"],
)
def test_the_key_comes_in_the_first_message_or_a_header(
    served: Served, key: str, headers: dict[str, str]
) -> None:
    with Wire(served, key=key, headers=headers) as wire:
        assert wire.admission == {"success": True}
        assert [one["identifier"] for one in wire.call("listLoaded")] == ["tiny"]


def test_a_wrong_key_is_refused_in_the_form_that_each_sdk_reads(served: Served) -> None:
    with Wire(served, key="wrong") as wire:
        assert wire.admission["success"] is False
        assert wire.admission["error"].startswith("The access key is missing or wrong; send it")
        assert wire.receive() is None
        assert wire.closed == 1008
    with Wire(served, key="", headers={"User-Agent": "python-httpx/0.28.1"}) as python:
        assert python.admission["error"]["title"] == wire.admission["error"]
    for first in ("nothing", "[]"):
        with Wire(served, key=None) as other:
            other.send(first)
            assert other.receive() is None
            assert other.closed == 1008


def test_a_key_in_lm_studios_form_comes_in_two_parts(tiny_folder: Path) -> None:
    served = Served(tiny_folder, ServerOptions(token="sk-lm-abcdefgh:secret"))
    try:
        for identifier, passkey, is_right in (("abcdefgh", "secret", True), ("abcdefgi", "secret", False)):
            with Wire(served, key=passkey, identifier=identifier) as wire:
                assert wire.admission["success"] is is_right
    finally:
        served.close()


def test_a_client_that_does_not_say_who_it_is_is_cut(tiny_folder: Path) -> None:
    served = Served(tiny_folder, ServerOptions(token=TOKEN, bounds=Bounds(head_seconds=0.2)))
    try:
        with Wire(served, key=None) as wire:
            assert wire.receive() is None
            assert wire.closed == 1008
    finally:
        served.close()


def test_pages_of_other_origins_and_hosts_are_refused_before_it_opens(served: Served) -> None:
    for headers, host, code in (
        ({"Origin": "https://evil.example"}, "localhost", "origin_not_allowed"),
        ({"Sec-Fetch-Site": "cross-site"}, "localhost", "origin_not_allowed"),
        ({}, "evil.example", "host_not_allowed"),
    ):
        with pytest.raises(Refused) as refused:
            Wire(served, headers=headers, host=host)
        assert refused.value.status == 403
        assert json.loads(refused.value.body)["error"]["code"] == code


def test_a_page_of_a_named_origin_may_connect(tiny_folder: Path) -> None:
    served = Served(tiny_folder, ServerOptions(token=TOKEN, origins=("https://page.example",)))
    try:
        with Wire(served, headers={"Origin": "https://page.example"}) as wire:
            assert wire.admission == {"success": True}
        with Wire(served, key="", headers={"Origin": "https://page.example"}) as wire:
            assert wire.admission["success"] is False
    finally:
        served.close()


def test_leaving_ends_what_runs(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(served.chat, monkeypatch)
    with Wire(served) as wire:
        for _ in range(2):
            wire.open("predict", asked(setting("temperature", 0)))
        gate.wait()
        while len(visits := served.server.service.visits()) < 2:
            time.sleep(0.01)
        assert {visit.path for visit in visits} == {"/llm/predict"}
    gate.open()
    end = time.monotonic() + 60
    while served.server.service.visits() or not served.idle():
        assert time.monotonic() < end
        time.sleep(0.01)
    assert gate.passes < 200


def test_messages_that_are_none_are_told_and_the_connection_goes_on(served: Served) -> None:
    with Wire(served) as wire:
        for message, said in (
            ("{", "not JSON"), ("[]", "JSON object"), ({"type": "strange"}, "type is"),
            ({}, "type is missing"),
            ({"type": "rpcCall", "endpoint": "listLoaded"}, "callId is missing"),
            ({"type": "channelCreate", "endpoint": "predict", "channelId": "a"}, "channelId is"),
        ):  # fmt: skip
            wire.send(message)
            warning = wire.receive()
            assert warning["type"] == "communicationWarning"
            assert said in warning["warning"]
        wire.send(b'{"type": "keepAlive"}')
        assert wire.receive() == {"type": "keepAliveAck"}
        wire.send({"type": "channelAck", "channelId": 1, "ackId": 1})  # this has no answer
        for kind, answer in (
            ("signalSubscribe", "signalError"),
            ("writableSignalSubscribe", "writableSignalError"),
        ):
            wire.send({"type": kind, "endpoint": "models", "subscribeId": 4})
            found = wire.receive()
            assert (found["type"], found["subscribeId"]) == (answer, 4)
            assert "models is not supported" in found["error"]["title"]
        assert "LM Studio's strange is not supported" in wire.call("strange")["error"]["title"]
        assert "LM Studio's odd is not supported" in wire.packets("odd", {})[0]["error"]["title"]
        assert wire.call("listLoaded")


def test_a_connection_has_only_so_many_calls_at_a_time(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MOST_AT_ONCE", 1)
    gate = Gate(served.chat, monkeypatch)
    with Wire(served) as wire:
        first = wire.open("predict", asked(*BRIEF))
        gate.wait()
        wire.send({"type": "rpcCall", "endpoint": "listLoaded", "callId": 9})
        while (message := wire.receive())["type"] != "rpcError":
            assert message["channelId"] == first
        assert "Too many calls" in message["error"]["title"]
        gate.open()
        while wire.packet(first) is not None:
            pass
        assert wire.call("listLoaded")  # there is room again


def send_for(wire: Wire, seconds: float) -> None:
    """Send messages that have answers, and read none of these."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        wire.send({"type": "strange " + "x" * 50})


def test_a_client_that_does_not_read_is_cut(tiny_folder: Path) -> None:
    served = Served(tiny_folder, ServerOptions(token=TOKEN, bounds=Bounds(write_seconds=0.2)))
    try:
        with Wire(served) as wire, pytest.raises(ConnectionError):
            send_for(wire, 60)
    finally:
        served.close()


def test_the_servers_end_is_told_to_open_channels(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served(tiny_folder)
    try:
        with Wire(served) as wire:
            gate = Gate(served.chat, monkeypatch)
            channel = wire.open("predict", asked(*BRIEF))
            gate.wait()
            served.server.close()
            gate.open()
            while "error" not in (packet := wire.packet(channel)):
                pass
            assert "shutting down" in packet["error"]["title"]
            assert wire.receive() is None
    finally:
        served.close()


@pytest.mark.parametrize(
    ("path", "status", "code", "way"),
    [
        ("v1/realtime?model=tiny", 404, "not_found", "Realtime and Live APIs are not supported"),
        ("v1/responses", 426, "websocket_not_supported", "Send the request by POST."),
        ("v1/chat/completions/", 426, "websocket_not_supported", "Send the request by POST."),
    ],
)
def test_other_websockets_are_refused_with_what_is_served(
    served: Served, path: str, status: int, code: str, way: str
) -> None:
    with pytest.raises(Refused) as refused:
        Wire(served, path)
    error = json.loads(refused.value.body)["error"]
    assert (refused.value.status, error["code"]) == (status, code)
    where = "/" + path.partition("?")[0].rstrip("/")
    assert error["message"].startswith(
        f"There is no WebSocket at {where}; WebSockets are for LM Studio's SDKs"
    )
    assert "/llm, /embedding, /system" in error["message"]
    assert way in error["message"]
