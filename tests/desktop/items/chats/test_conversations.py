"""The sidebar's model: order, moves, groups by date, checked by Qt's own model tester."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QAbstractItemModelTester
from pytestqt.qtbot import QtBot

from desktop.items.chats.conversations import (
    GROUP_ROLE,
    ID_ROLE,
    UPDATED_ROLE,
    ConversationsModel,
    date_group,
)
from desktop.items.models.local_models import count_text
from desktop.store.conversations.records import ConversationSummary
from engine.units import size_text
from tests.work import calls_in

TODAY = datetime.date(2026, 3, 15)


def moment(year: int, month: int, day: int, hour: int = 12) -> float:
    return datetime.datetime(year, month, day, hour).timestamp()


@pytest.fixture
def model(qtbot: QtBot) -> Iterator[ConversationsModel]:
    found = ConversationsModel(today=lambda: TODAY)
    tester = QAbstractItemModelTester(found, QAbstractItemModelTester.FailureReportingMode.Fatal)
    yield found
    del tester


def rows(model: ConversationsModel) -> list[tuple[object, object]]:
    indexes = [model.index(row) for row in range(model.rowCount())]
    return [(model.data(index, ID_ROLE), model.data(index)) for index in indexes]


@pytest.mark.parametrize(
    ("day", "group"),
    [
        ((2026, 3, 16), "Today"),  # a clock set back
        ((2026, 3, 15, 0), "Today"),
        ((2026, 3, 15, 23), "Today"),
        ((2026, 3, 14, 23), "Yesterday"),
        ((2026, 3, 13), "Previous 7 days"),
        ((2026, 3, 8), "Previous 7 days"),
        ((2026, 3, 7), "Previous 30 days"),
        ((2026, 2, 13), "Previous 30 days"),
        ((2026, 2, 12), "February 2026"),
        ((2025, 12, 31), "December 2025"),
    ],
)
def test_date_groups(day: tuple[int, ...], group: str) -> None:
    assert date_group(moment(*day), TODAY) == group


def test_roles(model: ConversationsModel) -> None:
    model.reset(
        [ConversationSummary(3, "Talk", moment(2026, 3, 14)), ConversationSummary(2, "", moment(2026, 1, 1))]
    )
    first, second = model.index(0), model.index(1)
    assert [model.data(first, role) for role in (ID_ROLE, GROUP_ROLE, UPDATED_ROLE)] == [
        3,
        "Yesterday",
        moment(2026, 3, 14),
    ]
    assert model.data(second) == "New chat"
    assert model.data(second, Qt.ItemDataRole.EditRole) == ""
    assert model.data(second, Qt.ItemDataRole.AccessibleTextRole) == "New chat"
    assert model.data(second, Qt.ItemDataRole.DecorationRole) is None
    assert model.rowCount(first) == 0
    assert model.data(model.index(5)) is None


def test_put_and_remove_keep_the_order(model: ConversationsModel) -> None:
    draw = random.Random(5)
    expected: dict[int, ConversationSummary] = {}
    resets: list[int] = []
    model.modelReset.connect(lambda: resets.append(1))
    for step in range(300):
        number = draw.randint(1, 12)
        if draw.random() < 0.2:
            expected.pop(number, None)
            model.remove(number)
        else:
            expected[number] = ConversationSummary(number, f"t{step}", float(draw.randint(1, 20)))
            model.put(expected[number])
        required = sorted(expected.values(), key=lambda row: (row.updated_at, row.id), reverse=True)
        assert rows(model) == [(row.id, row.title) for row in required]
        assert model.row(number) == next(
            (place for place, row in enumerate(required) if row.id == number), -1
        )
    assert resets == []


def test_ten_thousand(qtbot: QtBot) -> None:
    model = ConversationsModel()  # without the tester, which checks every row after each change
    model.reset([ConversationSummary(n, f"Talk {n}", float(n)) for n in range(10_000, 0, -1)])
    assert calls_in(lambda: model.put(ConversationSummary(5, "Talk 5", 20_000.0))) < 10_000 // 10
    assert rows(model)[0] == (5, "Talk 5")


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1 kB"),
        (98_362_432, "98.4 MB"),
        (999_600, "1 MB"),
        (4_700_000_000, "4.7 GB"),
    ],
)
def test_sizes(count: int, text: str) -> None:
    assert size_text(count) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, ""),
        (134_515_008, "135 M"),
        (8_030_261_248, "8.03 B"),
        (999_900_000, "1 B"),
        (70_600_000_000, "70.6 B"),
    ],
)
def test_counts(count: int, text: str) -> None:
    assert count_text(count) == text
