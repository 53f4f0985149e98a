"""Folders, pins, trash and search in the whole window, by mouse and keyboard, over a restart."""

from __future__ import annotations

import threading

import pytest
from PySide6.QtCore import QModelIndex, Qt
from PySide6.QtGui import QAction, QImage, QPalette
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMenu, QMessageBox, QPushButton

from desktop.items.chats.chat_list import CHAT, FOLDER, UNSEEN_ROLE
from desktop.items.chats.search_hits import HIT_ROLE
from tests.desktop.hand import Hand
from tests.desktop.views.contrast import contrast

Key = Qt.Key
CTRL, SHIFT = Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.ShiftModifier


@pytest.fixture
def hand(qtbot, tmp_path):
    found = Hand(qtbot, tmp_path)
    yield found
    found.close()


def answer(hand: Hand, words: str) -> None:
    """Press a button of the question that is open."""
    box = next(box for box in hand.window.findChildren(QMessageBox) if box.isVisible())
    button = next(button for button in box.findChildren(QPushButton) if button.text() == words)
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)


def chats(hand: Hand) -> list[str]:
    return [chat.title for chat in hand.session.conversations.summaries()]


def ticked(action: QAction) -> bool:
    """Whether the menu, when it opens, shows the command with a tick."""
    for menu in (each for each in action.associatedObjects() if isinstance(each, QMenu)):
        menu.aboutToShow.emit()
    return action.isChecked()


