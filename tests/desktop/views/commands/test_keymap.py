"""The keys of commands: set, taken over, reset, saved, applied at once and at the next start."""

from __future__ import annotations

import json

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QFrame, QPushButton, QWidget

from desktop.store.settings.preferences import Preferences
from desktop.views.commands.actions import COMMANDS, ELSEWHERE, MENUS, Command
from desktop.views.commands.keymap import Keymap, native, typing_trouble
from desktop.views.commands.menus import with_mnemonics
from desktop.views.commands.shortcut_editor import ShortcutEditor
from desktop.views.commands.shortcuts_dialog import ShortcutsDialog
from engine.platform.language import PREFERENCES
from tests.desktop.hand import Hand

Key = Qt.Key
CTRL, SHIFT, ALT = (
    Qt.KeyboardModifier.ControlModifier,
    Qt.KeyboardModifier.ShiftModifier,
    Qt.KeyboardModifier.AltModifier,
)
TABLE = (
    Command("one", "File", "One", ("Ctrl+N", "Ctrl+Shift+O")),
    Command("", "File"),
    Command("two", "File", "Two…", ("Ctrl+O",)),
    Command("three", "Edit", "Three"),
)


@pytest.fixture
def preferences(tmp_path) -> Preferences:
    return Preferences(tmp_path / PREFERENCES)


def again(preferences: Preferences) -> tuple[Keymap, Preferences]:
    read = Preferences(preferences.path)
    return Keymap(read, TABLE), read


def test_keys_are_set_taken_over_and_saved(preferences) -> None:
    keymap = Keymap(preferences, TABLE)
    changes: list[bool] = []
    keymap.changed.connect(lambda: changes.append(True))
    keymap.set_keys("three", ["Ctrl+N", "ctrl+j", "Ctrl+J", "nonsense"])
    assert keymap.keys("three") == ("Ctrl+N", "Ctrl+J")
    assert keymap.keys("one") == ("Ctrl+Shift+O",)
    assert keymap.owner("ctrl+n") == "three"
    assert keymap.is_changed("one")
    assert changes == [True]
    for found in (again(preferences)[0], keymap):
        assert (found.keys("one"), found.keys("two"), found.keys("three")) == (
            ("Ctrl+Shift+O",),
            ("Ctrl+O",),
            ("Ctrl+N", "Ctrl+J"),
        )
    keymap.reset("one")
    assert keymap.keys("three") == ("Ctrl+J",)
    keymap.set_keys("two", [])
    assert again(preferences)[0].keys("two") == ()
    keymap.reset_all()
    assert not any(keymap.is_changed(name) for name in ("one", "two", "three"))
    assert json.loads(preferences.path.read_text())["shortcuts"] == {}


def test_invalid_saved_keys_are_dropped_with_a_notice(tmp_path) -> None:
    path = tmp_path / PREFERENCES
    saved = {"one": ["Ctrl+J", "Blurb+7"], "two": ["Ctrl+J", "Ctrl+U"], "three": 5, "of_tomorrow": ["F9"]}
    path.write_text(json.dumps({"shortcuts": saved}))
    read = Preferences(path)
    keymap = Keymap(read, TABLE)
    assert (keymap.keys("one"), keymap.keys("two"), keymap.keys("three")) == (("Ctrl+J",), ("Ctrl+U",), ())
    reported = " ".join(read.notices)
    for part in ("Blurb+7", "both “One” and “Two”", "“three”"):
        assert part in reported
    assert len(read.notices) == 3
    keymap.set_keys("three", ["F8"])
    assert Preferences(path).shortcuts["of_tomorrow"] == ("F9",)
    path.write_text(json.dumps({"shortcuts": "all of them"}))
    assert Keymap(Preferences(path), TABLE).keys("one") == ("Ctrl+N", "Ctrl+Shift+O")
    assert len(Preferences(path).notices) == 1


def test_a_key_of_the_user_overrides_a_default_one(tmp_path) -> None:
    path = tmp_path / PREFERENCES
    path.write_text(json.dumps({"shortcuts": {"three": ["Ctrl+O"]}}))
    read = Preferences(path)
    keymap = Keymap(read, TABLE)
    assert (keymap.keys("two"), keymap.keys("three"), read.notices) == ((), ("Ctrl+O",), ())


@pytest.mark.parametrize(
    "keys", ["A", "Shift+7", "Return", "Space", "Backspace", "Left", "Ctrl+Right", "Ctrl+Backspace"]
)
def test_keys_that_text_boxes_need_come_with_a_warning(qapp, keys) -> None:
    assert native(keys) in typing_trouble(keys)


