"""The sidebar alone: opening, selection, keys, menus, dragging, renaming in place, its pages."""

import datetime

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QDragMoveEvent, QDropEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLineEdit

from desktop.items.chats.chat_list import CHAT, FOLDER, ChatListModel
from desktop.items.chats.conversations import ConversationsModel
from desktop.store.conversations.folders import Folder
from desktop.store.conversations.records import ConversationSummary, SearchHit
from desktop.views.sidebar.drop_targets import Landing
from desktop.views.sidebar.sidebar import Sidebar

TODAY = datetime.date(2026, 5, 20)
NOON = datetime.datetime(2026, 5, 20, 12).timestamp()
DAY = 86400.0
Key, CTRL, SHIFT = Qt.Key, Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.ShiftModifier


@pytest.fixture
def model(qapp):
    found = ConversationsModel(today=lambda: TODAY)
    found.reset(
        [
            ConversationSummary(1, "Rainbows", NOON),
            ConversationSummary(2, "Bread", NOON - 60),
            ConversationSummary(3, "Old bread", NOON - DAY),
            ConversationSummary(5, "Inside", NOON - 2 * DAY, 7),
            ConversationSummary(4, "Older", NOON - 100 * DAY),
        ]
    )
    return found


@pytest.fixture
def sidebar(qtbot, model):
    rows = ChatListModel(model, today=lambda: TODAY)
    rows.set_folders([Folder(7, None, "Work", 0, {}, ""), Folder(8, None, "Home", 1, {}, "")])
    rows.set_open_folders({7})
    widget = Sidebar(rows)
    widget.rows = rows
    qtbot.addWidget(widget)
    widget.resize(260, 600)
    widget.show()
    widget.list.requests.open_folder.connect(
        lambda number, opened: rows.set_open_folders(
            rows.open_folders | {number} if opened else rows.open_folders - {number}
        )
    )
    return widget


def index_of(sidebar, number: int, kind: str = CHAT):
    return sidebar.rows.index(sidebar.rows.row_of(kind, number))


def click(qtbot, sidebar, number: int, kind: str = CHAT, modifier=Qt.KeyboardModifier.NoModifier) -> None:
    place = sidebar.list.visualRect(index_of(sidebar, number, kind)).center()
    qtbot.mouseClick(sidebar.list.viewport(), Qt.MouseButton.LeftButton, modifier, QPoint(80, place.y()))


def test_rows_are_equally_high_and_headings_are_skipped(sidebar, qtbot) -> None:
    heights = {
        sidebar.list.visualRect(sidebar.rows.index(row)).height() for row in range(sidebar.rows.rowCount())
    }
    assert len(heights) == 1
    sidebar.list.setCurrentIndex(index_of(sidebar, 8, FOLDER))
    qtbot.keyClick(sidebar.list, Key.Key_Down)
    assert sidebar.list.currentIndex() == index_of(sidebar, 1), "the heading Today is not stopped at"


def test_click_and_enter_open(sidebar, qtbot) -> None:
    with qtbot.waitSignal(sidebar.opened) as opened:
        click(qtbot, sidebar, 2)
    assert opened.args == [2]
    sidebar.list.setCurrentIndex(index_of(sidebar, 3))
    with qtbot.waitSignal(sidebar.opened) as opened:
        qtbot.keyClick(sidebar.list, Key.Key_Return)
    assert opened.args == [3]


def test_folders_open_and_close_by_mouse_and_keys(sidebar, qtbot) -> None:
    click(qtbot, sidebar, 7, FOLDER)
    assert sidebar.rows.row_of(CHAT, 5) == -1
    sidebar.list.setCurrentIndex(index_of(sidebar, 7, FOLDER))
    qtbot.keyClick(sidebar.list, Key.Key_Right)
    assert sidebar.rows.row_of(CHAT, 5) >= 0
    sidebar.list.setCurrentIndex(index_of(sidebar, 5))
    qtbot.keyClick(sidebar.list, Key.Key_Left)
    assert sidebar.list.currentIndex() == index_of(sidebar, 7, FOLDER)
    qtbot.keyClick(sidebar.list, Key.Key_Left)
    assert sidebar.rows.open_folders == frozenset()
    sidebar.list.setLayoutDirection(Qt.LayoutDirection.RightToLeft)
    qtbot.keyClick(sidebar.list, Key.Key_Left)
    assert sidebar.rows.open_folders == {7}