def test_folders_pins_and_trash(hand) -> None:
    window, rows = hand.window, hand.desktop.services.chat_list.rows
    hand.load()
    for text in ("apples", "pears"):
        hand.say(text)
        hand.press(Key.Key_N, CTRL)
    hand.press(Key.Key_D, CTRL | SHIFT)
    QTest.keyClicks(QApplication.focusWidget(), "Fruit")
    hand.press(Key.Key_Return)
    (folder,) = rows.folders()
    assert folder.name == "Fruit"
    pears, apples = (chat.id for chat in hand.session.conversations.summaries() if chat.title)
    window.sidebar.list.requests.move.emit([apples, pears], folder.id)
    assert rows.shown()[rows.row_of(CHAT, pears)].depth == 1
    window.sidebar.list.setCurrentIndex(rows.index(rows.row_of(CHAT, pears)))
    chosen = window.sidebar.list.visualRect(window.sidebar.list.currentIndex())
    place = window.sidebar.list.viewport().mapTo(window, chosen.center())
    ground = window.grab().toImage().pixelColor(place.x() + chosen.width() // 2 - 12, place.y())
    assert contrast(window.palette().color(QPalette.ColorRole.WindowText).name(), ground.name()) >= 4.5
    pin = window.actions_by_name["pin"]
    assert (pin.text(), ticked(pin)) == ("Pin chat", False)
    pin.trigger()
    assert rows.shown()[1].number == pears
    window.sidebar.list.setCurrentIndex(rows.index(rows.row_of(CHAT, pears)))
    assert ticked(pin)
    window.sidebar.list.selectAll()
    assert not ticked(pin), "one of the selected chats is not pinned"
    hand.restart()
    window, rows = hand.window, hand.desktop.services.chat_list.rows
    assert rows.shown()[1].number == pears
    assert rows.shown()[rows.row_of(CHAT, apples)].depth == 1, "the folder is open as it was"
    window.sidebar.list.setFocus()
    window.sidebar.list.setCurrentIndex(rows.index(rows.row_of(FOLDER, folder.id)))
    hand.press(Key.Key_Delete)
    answer(hand, "Move to trash")
    assert [title for title in chats(hand) if title] == []
    assert window.sidebar.trash_button.text().strip() == "Trash  (2)"
    hand.click("Undo", window.chat.banner)
    assert [title for title in chats(hand) if title] == ["pears", "apples"]
    window.sidebar.list.setFocus()
    window.sidebar.list.selectionModel().clear()
    window.sidebar.list.setCurrentIndex(rows.index(rows.row_of(CHAT, pears)))
    hand.press(Key.Key_Delete)
    window.sidebar.list.setCurrentIndex(rows.index(rows.row_of(CHAT, apples)))
    window.sidebar.list.setFocus()
    hand.press(Key.Key_Delete)
    hand.click("Trash, 2 chats", window.sidebar)
    page = window.sidebar.trash
    assert page.isVisible()
    QTest.keyClick(page.list, Key.Key_Return)
    assert [title for title in chats(hand) if title] == ["apples"], (
        "what was deleted last is the first in the trash"
    )
    page.list.setCurrentIndex(page.model.index(0))
    QTest.keyClick(page.list, Key.Key_Delete)
    answer(hand, "Cancel")
    hand.click("Empty trash", page)
    answer(hand, "Delete permanently")
    hand.qtbot.waitUntil(lambda: page.nothing.isVisible())
    QTest.keyClick(page.back, Key.Key_Escape)
    assert window.sidebar.list.isVisible()


def test_what_menus_and_drags_ask_for_is_done(hand) -> None:
    """Each signal of the list and the trash, by what comes of it."""
    sidebar, rows = hand.window.sidebar, hand.desktop.services.chat_list.rows
    ask, store = sidebar.list.requests, hand.session.stores.kept
    one, two = (store.create(title).id for title in ("One", "Two"))
    hand.session.reload_conversations()
    ask.new_folder.emit(0)
    (work,) = (folder.id for folder in rows.folders())
    ask.new_folder.emit(work)
    inner = next(folder.id for folder in rows.folders() if folder.parent_id == work)
    assert rows.open_folders == {work, inner}
    ask.open_folder.emit(work, False)
    assert rows.open_folders == {inner}
    sidebar.list.folder_renamed.emit(work, "Work")
    assert rows.folder(work).name == "Work"
    ask.move_folder.emit(inner, 0, 0)
    assert [folder.id for folder in rows.folders() if folder.parent_id is None] == [inner, work]
    ask.step_folder.emit(inner, 1)
    assert [folder.id for folder in rows.folders() if folder.parent_id is None] == [work, inner]
    ask.step_folder.emit(inner, 1)  # it is the last
    assert [folder.id for folder in rows.folders() if folder.parent_id is None] == [work, inner]

    ask.move_to_new_folder.emit([one])
    made = store.get(one).folder_id
    assert made not in (None, work, inner)
    assert made in rows.open_folders
    ask.pin.emit([one], True)
    assert store.get(one).pinned
    ask.move_out.emit([one])
    assert (store.get(one).folder_id, store.get(one).pinned) == (None, False)
    ask.remove_folder.emit(made)
    assert rows.folder(made) is None
    ask.edit_folder.emit(work)
    assert hand.window.sidebar_controller.folder_dialog.isVisible()
    hand.window.sidebar_controller.folder_dialog.close()
    ask.open_folder.emit(work, False)
    ask.new_chat.emit(work)
    assert work in rows.open_folders

    sidebar.list.renamed.emit(two, "Second")
    assert store.get(two).title == "Second"
    ask.delete.emit([one, two])
    assert "Second" not in chats(hand)
    sidebar.trash.restore_requested.emit([two])
    assert "Second" in chats(hand)
    sidebar.trash.delete_requested.emit([one])
    answer(hand, "Delete permanently")
    hand.qtbot.waitUntil(lambda: hand.desktop.services.chat_list.trash() == ())
    assert "One" not in chats(hand)


@pytest.mark.slow
def test_a_hit_opens_its_variant_with_the_place_marked(hand) -> None:
    hand.load()
    hand.session.submit("first words\n\n" + "line\n\n" * 40 + "a needle at the end")
    hand.wait_for("idle")
    hand.qtbot.waitUntil(lambda: not hand.session.replying_in)
    question, _ = (item.id for item in hand.items())
    hand.session.edit(question, "another question")
    hand.wait_for("idle")
    hand.qtbot.waitUntil(lambda: not hand.session.replying_in)
    here = hand.session.conversation
    hand.press(Key.Key_N, CTRL)
    sidebar, view = hand.window.sidebar, hand.window.chat.transcript
    hand.window.actions_by_name["search"].trigger()
    QTest.keyClicks(sidebar.query, "Needle")
    hand.qtbot.waitUntil(
        lambda: sidebar.hits.messages > 0 and not hand.desktop.services.chat_list.finder.running
    )
    row = next(
        row for row in range(sidebar.hits.rowCount())
        if (hit := sidebar.hits.index(row).data(HIT_ROLE)) is not None and hit.message_id == question
    )  # fmt: skip
    place = sidebar.results.visualRect(sidebar.hits.index(row)).center()
    QTest.mouseClick(sidebar.results.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert hand.session.conversation == here
    assert hand.items()[0].id == question, "the version that has the word"
    assert view.finding.bar is not None
    assert view.finding.bar.query() == "needle"
    hand.qtbot.waitUntil(view.settled)
    present, _ = view.finding._present
    assert present.item.id == question
    widget = view.pool.widget(present)
    assert 0 <= widget.y() + widget.mark_top() < view.viewport().height()
    hand.window.sidebar.query.clear()
    hand.qtbot.waitUntil(sidebar.list.isVisible)


def test_ctrl_n_and_delete_delete_the_new_chat_alone(hand) -> None:
    hand.load()
    hand.say("Keep me")
    kept = hand.session.conversation
    hand.press(Key.Key_N, CTRL)
    assert hand.window.sidebar.list.chosen() == [hand.session.conversation] != [kept]
    hand.window.sidebar.list.setFocus()
    hand.press(Key.Key_Delete)
    assert kept in [row.id for row in hand.session.conversations.summaries()]


def test_ctrl_z_in_an_untouched_message_box_restores_a_deleted_chat(hand) -> None:
    hand.load()
    hand.say("Bring me back")
    chat = hand.session.conversation
    hand.window.actions_by_name["delete_chat"].trigger()
    assert hand.session.conversation != chat
    hand.box.setFocus()
    hand.press(Key.Key_Z, CTRL)
    assert hand.session.conversation == chat
    hand.window.actions_by_name["delete_chat"].trigger()
    hand.type("word")
    for _ in range(4):  # Typed words come first, and one word too many finds no chat.
        hand.press(Key.Key_Z, CTRL)
    assert hand.box.toPlainText() == ""
    assert hand.session.conversation != chat
    field = hand.window.sidebar.query
    field.setFocus()
    hand.press(Key.Key_Z, CTRL)
    assert hand.session.conversation == chat


def test_the_chats_above_and_below_are_opened_by_keys_as_the_list_shows_them(hand) -> None:
    hand.load()
    for text in ("oldest", "apples", "newest"):
        hand.press(Key.Key_N, CTRL)
        hand.say(text)
    window, session = hand.window, hand.session
    newest, apples, oldest = (chat.id for chat in session.conversations.summaries())
    hand.press(Key.Key_PageUp, CTRL)
    assert session.conversation == newest
    for expected in (apples, oldest, oldest):
        hand.press(Key.Key_PageDown, CTRL)
        assert session.conversation == expected
        assert hand.box.hasFocus()
        assert window.sidebar.list.currentIndex().row() == hand.desktop.services.chat_list.rows.row_of(
            CHAT, expected
        )
    window.actions_by_name["pin"].trigger()
    hand.press(Key.Key_N, CTRL | SHIFT)
    hand.press(Key.Key_PageDown, CTRL)
    assert session.conversation == oldest, "from a temporary chat to the first, which is the pinned one"
    hand.press(Key.Key_PageDown, CTRL)
    assert session.conversation == newest


def test_del_stays_in_the_list_and_goes_down_it(hand) -> None:
    hand.load()
    for text in ("lowest", "low", "middle", "top"):
        hand.press(Key.Key_N, CTRL)
        hand.say(text)
    chats, session = hand.window.sidebar.list, hand.session
    top, middle, low, lowest = (chat.id for chat in session.conversations.summaries()[:4])
    session.open_conversation(middle)
    hand.type("a draft")
    chats.setFocus()
    for opened in (low, lowest, top):  # below, and above where nothing is below
        hand.press(Key.Key_Delete)
        assert (session.conversation, chats.chosen(), chats.hasFocus()) == (opened, [opened], True)
    assert [chat.id for chat in session.conversations.summaries()] == [top]
    for _ in range(3):
        hand.press(Key.Key_Z, CTRL)
    assert (session.conversation, hand.box.toPlainText()) == (middle, "a draft")
    hand.window.actions_by_name["delete_chat"].trigger()
    assert (session.conversation, hand.box.hasFocus()) == (low, True)


def test_a_reply_that_ends_behind_another_chat_is_marked_until_it_is_seen(hand) -> None:
    hand.load()
    hand.echo.chat.pauses = {2: (goes_on := threading.Event())}
    hand.type("Go on")
    hand.press(Key.Key_Return)
    hand.qtbot.waitUntil(lambda: bool(hand.session.replying_in))
    chat, chats = hand.session.conversation, hand.window.sidebar.list

    def row() -> QModelIndex:
        return chats.model().index(hand.desktop.services.chat_list.rows.row_of(CHAT, chat), 0)

    def title() -> QImage:
        return chats.viewport().grab(chats.visualRect(row()).adjusted(0, 0, -40, 0)).toImage()

    hand.press(Key.Key_N, CTRL)
    plain = title()
    goes_on.set()
    hand.qtbot.waitUntil(lambda: row().data(UNSEEN_ROLE))
    assert title() != plain  # it is bold
    hand.session.open_conversation(chat)
    assert not row().data(UNSEEN_ROLE)
    hand.say("More")
    assert not row().data(UNSEEN_ROLE)


def test_a_chat_is_begun_in_a_folder_and_later_ones_are_not(hand) -> None:
    rows, session, ask = hand.desktop.services.chat_list.rows, hand.session, hand.window.sidebar.list.requests

    def folder_of_the_open_chat() -> int | None:
        return session.stores.kept.get(session.conversation).folder_id

    hand.load()
    hand.say("Bread")
    work, home = (hand.desktop.services.chat_list.new_folder() for _ in range(2))
    session.stores.database.execute("UPDATE folders SET system_prompt = 'At work.' WHERE id = ?", (work,))
    ask.new_chat.emit(work)
    begun = session.conversation
    assert (folder_of_the_open_chat(), session.prompt.text) == (work, "At work.")
    assert rows.shown()[rows.row_of(CHAT, begun)].depth == 1, "its folder is open"
    assert hand.box.hasFocus()
    hand.press(Key.Key_N, CTRL)
    assert folder_of_the_open_chat() is None
    ask.new_chat.emit(home)
    assert folder_of_the_open_chat() == home
    ask.new_chat.emit(work)
    assert session.conversation == begun, "it is still empty"
    hand.say("Work")
    ask.new_chat.emit(work)
    assert session.conversation != begun
    assert folder_of_the_open_chat() == work


def test_a_new_chat_is_seen_after_a_search(hand) -> None:
    hand.load()
    hand.say("Bread")
    sidebar = hand.window.sidebar
    hand.press(Key.Key_N, CTRL)
    sidebar.query.setText("bread")
    sidebar.find_now()
    hand.qtbot.waitUntil(lambda: sidebar.hits.rowCount() > 0)
    session, window = hand.session, hand.window
    ways = (
        lambda: hand.click("New chat", sidebar),
        session.new_notebook,
        lambda: window.navigation.open_chat(1),
    )
    for new in ways:
        sidebar.query.setText("nowhere")
        sidebar.find_now()
        new()
        assert sidebar.query.text() == ""
        assert sidebar.list.isVisible()
        assert sidebar.list.chosen() == [hand.session.conversation]


def test_ctrl_a_selects_all_chats_of_the_list_and_of_the_trash(hand) -> None:
    window = hand.window
    hand.load()
    for text in ("apples", "pears", "plums"):
        hand.say(text)
        hand.press(Key.Key_N, CTRL)
    window.sidebar.list.setFocus()
    hand.press(Key.Key_A, CTRL)
    assert len(window.sidebar.list.chosen()) == len(chats(hand))
    hand.press(Key.Key_Delete)
    window.sidebar.show_trash()
    window.sidebar.trash.list.setFocus()
    hand.press(Key.Key_A, CTRL)
    assert len(window.sidebar.trash.chosen()) == window.sidebar.trash.model.rowCount() >= 3
    window.sidebar.leave_trash()
    window.chat.composer.box.setFocus()
    QTest.keyClicks(window.chat.composer.box, "words")
    hand.press(Key.Key_A, CTRL)
    assert window.chat.composer.box.textCursor().selectedText() == "words"
