"""Tools in the window, with a real server: a call is allowed with the mouse, and its result is read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication

from desktop.services.tools.servers import ServerConfig
from desktop.views.tools.tools_window import ToolsWindow
from engine.core import ToolCall
from tests.desktop.hand import Hand
from tests.desktop.services.tools import tool_server

pytestmark = pytest.mark.gui
ADD = ToolCall("call_1", "add", '{"a": 2, "b": 3}')


@pytest.fixture
def hand(qtbot, qapp, tmp_path) -> Iterator[Hand]:
    found = Hand(qtbot, tmp_path)
    found.load()
    yield found
    found.close()


def add_server(hand: Hand) -> None:
    tools = hand.desktop.services.tools
    tools.add(ServerConfig("sums", sys.executable, (str(Path(tool_server.__file__)), "usual")))
    hand.qtbot.waitUntil(lambda: tools.servers()[0].status == "ready", timeout=30_000)


def states(hand: Hand) -> list[str]:
    return [item.state for item in hand.items() if item.role == "tool"]


def test_a_call_is_allowed_and_its_result_is_read(hand: Hand) -> None:
    picker = hand.window.chat.composer.tools
    assert not picker.isVisible()
    add_server(hand)
    assert picker.isVisible()
    assert int(picker.text()) == len(hand.desktop.services.tools.servers()[0].tools)
    hand.echo.chat.calls = [(ADD,)]
    hand.say("What is the sum?")
    assert states(hand) == ["waiting"]
    hand.qtbot.waitUntil(hand.window.chat.transcript.settled)
    hand.click("Allow: The model wants to call add (sums)")
    hand.qtbot.waitUntil(lambda: states(hand) == ["complete"])
    hand.qtbot.waitUntil(lambda: len(hand.echo.chat.requests) == 2)
    hand.wait_for("idle")
    assert hand.echo.chat.requests[-1].messages[-1].content == "5"
    assert hand.items()[-1].role == "assistant"


def test_escape_stops_a_call_that_runs(hand: Hand, tmp_path: Path) -> None:
    add_server(hand)
    hand.desktop.services.tools.set_permission("sums", "slow", "always")
    place = tmp_path / "place"
    hand.echo.chat.calls = [(ToolCall("call_1", "slow", f'{{"place": "{place.as_posix()}"}}'),)]
    hand.say("Take your time.")
    hand.qtbot.waitUntil(place.exists)
    assert states(hand) == ["running"]
    hand.window.actions_by_name["stop"].trigger()
    assert states(hand) == ["stopped"]
    hand.qtbot.waitUntil(lambda: place.read_text() == "cancelled")
    assert len(hand.echo.chat.requests) == 1


def test_the_menu_turns_a_server_off_in_one_chat(hand: Hand) -> None:
    add_server(hand)
    hand.say("One.")
    picker = hand.window.chat.composer.tools
    picker.entries()[0].trigger()
    assert picker.text() == " 0"
    hand.say("Two.")
    assert hand.echo.chat.requests[-1].tools == ()
    hand.window.navigation.new_chat()
    assert picker.text() != " 0"
    hand.say("Three.")
    assert hand.echo.chat.requests[-1].tools


def test_a_notebook_has_no_tools(hand: Hand) -> None:
    add_server(hand)
    picker = hand.window.chat.composer.tools
    assert picker.isVisible()
    hand.session.new_notebook()
    assert picker.isHidden()


def test_the_window_of_tools_is_opened_by_the_menu_and_the_command(hand: Hand) -> None:
    add_server(hand)
    hand.window.chat.composer.tools.entries()[-1].trigger()
    window = hand.window.tools.window
    assert isinstance(window, ToolsWindow)
    assert window.isVisible()
    window.close()
    hand.window.actions_by_name["tools"].trigger()
    assert hand.window.tools.window is window
    assert window.isVisible()
    assert QApplication.activeWindow() in (window, hand.window)


def test_a_prompt_is_inserted_and_a_resource_attached(hand: Hand) -> None:
    add_server(hand)
    tools, picker = hand.desktop.services.tools, hand.window.chat.composer.tools
    hand.qtbot.waitUntil(lambda: bool(tools.servers()[0].resources), timeout=30_000)
    entries = {action.text(): action for action in picker.entries()}
    entries["Insert a prompt…"].trigger()
    dialog = hand.window.tools.dialog
    dialog.search.setText("review")
    dialog.fields["text"].setPlainText("a poem")
    dialog.go.click()
    hand.qtbot.waitUntil(lambda: hand.window.tools.dialog is None, timeout=30_000)
    assert hand.window.chat.composer.text() == "Review in a kind tone:\na poem"
    entries["Attach a resource…"].trigger()
    dialog = hand.window.tools.dialog
    dialog.search.setText("notes")
    dialog.go.click()
    held = hand.desktop.services.composer.attachments.held
    hand.qtbot.waitUntil(lambda: bool(held(hand.session.conversation)), timeout=30_000)
    found = held(hand.session.conversation)[0].attachment
    assert (found.name, found.text) == ("today.md", "# Milk")
    picker.entries()[0].trigger()  # the server is off in this chat
    assert [action.text() for action in picker.entries()][1:] == ["Manage tools…"]
