"""Other programs are answered by the window's model, beside its chats, and by no other way."""

from __future__ import annotations

import dataclasses
import errno
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt

from desktop.app import EngineApi
from desktop.services.local_server.engine_thread import _Ticket
from desktop.services.local_server.local_server import LocalServer
from desktop.settings import LocalServerSettings
from desktop.store.settings.preferences import Preferences
from engine.server.options import ServerOptions
from tests.conftest import WAIT_MS
from tests.desktop.hand import Hand
from tests.desktop.remote_server import CHAT, remote_hand
from tests.engine.remote.fake_server import events
from tests.tiny import TINY, write_folder

pytestmark = [pytest.mark.gui, pytest.mark.loopback]


@pytest.fixture
def hand(qtbot, qapp, tmp_path: Path) -> Iterator[Hand]:
    """A window over a tiny random model that is loaded."""
    write_folder(tmp_path / "model", TINY)
    hand = Hand(qtbot, tmp_path, api=EngineApi())
    hand.window.model_controller.open(tmp_path / "model")
    hand.wait_for("idle")
    yield hand
    hand.close()


def change(hand: Hand, **settings: Any) -> LocalServer:
    """Switch the server on with these settings, and wait until it is so."""
    server = hand.desktop.services.local_server
    server.change(dataclasses.replace(server.settings, **{"on": True, "port": 0, **settings}))
    hand.qtbot.waitUntil(lambda: not server.changing, timeout=WAIT_MS)
    return server


class Asking(threading.Thread):
    """Asks the server on a thread of its own; `answer` is (status, JSON) once it has come."""

    def __init__(
        self, server: LocalServer, body: dict[str, Any], path: str = "/chat/completions", token: str = ""
    ) -> None:
        super().__init__(daemon=True)
        self.port = int(server.url.split(":")[2].split("/")[0])
        self.token, self.body, self.path = token or server.settings.token, body, "/v1" + path
        self.answer: tuple[int, Any] | None = None
        self.start()

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
        method = "POST" if self.body else "GET"
        try:
            connection.request(method, self.path, json.dumps(self.body) if self.body else None, headers)
            response = connection.getresponse()
            self.answer = response.status, json.loads(response.read())
        finally:
            connection.close()


def answered(hand: Hand, asking: Asking) -> tuple[int, Any]:
    hand.qtbot.waitUntil(lambda: not asking.is_alive(), timeout=WAIT_MS)
    assert asking.answer is not None
    return asking.answer


def request(tokens: int = 8) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": tokens, "ignore_eos": True}


def test_it_is_off_until_it_is_switched_on_and_stays_as_it_was(hand: Hand) -> None:
    server = hand.desktop.services.local_server
    assert (server.url, server.visits(), server.settings) == ("", (), LocalServerSettings())
    server = change(hand)
    assert server.url.startswith("http://127.0.0.1:")
    token = server.settings.token
    assert token.startswith("ink-")
    status, models = answered(hand, Asking(server, {}, "/models"))
    assert status == 200
    assert [model["id"] for model in models["data"]] == [hand.session.model.name]
    status, reply = answered(hand, Asking(server, request()))
    assert (status, reply["usage"]["completion_tokens"]) == (200, 8)
    hand.restart()
    again = hand.desktop.services.local_server
    hand.qtbot.waitUntil(lambda: bool(again.url), timeout=WAIT_MS)
    assert again.settings.token == token
    assert change(hand, on=False).url == ""


def test_without_a_model_and_without_the_right_to_choose_one(hand: Hand) -> None:
    server = change(hand)
    name = {"model": hand.session.model.name}
    for path, body in (("/models/load", name), ("/models/unload", name)):
        status, refused = answered(hand, Asking(server, body, path))
        assert (status, refused["error"]["code"]) == (403, "not_allowed")
    assert hand.session.model is not None
    hand.session.unload_model()
    hand.wait_for("no_model")
    status, refused = answered(hand, Asking(server, request()))
    assert (status, refused["error"]["code"]) == (503, "model_not_loaded")
    assert "open one in Inglenook's window" in refused["error"]["message"]
    assert answered(hand, Asking(server, {}, "/models"))[1]["data"] == []
    assert not server.has_model


def test_a_server_that_cannot_be_restored_is_reported_once(hand: Hand) -> None:
    assert change(hand).has_model
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        hand.close()
        port = taken.getsockname()[1]
        Preferences(hand.folder / "preferences.json").save_settings(
            LocalServerSettings(on=True, port=port, token="ink-1")
        )
        hand.open_window()
        banner, server = hand.window.chat.banner, hand.desktop.services.local_server
        hand.qtbot.waitUntil(lambda: bool(server.trouble), timeout=WAIT_MS)
        assert banner.text.text() == f"The local server did not start. {server.trouble}"
        hand.click("Local server…", banner)
        assert hand.window.application_controller.server_window.state.text() == server.trouble
        assert not banner.isVisible()
        server.change(
            dataclasses.replace(server.settings, network=True)
        )  # what is said there is not repeated
        hand.qtbot.waitUntil(lambda: not server.changing, timeout=WAIT_MS)
        assert server.trouble
        assert not banner.isVisible()


