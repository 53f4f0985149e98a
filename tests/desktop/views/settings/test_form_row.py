"""What a row of a form says of its setting: its value, where it comes from, and why it does nothing."""

from __future__ import annotations

from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QPushButton, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from desktop.views.layout.fill import fill
from desktop.views.settings.form_row import Row, Source, levels_words, source_words, value_words
from engine.settings import SettingInfo

CHOICES = (("drop", "Drop the oldest"), ("stop", "Stop"))
INFO = SettingInfo("Top P", "Keeps the likeliest <b>tokens</b>.", low=0.0, high=1.0, step=0.01)


def made(qtbot: QtBot, info: SettingInfo = INFO, kind: Any = float, words: str = "") -> Row:
    row = Row(info, kind, words)
    qtbot.addWidget(row)
    row.resize(400, 100)
    row.show()
    return row


def shown(row: Row) -> str:
    """The word at the label that says where the value comes from."""
    source = row.findChild(Source)
    assert isinstance(source, Source)
    return source.text() if source.isVisible() else ""


@pytest.mark.parametrize(
    ("source", "short", "phrase"),
    [
        ("conversation", "this chat", "Set in this chat"), ("folder", "this folder", "Set in this folder"),
        ("model", "this model", "Saved for this model"), ("default", "", "The program's default"),
        ("makers", "model author", "Recommended by the model author"),
        ("saved default", "saved", "Your saved default"), ("preset Dry", "Dry", "From the preset Dry"),
        ("folder Work", "folder Work", "From the folder Work"),
        ("folder A long name", "A long name", "From the folder A long name"),
        ("persona Ann", "persona Ann", "From the persona Ann"),
        ("persona Anna", "persona Anna", "From the persona Anna"),
        ("persona Annab", "Annab", "From the persona Annab"),
    ],
)  # fmt: skip
def test_sources(source: str, short: str, phrase: str) -> None:
    assert source_words(source) == (short, phrase)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, "on"), (False, "off"), (0.25, "0.25"), (1e-7, "1e-07"), (3, "3"), (None, "not set"),
        ("stop", "Stop"), ("other", "other"), (("drop", "x"), "Drop the oldest, x"), ((), "empty"),
        ("", "empty"), ("a\n  b", "a b"), ("x" * 60, "x" * 60), ("x" * 61, "x" * 59 + "…"),
    ],
)  # fmt: skip
def test_values_in_a_few_words(value: Any, words: str) -> None:
    assert value_words(SettingInfo("X", "x", choices=CHOICES), value) == words


def test_numbers_have_their_unit() -> None:
    info = SettingInfo("X", "x", unit="MB")
    assert [value_words(info, value) for value in (3, 0.5, "3", True)] == ["3 MB", "0.5 MB", "3", "on"]


def test_all_sources_are_listed_where_there_are_several() -> None:
    levels = [("default", 0.9), ("model", 0.8), ("conversation", 0.5)]
    assert levels_words(INFO, levels) == (
        "Set in this chat: 0.5\nSaved for this model: 0.8\nThe program's default: 0.9"
    )
    assert levels_words(INFO, levels[:2]) == levels_words(INFO, levels[:1]) == levels_words(INFO, ()) == ""


def test_where_a_value_comes_from(qtbot: QtBot) -> None:
    row = made(qtbot)
    row.show_source("default", changed=False)
    assert (shown(row), row.reset.isVisible()) == ("", False)
    assert row.reset.sizePolicy().retainSizeWhenHidden()  # nothing moves when it is shown
    assert "<i>The program&#x27;s default.</i>" in row.toolTip()
    row.show_source("saved default", changed=True)
    qtbot.waitUntil(lambda: shown(row) == "saved")
    assert row.reset.isVisible()
    assert row.reset.toolTip() == "Your saved default. Click to reset to the program's default."
    row.show_source("makers", changed=False)
    qtbot.waitUntil(lambda: shown(row) == "model author")
    assert not row.reset.isVisible()
    row.show_source("model", changed=False)
    assert shown(row) == ""
    row.show_source("folder Work", changed=False)
    qtbot.waitUntil(lambda: shown(row) == "folder Work")
    row.show_source("persona Ann", changed=False)
    assert shown(row) == ""


def test_what_a_reset_leads_to(qtbot: QtBot) -> None:
    row = made(qtbot)
    levels = [("default", 0.9), ("model", 0.8), ("conversation", 0.5)]
    row.show_source("conversation", True, levels)
    assert row.reset.toolTip() == "Set in this chat. Click to reset to 0.8 (saved for this model)."
    assert "<b>Set in this chat: 0.5</b><br>Saved for this model: 0.8" in row.toolTip()
    assert row.accessibleDescription().endswith(
        "Set in this chat. Set in this chat: 0.5; Saved for this model: 0.8; The program's default: 0.9."
    )
    row.show_source("conversation", True, [levels[0], levels[2]])
    assert row.reset.toolTip() == "Set in this chat. Click to reset to the default."
    row.show_source("folder Work", True, [("default", 0.9), ("folder Work", 0.5)])
    assert row.reset.toolTip() == "From the folder Work. Click to use the default in this chat."