def test_several_are_selected_without_opening_and_deleted_together(sidebar, qtbot) -> None:
    click(qtbot, sidebar, 1)
    with qtbot.assertNotEmitted(sidebar.opened):
        click(qtbot, sidebar, 3, modifier=CTRL)
    assert sidebar.list.chosen() == [1, 3]
    with qtbot.waitSignal(sidebar.list.requests.delete) as expected:
        qtbot.keyClick(sidebar.list, Key.Key_Delete)
    assert expected.args == [[1, 3]]
    menu = sidebar.list.menu_for(index_of(sidebar, 3))
    qtbot.addWidget(menu)
    actions = {action.text().split("\t")[0]: action for action in menu.actions()}
    with qtbot.waitSignal(sidebar.list.requests.export) as expected:
        actions["Export 2 chats…"].trigger()
    assert expected.args == [[1, 3]]
    with qtbot.waitSignal(sidebar.list.requests.pin) as pinned:
        actions["Pin 2 chats"].trigger()
    assert pinned.args == [[1, 3], True]
    with qtbot.waitSignal(sidebar.list.requests.move) as moved:
        next(
            action for action in actions["Move to folder"].menu().actions() if action.text() == "Home"
        ).trigger()
    assert moved.args == [[1, 3], 8]
    qtbot.keyClick(sidebar.list, Key.Key_A, CTRL)
    assert sidebar.list.chosen() == [5, 1, 2, 3, 4]


def test_menus_of_a_folder_and_of_one_chat(sidebar, qtbot) -> None:
    menu = sidebar.list.menu_for(index_of(sidebar, 7, FOLDER))
    qtbot.addWidget(menu)
    actions = {action.text().split("\t")[0]: action for action in menu.actions()}
    with qtbot.waitSignal(sidebar.list.requests.edit_folder) as expected:
        actions["Settings and prompt…"].trigger()
    assert expected.args == [7]
    with qtbot.waitSignal(sidebar.list.requests.remove_folder) as expected:
        actions["Remove…"].trigger()
    assert expected.args == [7]
    sidebar.set_open(1)
    menu = sidebar.list.menu_for(index_of(sidebar, 2))
    qtbot.addWidget(menu)
    actions = {action.text().split("\t")[0]: action for action in menu.actions()}
    with qtbot.waitSignal(sidebar.list.requests.delete) as expected:
        actions["Delete"].trigger()
    assert expected.args == [[2]], "the row under the pointer, not the chosen one"


def drag(sidebar, numbers, target, share=0.5, kind=CHAT):
    """Drop rows onto another one; returns whether it was taken."""
    data = sidebar.rows.mimeData([index_of(sidebar, number, kind) for number in numbers])
    rect = sidebar.list.visualRect(target)
    place = (
        QPointF(80, rect.top() + rect.height() * share)
        if target.isValid()
        else QPointF(80, sidebar.list.viewport().height() - 2)
    )
    args = (Qt.DropAction.MoveAction, data, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier)
    over = QDragMoveEvent(place.toPoint(), *args)
    sidebar.list.dragMoveEvent(over)
    sidebar.list.viewport().repaint()
    sidebar.list.dropEvent(QDropEvent(place, *args))
    return over.isAccepted()


def test_dragging(sidebar, qtbot) -> None:
    rows = sidebar.list
    with qtbot.waitSignal(rows.requests.move) as moved:
        assert drag(sidebar, [1, 3], index_of(sidebar, 8, FOLDER))
    assert moved.args == [[1, 3], 8]
    with qtbot.waitSignal(rows.requests.move_out) as out:
        assert drag(sidebar, [5], index_of(sidebar, 2))
    assert out.args == [[5]]
    with qtbot.waitSignal(rows.requests.move_folder) as moved:
        assert drag(sidebar, [8], index_of(sidebar, 7, FOLDER), 0.05, FOLDER)
    assert moved.args == [8, 0, 0]
    with qtbot.waitSignal(rows.requests.move_folder) as moved:
        assert drag(sidebar, [7], sidebar.rows.index(-1), kind=FOLDER)
    assert moved.args == [7, 0, -1]
    assert not drag(sidebar, [7], index_of(sidebar, 5), kind=FOLDER), "not into itself"
    sidebar.rows.set_open_folders(())
    rows._show_landing(Landing("move", 8, row=3))
    qtbot.waitUntil(lambda: 8 in sidebar.rows.open_folders)


