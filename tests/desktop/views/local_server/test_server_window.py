"""The window of the local server shows it as it is, and changes it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QWidget

from desktop.settings import LocalServerSettings
from desktop.views.local_server.server_window import LocalServerWindow
from desktop.views.widgets.empty_state import EmptyState
from engine.server.service import Visit

pytestmark = pytest.mark.gui


class Server(QObject):
    """A server that does nothing but remember."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.settings = LocalServerSettings()
        self.url, self.trouble, self.changing = "", "", False
        self.has_model = True
        self.who: tuple[Visit, ...] = ()
        self.ended: list[int] = []
        self.renewed = 0

    def change(self, settings: LocalServerSettings) -> None:
        self.settings = settings
        self.url = f"http://127.0.0.1:{settings.port}/v1" if settings.on else ""
        self.changed.emit()

    def visits(self) -> tuple[Visit, ...]:
        return self.who

    def end_visit(self, number: int) -> None:
        self.ended.append(number)

    def renew_token(self) -> None:
        self.renewed += 1


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def window(qtbot, server: Server) -> Iterator[LocalServerWindow]:
    parent = QWidget()
    qtbot.addWidget(parent)
    parent.resize(900, 700)
    window = LocalServerWindow(server, parent)
    window.show()
    yield window
    window.close()


def test_the_switch_the_port_and_the_network(window: LocalServerWindow, server: Server) -> None:
    assert window.state.text() == "The server is off."
    assert not window.copy_address.isEnabled()
    assert not window.warning.isVisible()
    window.on.click()
    assert server.settings == LocalServerSettings(on=True)
    assert window.address.text() == "http://127.0.0.1:1337/v1"
    window.network.click()
    assert window.warning.isVisible()
    window.port.setValue(8080)
    assert server.settings == LocalServerSettings(on=True, network=True, port=8080)
    window.copy_address.click()
    assert QGuiApplication.clipboard().text() == "http://127.0.0.1:8080/v1"
    window.on.click()
    assert server.settings == LocalServerSettings(on=False, network=True, port=8080)


def test_the_token_can_be_copied_and_renewed(window: LocalServerWindow, server: Server) -> None:
    assert not window.renew.isEnabled()
    server.change(LocalServerSettings(on=True, token="ink-1"))
    window.copy_token.click()
    assert QGuiApplication.clipboard().text() == "ink-1"
    window.renew.click()
    assert server.renewed == 1


def test_trouble_and_change_are_said(window: LocalServerWindow, server: Server) -> None:
    server.trouble = "The port is taken."
    server.changed.emit()
    assert window.state.text() == "The port is taken."
    assert window.state.property("tone") == "danger"
    server.trouble, server.changing = "", True
    server.changed.emit()
    assert window.state.text() == "Please wait…"
    server.changing, server.has_model = False, False
    server.change(LocalServerSettings(on=True))
    assert "as soon as a model on this computer is loaded" in window.state.text()
    server.has_model = True
    window.look()
    assert window.state.text() == "The server is running. No program is using it."


def test_who_uses_it_and_ending_one(window: LocalServerWindow, server: Server) -> None:
    server.change(LocalServerSettings(on=True))
    assert window.state.text() == "The server is running. No program is using it."
    empty = window.visits.findChild(EmptyState)
    assert empty is not None
    assert empty.isVisible()
    one = Visit(7, "127.0.0.1", "/v1/chat/completions", 3.4, 0, 0.0)
    other = Visit(9, "10.0.0.2", "/v1/completions", 12.0, 1234, 56.78)
    server.who = (one, other)
    window.look()
    shown = [[window.visits.item(row, column).text() for column in range(5)] for row in range(2)]
    assert shown == [
        ["127.0.0.1", "/v1/chat/completions", "3 s", "0", "waiting"],
        ["10.0.0.2", "/v1/completions", "12 s", "1,234", "56.8"],
    ]
    assert window.state.text() == "2 requests are being answered."
    assert not empty.isVisible()
    assert not window.end.isEnabled()
    window.visits.selectRow(1)
    assert window.end.isEnabled()
    server.who = (other,)
    window.look()
    assert window.state.text() == "1 request is being answered."
    assert [item.row() for item in window.visits.selectedItems()][:1] == [0], (
        "the selection follows the request"
    )
    window.end.click()
    assert server.ended == [9]
    server.who = ()
    window.look()
    assert empty.isVisible()
    assert not window.end.isEnabled()


def test_columns_that_do_not_fit_are_left_out_and_the_request_stays_legible(
    window: LocalServerWindow, server: Server
) -> None:
    """In a narrow window the last column was cut off, and the request was three points."""
    server.change(LocalServerSettings(on=True, token="token" * 20))
    server.who = (Visit(7, "192.168.178.24", "/v1/chat/completions", 3.4, 1234, 156.78),)
    window.look()
    table = window.visits

    def hidden(width: int) -> list[int]:
        window.resize(width, 500)
        QApplication.processEvents()
        assert table.horizontalHeader().length() <= table.viewport().width()
        assert table.columnWidth(1) >= 14 * table.fontMetrics().averageCharWidth()
        return [column for column in range(5) if table.isColumnHidden(column)]

    assert hidden(760) == []
    assert (window.address.cursorPosition(), window.token.cursorPosition()) == (0, 0)
    assert table.item(0, 4).text() == "157"
    assert table.item(0, 1).toolTip() == "/v1/chat/completions"
    narrower = [hidden(width) for width in range(720, 240, -20)]
    assert all(each in ([], [3], [2, 3], [2, 3, 4]) for each in narrower)
    assert narrower == sorted(narrower, key=len)
    assert [2, 3] in narrower
    assert hidden(760) == []
