"""The button that turns servers of tools off in one chat."""

from __future__ import annotations

import dataclasses

import pytest
from pytestqt.qtbot import QtBot

from desktop.services.tools.servers import ServerConfig, ServerState
from desktop.views.composer.tool_picker import ToolPicker

pytestmark = pytest.mark.gui
READY = ServerState(ServerConfig("files & more", "x"), "ready")
FAILED = ServerState(ServerConfig("web", url="http://h"), "failed", "No answer.")
OFF = ServerState(ServerConfig("clock", "x", enabled=False))


@pytest.fixture
def picker(qtbot: QtBot) -> ToolPicker:
    made = ToolPicker()
    qtbot.addWidget(made)
    return made


def words(picker: ToolPicker) -> list[tuple[str, bool, bool]]:
    return [
        (action.text().replace("\u2068", "").replace("\u2069", ""), action.isChecked(), action.isEnabled())
        for action in picker.entries()
    ]


def test_it_is_hidden_where_no_server_runs(picker: ToolPicker) -> None:
    picker.show_tools((), (), 0)
    assert picker.isHidden()
    picker.show_tools((OFF,), (), 0)
    assert picker.isHidden()
    picker.show_tools((FAILED,), (), 0)
    assert not picker.isHidden()


def test_it_names_the_servers_and_counts_the_tools(picker: ToolPicker) -> None:
    picker.show_tools((READY, FAILED, OFF), ("web",), 5)
    assert picker.text() == " 5"
    assert picker.accessibleName() == "Tools: 5 in this chat"
    assert words(picker) == [
        ("files && more", True, True), ("web failed: No answer.", False, True),
        ("Manage tools…", False, True),
    ]  # fmt: skip


def test_a_server_that_failed_says_why_in_one_line_and_opens_the_window(picker: ToolPicker) -> None:
    asked: list[str] = []
    picker.manage_requested.connect(asked.append)
    long = dataclasses.replace(FAILED, sentence="It & its\nfriends are not there. " * 20)
    picker.show_tools((READY, long), (), 5)
    text = picker.entries()[1].text()
    assert "failed: It && its friends are not there. It" in text
    assert text.endswith("…")
    assert len(text) < 140
    picker.entries()[1].trigger()
    assert asked == ["web"]
    picker.show_tools((READY, FAILED), (), 5)
    assert "No answer." in picker.entries()[1].text()


def test_prompts_and_resources_are_offered_where_there_are_some(picker: ToolPicker, qtbot: QtBot) -> None:
    picker.show_tools((READY,), (), 5, prompts=True)
    assert [each[0] for each in words(picker)] == ["files && more", "Insert a prompt…", "Manage tools…"]
    with qtbot.waitSignal(picker.prompts_requested):
        picker.entries()[1].trigger()
    picker.show_tools((READY,), (), 5, resources=True)
    assert [each[0] for each in words(picker)] == ["files && more", "Attach a resource…", "Manage tools…"]
    with qtbot.waitSignal(picker.resources_requested):
        picker.entries()[1].trigger()


def test_a_server_is_turned_off_and_on_again(picker: ToolPicker, qtbot: QtBot) -> None:
    picker.show_tools((READY, FAILED), ("gone",), 5)
    said: list[tuple[str, ...]] = []
    picker.chosen.connect(said.append)
    picker.entries()[0].trigger()
    picker.show_tools((READY, FAILED), said[-1], 0)
    picker.entries()[0].trigger()
    assert said == [("gone", "files & more"), ("gone",)]


def test_the_last_entry_opens_the_window(picker: ToolPicker, qtbot: QtBot) -> None:
    picker.show_tools((READY,), (), 5)
    with qtbot.waitSignal(picker.manage_requested):
        picker.entries()[-1].trigger()


def test_a_menu_that_is_open_stays_while_nothing_else_is_to_be_shown(picker: ToolPicker) -> None:
    picker.show_tools((READY, FAILED), (), 5)
    entry = picker.entries()[0]
    picker.show_tools((dataclasses.replace(READY, log="a line"), FAILED), (), 5)
    assert picker.entries()[0] is entry
    picker.show_tools((READY, FAILED), (), 4)
    assert picker.text() == " 4"
