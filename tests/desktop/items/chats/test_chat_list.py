"""The sidebar's rows: their order and nesting, few changes for each, their texts, and where drops fall."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QMimeData, QPersistentModelIndex, Qt
from PySide6.QtTest import QAbstractItemModelTester
from pytestqt.qtbot import QtBot

from desktop.items.chats.chat_list import (
    CHAT,
    COUNT_ROLE,
    DRAFT_ROLE,
    FOLDER,
    HEADING,
    MIME,
    NOTEBOOK_ROLE,
    RUNNING_ROLE,
    UNSEEN_ROLE,
    ChatListModel,
    dragged,
)
from desktop.items.chats.conversations import ID_ROLE, ConversationsModel, date_group, group_start
from desktop.store.conversations.folders import Folder
from desktop.store.conversations.records import NOTEBOOK, ConversationSummary
from desktop.views.sidebar.drop_targets import Landing, land
from engine.words import set_language

TODAY = datetime.date(2026, 3, 15)
NOON = datetime.datetime(2026, 3, 15, 12).timestamp()
DAY = 86_400.0


def folder(number: int, parent: int | None = None, position: int = 0) -> Folder:
    return Folder(number, parent, f"F{number}", position, {}, "")


@pytest.fixture
def chats(qtbot: QtBot) -> ConversationsModel:
    found = ConversationsModel(today=lambda: TODAY)
    found.reset(
        [
            ConversationSummary(1, "One", NOON, None, False),
            ConversationSummary(2, "Two", NOON - 10, 7, False),
            ConversationSummary(3, "Three", NOON - DAY, 8, False),
            ConversationSummary(4, "Four", NOON - 2 * DAY, None, True),
            ConversationSummary(5, "", NOON - 3 * DAY, None, False),
        ]
    )
    return found


@pytest.fixture
def chat_list(chats: ConversationsModel) -> Iterator[ChatListModel]:
    found = ChatListModel(chats, today=lambda: TODAY)
    tester = QAbstractItemModelTester(found, QAbstractItemModelTester.FailureReportingMode.Fatal)
    found.set_folders([folder(7), folder(8, 7), folder(9, None, 1)])
    yield found
    del tester


def shown(chat_list: ChatListModel) -> list[str]:
    return [
        "  " * row.depth + str(chat_list.index(place).data()) for place, row in enumerate(chat_list.shown())
    ]


def test_each_kind_of_chat_has_its_mark(chats: ConversationsModel, chat_list: ChatListModel) -> None:
    chats.put(ConversationSummary(6, "Six", NOON, None, False, kind=NOTEBOOK))
    chat_list.set_drafts(frozenset({1}))
    chat_list.set_running({5})
    rows = {number: chat_list.index(chat_list.row_of(CHAT, number)) for number in (1, 5, 6)}
    for role, marked in ((NOTEBOOK_ROLE, 6), (DRAFT_ROLE, 1), (RUNNING_ROLE, 5)):
        assert {number: row.data(role) for number, row in rows.items()} == {
            number: number == marked for number in rows
        }


def test_pinned_then_folders_then_dates(chat_list: ChatListModel) -> None:
    dated = ["Today", "One", "Previous 7 days", "New chat"]
    assert shown(chat_list) == ["Pinned", "Four", "Folders", "F7", "F9", *dated]
    chat_list.set_open_folders({7, 8})
    assert shown(chat_list) == ["Pinned", "Four", "Folders", "F7", "  F8", "    Three", "  Two", "F9", *dated]
    assert chat_list.index(3).data(COUNT_ROLE) == 2
    assert chat_list.index(3).data(Qt.ItemDataRole.AccessibleTextRole) == "Folder F7, 2 chats, open"
    assert not chat_list.flags(chat_list.index(0)) & Qt.ItemFlag.ItemIsEnabled
    assert chat_list.flags(chat_list.index(1)) & Qt.ItemFlag.ItemIsDragEnabled


def test_running_replies_and_drafts_are_announced(chat_list: ChatListModel) -> None:
    reported: list[int] = []
    chat_list.dataChanged.connect(lambda first, _last: reported.append(first.data(ID_ROLE)))
    chat_list.set_drafts(frozenset({1, 4}))
    chat_list.set_running((4,))
    assert reported == [4, 1, 4]
    assert (
        chat_list.index(1).data(Qt.ItemDataRole.AccessibleTextRole)
        == "Four, pinned, a reply is running, draft not sent"
    )


def test_replies_that_end_elsewhere_are_new_until_their_chat_is_opened(chat_list: ChatListModel) -> None:
    def unseen() -> list[int]:
        rows = (chat_list.index(chat_list.row_of(CHAT, number)) for number in (1, 4, 5))
        return [row.data(ID_ROLE) for row in rows if row.data(UNSEEN_ROLE)]

    chat_list.set_running((1, 4, 5), opened=1)
    assert unseen() == []
    chat_list.set_running((5,), opened=1)
    assert unseen() == [4]
    assert chat_list.index(1).data(Qt.ItemDataRole.AccessibleTextRole) == "Four, pinned, new reply"
    chat_list.set_running((4,), opened=1)
    assert unseen() == [5], "in the fourth the next one is being written"
    chat_list.set_running((), opened=4)
    reported: list[int] = []
    chat_list.dataChanged.connect(lambda first, _last: reported.append(first.data(ID_ROLE)))
    chat_list.see(5)
    chat_list.see(4)
    assert (unseen(), reported) == ([], [5])


def test_what_is_said_of_a_row_is_translated(
    chat_list: ChatListModel, chats: ConversationsModel, request: pytest.FixtureRequest
) -> None:
    chats.put(ConversationSummary(6, "Sechs", NOON, None, False, kind=NOTEBOOK))
    request.addfinalizer(lambda: set_language("en"))
    set_language("de")
    role = Qt.ItemDataRole.AccessibleTextRole
    said = [chat_list.index(place).data(role) for place in range(chat_list.rowCount())]
    assert "Sechs, Notizbuch" in said
    assert "Ordner F7, 2 Chats, geschlossen" in said


def test_a_closed_folder_shows_its_count(chat_list: ChatListModel, chats: ConversationsModel) -> None:
    reported: list[int] = []
    chat_list.dataChanged.connect(lambda first, _last: reported.append(first.row()))
    chats.put(ConversationSummary(1, "One", NOON, 9))
    assert chat_list.row_of(FOLDER, 9) in reported
    assert chat_list.index(chat_list.row_of(FOLDER, 9)).data(COUNT_ROLE) == 1
    assert "One" not in shown(chat_list)
    chat_list.set_open_folders({7})
    reported.clear()
    chats.put(ConversationSummary(1, "One", NOON, 8))  # which is inside of 7
    assert {chat_list.row_of(FOLDER, number) for number in (8, 9)} <= set(reported)
    assert chat_list.index(chat_list.row_of(FOLDER, 8)).data(COUNT_ROLE) == 2


def test_midnight_moves_the_dates(chats: ConversationsModel) -> None:
    days = [TODAY]
    chat_list = ChatListModel(chats, today=lambda: days[0])
    days[0] = TODAY + datetime.timedelta(days=1)
    chat_list.refresh_dates()
    assert "Yesterday" in shown(chat_list)
    assert "Today" not in shown(chat_list)


@pytest.mark.slow
def test_random_changes_end_in_the_same_rows_and_keep_unchanged_ones(
    chats: ConversationsModel, chat_list: ChatListModel
) -> None:
    draw = random.Random(3)
    for step in range(250):
        kept = QPersistentModelIndex(chat_list.index(chat_list.row_of(FOLDER, 7)))
        kind = draw.random()
        if kind < 0.6:
            where = draw.choice([None, None, 7, 8, 9])
            moment = NOON - draw.randint(0, 50) * DAY / 3
            chats.put(
                ConversationSummary(draw.randint(1, 15), f"t{step}", moment, where, draw.random() < 0.1)
            )
        elif kind < 0.75:
            chats.remove(draw.randint(1, 15))
        elif kind < 0.9:
            chat_list.set_open_folders(draw.sample([7, 8, 9], draw.randint(0, 3)))
        else:
            chats.put_all(
                [
                    ConversationSummary(number, "m", NOON - number * DAY, 9)
                    for number in draw.sample(range(1, 16), 3)
                ]
            )
            chats.remove_all(draw.sample(range(1, 16), 2))
        fresh = ChatListModel(chats, today=lambda: TODAY)
        fresh.set_folders(chat_list.folders())
        fresh.set_open_folders(chat_list.open_folders)
        assert list(chat_list.shown()) == list(fresh.shown())
        assert not kept.isValid() or chat_list.shown()[kept.row()].number == 7


def test_one_chat_that_rises_is_one_move(qtbot: QtBot) -> None:
    chats = ConversationsModel(today=lambda: TODAY)
    chat_list = ChatListModel(chats, today=lambda: TODAY)
    chats.reset([ConversationSummary(number, str(number), NOON - number) for number in range(1, 500)])
    said: list[str] = []
    chat_list.rowsMoved.connect(lambda: said.append("moved"))
    chat_list.rowsInserted.connect(lambda: said.append("inserted"))
    chat_list.rowsRemoved.connect(lambda: said.append("removed"))
    chat_list.modelReset.connect(lambda: said.append("reset"))
    chats.put(ConversationSummary(300, "300", NOON))
    assert said == ["moved"]
    chats.put(ConversationSummary(300, "300", NOON - 400.5))
    assert said == ["moved", "moved"]
    assert chat_list.row_of(CHAT, 300) == 400


@pytest.mark.parametrize("days", [-1, 0, 1, 2, 7, 8, 30, 31, 45, 300])
def test_a_group_starts_where_its_name_begins(days: int) -> None:
    moment = NOON - days * DAY
    start = group_start(moment, TODAY)
    assert start <= moment
    assert date_group(start, TODAY) == date_group(moment, TODAY) != date_group(start - 3600, TODAY)


def test_drag_data_comes_back(chat_list: ChatListModel) -> None:
    rows = (1, chat_list.row_of(CHAT, 1), chat_list.row_of(FOLDER, 9))
    data = chat_list.mimeData([chat_list.index(row) for row in rows])
    assert dragged(data) == ([4, 1], [9])
    assert MIME in data.formats()
    assert dragged(QMimeData()) == ([], [])


def test_where_drops_fall(chat_list: ChatListModel) -> None:
    chat_list.set_open_folders({7})
    rows = {(row.kind, row.number or row.text): place for place, row in enumerate(chat_list.shown())}
    seven, eight, nine = (rows[FOLDER, number] for number in (7, 8, 9))
    assert land(chat_list, eight, 0.5, [1], []) == Landing("move", 8, row=eight)
    assert land(chat_list, rows[CHAT, 2], 0.5, [1], []) == Landing("move", 7, row=seven)
    assert land(chat_list, rows[HEADING, "Pinned"], 0.5, [1], []) == Landing("pin", row=0)
    assert land(chat_list, -1, 0.0, [2], []) == Landing("move")
    assert land(chat_list, rows[CHAT, 1], 0.5, [2], []) == Landing("move", row=rows[CHAT, 1])
    assert land(chat_list, nine, 0.1, [], [8]) == Landing("move", 0, 1, nine, -1)
    assert land(chat_list, nine, 0.9, [], [8]) == Landing("move", 0, 2, nine, 1)
    assert land(chat_list, nine, 0.5, [], [7]) == Landing("move", 9, row=nine)
    assert land(chat_list, eight, 0.5, [], [7]) is None, "not into what is inside it"
    assert land(chat_list, rows[HEADING, "Pinned"], 0.5, [], [7]) is None
    assert land(chat_list, nine, 0.5, [1], [7]) is None
    assert land(chat_list, nine, 0.5, [], []) is None


def test_a_later_time_may_change_the_date_without_a_move(
    chats: ConversationsModel, chat_list: ChatListModel
) -> None:
    reported: list[int] = []
    chat_list.dataChanged.connect(
        lambda first, _last: reported.append(chat_list.index(first.row()).data(ID_ROLE))
    )
    chats.put(ConversationSummary(1, "Uno", NOON + 5, None, False))
    assert shown(chat_list)[-4:] == ["Today", "Uno", "Previous 7 days", "New chat"]
    assert reported == [1]  # and no other row is painted again
    chats.put(ConversationSummary(5, "Five", NOON - 3 * DAY + 5, None, False))
    assert shown(chat_list)[-2:] == ["Previous 7 days", "Five"]
    chats.put(ConversationSummary(5, "Five", NOON - 40 * DAY, None, False))
    assert shown(chat_list)[-2:] == ["February 2026", "Five"]
    chats.put(ConversationSummary(5, "Five", NOON - 40 * DAY, None, True))
    assert shown(chat_list)[:3] == ["Pinned", "Four", "Five"]