def test_the_open_chat_stays_marked_when_the_list_moves(sidebar, model) -> None:
    sidebar.set_open(3)
    assert sidebar.list.currentIndex() == index_of(sidebar, 3)
    model.put(ConversationSummary(3, "Old bread", NOON + 5))
    assert sidebar.list.currentIndex() == index_of(sidebar, 3)
    assert sidebar.list.chosen() == [3]
    sidebar.set_open(0)
    assert sidebar.list.chosen() == []


def test_search_starts_after_a_pause_and_shows_its_hits(sidebar, qtbot) -> None:
    asked: list[str] = []
    sidebar.searched.connect(asked.append)
    qtbot.keyClicks(sidebar.query, "wheat")
    assert asked == []
    qtbot.waitUntil(lambda: asked == ["wheat"])
    hit = SearchHit(9, 4, "Older", "… rye and wheat …", NOON, ((10, 15),))
    sidebar.hits.add([hit])
    sidebar.search.show_state("wheat", False, more=True)
    assert sidebar.search.state.text() == "1 message in 1 chat"
    with qtbot.waitSignal(sidebar.search.more_requested):
        qtbot.mouseClick(sidebar.search.more, Qt.MouseButton.LeftButton)
    with qtbot.waitSignal(sidebar.results.hit_opened) as opened:
        place = sidebar.results.visualRect(sidebar.hits.index(1, 0)).center()
        qtbot.mouseClick(sidebar.results.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert opened.args == [hit]
    sidebar.results.setCurrentIndex(sidebar.hits.index(0, 0))
    with qtbot.waitSignal(sidebar.opened) as opened:
        qtbot.keyClick(sidebar.results, Key.Key_Return)
    assert opened.args == [4]
    sidebar.hits.begin(())
    sidebar.search.show_state("nowhere", False)
    assert "nowhere" in sidebar.search.state.text()
    assert not sidebar.results.isVisible()


def test_escape_empties_the_search_then_leaves(sidebar, qtbot) -> None:
    sidebar.query.setText("bread")
    qtbot.keyClick(sidebar.query, Key.Key_Escape)
    assert sidebar.query.text() == ""
    assert sidebar.list.isVisible()
    with qtbot.waitSignal(sidebar.escaped):
        qtbot.keyClick(sidebar.query, Key.Key_Escape)


def box_of(sidebar, name: str) -> QLineEdit:
    return next(
        box
        for box in sidebar.list.findChildren(QLineEdit)
        if box.accessibleName() == name and not box.isHidden()
    )


def test_rename_in_place(sidebar, qtbot) -> None:
    sidebar.begin_rename(2)
    box = box_of(sidebar, "Title of the chat")
    assert box.text() == "Bread"
    qtbot.keyClicks(box, "Sourdough")
    with qtbot.waitSignal(sidebar.list.renamed) as renamed, qtbot.assertNotEmitted(sidebar.opened):
        qtbot.keyClick(box, Key.Key_Return)
    assert renamed.args == [2, "Sourdough"]
    sidebar.list.setCurrentIndex(index_of(sidebar, 7, FOLDER))
    qtbot.keyClick(sidebar.list, Key.Key_F2)
    box = box_of(sidebar, "Name of the folder")
    assert box.text() == "Work"
    qtbot.keyClicks(box, "x")
    with qtbot.assertNotEmitted(sidebar.list.folder_renamed):
        qtbot.keyClick(box, Key.Key_Escape)


def boxes(sidebar) -> list[QLineEdit]:
    return [box for box in sidebar.list.findChildren(QLineEdit) if not box.isHidden()]


def test_a_title_editor_disappears_when_it_is_left(sidebar, qtbot) -> None:
    with qtbot.waitActive(sidebar):
        sidebar.activateWindow()
    with qtbot.assertNotEmitted(sidebar.list.renamed):
        sidebar.begin_rename(2)
        sidebar.query.setFocus()  # nothing was typed
        assert boxes(sidebar) == []
        for number in (1, 2, 3):
            sidebar.begin_rename(number)
            assert [box.text() for box in boxes(sidebar)] == [index_of(sidebar, number).data()]
        qtbot.keyClick(boxes(sidebar)[0], Key.Key_Return)
        assert boxes(sidebar) == []
    sidebar.begin_rename(2)
    qtbot.keyClicks(boxes(sidebar)[0], "Rye")
    with qtbot.waitSignal(sidebar.list.renamed) as renamed:
        sidebar.query.setFocus()
    assert renamed.args == [2, "Rye"]


def test_a_title_editor_moves_with_its_row(sidebar, model) -> None:
    sidebar.begin_rename(3)
    (box,) = boxes(sidebar)
    for chat in (ConversationSummary(9, "New", NOON + 60), ConversationSummary(3, "Old bread", NOON + 90)):
        model.put(chat)
        assert box.geometry().center().y() == sidebar.list.visualRect(index_of(sidebar, 3)).center().y()
    model.remove(3)
    assert boxes(sidebar) == []


@pytest.mark.parametrize("several", [(2,), (2, 3)])
def test_a_new_chat_is_the_only_one_selected_while_ctrl_is_pressed(sidebar, model, qtbot, several) -> None:
    sidebar.set_open(2)
    for number in several[1:]:
        click(qtbot, sidebar, number, modifier=CTRL)
    assert sidebar.list.chosen() == list(several)
    model.put(ConversationSummary(9, "", NOON + 60))
    QTest.keyPress(sidebar.list, Key.Key_Control)
    QTest.keyPress(sidebar.list, Key.Key_N, CTRL)
    sidebar.set_open(9)
    assert sidebar.list.chosen() == [9]
    QTest.keyRelease(sidebar.list, Key.Key_N, CTRL)
    QTest.keyRelease(sidebar.list, Key.Key_Control)


def test_opening_one_of_several_selected_chats_keeps_the_selection(sidebar, qtbot) -> None:
    click(qtbot, sidebar, 1)
    click(qtbot, sidebar, 3, modifier=CTRL)
    sidebar.set_open(3)
    assert sidebar.list.chosen() == [1, 3]


def test_a_search_that_did_not_find_the_opened_chat_is_left(sidebar, model) -> None:
    sidebar.query.setText("wheat")
    sidebar.find_now()
    sidebar.hits.add([SearchHit(9, 4, "Older", "… rye and wheat …", NOON, ((10, 15),))])
    sidebar.set_open(4)
    assert sidebar.query.text() == "wheat"
    sidebar.set_open(-5)  # a temporary chat is in no list
    assert sidebar.query.text() == "wheat"
    model.put(ConversationSummary(11, "", NOON + 60))
    sidebar.set_open(11)
    assert sidebar.query.text() == ""
    assert sidebar.list.isVisible()
    sidebar.show_trash()
    sidebar.set_open(1)
    assert sidebar.list.isVisible()


def test_empty_list_says_so(qtbot, qapp) -> None:
    model = ConversationsModel()
    sidebar = Sidebar(ChatListModel(model))
    qtbot.addWidget(sidebar)
    sidebar.show()
    assert sidebar.nothing.isVisible()
    model.put(ConversationSummary(1, "First", NOON))
    assert sidebar.list.isVisible()


def test_ten_thousand_chats_do_not_slow_down_the_window(qtbot, qapp) -> None:
    model = ConversationsModel()
    rows = ChatListModel(model)
    sidebar = Sidebar(rows)
    qtbot.addWidget(sidebar)
    sidebar.resize(240, 600)
    sidebar.show()
    model.reset(ConversationSummary(n, f"Chat {n}", NOON - n * 3000) for n in range(1, 10_001))
    sidebar.set_open(9000)
    QApplication.processEvents()
    assert sidebar.list.chosen() == [9000]
    assert sidebar.list.viewport().rect().contains(sidebar.list.visualRect(sidebar.list.currentIndex()))
