"""The message model keeps Qt's rules and reports each change in the cheapest way."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QAbstractItemModelTester
from pytestqt.qtbot import QtBot

from desktop.items.chats.messages import MESSAGE_ROLE, MessageItem, MessagesModel


def chat(count: int) -> list[MessageItem]:
    return [MessageItem(10 + i, "user" if i % 2 == 0 else "assistant", f"text {i}") for i in range(count)]


def test_every_change_keeps_the_rules_of_qt_models(qtbot: QtBot) -> None:
    model = MessagesModel()
    tester = QAbstractItemModelTester(model, QAbstractItemModelTester.FailureReportingMode.Fatal)
    model.reset(chat(6))
    model.append(MessageItem(99, "assistant", ""))
    model.append_text(99, "Hello")
    model.replace(99, MessageItem(100, "assistant", "Other", variant_index=1, variant_count=2))
    model.remove([10, 12, 13, 100])
    assert [item.id for item in model.items()] == [11, 14, 15]
    assert [model.row(item.id) for item in model.items()] == [0, 1, 2]
    model.reset([])
    assert model.rowCount() == 0
    assert tester.model() is model


def test_appended_text_is_reported_as_text_and_not_as_a_changed_item(qtbot: QtBot) -> None:
    model = MessagesModel()
    model.reset(chat(2))
    changed: list[object] = []
    model.dataChanged.connect(lambda *args: changed.append(args))
    with qtbot.waitSignal(model.text_appended) as reported:
        model.append_text(11, " more")
    assert reported.args == [1, " more"]
    assert model.item(11).text == "text 1 more"
    with qtbot.assertNotEmitted(model.text_appended):
        model.append_text(11, "")
    assert changed == []


def test_data_returns_text_item_and_accessible_text(qtbot: QtBot) -> None:
    model = MessagesModel()
    model.reset(chat(2))
    index = model.index(1)
    assert model.data(index) == "text 1"
    assert model.data(index, MESSAGE_ROLE) == model.item(11)
    assert model.data(index, Qt.ItemDataRole.AccessibleTextRole) == "Assistant: text 1"
    assert model.data(index, Qt.ItemDataRole.DecorationRole) is None
    assert model.data(model.index(7)) is None


def test_wrong_ids_are_refused_and_change_nothing(qtbot: QtBot) -> None:
    model = MessagesModel()
    model.reset(chat(3))
    before = model.items()
    with pytest.raises(KeyError):
        model.remove([10, 500])
    with pytest.raises(KeyError):
        model.append_text(500, "x")
    with pytest.raises(ValueError, match="already"):
        model.append(before[0])
    with pytest.raises(ValueError, match="already"):
        model.replace(10, before[1])
    with pytest.raises(ValueError, match="same id"):
        model.reset([before[0], before[0]])
    assert model.items() == before


def test_messages_added_together_are_one_change_of_the_model(qtbot: QtBot) -> None:
    model = MessagesModel()
    model.reset(chat(2))
    inserted: list[tuple[int, int]] = []
    model.rowsInserted.connect(lambda _parent, first, last: inserted.append((first, last)))
    model.extend(chat(6)[2:])
    model.extend([])
    assert inserted == [(2, 5)]
    assert list(model.items()) == chat(6)
    assert [model.row(item.id) for item in model.items()] == list(range(6))
    for wrong in ([MessageItem(99, "user", ""), chat(1)[0]], [MessageItem(99, "user", "")] * 2):
        with pytest.raises(ValueError, match=r"already|same id"):
            model.extend(wrong)
    assert list(model.items()) == chat(6)
    with pytest.raises(KeyError):
        model.item(99)
