"""Tab visits controls in the order in which they are seen, also those that are made late; tool tips name the
keys that are in use.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QScrollArea, QWidget
from pytestqt.qtbot import QtBot

from desktop.views.commands.shortcuts_dialog import ShortcutsDialog
from tests.desktop.hand import Hand, settled

pytestmark = pytest.mark.gui


@pytest.fixture(scope="module")
def hand(
    request: pytest.FixtureRequest, qapp: QApplication, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Hand]:
    made = Hand(QtBot(request), tmp_path_factory.mktemp("tabs"))
    made.load()
    made.say("About lighthouses")
    yield made
    made.close()


@pytest.fixture(autouse=True)
def quiet(hand: Hand) -> Iterator[None]:
    """Nothing waits for its turn when a test is over."""
    yield
    hand.qtbot.waitUntil(lambda: settled(hand))


def visited(hand: Hand, last: QWidget, within: QWidget) -> list[tuple[int, int]]:
    """Where in `within` the controls are that Tab visits until `last`, from the top and from the left."""
    places: list[tuple[int, int]] = []
    hand.press(Qt.Key.Key_Tab)
    while not last.hasFocus() and len(places) < 40:
        focus = QApplication.focusWidget()
        corner = focus.mapTo(within, focus.rect().topLeft())
        places.append((corner.y(), corner.x()))
        hand.press(Qt.Key.Key_Tab)
    return places


def test_the_persona_comes_after_the_model_and_messages_in_their_order(hand: Hand) -> None:
    window = hand.window
    window.picker.setFocus()
    hand.press(Qt.Key.Key_Tab)
    assert window.personas.picker.hasFocus()
    window.chat.message_commands.edit_last_own()  # its row is made last and stands above the others
    window.chat.transcript.flush()
    window.chat.transcript.setFocus()
    places = visited(hand, hand.box, window)
    assert len(places) > 8
    assert places == sorted(places)
    window.chat.transcript.cancel_edit(hand.items()[-2].id)


def test_the_list_of_keys_is_visited_row_by_row_and_then_its_buttons(hand: Hand) -> None:
    dialog = ShortcutsDialog(hand.window.commands.keymap, hand.window)
    dialog.rows["rename"].add.click()
    dialog.show()
    hand.qtbot.waitUntil(lambda: settled(hand))
    dialog.query.setFocus()
    area = dialog.findChild(QScrollArea)
    assert area is not None
    places = visited(hand, hand.button("Close", dialog), area.widget())
    assert len(places) == 40
    assert places == sorted(places)
    dialog.close()
    dialog.deleteLater()


def test_tool_tips_name_the_keys_that_are_in_use(hand: Hand) -> None:
    window, keymap = hand.window, hand.window.commands.keymap
    buttons = {
        "new_temporary": window.top_bar.temporary, "tokens": window.chat.legend.buttons["off"],
        "new_folder": window.sidebar.new_folder, "new_chat": window.sidebar.new,
    }  # fmt: skip
    for name, button in buttons.items():
        assert button.toolTip().endswith(f" ({keymap.shown(name)})")
        keymap.set_keys(name, ["Ctrl+Alt+9"])
        assert button.toolTip().endswith(" (Ctrl+Alt+9)")
        keymap.reset(name)
