"""The page of deleted chats alone: several at once, by mouse and keys; what is offered when."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QContextMenuEvent
from PySide6.QtWidgets import QApplication, QMenu
from pytestqt.qtbot import QtBot

from desktop.store.conversations.records import ConversationSummary
from desktop.views.sidebar.trash_page import TrashPage

pytestmark = pytest.mark.gui
Key = Qt.Key
ROWS = [ConversationSummary(number, f"Chat {number}", 5.0, deleted_at=9.0) for number in (4, 7, 2)]


@pytest.fixture
def page(qtbot: QtBot) -> TrashPage:
    found = TrashPage()
    qtbot.addWidget(found)
    found.resize(260, 400)
    found.show()
    found.show_rows(ROWS, 30)
    return found


def click(
    qtbot: QtBot, page: TrashPage, row: int, modifier: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier
) -> None:
    place = page.list.visualRect(page.model.index(row)).center()
    qtbot.mouseClick(page.list.viewport(), Qt.MouseButton.LeftButton, modifier, place)


def test_the_chosen_chats_are_restored_or_deleted_in_their_order(page: TrashPage, qtbot: QtBot) -> None:
    click(qtbot, page, 2)
    click(qtbot, page, 1, Qt.KeyboardModifier.ShiftModifier)
    assert page.chosen() == [7, 2]
    with qtbot.waitSignal(page.restore_requested) as restored:
        qtbot.keyClick(page.list, Key.Key_Return)
    with qtbot.waitSignal(page.delete_requested) as deleted:
        qtbot.keyClick(page.list, Key.Key_Delete)
    assert restored.args == deleted.args == [[7, 2]]
    with qtbot.waitSignal(page.restore_requested):
        qtbot.mouseClick(page.restore_button, Qt.MouseButton.LeftButton)
    with qtbot.waitSignal(page.delete_requested):
        qtbot.mouseClick(page.delete_button, Qt.MouseButton.LeftButton)
    with qtbot.waitSignal(page.left):
        qtbot.keyClick(page.list, Key.Key_Escape)


def test_nothing_is_offered_without_a_chosen_chat(page: TrashPage, qtbot: QtBot) -> None:
    asked: list[object] = []
    page.restore_requested.connect(asked.append)
    page.delete_requested.connect(asked.append)
    click(qtbot, page, 0)
    assert page.chosen() == [4]
    assert page.restore_button.isEnabled()
    assert page.delete_button.isEnabled()
    page.list.clearSelection()
    assert not page.restore_button.isEnabled()
    assert not page.delete_button.isEnabled()
    qtbot.keyClick(page.list, Key.Key_Return)
    qtbot.keyClick(page.list, Key.Key_Delete)
    here = QPoint(20, 20)
    QApplication.sendEvent(
        page.list.viewport(), QContextMenuEvent(QContextMenuEvent.Reason.Mouse, here, page.mapToGlobal(here))
    )
    assert asked == []
    assert page.list.findChildren(QMenu) == []


def test_an_empty_trash_says_so(page: TrashPage) -> None:
    assert page.list.isVisible()
    assert not page.nothing.isVisible()
    assert page.empty.isEnabled()
    page.show_rows((), 30)
    assert not page.list.isVisible()
    assert page.nothing.isVisible()
    assert not page.empty.isEnabled()
    assert not page.restore_button.isEnabled()


@pytest.mark.parametrize("reason", list(QContextMenuEvent.Reason)[:2])
def test_the_menu_is_for_all_chosen_chats_and_comes_where_it_is_asked_for(
    page: TrashPage, qtbot: QtBot, reason: QContextMenuEvent.Reason
) -> None:
    click(qtbot, page, 0)
    click(qtbot, page, 1, Qt.KeyboardModifier.ControlModifier)
    asked = page.list.viewport().mapToGlobal(QPoint(40, 300))
    QApplication.sendEvent(page.list.viewport(), QContextMenuEvent(reason, QPoint(40, 300), asked))
    (menu,) = page.list.findChildren(QMenu)
    row = page.list.visualRect(page.list.currentIndex())
    by_keys = page.list.viewport().mapToGlobal(row.center())
    expected = asked if reason == QContextMenuEvent.Reason.Mouse else by_keys
    assert (menu.pos() - expected).manhattanLength() < 10
    restore, _line, delete = menu.actions()
    assert (restore.text(), delete.text()) == ("Restore", "Delete permanently…\tDel")
    with qtbot.waitSignal(page.restore_requested) as restored:
        restore.trigger()
    with qtbot.waitSignal(page.delete_requested) as deleted:
        delete.trigger()
    assert restored.args == deleted.args == [[4, 7]]
    with qtbot.waitSignal(menu.destroyed):
        menu.close()
