"""The command palette in the window: open it, narrow it, choose by key and mouse, and return."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from desktop.items.models.local_models import ModelEntry
from desktop.settings import PANES, PREFERENCES
from desktop.views.commands.actions import COMMANDS
from engine.settings import LoadSettings, SamplerSettings, StopSettings
from tests.desktop.hand import Hand, settled
from tests.work import calls_in

Key = Qt.Key
CTRL, SHIFT = Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.ShiftModifier


@pytest.fixture(scope="module")
def hand(request, qapp, tmp_path_factory):
    made = Hand(QtBot(request), tmp_path_factory.mktemp("palette"))
    made.load()
    for title in ("Lighthouses of the north", "A recipe for soup"):
        made.session.new_conversation()
        made.say(f"Tell me about {title.lower()} and zanzibar")
        made.session.rename_conversation(made.session.conversation, title)
    made.window.model_controller.look_for_models()  # the threads for that live as long as the window
    made.qtbot.waitUntil(lambda: settled(made))
    yield made
    made.close()


@pytest.fixture
def palette(hand):
    hand.window.chat.composer.box.setFocus()
    hand.press(Key.Key_K, CTRL)
    found = hand.window.palette_controller.palette
    assert found.isVisible()
    assert found.box.hasFocus()
    yield found
    found.close_palette()
    hand.qtbot.waitUntil(lambda: settled(hand))


def titles(palette, kind: str = "") -> list[str]:
    return [row.match.entry.title for row in palette.rows.rows if kind in ("", row.match.entry.kind)]


def write(palette, text: str) -> None:
    palette.box.clear()
    QTest.keyClicks(palette.box, text)


def test_esc_closes_it_and_restores_the_focus(hand, palette) -> None:
    write(palette, "te")
    hand.press(Key.Key_Escape)
    assert palette.isHidden()
    assert hand.box.hasFocus()
    hand.press(Key.Key_K, CTRL)
    assert palette.isVisible()
    assert palette.box.text() == ""
    hand.press(Key.Key_K, CTRL)
    assert palette.isHidden()
    hand.press(Key.Key_K, CTRL)
    QTest.mouseClick(palette, Qt.MouseButton.LeftButton, pos=palette.rect().bottomLeft())
    assert palette.isHidden()


def test_a_chat_is_opened(hand, palette) -> None:
    write(palette, "lighth")
    assert titles(palette)[0] == "Lighthouses of the north"
    assert palette.rows.rows[0].heading == "Chats"
    hand.press(Key.Key_Return)
    assert hand.session.title == "Lighthouses of the north"
    assert palette.isHidden()


def test_a_message_is_found_later_and_opened(hand, palette) -> None:
    write(palette, "zanzibar")
    assert titles(palette) == []
    hand.qtbot.waitUntil(lambda: len(titles(palette, "message")) >= 4)
    row = palette.rows.rows[0]
    start, end = row.match.spans[0]
    assert row.match.entry.title[start:end] == "zanzibar"
    write(palette, "/ about soup")
    write(palette, "/ recipe for soup and zanz")
    hand.qtbot.waitUntil(lambda: bool(titles(palette, "message")))
    place = palette.list.visualRect(palette.rows.index(0, 0)).center()
    QTest.mouseClick(palette.list.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert hand.session.title == "A recipe for soup"
    write(palette, "/ no message has qqq")
    hand.qtbot.waitUntil(lambda: "no message contains it" in palette.nothing.text())


def test_actions_show_their_keys_and_why_they_are_disabled(hand, palette) -> None:
    write(palette, "> ")
    entries = {row.match.entry.title: row.match.entry for row in palette.rows.rows}
    for command in COMMANDS:
        if command.text and command.name not in ("palette", "undo", "starter"):
            assert command.text in entries
    assert entries["Regenerate the last reply"].keys == "Ctrl+R"
    assert entries["Stop"].trouble == "No reply is being written."
    write(palette, "> previous version")
    assert "one version" in palette.rows.rows[0].match.entry.trouble
    hand.press(Key.Key_Return)
    assert palette.isVisible()
    write(palette, ">newch")
    before = hand.session.conversation
    hand.press(Key.Key_Return)
    hand.qtbot.waitUntil(lambda: hand.session.conversation != before)


def test_recent_choices_come_first_and_are_saved(hand, palette) -> None:
    write(palette, "write a mess")
    hand.press(Key.Key_Return)
    hand.press(Key.Key_K, CTRL)
    assert palette.rows.rows[0].heading == "Recently used"
    assert titles(palette)[0] == "Write a message"
    assert hand.session.preferences.recent_choices[0] == "action:write"


@pytest.mark.parametrize(
    ("query", "cls", "name"),
    [
        ("#creativity", SamplerSettings, "temperature"),
        ("#prompt precision", LoadSettings, "prompt_bits"),
        ("#antiprompt", StopSettings, "stop_strings"),
        ("#graphics card", LoadSettings, "backend"),
    ],
)
def test_a_setting_is_shown_with_its_editor_focused(hand, palette, query, cls, name) -> None:
    write(palette, query)
    expected = f"setting:{cls.__name__}.{name}"
    row = next(at for at, each in enumerate(palette.rows.rows) if each.match.entry.key == expected)
    for _ in range(row):
        hand.press(Key.Key_Down)
    hand.press(Key.Key_Return)
    inspector = hand.window.inspector
    form = inspector.forms[cls]
    focus = QApplication.focusWidget()
    assert focus is not None
    assert form.isAncestorOf(focus)
    if not form.replaced(name):
        assert form.row(name).isAncestorOf(focus)
    assert focus.visibleRegion().boundingRect().height() > 0
    assert inspector.group(cls).opened


def test_every_setting_is_there(hand, palette) -> None:
    source = hand.window.palette_controller._source("setting")
    keys = {source.entry(number).key for number in range(len(source))}
    shown = {(cls, name) for _, cls in PANES for name in cls().to_json()}
    shown |= {(page.cls, name) for page in PREFERENCES for name in page.names}
    assert {f"setting:{cls.__name__}.{name}" for cls, name in shown} <= keys


def test_a_model_is_loaded(hand, palette, monkeypatch) -> None:
    path = hand.folder / "other.gguf"
    path.touch()
    broken = ModelEntry(str(hand.folder / "broken.gguf"), "Broken model", trouble="The file is cut off.")
    monkeypatch.setattr(
        type(hand.desktop.services.local_models),
        "entries",
        (ModelEntry(str(path), "Other model", "135 M"), broken),
    )
    write(palette, "!")
    hand.desktop.services.local_models.changed.emit(())
    assert titles(palette) == ["Other model", "Broken model"]
    assert palette.rows.rows[1].match.entry.trouble == "The file is cut off."
    hand.echo.opened.clear()
    hand.press(Key.Key_Return)
    hand.qtbot.waitUntil(lambda: hand.echo.opened == [path])
    hand.wait_for("idle")


def test_keys_in_the_list_and_tab_narrow(hand, palette) -> None:
    now = palette.list.currentIndex
    count = len(palette.rows.rows)
    hand.press(Key.Key_Up)
    assert now().row() == count - 1
    hand.press(Key.Key_Down)
    assert now().row() == 0
    hand.press(Key.Key_PageDown)
    assert 1 < now().row() < count
    hand.press(Key.Key_PageUp)
    assert now().row() == 0
    hand.press(Key.Key_Tab)
    assert palette.kind == "chat"
    assert palette.signs["chat"].isChecked()
    hand.press(Key.Key_Tab)
    assert {row.match.entry.kind for row in palette.rows.rows} == {"action"}
    hand.press(Key.Key_Backtab, SHIFT)
    assert palette.kind == "chat"
    QTest.mouseClick(palette.signs["setting"], Qt.MouseButton.LeftButton)
    assert {row.match.entry.kind for row in palette.rows.rows} == {"setting"}
    assert palette.box.hasFocus()


def test_it_opens_at_once_and_fits_every_window(hand, palette) -> None:
    palette.close_palette()
    hand.window.palette_controller.toggle()
    palette.close_palette()
    assert calls_in(hand.window.palette_controller.toggle) < 20_000
    palette.close_palette()
    size = hand.window.size()
    hand.window.palette_controller.toggle()
    hand.window.resize(420, 500)
    hand.qtbot.waitUntil(lambda: palette.size() == hand.window.size())
    assert palette.rect().contains(palette.card.geometry())
    assert palette.signs["chat"].text() == "@"
    hand.window.resize(size)


def test_esc_in_it_stops_no_reply(hand, palette) -> None:
    hand.window.actions_by_name["stop"].setEnabled(True)
    hand.press(Key.Key_Escape)
    assert palette.isHidden()
    hand.window.actions_by_name["stop"].setEnabled(False)


def test_the_row_is_announced(hand, palette, monkeypatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("desktop.views.commands.palette.announce", lambda _widget, text: said.append(text))
    write(palette, "new chat")
    assert said[-1].startswith("New chat, action, Ctrl+N, 1 of ")