@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize(
    ("error", "reason"),
    [(OSError(errno.EMFILE, "Too many open files"), "Too many open files"),
     (RuntimeError("can't start new thread"), "can't start new thread")],
)  # fmt: skip
def test_whatever_keeps_it_from_starting_is_a_sentence(
    hand: Hand, monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str, network: bool
) -> None:
    hosts: list[str] = []

    def none_left(_host: object, options: ServerOptions) -> None:
        hosts.append(options.host)
        raise error

    monkeypatch.setattr("engine.server.serving.ApiServer", none_left)
    server = change(hand, network=network)
    assert server.trouble.startswith(f"The server cannot be started ({reason}).")
    assert hosts == ["0.0.0.0" if network else "localhost"]


def test_a_model_of_another_server_is_not_served(qtbot, qapp, tmp_path: Path) -> None:
    with remote_hand(qtbot, tmp_path) as hand:
        server = change(hand)
        hand.use()
        status, refused = answered(hand, Asking(server, request()))
        assert (status, refused["error"]["code"]) == (503, "model_not_local")
        assert "'echo' in Inglenook's window runs on 127.0.0.1" in refused["error"]["message"]
        assert answered(hand, Asking(server, {}, "/models"))[1]["data"] == []
        assert hand.echo_server.replies == []


def test_while_a_model_is_loaded_clients_are_told_to_try_again(qtbot, qapp, tmp_path: Path) -> None:
    with remote_hand(qtbot, tmp_path) as hand:
        server, hangs = change(hand), threading.Event()
        hand.echo_server.server.routes[CHAT] = lambda asked: events(hangs)
        hand.window.model_controller.load(f"remote:{hand.add().id}:echo")
        hand.qtbot.waitUntil(lambda: bool(hand.echo_server.server.bodies(CHAT)), timeout=WAIT_MS)
        status, refused = answered(hand, Asking(server, request()))
        assert (status, refused["error"]["code"]) == (503, "model_loading")
        hand.session.stop_loading()
        hand.wait_for("no_model")
        hangs.set()


@pytest.mark.slow
def test_a_new_token_replaces_the_old(hand: Hand) -> None:
    server = change(hand)
    old = server.settings.token
    server.renew_token()
    hand.qtbot.waitUntil(lambda: not server.changing, timeout=WAIT_MS)
    assert answered(hand, Asking(server, request(), token=old))[0] == 401
    assert answered(hand, Asking(server, request()))[0] == 200


@pytest.mark.slow
def test_a_port_that_is_taken_is_said_in_a_sentence(hand: Hand) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = change(hand, port=taken.getsockname()[1])
        assert server.url == ""
        assert "choose another port" in server.trouble
    token = server.settings.token
    assert change(hand).trouble == ""
    assert server.settings.token == token  # programs that use it need no other


def test_requests_are_shown_and_can_be_ended(hand: Hand) -> None:
    server = change(hand)
    asking = Asking(server, request(900))
    hand.qtbot.waitUntil(lambda: any(visit.speed for visit in server.visits()), timeout=WAIT_MS)
    (visit,) = server.visits()
    assert (visit.address, visit.path) == ("127.0.0.1", "/v1/chat/completions")
    assert 0 < visit.tokens / visit.speed <= visit.seconds  # of writing; it has been there as long or longer
    server.end_visit(visit.number + 1)
    server.end_visit(visit.number)
    status, ended = answered(hand, asking)
    assert (status, ended["error"]["code"]) == (503, "cancelled")
    hand.qtbot.waitUntil(lambda: not server.visits(), timeout=WAIT_MS)
    assert hand.session.state == "idle"


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("what", ["unload", "load", "off", "close"])
def test_whatever_ends_a_reply_the_client_hears_of_it(hand: Hand, what: str, tmp_path: Path) -> None:
    server = change(hand)
    asking = [Asking(server, request(900)) for _ in range(2)]
    hand.qtbot.waitUntil(lambda: sum(visit.tokens > 0 for visit in server.visits()) == 2, timeout=WAIT_MS)
    if what == "unload":
        hand.session.unload_model()
        hand.wait_for("no_model")
    elif what == "load":
        hand.window.model_controller.open(tmp_path / "model")
        hand.wait_for("idle")
    elif what == "off":
        change(hand, on=False)
    else:
        hand.desktop.close()
    for each in asking:
        status, ended = answered(hand, each)
        assert status == 503
        assert ended["error"]["message"]
        if what in ("unload", "load"):
            assert ended["error"]["code"] == "model_changed"
            assert "in Inglenook's window" in ended["error"]["message"]


@pytest.mark.slow
def test_the_windows_own_chat_is_answered_beside_a_request(hand: Hand) -> None:
    server = change(hand)
    asking = Asking(server, request(300))
    hand.qtbot.waitUntil(lambda: bool(server.visits()), timeout=WAIT_MS)
    hand.type("Hello")
    hand.press(Qt.Key.Key_Return)
    hand.qtbot.waitUntil(lambda: len(hand.texts()) == 2, timeout=WAIT_MS)
    hand.qtbot.waitUntil(lambda: not hand.session.replying_in, timeout=WAIT_MS)
    assert hand.texts()[-1]
    assert answered(hand, asking)[0] == 200


def test_a_client_is_told_why_its_reply_was_ended_unless_it_asked_for_that() -> None:
    ticket = _Ticket()
    ended = ticket.stopped()
    assert ended is not None
    assert ended.code == "model_changed"
    ticket.cancel()
    assert ticket.stopped() is None
