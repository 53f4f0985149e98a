"""The window of tool servers: what it shows, and what each of its buttons does."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPoint, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QMessageBox, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from desktop.services.tools.servers import ServerConfig
from desktop.views.tools.tool_server_dialog import JsonDialog, ToolServerDialog
from desktop.views.tools.tools_window import ToolsWindow
from tests.desktop.views.tools.conftest import FILES, WEATHER, Tools

pytestmark = pytest.mark.gui


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path]]:
    """The files of other programs."""
    found: list[tuple[str, Path]] = []
    monkeypatch.setattr("desktop.views.tools.tools_window.usual_files", lambda: tuple(found))
    return found


@pytest.fixture
def window(qtbot: QtBot, service: Tools, parent: QWidget, elsewhere: list[tuple[str, Path]]) -> ToolsWindow:
    made = ToolsWindow(service, parent)
    made.show()
    return made


def servers(window: ToolsWindow) -> list[str]:
    rows = (window.servers.item(row) for row in range(window.servers.count()))
    return [row.text().replace("\u2068", "").replace("\u2069", "") for row in rows]


def tools(window: ToolsWindow) -> list[tuple[str, str, str]]:
    found = []
    for row in range(window.tools.topLevelItemCount()):
        item = window.tools.topLevelItem(row)
        assert item is not None
        found.append((item.text(0).strip("\u2068\u2069"), item.text(1), item.text(2)))
    return found


def test_servers_are_shown_with_their_states(service: Tools, window: ToolsWindow) -> None:
    assert servers(window) == ["files  ·  off", "weather  ·  off"]
    service.show("files", "starting")
    service.show("weather", "failed", "example.org did not answer.")
    assert servers(window) == ["files  ·  starting…", "weather  ·  failed"]
    assert not window.state.isVisible()
    service.show("files", "ready", tools=("read",))
    assert servers(window)[0] == "files  ·  1 tool"
    service.show("files", "ready", tools=("read", "write"))
    assert servers(window)[0] == "files  ·  2 tools"
    window.select("weather")
    assert window.state.isVisible()
    assert window.state.accessibleName() == "example.org did not answer."
    assert window.state.property("tone") == "danger"


def test_without_a_server_only_adding_is_offered(service: Tools, window: ToolsWindow) -> None:
    service.remove("files")
    service.remove("weather")
    assert servers(window) == []
    for widget in (window.change, window.remove, window.on, window.restart, window.permission):
        assert not widget.isEnabled()
    assert window.paste.isEnabled()
    assert window.add.isEnabled()


def test_the_tools_of_the_selected_server_and_their_permissions(service: Tools, window: ToolsWindow) -> None:
    service.show("files", "ready", tools=("read", "write"))
    assert tools(window) == [
        ("Read", "Ask each time", "About read."),
        ("Write", "Ask each time", "About write."),
    ]
    window.tools.setCurrentItem(window.tools.topLevelItem(1))
    assert window.permission.currentData() == "ask"
    for value, words in (("never", "Never offer"), ("always", "Always allow"), ("ask", "Ask each time")):
        window.permission.setCurrentIndex(window.permission.findData(value))
        window.permission.activated.emit(window.permission.currentIndex())
        assert service.permission("files", "write") == value
        assert service.permission("files", "read") == "ask"
        assert tools(window)[1][1] == words
        assert window.tools.currentItem().text(0).strip("\u2068\u2069") == "Write", "the selection stays"
    window.select("weather")
    assert tools(window) == []
    assert not window.permission.isEnabled()


def test_a_server_is_switched_and_restarted(service: Tools, window: ToolsWindow) -> None:
    assert not window.on.isChecked()
    assert not window.restart.isEnabled()
    window.on.click()
    assert service.servers()[0].config.enabled
    assert window.restart.isEnabled()
    window.restart.click()
    assert service.restarted == ["files"]
    window.on.click()
    assert not service.servers()[0].config.enabled


def test_what_the_server_reports_is_shown_on_request(service: Tools, window: ToolsWindow) -> None:
    service.show("files", "ready", log="Listening.\nReady.")
    assert not window.log.isVisible()
    window.show_log.click()
    assert window.log.isVisible()
    assert window.log.toPlainText() == "Listening.\nReady."
    window.select("weather")
    assert window.log.toPlainText() == ""


def test_a_server_is_removed_after_a_question(service: Tools, window: ToolsWindow, qtbot: QtBot) -> None:
    for words, left in (("Keep server", 2), ("Remove server", 1)):
        window.remove.click()
        [box] = [each for each in window.findChildren(QMessageBox) if each.isVisible()]
        [button] = [each for each in box.findChildren(QPushButton) if each.text().replace("&", "") == words]
        button.click()
        qtbot.waitUntil(lambda left=left: len(service.servers()) == left)
    assert servers(window) == ["weather  ·  off"]


def test_a_server_is_edited(service: Tools, window: ToolsWindow) -> None:
    window.change.click()
    dialog = window.dialog
    assert isinstance(dialog, ToolServerDialog)
    dialog.name.setText("my files")
    dialog.buttons.button(dialog.buttons.StandardButton.Save).click()
    assert service.servers()[0].config == dataclasses.replace(FILES, name="my files", enabled=False)
    assert servers(window)[0] == "my files  ·  off"
    assert window.dialog is None


def test_a_server_is_added_and_selected(service: Tools, window: ToolsWindow) -> None:
    window.add.click()
    dialog = window.dialog
    assert isinstance(dialog, ToolServerDialog)
    dialog.name.setText("clock")
    dialog.command.setText("uvx")
    dialog.arguments.setPlainText("mcp-server-time\n--local")
    dialog.buttons.button(dialog.buttons.StandardButton.Save).click()
    assert service.servers()[2].config == ServerConfig("clock", "uvx", ("mcp-server-time", "--local"))
    assert window.servers.currentItem().data(Qt.ItemDataRole.UserRole) == "clock"


def test_servers_are_added_from_json(service: Tools, window: ToolsWindow) -> None:
    window.paste.click()
    dialog = window.dialog
    assert isinstance(dialog, JsonDialog)
    dialog.text.setPlainText("{")
    dialog.buttons.button(dialog.buttons.StandardButton.Save).click()
    assert dialog.isVisible()
    assert dialog.trouble.isVisible()
    dialog.text.setPlainText('{"mcpServers": {"a": {"command": "x"}, "b": {"url": "http://localhost:1"}}}')
    dialog.buttons.button(dialog.buttons.StandardButton.Save).click()
    assert [state.config.name for state in service.servers()] == ["files", "weather", "a", "b"]
    assert window.servers.currentItem().data(Qt.ItemDataRole.UserRole) == "b"


def test_json_files_are_dropped(service: Tools, window: ToolsWindow, tmp_path: Path) -> None:
    good, bad, other = tmp_path / "good.json", tmp_path / "bad.json", tmp_path / "text.txt"
    good.write_text('{"mcpServers": {"a": {"command": "x"}}}', "utf-8")
    bad.write_bytes(b"\xff\xfe")
    other.write_text("{}")
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(other))])
    place, buttons = QPoint(5, 5), Qt.MouseButton.LeftButton
    copy, keys = Qt.DropAction.CopyAction, Qt.KeyboardModifier.NoModifier
    enter = QDragEnterEvent(place, copy, data, buttons, keys)
    enter.setAccepted(False)
    window.dragEnterEvent(enter)
    assert not enter.isAccepted()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in (good, bad)])
    window.dragEnterEvent(enter)
    assert not enter.isAccepted()
    data.setUrls([QUrl.fromLocalFile(str(good))])
    window.dragEnterEvent(enter)
    assert enter.isAccepted()
    window.dropEvent(QDropEvent(place.toPointF(), copy, data, buttons, keys))
    assert [state.config.name for state in service.servers()] == ["files", "weather"], "nothing runs unseen"
    dialog = window.dialog
    assert isinstance(dialog, JsonDialog)
    dialog.buttons.button(dialog.buttons.StandardButton.Save).click()
    assert [state.config.name for state in service.servers()] == ["files", "weather", "a"]
    data.setUrls([QUrl.fromLocalFile(str(bad))])
    window.dropEvent(QDropEvent(place.toPointF(), copy, data, buttons, keys))
    assert window.dialog is None
    assert window.trouble.accessibleName().startswith("bad.json cannot be read")


def test_a_server_that_is_added_takes_no_other_place(service: Tools, window: ToolsWindow) -> None:
    """It replaced the one of its name, with the permissions."""
    service.set_permission("files", "write", "never")
    before = service.servers()
    window.add.click()
    dialog = window.dialog
    assert isinstance(dialog, ToolServerDialog)
    dialog.name.setText("files")
    dialog.command.setText("other")
    dialog.buttons.button(dialog.buttons.StandardButton.Save).click()
    assert dialog.trouble.accessibleName().startswith("There is a tool server called “files” already")
    dialog.reject()
    window.paste.click()
    pasted = window.dialog
    assert isinstance(pasted, JsonDialog)
    pasted.text.setPlainText('{"mcpServers": {"new": {"command": "x"}, "files": {"command": "x"}}}')
    pasted.buttons.button(pasted.buttons.StandardButton.Save).click()
    assert pasted.isVisible()
    assert service.servers() == before, "all of them or none"


def test_a_report_leaves_the_table_as_it_is(service: Tools, window: ToolsWindow) -> None:
    service.show("files", "ready", tools=("read", "write"))
    window.show_log.click()
    item = window.tools.topLevelItem(1)
    service.show("files", "ready", tools=("read", "write"), log="line\n" * 200)
    assert window.tools.topLevelItem(1) is item
    assert window.log.textCursor().atEnd()
    service.show("files", "ready", tools=("read", "other"))
    assert tools(window)[1][0] == "Other"


def test_a_name_that_is_taken_is_refused_in_the_dialog(service: Tools, window: ToolsWindow) -> None:
    window.change.click()
    dialog = window.dialog
    assert isinstance(dialog, ToolServerDialog)
    dialog.name.setText(WEATHER.name)
    dialog.buttons.button(dialog.buttons.StandardButton.Save).click()
    assert dialog.isVisible()
    assert "weather" in dialog.trouble.accessibleName()
    assert [state.config.name for state in service.servers()] == ["files", "weather"]


def test_what_cannot_be_saved_is_said(
    service: Tools, window: ToolsWindow, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    service._file.path = tmp_path / "no" / "folder" / "mcp.json"
    window.on.click()
    assert window.trouble.isVisible()
    assert not window.on.isChecked()


def test_the_file_of_another_program_is_offered_and_shown_first(
    service: Tools, window: ToolsWindow, elsewhere: list[tuple[str, Path]], tmp_path: Path
) -> None:
    assert not window.bring.isVisible()
    window.close()
    before, path = service.servers(), tmp_path / "claude_desktop_config.json"
    path.write_text('{"mcpServers": {"brought": {"command": "x"}}}', encoding="utf-8")
    elsewhere.append(("Claude Desktop", path))
    window.show()
    assert window.bring.isVisible()
    (entry,) = window.bring.menu().actions()
    assert entry.text() == "From Claude Desktop…"
    entry.trigger()
    dialog = window.dialog
    assert isinstance(dialog, JsonDialog)
    assert service.servers() == before
    dialog.buttons.button(dialog.buttons.StandardButton.Save).click()
    assert [state.config.name for state in service.servers()] == ["files", "weather", "brought"]
    path.unlink()
    entry.trigger()
    assert "claude_desktop_config.json cannot be read" in window.trouble.accessibleName()


def signing(service: Tools, **change: bool) -> None:
    """Let the weather server be in a state of signing in."""
    state = service._states["weather"]
    config = dataclasses.replace(state.config, signs_in=change.get("signs_in", False))
    service._states["weather"] = dataclasses.replace(
        state, config=config, wants_sign_in=change.get("wants_sign_in", False)
    )
    service.changed.emit()


def test_signing_in_and_out_is_offered_where_it_is_possible(
    service: Tools, window: ToolsWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, str]] = []
    monkeypatch.setattr(service, "sign_in", lambda name: done.append(("in", name)))
    monkeypatch.setattr(service, "sign_out", lambda name: done.append(("out", name)))
    window.select("weather")
    assert not window.sign_in.isVisible()
    assert not window.sign_out.isVisible()
    service.show("weather", "failed", "Refused.")
    signing(service, wants_sign_in=True)
    assert window.sign_in.isVisible()
    window.sign_in.click()
    service.show("weather", "ready")
    signing(service, signs_in=True)
    assert not window.sign_in.isVisible()
    assert window.sign_out.isVisible()
    window.sign_out.click()
    assert done == [("in", "weather"), ("out", "weather")]


@pytest.mark.parametrize(
    ("button", "works"), [("Open browser", True), ("Open browser", False), ("Don't", True)]
)
def test_the_page_is_opened_only_if_the_user_agrees(
    service: Tools,
    window: ToolsWindow,
    qtbot: QtBot,
    monkeypatch: pytest.MonkeyPatch,
    button: str,
    works: bool,
) -> None:
    opened: list[str] = []

    def open_page(url: QUrl) -> bool:
        opened.append(url.toString())
        return works

    monkeypatch.setattr("desktop.views.tools.tools_window.QDesktopServices.openUrl", open_page)
    service.page_offered.emit("weather", "https://login.example.org/authorize?x=1")
    qtbot.waitUntil(lambda: window.findChild(QMessageBox, "signIn") is not None)
    box = window.findChild(QMessageBox, "signIn")
    assert box is not None
    assert box.text() == "Open login.example.org in your browser to sign in to weather?"
    assert not opened
    next(each for each in box.buttons() if each.text().replace("&", "").startswith(button)).click()
    if button == "Open browser":
        qtbot.waitUntil(lambda: opened == ["https://login.example.org/authorize?x=1"])
    else:
        qtbot.waitUntil(lambda: service.restarted == ["weather"])
        assert not opened
    if not works:
        qtbot.waitUntil(lambda: service.restarted == ["weather"])
        assert window.trouble.accessibleName() == "No browser could be opened."
