"""The order of the sampler steps: moved by mouse, keys and buttons; steps without effect are grey."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QPalette
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QScrollArea, QStyleOptionViewItem

from desktop.views.settings.order_editor import OrderEditor, complete_order
from engine.settings import SAMPLER_STEP_NAMES, SamplerSettings, setting_info

NAMES = tuple(name for name, _ in SAMPLER_STEP_NAMES)
ALT = Qt.KeyboardModifier.AltModifier
Key = Qt.Key


@pytest.fixture
def order(qtbot) -> OrderEditor:
    info = setting_info(next(field for field in dataclasses.fields(SamplerSettings) if field.name == "order"))
    editor = OrderEditor(info)
    qtbot.addWidget(editor)
    editor.resize(300, 500)
    editor.set_value(NAMES)
    editor.show_context(SamplerSettings())
    editor.show()
    qtbot.waitExposed(editor)
    editor.reported = []
    editor.edited.connect(editor.reported.append)
    return editor


def shown(editor: OrderEditor) -> tuple[str, ...]:
    return tuple(editor.list.item(row).text() for row in range(editor.list.count()))


def place(editor: OrderEditor, row: int) -> QPoint:
    return editor.list.visualItemRect(editor.list.item(row)).center()


def moved(source: int, target: int) -> tuple[str, ...]:
    names = list(NAMES)
    names.insert(target, names.pop(source))
    return tuple(names)


@given(st.lists(st.sampled_from([*NAMES, "unknown"])))
def test_a_partial_order_is_completed_as_the_engine_does(given_names: list[str]) -> None:
    from engine.sampling import ordered_steps

    assert complete_order(tuple(given_names), NAMES) == tuple(
        kind.name for kind in ordered_steps(given_names)
    )


def test_a_partial_value_stays_as_it_is_until_the_user_moves_a_row(order) -> None:
    order.set_value(("skew", "temperature"))
    assert order.value() == ("skew", "temperature")
    assert set(shown(order)) == {label for _, label in SAMPLER_STEP_NAMES}
    assert order.reported == []


def test_all_rows_are_visible_at_once(order) -> None:
    assert (
        order.list.viewport().height() >= order.list.visualItemRect(order.list.item(len(NAMES) - 1)).bottom()
    )


@pytest.mark.parametrize(("source", "target"), [(5, 1), (1, 6), (0, 16), (16, 0)])
def test_a_dragged_row_emits_when_it_is_dropped(order, source: int, target: int) -> None:
    view = order.list.viewport()
    end = place(order, target)
    QTest.mousePress(view, Qt.MouseButton.LeftButton, pos=place(order, source))
    steps = range(source, target, 1 if target > source else -1)
    for row in [*steps, target]:
        QTest.mouseMove(view, place(order, row))
    assert order.reported == []
    QTest.mouseRelease(view, Qt.MouseButton.LeftButton, pos=end)
    assert order.reported == [moved(source, target)]
    assert order.value() == moved(source, target)
    assert order.list.currentRow() == target


def test_a_click_moves_nothing(order) -> None:
    QTest.mouseClick(order.list.viewport(), Qt.MouseButton.LeftButton, pos=place(order, 3))
    assert (order.reported, order.list.currentRow()) == ([], 3)


def test_a_drag_beyond_the_ends_stays_at_the_end(order) -> None:
    view = order.list.viewport()
    QTest.mousePress(view, Qt.MouseButton.LeftButton, pos=place(order, 2))
    QTest.mouseMove(view, QPoint(10, -500))
    QTest.mouseRelease(view, Qt.MouseButton.LeftButton, pos=QPoint(10, -500))
    assert order.reported == [moved(2, 0)]


def test_keys_move_the_selected_row(order) -> None:
    order.list.setFocus()
    order.list.setCurrentRow(0)
    QTest.keyClick(order.list, Key.Key_Up, ALT)
    assert order.reported == []
    QTest.keyClick(order.list, Key.Key_Down, ALT)
    QTest.keyClick(order.list, Key.Key_Down, ALT)
    assert order.reported[-1] == moved(0, 2)
    QTest.keyClick(order.list, Key.Key_Down)  # without Alt only the choice moves
    assert len(order.reported) == 2
    assert order.list.currentRow() == 3


def test_buttons_move_the_selected_row_and_stop_at_the_ends(order, qtbot) -> None:
    order.list.setCurrentRow(16)
    assert (order.up.isEnabled(), order.down.isEnabled()) == (True, False)
    order.list.setCurrentRow(1)
    qtbot.mouseClick(order.up, Qt.MouseButton.LeftButton)
    assert order.reported == [moved(1, 0)]
    assert not order.up.isEnabled()
    assert order.down.isEnabled()


def test_a_new_value_keeps_the_selected_step(order) -> None:
    order.list.setCurrentRow(5)
    order.set_value(tuple(reversed(NAMES)))
    assert order.list.currentItem().text() == "Temperature"
    assert order.reported == []


def off(editor: OrderEditor) -> set[str]:
    items = [editor.list.item(row) for row in range(editor.list.count())]
    return {item.text() for item in items if item.data(Qt.ItemDataRole.AccessibleTextRole).endswith(", off")}


def test_steps_without_effect_are_off(order) -> None:
    working = {"Temperature", "Top K", "Top P", "Min P"}
    assert off(order) == set(dict(SAMPLER_STEP_NAMES).values()) - working
    order.show_context(
        SamplerSettings(
            top_k=0, xtc_probability=0.5, presence_penalty=1.0, min_temperature=0.5, max_temperature=1.5
        )
    )
    working = {"Temperature", "Top P", "Min P", "XTC", "Presence and frequency", "Dynamic temperature"}
    assert off(order) == set(dict(SAMPLER_STEP_NAMES).values()) - working


def test_steps_without_effect_are_grey(order) -> None:
    colours = {}
    for row in range(order.list.count()):
        index = order.list.indexFromItem(order.list.item(row))
        option = QStyleOptionViewItem()
        option.palette = order.list.palette()
        order.list.itemDelegate().initStyleOption(option, index)
        colours[order.list.item(row).text()] = option.palette.color(QPalette.ColorRole.Text)
    muted = order.list.palette().color(QPalette.ColorRole.PlaceholderText)
    assert {name for name, colour in colours.items() if colour == muted} == off(order)
    assert muted != order.list.palette().color(QPalette.ColorRole.Text)


def test_the_pane_scrolls_along_with_a_dragged_row(order, qtbot) -> None:
    pane = QScrollArea()
    qtbot.addWidget(pane)
    pane.setWidgetResizable(True)
    pane.setWidget(order)
    pane.resize(320, 160)
    pane.show()
    QTest.mousePress(order.list.viewport(), Qt.MouseButton.LeftButton, pos=place(order, 0))
    QTest.mouseMove(order.list.viewport(), place(order, 16))
    assert pane.verticalScrollBar().value() > 0
    QTest.mouseRelease(order.list.viewport(), Qt.MouseButton.LeftButton, pos=place(order, 16))
    assert order.reported == [moved(0, 16)]
    pane.takeWidget()