def test_why_a_setting_does_nothing(qtbot: QtBot) -> None:
    row = made(qtbot)
    row.show_source("default", changed=False)
    row.show_reason("Off with <greedy> sampling.", usable=False)
    assert not row.isEnabled()
    assert row.toolTip().startswith("<p><b>Off with &lt;greedy&gt; sampling.</b></p><p>Keeps")
    assert row.editor.accessibleDescription().startswith("Off with <greedy> sampling. Keeps")
    row.show_reason("Off with <greedy> sampling.", usable=True)
    assert row.isEnabled()
    row.show_reason("", usable=False)
    assert row.isEnabled()
    assert row.toolTip().startswith("<p>Keeps")


def test_a_sentence_below_the_editor(qtbot: QtBot) -> None:
    row = made(qtbot)
    row.show_note("Too large.")
    assert (row.note.isVisible(), row.note.text(), row.note.property("tone")) == (
        True,
        "Too large.",
        "danger",
    )
    assert row.note.accessibleName() == "Top P: Too large."
    row.show_note("Too large.", "muted")
    assert row.note.property("tone") == "muted"
    row.show_note("")
    assert (row.note.isVisible(), row.note.accessibleName()) == (False, "")


def test_a_search_marks_the_label_or_says_where_else_it_matches(qtbot: QtBot) -> None:
    row = made(qtbot, words="nucleus_sampling top_p")
    assert row.label is not None
    row.show_found(["top"])
    assert row.label.textFormat() == Qt.TextFormat.RichText
    assert "Top" in row.label.text() != "Top P"
    assert row.found is None
    row.show_found(["likeliest"])
    assert row.label.text() == "Top P"
    assert row.found is not None
    assert row.found.isVisible()
    assert "likeliest" in row.found.text()
    assert row.found.textFormat() == Qt.TextFormat.RichText
    row.show_found(["nucleus"])
    assert "Also found as: " in row.found.text()
    assert "top_p" not in row.found.text()
    row.show_found([])
    assert (row.found.isVisible(), row.label.text()) == (False, "Top P")
    row.show_found(["top"])
    row.rename("Typical P")
    assert (row.label.text(), row.label.textFormat()) == ("Typical P", Qt.TextFormat.PlainText)
    row.show_found(["typical"])
    assert row.label.text().endswith("</span> P")
    row.show_found([])
    assert row.label.text() == "Typical P"


def test_a_search_finds_choices_and_explanations(qtbot: QtBot) -> None:
    row = made(qtbot, SettingInfo("When full", "What to do.", choices=CHOICES), str)
    row.show_found(["oldest"])
    assert row.found is not None
    assert "oldest" in row.found.text()
    row.explain()
    assert row.explained is not None
    assert row.explained.text() == "What to do."
    row.show_found(["what"])
    assert row.explained.textFormat() == Qt.TextFormat.RichText
    assert not row.found.isVisible()
    row.show_source("conversation", changed=True)
    assert shown(row) == ""


def test_units_stand_at_the_label_unless_it_names_them(qtbot: QtBot) -> None:
    for label, text in (("Cache", "Cache (MB)"), ("Cache in mb", "Cache in mb (MB)")):
        row = made(qtbot, SettingInfo(label, "x", low=0, high=9, unit="MB"), int)
        assert row.label is not None
        assert row.label.text() == text
    row = made(qtbot, SettingInfo("Threads", "x", low=0, high=9, unit="threads"), int)
    assert row.label is not None
    assert row.label.text() == "Threads"


def test_a_row_is_in_use_while_its_editor_has_the_focus(qtbot: QtBot) -> None:
    row = made(qtbot)
    row.activateWindow()
    assert row.editor.beside is not None
    row.editor.beside.setFocus()
    QApplication.processEvents()
    assert row.in_use()
    row.hide()
    assert not row.in_use()


@pytest.mark.parametrize(("kind", "info"), [(float, INFO), (bool, SettingInfo("Quiet", "Says less."))])
def test_a_reset_leaves_the_keyboard_in_its_row(qtbot: QtBot, kind: Any, info: SettingInfo) -> None:
    form = QWidget()
    qtbot.addWidget(form)
    row, following = Row(info, kind), QPushButton("The next setting")
    fill(QVBoxLayout(form), row, following)
    form.show()
    row.show_source("conversation", True)
    qtbot.waitExposed(form)
    form.activateWindow()
    row.reset.setFocus()
    qtbot.waitUntil(row.reset.hasFocus)
    row.show_source("default", False)
    focused = QApplication.focusWidget()
    assert focused is not None
    assert focused is row.editor or row.editor.isAncestorOf(focused)
