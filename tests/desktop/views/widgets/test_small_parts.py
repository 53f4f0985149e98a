"""Small shared parts: groups that a search opens, elided lines, facts, boxes with an input method."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QEvent
from PySide6.QtGui import QFocusEvent, QInputMethodEvent
from PySide6.QtWidgets import QApplication, QLabel, QListWidget, QWidget
from pytestqt.qtbot import QtBot

from desktop.views.widgets.collapsible import Group
from desktop.views.widgets.elided_label import ElidedLabel
from desktop.views.widgets.empty_state import EmptyState
from desktop.views.widgets.facts_grid import FactsGrid
from desktop.views.widgets.growing_text_edit import FittedTextEdit

pytestmark = pytest.mark.gui


@pytest.mark.parametrize("opened", [False, True])
def test_a_search_opens_or_hides_a_group_and_leaves_it_as_it_was(qtbot: QtBot, opened: bool) -> None:
    group = Group("Answer length", QWidget(), opened)
    qtbot.addWidget(group)

    def state() -> tuple[bool, bool, str]:
        content, header = group.content.isHidden(), group.header
        assert header.isChecked() is not content
        return group.isHidden(), content, header.accessibleDescription()

    group.show()
    before = (False, not opened, "expanded" if opened else "collapsed")
    assert state() == before
    group.show_search(True)
    assert state() == (False, False, "expanded")
    group.show_search(False)
    assert (group.isHidden(), group.opened) == (True, opened)
    group.show_search(None)
    assert state() == before
    group.show_note("2 changed")
    assert state()[2] == f"{before[2]}, 2 changed"
    for words, found in ((["length"], True), (["length", "x"], True), (["none"], False), ([], False)):
        group.show_found(words)
        assert bool(group.header.property("found")) is found
    group.header.click()
    assert group.opened is not opened


def test_an_elided_line_says_all_its_words(qtbot: QtBot) -> None:
    label, bold, plain = ElidedLabel("One two", "Queued"), ElidedLabel("Four", bold=True), ElidedLabel("Four")
    for each in (label, bold, plain):
        qtbot.addWidget(each)
        each.resize(200, 30)
    assert (label.accessibleName(), label.toolTip()) == ("Queued: One two", "One two")
    before = label.grab().toImage()
    label.show_words("Four")
    assert (label.words, label.accessibleName(), label.toolTip()) == ("Four", "Queued: Four", "Four")
    assert label.grab().toImage() != before
    assert label.grab().toImage() == plain.grab().toImage()
    assert bold.grab().toImage() != plain.grab().toImage()
    assert plain.accessibleName() == "Four"
    assert label.minimumSizeHint() == label.sizeHint()
    assert (label.sizeHint().width(), label.sizeHint().height()) == (0, label.fontMetrics().height() + 6)
    label.show_words("word " * 50)
    assert label.grab().toImage() != before


def test_facts_are_cleared(qtbot: QtBot) -> None:
    facts = FactsGrid()
    qtbot.addWidget(facts)
    facts.add(QLabel("Title"), QLabel("Value"))
    facts.clear()
    assert all(label.isHidden() for label in facts.findChildren(QLabel))
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
    assert (facts.pairs, facts.findChildren(QLabel)) == ([], [])
    facts.add(QLabel("Title"), QLabel("Other"))
    assert [value.text() for _title, value in facts.pairs] == ["Other"]


def test_a_word_is_composed_in_a_box(qtbot: QtBot) -> None:
    box = FittedTextEdit(1, 4, 8)
    qtbot.addWidget(box)
    composing, chosen = QInputMethodEvent("かな", []), QInputMethodEvent()
    chosen.setCommitString("仮名")
    QApplication.sendEvent(box, composing)
    assert (box.composing, box.toPlainText()) == (True, "")
    assert box.document().firstBlock().layout().preeditAreaText() == "かな"
    QApplication.sendEvent(box, chosen)
    assert (box.composing, box.toPlainText()) == (False, "仮名")
    QApplication.sendEvent(box, composing)
    QApplication.sendEvent(box, QFocusEvent(QEvent.Type.FocusOut))
    assert not box.composing


def test_an_empty_list_says_why(qtbot: QtBot) -> None:
    view = QListWidget()
    qtbot.addWidget(view)
    words = EmptyState(view, "No chats yet")
    assert (view.accessibleDescription(), words.isHidden()) == ("No chats yet", False)
    words.say("No matching chats")
    assert (view.accessibleDescription(), words.text()) == ("No matching chats", "No matching chats")
    view.addItem("A chat")
    assert (view.accessibleDescription(), words.isHidden()) == ("", True)
    view.clear()
    assert (view.accessibleDescription(), words.isHidden()) == ("No matching chats", False)
