"""A service of tools whose servers are in the states that a test gives them; nothing is started."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from desktop.services.tools.servers import OfferedTool, ServerConfig, ServerState
from desktop.services.tools.tool_service import ToolService

FILES = ServerConfig("files", "npx", ("-y", "server-files"), (("HOME", "/a"),), "/work")
WEATHER = ServerConfig("weather", url="https://example.org/mcp", headers=(("Authorization", "Bearer x"),))


class Tools(ToolService):
    """Remembers which servers were restarted."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.restarted: list[str] = []

    def show(
        self, name: str, status: str, sentence: str = "", tools: tuple[str, ...] = (), log: str = ""
    ) -> None:
        """Let a server be in a state."""
        found = tuple(OfferedTool(name, tool, tool.title(), f"About {tool}.", "{}") for tool in tools)
        config = dataclasses.replace(self._states[name].config, enabled=status != "off")
        self._states[name] = ServerState(config, status, sentence, found, log)
        self.changed.emit()

    def restart(self, name: str) -> None:
        """Note it."""
        self.restarted.append(name)


@pytest.fixture
def service(qtbot: QtBot, tmp_path: Path) -> Iterator[Tools]:
    made = Tools(tmp_path)
    made.add(dataclasses.replace(FILES, enabled=False))
    made.add(dataclasses.replace(WEATHER, enabled=False))
    yield made
    assert made.close()


@pytest.fixture
def parent(qtbot: QtBot) -> QWidget:
    made = QWidget()
    qtbot.addWidget(made)
    made.resize(1100, 760)
    made.show()
    return made
