"""The editors of texts: what stands in them, and what the user's typing means."""

from __future__ import annotations

from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLineEdit
from pytestqt.qtbot import QtBot

from desktop.views.settings.editor import Editor
from desktop.views.settings.text_editors import (
    IdsEditor,
    LineEditor,
    LinesEditor,
    OptionalNumberEditor,
    TextEditor,
    escape,
    unescape,
)
from engine.settings import SettingInfo

INFO = SettingInfo("Words", "Some words.", high=100)


class Desk:
    """An editor and what it said."""

    def __init__(self, qtbot: QtBot, editor: Any) -> None:
        self.qtbot, self.editor = qtbot, editor
        self.typed, self.edited = list[Any](), list[Any]()
        qtbot.addWidget(editor)
        editor.typed.connect(self.typed.append)
        editor.edited.connect(self.edited.append)
        editor.show()

    @property
    def line(self) -> QLineEdit:
        found = self.editor.findChild(QLineEdit)
        assert isinstance(found, QLineEdit)
        return found

    def write(self, text: str) -> None:
        """Replace the line's text by keys, without leaving it."""
        self.line.selectAll()
        self.qtbot.keyClick(self.line, Qt.Key.Key_Delete)
        self.qtbot.keyClicks(self.line, text)

    def enter(self) -> None:
        self.qtbot.keyClick(self.line, Qt.Key.Key_Return)


def test_a_line_of_text(qtbot: QtBot) -> None:
    desk = Desk(qtbot, LineEditor(INFO, "", "nothing"))
    assert (desk.line.placeholderText(), desk.line.accessibleName()) == ("nothing", "Words")
    desk.editor.set_value("one")
    assert (desk.line.text(), desk.editor.value()) == ("one", "one")
    assert desk.typed == desk.edited == []
    desk.write("ab")
    assert (desk.typed[-2:], desk.edited) == (["a", "ab"], [])
    desk.enter()
    desk.enter()
    assert desk.edited == ["ab"]


def test_a_line_is_not_set_below_the_users_hands(qtbot: QtBot) -> None:
    desk = Desk(qtbot, IdsEditor(INFO))
    desk.editor.activateWindow()
    desk.line.setFocus()
    qtbot.waitUntil(desk.line.hasFocus)
    desk.write("1 2")
    desk.editor.set_value((1, 2))
    assert desk.line.text() == "1 2"
    desk.editor.set_value((1, 3))
    assert desk.line.text() == "1, 3"
    desk.line.clearFocus()
    desk.line.setText("1 3")
    desk.editor.set_value((1, 3))
    assert desk.line.text() == "1, 3"


@pytest.mark.parametrize(
    ("text", "value", "shown"),
    [
        ("", None, ""), (" ", None, ""), ("7", 7, "7"), (" 7 ", 7, "7"), ("100", 100, "100"),
        ("101", 100, "100"),
    ],
)  # fmt: skip
def test_a_number_or_none(qtbot: QtBot, text: str, value: int | None, shown: str) -> None:
    desk = Desk(qtbot, OptionalNumberEditor(INFO))
    assert desk.line.placeholderText() == "random"
    desk.editor.set_value(55)
    desk.write(text)
    assert desk.editor.value() == value
    desk.enter()
    assert (desk.line.text(), desk.edited) == (shown, [value])


def test_a_number_takes_no_letters_and_may_have_no_bound(qtbot: QtBot) -> None:
    desk = Desk(qtbot, OptionalNumberEditor(SettingInfo("Seed", "The seed.")))
    desk.write("1x2-")
    assert desk.line.text() == "12"
    desk.write(str(1 << 70))
    assert desk.editor.value() == 1 << 70


def test_ids(qtbot: QtBot) -> None:
    desk = Desk(qtbot, IdsEditor(INFO))
    desk.write("2;7,, 9a")
    assert (desk.line.text(), desk.editor.value()) == ("2;7,, 9", (2, 7, 9))
    desk.enter()
    assert (desk.line.text(), desk.edited) == ("2, 7, 9", [(2, 7, 9)])
    desk.editor.set_value(())
    assert desk.line.text() == ""


@pytest.mark.parametrize("kind", [OptionalNumberEditor, IdsEditor])
def test_a_pasted_number_of_thousands_of_digits_is_not_taken(
    qtbot: QtBot, kind: type[OptionalNumberEditor | IdsEditor]
) -> None:
    """Python converts at most 4,300."""
    desk = Desk(qtbot, kind(INFO))
    desk.line.insert("7" * 5000)
    assert desk.line.text() == ""
    desk.write("7")
    assert desk.edited == []
    desk.enter()
    assert desk.edited == [7 if kind is OptionalNumberEditor else (7,)]


def test_a_text_of_several_lines(qtbot: QtBot) -> None:
    desk = Desk(qtbot, TextEditor(INFO))
    desk.editor.set_value("one\ntwo")
    assert (desk.editor.value(), desk.typed, desk.edited) == ("one\ntwo", [], [])
    qtbot.keyClicks(desk.editor.box, "x")
    assert len(desk.typed) == 1
    assert desk.edited == []
    desk.editor.finish()
    assert desk.edited == desk.typed == [desk.editor.value()]


@pytest.mark.parametrize(
    ("escaped", "value", "shown"),
    [
        (False, ("a\nb", "c\\d", "\te"), "a\\nb\nc\\\\d\n\\te"), (True, ("a\\nb", "c\\d"), "a\\nb\nc\\d"),
        (False, (), ""),
    ],
)  # fmt: skip
def test_lines_are_a_list(qtbot: QtBot, escaped: bool, value: tuple[str, ...], shown: str) -> None:
    desk = Desk(qtbot, LinesEditor(SettingInfo("Stops", "Texts.", escaped=escaped)))
    desk.editor.set_value(value)
    assert (desk.editor.box.toPlainText(), desk.editor.value()) == (shown, value)
    desk.editor.finish()
    assert desk.edited == []


def test_empty_lines_are_no_texts_and_no_change(qtbot: QtBot) -> None:
    desk = Desk(qtbot, LinesEditor(INFO))
    desk.editor.set_value(("a",))
    desk.editor.box.setPlainText("a\n\n")
    desk.editor.set_value(("a",))
    assert desk.editor.box.toPlainText() == "a\n\n"  # it means the same, and the user may go on below
    desk.editor.finish()
    assert (desk.editor.value(), desk.edited) == (("a",), [])
    desk.editor.box.setPlainText("a\n\nb")
    desk.editor.finish()
    assert desk.edited == [("a", "b")]


def test_escapes() -> None:
    assert escape("a\n\t\r\\") == "a\\n\\t\\r\\\\"
    assert unescape("a\\n\\t\\r\\\\\\d") == "a\n\t\r\\\\d"


def test_an_editor_of_its_own_has_to_say_its_value(qtbot: QtBot) -> None:
    bare = Editor()
    qtbot.addWidget(bare)
    bare.finish()
    for call in (bare.value, lambda: bare.set_value(3)):
        with pytest.raises(AssertionError, match="Editor must"):
            call()
