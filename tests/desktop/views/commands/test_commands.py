"""The table of commands: each row has one handler, and says itself why it is disabled."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QMainWindow, QMenu

from desktop.items.commands.slash import ACTIONS
from desktop.store.search.folding import fold
from desktop.views.commands.actions import COMMANDS
from desktop.views.commands.controller import CommandController
from tests.desktop.hand import Hand

pytestmark = pytest.mark.gui
NAMES = [command.name for command in COMMANDS if command.text]


@pytest.fixture
def hand(qtbot, qapp, tmp_path):
    found = Hand(qtbot, tmp_path)
    yield found
    found.close()


def test_every_command_has_one_handler(qtbot, hand) -> None:
    window = QMainWindow()
    qtbot.addWidget(window)
    commands = CommandController(window, hand.session, hand.window.chat.transcript)
    done: list[str] = []
    handlers = {name: lambda name=name: done.append(name) for name in NAMES}
    with pytest.raises(ValueError, match="handler: about"):
        commands.bind({name: handlers[name] for name in NAMES if name != "about"})
    with pytest.raises(ValueError, match="handler: of_nobody"):
        commands.bind(handlers, {"of_nobody": print})
    with pytest.raises(ValueError, match="handler: about"):
        commands.bind(handlers, {"about": print})
    commands.bind(handlers, instead=lambda name: name == "log")
    for name in ("about", "log", "trash"):
        commands.by_name[name].trigger()
    assert done == ["about", "trash"]


def test_the_menu_marks_what_is_shown(hand) -> None:
    window, actions = hand.window, hand.window.commands.by_name
    view = next(each for each in actions["sidebar"].associatedObjects() if isinstance(each, QMenu))

    def marked() -> set[str]:
        view.aboutToShow.emit()
        return {name for name, action in actions.items() if action.isChecked()}

    before = marked()
    assert ("sidebar" in before, "inspector" in before, "tokens" in before) == (
        window.sidebar.isVisible(), window.inspector.isVisible(), False
    )  # fmt: skip
    for name in ("sidebar", "inspector", "tokens"):
        actions[name].trigger()
    assert marked() == {"sidebar", "inspector", "tokens"} - before
    actions["tokens"].trigger()
    assert "tokens" not in marked()


def test_slash_words_are_known_ones() -> None:
    words = [command.slash for command in COMMANDS if command.slash]
    assert len(words) == len(set(words))
    assert set(words) <= {entry.word for entry in ACTIONS}


def test_search_words_are_folded() -> None:
    words = " ".join(command.words for command in COMMANDS)
    assert fold(words) == words


def test_a_notebook_disables_what_is_for_chats_only(hand) -> None:
    hand.load()
    states, actions = hand.window.commands.states, hand.window.actions_by_name
    assert actions["attach"].isEnabled()
    hand.session.new_notebook()
    chats_only = (
        "attach", "emoji", "opening", "prompts", "persona", "roles", "fork", "previous_variant", "context",
    )  # fmt: skip
    for name in chats_only:
        assert not actions[name].isEnabled()
        assert actions[name].toolTip() == states.why_not(name) == "This is not available in a notebook."
    hand.window.navigation.new_chat()
    assert actions["attach"].isEnabled()
    assert states.why_not("fork") == "This chat has no messages yet."
