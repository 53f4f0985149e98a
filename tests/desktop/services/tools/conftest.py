"""A service over a temporary folder, which must end with all its servers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from desktop.services.tools.servers import ServerConfig, ServerState
from desktop.services.tools.tool_service import ToolService

SERVER = Path(__file__).with_name("tool_server.py")


class Tools:
    """The service, with what a test waits for."""

    def __init__(self, qtbot: QtBot, folder: Path) -> None:
        self.qtbot, self.folder = qtbot, folder
        self.service = ToolService(folder)
        self.service.start()
        self.results: dict[int, tuple[str, bool]] = {}
        self.service.ended.connect(self._on_ended)

    def _on_ended(self, number: int, text: str, failed: bool) -> None:
        assert number not in self.results
        self.results[number] = (text, failed)

    def stdio(self, kind: str, *more: str, name: str = "") -> ServerConfig:
        return ServerConfig(name or kind, sys.executable, (str(SERVER), kind, *more))

    def state(self, name: str) -> ServerState:
        return {state.config.name: state for state in self.service.servers()}[name]

    def until(self, name: str, status: str = "ready") -> ServerState:
        """Its state once it has this status."""
        self.wait(lambda: self.state(name).status == status)
        return self.state(name)

    def wait(self, condition: Callable[[], bool]) -> None:
        self.qtbot.waitUntil(condition, timeout=30_000)

    def begin(self, kind: str, *more: str, name: str = "") -> ServerState:
        config = self.stdio(kind, *more, name=name)
        self.service.add(config)
        return self.until(config.name)

    def result(self, server: str, tool: str, arguments: str = "{}") -> tuple[str, bool]:
        number = self.service.call(server, tool, arguments)
        assert number not in self.results
        self.wait(lambda: number in self.results)
        return self.results[number]


@pytest.fixture(scope="module")
def usual(
    request: pytest.FixtureRequest, qapp: object, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tools]:
    """One server for the tests of a file that only ask it for something: a start takes half a second."""
    made = Tools(QtBot(request), tmp_path_factory.mktemp("usual"))
    made.begin("usual")
    made.wait(lambda: bool(made.state("usual").resources))
    yield made
    assert made.service.close()


@pytest.fixture
def tools(qtbot: QtBot, tmp_path: Path) -> Iterator[Tools]:
    made = Tools(qtbot, tmp_path)
    yield made
    assert made.service.close()