@pytest.mark.parametrize("keys", ["Ctrl+J", "F5", "Alt+A", "Ctrl+Shift+7", "Esc", ""])
def test_other_keys_are_not(qapp, keys) -> None:
    assert typing_trouble(keys) == ""


def test_every_menu_has_unique_mnemonics() -> None:
    for menu in {command.menu for command in COMMANDS}:
        marked = with_mnemonics(command.text for command in COMMANDS if command.menu == menu and command.text)
        letters = [text[text.index("&") + 1].casefold() for text in marked if "&" in text]
        assert len(letters) == len(set(letters)) == len(marked)
    assert with_mnemonics(["Cut", "Copy", "C"]) == ["C&ut", "C&opy", "&C"], "the last one has no other letter"
    assert with_mnemonics(["C", "c"]) == ["&C", "c"]
    assert with_mnemonics(["&Cut"]) == ["&Cut"]


def test_a_key_is_added_changed_and_removed(qtbot, preferences) -> None:
    keymap, done = Keymap(preferences, TABLE), list[str]()
    editor = ShortcutEditor(keymap)
    qtbot.addWidget(editor)
    editor.done.connect(done.append)

    def press(key: Qt.Key, modifiers: Qt.KeyboardModifier) -> tuple[str, str, bool]:
        QTest.keyClick(editor.keys, key, modifiers)
        assert editor.note.isHidden() is not bool(editor.note.text())
        return editor.note.text(), editor.use.text(), editor.use.isEnabled()

    editor.begin("three", "")
    assert editor.isVisible()
    assert (editor.remove.isHidden(), editor.use.isEnabled(), editor.note.isHidden()) == (True, False, True)
    taken = f"{native('Ctrl+O')} is already used for “{keymap.words('two')}”."
    assert press(Key.Key_O, CTRL) == (taken, "Reassign", True)
    editor.use.click()
    assert (keymap.keys("three"), keymap.keys("two")) == (("Ctrl+O",), ())

    editor.begin("one", "Ctrl+N")
    assert (editor.remove.isHidden(), editor.use.isEnabled(), editor.note.isHidden()) == (False, False, True)
    own = f"{native('Ctrl+Shift+O')} is already a key for this command."
    assert press(Key.Key_O, CTRL | SHIFT) == (own, "Use", False)
    assert press(Key.Key_J, Qt.KeyboardModifier.NoModifier) == (typing_trouble("J"), "Use anyway", True)
    assert press(Key.Key_J, CTRL) == ("", "Use", True)
    editor.use.click()
    assert keymap.keys("one") == ("Ctrl+J", "Ctrl+Shift+O"), "a changed key keeps its place"
    editor.begin("one", "")
    assert press(Key.Key_F8, Qt.KeyboardModifier.NoModifier) == ("", "Use", True)
    editor.use.click()
    assert keymap.keys("one") == ("Ctrl+J", "Ctrl+Shift+O", "F8")
    editor.begin("one", "Ctrl+J")
    editor.remove.click()
    editor.begin("one", "F8")
    press(Key.Key_U, CTRL)
    editor.cancel.click()
    assert keymap.keys("one") == ("Ctrl+Shift+O", "F8")
    assert done == ["three", *["one"] * 4]


# -- in the window


def dialog_of(hand: Hand) -> ShortcutsDialog:
    hand.press(Key.Key_Slash, CTRL)
    found = QApplication.activeModalWidget()
    assert isinstance(found, ShortcutsDialog)
    assert found.rows  # those not seen at first are made, too
    return found


def key_rows(dialog: ShortcutsDialog) -> int:
    return len([each for each in dialog.findChildren(QFrame) if each.objectName() == "keyRow"])


