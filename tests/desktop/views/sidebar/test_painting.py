"""What the rows of the sidebar's pages show: their words, the words that were found, the open and the chosen
one.
"""

from __future__ import annotations

import pytest
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QListView, QWidget
from pytestqt.qtbot import QtBot

from desktop.store.conversations.records import ConversationSummary, SearchHit
from desktop.views.sidebar.search_page import SearchPage
from desktop.views.sidebar.trash_page import TrashPage

pytestmark = pytest.mark.gui
LONG = "Bread and how it is baked at home in the evening when the oven is free again"
Spans = tuple[tuple[int, int], ...]


def shown(qtbot: QtBot, page: QWidget) -> None:
    qtbot.addWidget(page)
    page.resize(260, 400)
    page.show()


def row(view: QListView, number: int) -> QImage:
    """The picture of a row."""
    return view.viewport().grab(view.visualRect(view.model().index(number, 0))).toImage()


@pytest.fixture
def search(qtbot: QtBot) -> SearchPage:
    found = SearchPage()
    shown(qtbot, found)
    return found


def find(
    page: SearchPage, title: str = "Bread", spans: Spans = (), words: str = "", marks: Spans = ()
) -> None:
    page.hits.begin([(ConversationSummary(1, title, 5.0), spans)])
    if words:
        page.hits.add([SearchHit(8, 1, title, words, 5.0, marks)])
    page.show_state("bread", False)


def test_a_found_chat_shows_its_title_and_where_the_words_are(search: SearchPage) -> None:
    pictures = []
    for title, spans in (("Bread", ()), ("Brooms", ()), ("Bread", ((0, 5),)), ("Bread", ((0, 2),))):
        find(search, title, spans)
        pictures.append(row(search.list, 0))
    assert all(one != other for place, one in enumerate(pictures) for other in pictures[:place])


def test_words_that_a_narrow_list_cuts_off_are_not_marked(search: SearchPage) -> None:
    find(search, LONG)
    plain = row(search.list, 0)
    find(search, LONG, ((LONG.index("again"), len(LONG)),))
    assert row(search.list, 0) == plain
    find(search, LONG, ((0, 5),))
    assert row(search.list, 0) != plain


def test_a_found_message_shows_its_text_and_where_the_words_are(search: SearchPage) -> None:
    pictures = []
    for words, marks in (("fresh bread", ()), ("stale breads", ()), ("fresh bread", ((6, 11),)), (LONG, ())):
        find(search, words=words, marks=marks)
        pictures.append(row(search.list, 1))
    assert all(one != other for place, one in enumerate(pictures) for other in pictures[:place])
    assert pictures[3].height() > pictures[0].height()


def test_only_the_open_chat_is_marked_and_not_its_messages(search: SearchPage) -> None:
    find(search, words="fresh bread")
    chat, message = row(search.list, 0), row(search.list, 1)
    search.list.set_open(2)
    assert row(search.list, 0) == chat
    search.list.set_open(1)
    assert row(search.list, 0) != chat
    assert row(search.list, 1) == message
    search.list.set_open(0)
    assert row(search.list, 0) == chat


def test_the_chosen_row_is_seen(search: SearchPage) -> None:
    find(search, words="fresh bread")
    before = [row(search.list, number) for number in range(2)]
    for number in range(2):
        search.list.setCurrentIndex(search.hits.index(number))
        assert row(search.list, number) != before[number]
        assert row(search.list, 1 - number) == before[1 - number]


def test_the_state_of_a_search_is_said(search: SearchPage) -> None:
    search.show_state("oven", True)
    assert search.state.text() == "Searching…"
    assert not search.list.isVisible()
    search.show_state("oven", False)
    assert search.state.text() == "No chat contains “oven”."
    find(search)
    assert search.state.text() == "0 messages in 1 chat"
    search.hits.add([SearchHit(8, 2, "Oven", "fresh bread", 5.0, ((6, 11),))])
    search.show_state("bread", True)
    assert search.state.text() == "1 message in 2 chats, still searching…"
    assert search.list.isVisible()
    assert not search.more.isVisible()
    search.show_state("bread", False, True)
    assert search.state.text() == "1 message in 2 chats"
    assert search.more.isVisible()


def test_a_deleted_chat_shows_its_title_when_it_was_deleted_and_whether_it_is_chosen(qtbot: QtBot) -> None:
    page = TrashPage()
    shown(qtbot, page)
    pictures = []
    for title, deleted in (("Bread", 9.0), ("Brooms", 9.0), ("Bread", 9.0 + 86_400 * 300)):
        page.show_rows((ConversationSummary(1, title, 5.0, deleted_at=deleted),), 0)
        page.list.clearSelection()
        pictures.append(row(page.list, 0))
    page.list.selectAll()
    pictures.append(row(page.list, 0))
    assert all(one != other for place, one in enumerate(pictures) for other in pictures[:place])
