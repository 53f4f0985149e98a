"""The switch of the local server, over servers that listen nowhere: which one is there after what."""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from desktop.services.local_server.local_server import LocalServer
from desktop.settings import LocalServerSettings
from desktop.store.settings.preferences import Preferences
from engine.errors import EngineError
from engine.server.options import ServerOptions
from tests.desktop.fakes import ECHO_INFO

ON = LocalServerSettings(on=True, port=8000, token="ink-1")


class Listening:
    """A server that was begun."""

    def __init__(self, options: ServerOptions) -> None:
        self.options, self.closed, self.ended = options, 0, list[int]()
        self.url = f"http://127.0.0.1:{options.port}/v1"
        self.service = SimpleNamespace(visits=lambda: ("a visit",))
        self.end_visit = self.ended.append

    def close(self) -> None:
        self.closed += 1


class Switch:
    """A local server, its signals, and the servers that it has begun."""

    def __init__(self, qtbot, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.qtbot, self.path = qtbot, folder / "preferences.json"
        self.begun: list[Listening] = []
        self.error: Exception | None = None
        self.may_begin = threading.Event()
        self.may_begin.set()
        # in the place of the module, whose import takes seconds
        monkeypatch.setitem(sys.modules, "engine.server.serving", SimpleNamespace(ApiServer=self.begin))
        self.engine: Any = SimpleNamespace(host=SimpleNamespace(info=None), loads=False)
        self.reopen()

    def reopen(self) -> None:
        self.server = LocalServer(Preferences(self.path), self.engine)
        self.changes: list[tuple[bool, str]] = []
        self.not_restored: list[str] = []
        self.server.changed.connect(lambda: self.changes.append((self.server.changing, self.server.url)))
        self.server.not_restored.connect(self.not_restored.append)

    def begin(self, _host: object, options: ServerOptions) -> Listening:
        self.may_begin.wait(60)
        if self.error is not None:
            raise self.error
        self.begun.append(Listening(options))
        return self.begun[-1]

    def change(self, **settings: Any) -> None:
        self.server.change(dataclasses.replace(self.server.settings, **settings))
        self.wait()

    def wait(self) -> None:
        self.qtbot.waitUntil(lambda: not self.server.changing)

    @property
    def open(self) -> list[Listening]:
        return [server for server in self.begun if not server.closed]


@pytest.fixture
def switch(qtbot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Switch]:
    made = Switch(qtbot, tmp_path, monkeypatch)
    yield made
    assert made.server.close()
    assert not made.open


def test_it_is_switched_on_and_off(switch: Switch) -> None:
    server = switch.server
    server.end_visit(7)
    assert (server.url, server.visits(), server.changing) == ("", (), False)
    switch.change(**dataclasses.asdict(ON))
    (listening,) = switch.open
    options = listening.options
    assert (options.port, options.token, options.host) == (8000, "ink-1", "localhost")
    assert (server.url, server.visits()) == ("http://127.0.0.1:8000/v1", ("a visit",))
    assert switch.changes == [(True, ""), (False, server.url)]
    server.end_visit(7)
    assert listening.ended == [7]
    switch.change(on=False)
    assert (server.url, server.visits(), listening.closed) == ("", (), 1)
    assert Preferences(switch.path).settings(LocalServerSettings) == dataclasses.replace(ON, on=False)


def test_the_same_settings_end_no_reply(switch: Switch) -> None:
    switch.change(on=True)
    token = switch.server.settings.token
    assert token
    switch.change(on=True)
    assert len(switch.begun) == 1
    switch.server.renew_token()
    switch.wait()
    assert [each.options.token for each in switch.begun] == [token, switch.server.settings.token]
    assert len(switch.open) == 1
    assert switch.begun[1].options.token != token


def test_the_last_of_several_changes_counts(switch: Switch) -> None:
    switch.change(**dataclasses.asdict(ON))
    switch.may_begin.clear()
    for port in (8001, 8002, 8003):
        switch.server.change(dataclasses.replace(ON, port=port))
        assert (switch.server.url, switch.server.changing) == ("", True)
    switch.may_begin.set()
    switch.wait()
    assert [each.options.port for each in switch.open] == [8003]
    assert switch.server.url == switch.open[0].url
    assert all(each.closed == 1 for each in switch.begun[:-1])


def test_it_can_be_closed_while_it_begins(switch: Switch) -> None:
    switch.may_begin.clear()
    switch.server.change(ON)
    threading.Timer(0.05, switch.may_begin.set).start()
    assert switch.server.close()
    assert [each.closed for each in switch.begun] == [1]
    assert (switch.server.url, switch.server.changing) == ("", False)


@pytest.mark.parametrize(("error", "words"), [
    (EngineError("Port 8000 is taken; choose another port."), "Port 8000 is taken; choose another port."),
    (OSError("odd"), "The server cannot be started (odd). Close other programs, then try again."),
])  # fmt: skip
def test_one_that_was_on_is_restored_or_says_why_not_once(
    switch: Switch, error: Exception, words: str
) -> None:
    switch.server.restore()
    assert not switch.server.changing  # it was off
    switch.change(**dataclasses.asdict(ON))
    assert switch.server.close()
    switch.reopen()
    switch.server.restore()
    switch.wait()
    assert (switch.server.url, switch.server.trouble) == (switch.open[0].url, "")
    assert switch.server.close()
    switch.reopen()
    switch.error = error
    switch.server.restore()
    switch.wait()
    assert (switch.server.trouble, switch.not_restored, switch.server.url) == (words, [words], "")
    switch.change(port=8001)
    assert (switch.server.trouble, switch.not_restored) == (words, [words])
    switch.error = None
    switch.change(port=8002)
    assert (switch.server.trouble, len(switch.open)) == ("", 1)


def test_it_has_a_model_if_one_of_this_computer_is_loaded(switch: Switch) -> None:
    host, server = switch.engine.host, switch.server
    assert not server.has_model
    host.info = ECHO_INFO
    assert server.has_model
    switch.engine.loads = True
    assert not server.has_model
    switch.engine.loads, host.info = False, dataclasses.replace(ECHO_INFO, host="lab")
    assert not server.has_model