def test_only_the_rows_seen_at_first_are_made_before_the_dialog_shows(qtbot, tmp_path) -> None:
    parent = QWidget()
    qtbot.addWidget(parent)
    dialog = ShortcutsDialog(Keymap(Preferences(tmp_path / "preferences.json")), parent)
    names = [each.name for menu in MENUS for each in COMMANDS if each.menu == menu and each.text]
    assert key_rows(dialog) == len([each for each in COMMANDS if each.menu == MENUS[0] and each.text])
    qtbot.waitUntil(lambda: key_rows(dialog) == len(names) + len(ELSEWHERE))
    assert [*dialog.rows] == names
    other = ShortcutsDialog(dialog.keymap, parent)
    assert [*other.rows] == names  # who asks for a row does not wait
    assert not other.reset_all.isEnabled()
    dialog.keymap.set_keys("delete_chat", ["Ctrl+B"])
    taker, taken = (other.rows[name] for name in ("delete_chat", "sidebar"))
    assert other.reset_all.isEnabled()
    assert (taker.reset.isHidden(), taken.reset.isHidden()) == (False, False)
    assert [button.text() for button in chips(other, "delete_chat")] == [native("Ctrl+B")]
    assert chips(other, "sidebar") == []
    taken.reset.click()
    assert [button.text() for button in chips(other, "sidebar")] == [native("Ctrl+B")]
    assert chips(other, "delete_chat") == []
    assert (taker.reset.isHidden(), taken.reset.isHidden()) == (True, True)
    dialog.keymap.set_keys("sidebar", [])
    other.reset_all.click()
    assert not dialog.keymap.is_changed("sidebar")
    for words, found in (("ctrl+b", ["sidebar"]), ("B CTRL chats", ["sidebar"]), ("no such", [])):
        other.query.setText(words)
        assert [name for name, row in other.rows.items() if not row.isHidden()] == found


def chips(dialog: ShortcutsDialog, name: str) -> list[QPushButton]:
    QApplication.sendPostedEvents(None, 52)  # those that are gone are deleted
    return [button for button in dialog.rows[name].findChildren(QPushButton) if button.objectName() == "key"]


@pytest.mark.slow
def test_keys_changed_in_the_list_apply_at_once_and_after_a_restart(qtbot, qapp, tmp_path) -> None:
    hand = Hand(qtbot, tmp_path)
    try:
        dialog = dialog_of(hand)
        qtbot.waitUntil(dialog.query.hasFocus)
        shown = {row.label.text() for row in dialog.rows.values()}
        assert len(shown) == len([command for command in COMMANDS if command.text])
        QTest.keyClicks(dialog.query, "ctrl+b")
        assert [name for name, row in dialog.rows.items() if not row.isHidden()] == ["sidebar"]
        hand.press(Key.Key_Escape)  # empties the search and leaves the list open
        assert dialog.isVisible()
        assert not dialog.rows["quit"].isHidden()
        QTest.keyClicks(dialog.query, ELSEWHERE[0][0])
        assert all(row.isHidden() for row in dialog.rows.values())
        dialog.query.clear()

        hand.click("Add a key for Delete chat", dialog)
        assert dialog.editor.keys.hasFocus()
        QTest.keyClick(dialog.editor.keys, Key.Key_B, CTRL)
        assert "“Chats”" in dialog.editor.note.text()
        hand.click("Reassign", dialog)
        assert [button.text() for button in chips(dialog, "delete_chat")] == [native("Ctrl+B")]
        assert chips(dialog, "sidebar") == []
        assert hand.window.top_bar.left.toolTip() == "Chats"
        actions = hand.window.actions_by_name
        assert actions["delete_chat"].shortcuts() == [QKeySequence("Ctrl+B")]
        assert actions["sidebar"].shortcuts() == []

        hand.click("Add a key for Chats", dialog)
        QTest.keyClick(dialog.editor.keys, Key.Key_X, ALT)
        hand.click("Use", dialog)
        hand.click("Add a key for Quit", dialog)
        QTest.keyClick(dialog.editor.keys, Key.Key_Q)
        assert "used for typing" in dialog.editor.note.text()
        assert hand.button("Use anyway", dialog).isEnabled()
        hand.click("Cancel", dialog)
        hand.click(f"{native('Ctrl+N')}: change", dialog)
        hand.click("Remove", dialog)
        dialog.close()
        assert hand.window.top_bar.left.toolTip() == f"Chats ({native('Alt+X')})"

        hand.restart()
        keymap = hand.window.commands.keymap
        assert keymap.keys("delete_chat") == ("Ctrl+B",)
        assert keymap.keys("new_chat") == ("Ctrl+Shift+O",)
        hand.window.chat.composer.box.setFocus()
        before = hand.window.sidebar.isHidden()
        hand.press(Key.Key_X, ALT)
        assert hand.window.sidebar.isHidden() is not before

        dialog = dialog_of(hand)
        hand.click("Reset the keys for Chats", dialog)
        assert keymap.keys("sidebar") == ("Ctrl+B",)
        assert keymap.keys("delete_chat") == ()
        hand.click("Reset all", dialog)
        assert keymap.keys("new_chat") == ("Ctrl+N", "Ctrl+Shift+O")
        assert not hand.button("Reset all", dialog).isEnabled()
        dialog.close()
    finally:
        hand.close()
