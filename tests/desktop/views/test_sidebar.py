"""The sidebar: groups, search, renaming in place, and no key that deletes."""

import datetime

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QApplication, QLineEdit

from desktop.items.conversations import ConversationsModel
from desktop.store.records import ConversationSummary, SearchHit
from desktop.views.sidebar import Sidebar

TODAY = datetime.date(2026, 5, 20)
NOON = datetime.datetime(2026, 5, 20, 12).timestamp()
DAY = 86400.0


@pytest.fixture
def model(qapp):
    found = ConversationsModel(today=lambda: TODAY)
    found.reset(
        [
            ConversationSummary(1, "Rainbows", NOON),
            ConversationSummary(2, "Bread", NOON - 60),
            ConversationSummary(3, "Old bread", NOON - DAY),
            ConversationSummary(4, "Older", NOON - 100 * DAY),
        ]
    )
    return found


@pytest.fixture
def sidebar(qtbot, model):
    asked: list[str] = []

    def search(query):
        asked.append(query)
        return [SearchHit(9, 4, "Older", "… rye and wheat …", NOON)] if "wheat" in query else []

    widget = Sidebar(model, search)
    qtbot.addWidget(widget)
    widget.resize(240, 500)
    widget.show()
    widget.asked = asked
    return widget


def headings(view) -> list[str]:
    return [view._painter.heading(view.model().index(row, 0)) for row in range(view.model().rowCount())]


def test_a_heading_stands_where_a_group_begins(sidebar) -> None:
    assert headings(sidebar.list) == ["Today", "", "Yesterday", "February 2026"]
    heights = [sidebar.list.sizeHintForIndex(sidebar.list.model().index(row, 0)).height() for row in range(4)]
    assert heights[0] > heights[1]


def test_click_and_enter_open(sidebar, qtbot) -> None:
    view = sidebar.list
    place = view.visualRect(view.model().index(1, 0)).center()
    with qtbot.waitSignal(sidebar.opened) as opened:
        qtbot.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(40, place.y()))
    assert opened.args == [2]
    view.setCurrentIndex(view.model().index(2, 0))
    with qtbot.waitSignal(sidebar.opened) as opened:
        qtbot.keyClick(view, Qt.Key.Key_Return)
    assert opened.args == [3]


def test_the_open_chat_stays_marked_when_the_list_moves(sidebar, model) -> None:
    sidebar.set_open(3)
    assert sidebar.list.currentIndex().row() == 2
    model.put(ConversationSummary(3, "Old bread", NOON + 5))
    assert sidebar.list.currentIndex().row() == 0
    model.remove(3)
    assert not sidebar.list.selectedIndexes() or sidebar.list.selectedIndexes()[0].row() != 0


def test_search_finds_titles_and_texts_after_a_pause(sidebar, qtbot) -> None:
    qtbot.keyClicks(sidebar.query, "bread")
    assert sidebar.asked == []
    qtbot.waitUntil(lambda: sidebar.asked == ["bread"])
    assert sidebar.results.isVisible()
    assert [sidebar.hits.index(row, 0).data() for row in range(sidebar.hits.rowCount())] == ["Bread", "Old bread"]
    sidebar.query.setText("wheat")
    qtbot.waitUntil(lambda: sidebar.asked[-1] == "wheat")
    assert sidebar.hits.rowCount() == 1
    place = sidebar.results.visualRect(sidebar.hits.index(0, 0)).center()
    with qtbot.waitSignal(sidebar.message_opened) as opened:
        qtbot.mouseClick(sidebar.results.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert opened.args == [9]
    sidebar.query.setText("nowhere")
    qtbot.waitUntil(sidebar.nothing.isVisible)
    assert "nowhere" in sidebar.nothing.text()


def test_escape_empties_the_search_then_leaves(sidebar, qtbot) -> None:
    sidebar.query.setText("bread")
    qtbot.keyClick(sidebar.query, Qt.Key.Key_Escape)
    assert sidebar.query.text() == ""
    assert sidebar.list.isVisible()
    with qtbot.waitSignal(sidebar.escaped):
        qtbot.keyClick(sidebar.query, Qt.Key.Key_Escape)


def rename_box(sidebar) -> QLineEdit:
    return next(box for box in sidebar.list.findChildren(QLineEdit) if box.accessibleName() == "Title of the chat")


def test_rename_in_place(sidebar, qtbot) -> None:
    sidebar.begin_rename(2)
    box = rename_box(sidebar)
    assert box.text() == "Bread"
    box.selectAll()
    qtbot.keyClicks(box, "Sourdough")
    with qtbot.waitSignal(sidebar.renamed) as renamed:
        qtbot.keyClick(box, Qt.Key.Key_Return)
    assert renamed.args == [2, "Sourdough"]


def test_escape_leaves_the_title(sidebar, qtbot) -> None:
    sidebar.begin_rename(2)
    box = rename_box(sidebar)
    qtbot.keyClicks(box, "x")
    with qtbot.assertNotEmitted(sidebar.renamed):
        qtbot.keyClick(box, Qt.Key.Key_Escape)


def test_context_menu_renames_and_deletes(sidebar, qtbot) -> None:
    menu = sidebar.list.menu_for(sidebar.list.model().index(0, 0))
    qtbot.addWidget(menu)
    actions = {action.text().split("\t")[0]: action for action in menu.actions()}
    with qtbot.waitSignal(sidebar.delete_requested) as wanted:
        actions["Delete"].trigger()
    assert wanted.args == [1]
    actions["Rename"].trigger()
    assert rename_box(sidebar).text() == "Rainbows"


def test_no_bare_key_deletes(sidebar, qtbot) -> None:
    sidebar.set_open(1)
    with qtbot.assertNotEmitted(sidebar.delete_requested):
        for key in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace):
            qtbot.keyClick(sidebar.list, key)


def test_empty_list_says_so(qtbot, qapp) -> None:
    model = ConversationsModel()
    sidebar = Sidebar(model, lambda query: [])
    qtbot.addWidget(sidebar)
    sidebar.show()
    assert sidebar.nothing.isVisible()
    model.put(ConversationSummary(1, "First", NOON))
    assert sidebar.list.isVisible()


def test_ten_thousand_chats_do_not_hold_up_the_window(qtbot, qapp) -> None:
    model = ConversationsModel()
    sidebar = Sidebar(model, lambda query: [])
    qtbot.addWidget(sidebar)
    sidebar.resize(240, 600)
    sidebar.show()
    model.reset(ConversationSummary(n, f"Chat {n}", NOON - n * 3000) for n in range(1, 10_001))
    sidebar.set_open(9000)
    QApplication.processEvents()
    assert sidebar.list.currentIndex().row() == 8999
