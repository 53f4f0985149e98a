"""Search results: below their chats, with the found words near the start; and the notes of the trash."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QAbstractItemModelTester
from pytestqt.qtbot import QtBot

from desktop.items.chats.search_hits import HIT_ROLE, SPANS_ROLE, SearchHitsModel
from desktop.items.chats.trash import NOTE_ROLE, TrashModel, since_words
from desktop.store.conversations.records import ConversationSummary, SearchHit

DAY = 86_400.0


def hit(message: int, chat: int, snippet: str, word: str) -> SearchHit:
    at = snippet.index(word)
    return SearchHit(message, chat, f"Chat {chat}", snippet, 0.0, ((at, at + len(word)),), at)


def test_hits_are_below_their_chats(qtbot: QtBot) -> None:
    model = SearchHitsModel()
    QAbstractItemModelTester(model, QAbstractItemModelTester.FailureReportingMode.Fatal)
    model.begin([(ConversationSummary(3, "Rye", 0.0), ((0, 3),))])
    model.add([hit(9, 1, "some rye", "rye"), hit(8, 2, "rye too", "rye"), hit(7, 3, "more rye", "rye")])
    model.add([hit(6, 1, "late rye", "rye")])
    rows = [model.index(row) for row in range(model.rowCount())]
    assert [row.data() for row in rows] == [
        "Rye",
        "more rye",
        "Chat 1",
        "some rye",
        "late rye",
        "Chat 2",
        "rye too",
    ]
    assert [row.data(HIT_ROLE) is not None for row in rows] == [False, True, False, True, True, False, True]
    assert (model.messages, model.chats) == (4, 3)
    assert [model.has(chat) for chat in (1, 2, 3, 4)] == [True, True, True, False]
    assert rows[3].data(Qt.ItemDataRole.AccessibleTextRole) == "Message in Chat 1: some rye"
    model.forget(1)
    assert [model.index(row).data() for row in range(model.rowCount())] == [
        "Rye",
        "more rye",
        "Chat 2",
        "rye too",
    ]
    model.forget(2)
    assert [model.index(row).data() for row in range(model.rowCount())] == ["Rye", "more rye"]


def test_the_message_that_gave_a_chat_its_title_is_not_repeated(qtbot: QtBot) -> None:
    model = SearchHitsModel()
    titled = SearchHit(9, 1, "Sow rye", "Sow rye", 0.0, ((4, 7),), 4)
    model.begin([(ConversationSummary(1, "Sow rye", 0.0), ((4, 7),))])
    model.add([titled, hit(8, 1, "more rye", "rye")])
    assert [model.index(row).data() for row in range(model.rowCount())] == ["Sow rye", "more rye"]
    model.begin([])
    model.add([titled])  # its chat was not found by the title
    assert [model.index(row).data() for row in range(model.rowCount())] == ["Sow rye", "Sow rye"]


def test_a_snippet_starts_shortly_before_its_first_word(qtbot: QtBot) -> None:
    model = SearchHitsModel()
    text = "a long way of words goes on before there is any bread in it, and more bread"
    model.add(
        [
            SearchHit(
                1,
                1,
                "T",
                text,
                0.0,
                ((text.index("bread"), text.index("bread") + 5), (len(text) - 5, len(text))),
            )
        ]
    )
    shown, spans = model.index(1).data(), model.index(1).data(SPANS_ROLE)
    assert shown.startswith("…")
    assert shown[1:] in text
    assert text[text.index(shown[1:]) - 1] == " ", "it begins with a whole word"
    assert shown[1] != " "
    assert [shown[first:behind] for first, behind in spans] == ["bread", "bread"]
    assert spans[0][0] <= 20


@pytest.mark.parametrize(
    ("days", "keep", "words"),
    [(0.1, 30, "Today, 30 days left"), (1.5, 30, "Yesterday, 29 days left"),
    (29.5, 30, "29 days ago, 1 day left"), (5, 0, "5 days ago"),
     (31, 30, "31 days ago, deleted at the next start")],
)  # fmt: skip
def test_the_time_in_the_trash(days: float, keep: int, words: str) -> None:
    assert since_words(0.0, days * DAY, keep) == words
    model = TrashModel(now=lambda: days * DAY)
    model.reset([ConversationSummary(1, "Old", 5.0, None, False, 0.0)], keep)
    assert model.index(0).data(NOTE_ROLE) == words
    assert str(model.index(0).data(Qt.ItemDataRole.AccessibleTextRole)).startswith("Old, deleted ")
