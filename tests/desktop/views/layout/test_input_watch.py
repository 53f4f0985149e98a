"""The user's input is noticed by what the window system sends."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLineEdit, QWidget
from pytestqt.qtbot import QtBot

from desktop.views.layout import input_watch
from desktop.views.layout.input_watch import InputWatch


@pytest.fixture
def window(qtbot: QtBot) -> QWidget:
    made = QWidget()
    box = QLineEdit(made)
    box.setObjectName("box")
    qtbot.addWidget(made)
    made.resize(200, 100)
    made.show()
    qtbot.waitExposed(made)
    return made


def test_keys_buttons_and_drags_count_and_a_hovering_mouse_does_not(
    window: QWidget, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(input_watch.time, "monotonic", lambda: now[0])
    watch = InputWatch(window)
    reported: list[bool] = []
    watch.acted.connect(lambda: reported.append(watch.acting))
    handle = window.windowHandle()
    assert not watch.acting

    QTest.mouseMove(handle, QPoint(50, 50))
    QTest.mouseMove(handle, QPoint(60, 50))
    assert (reported, watch.acting) == ([], False)
    QTest.mousePress(handle, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, QPoint(50, 50))
    assert reported == [True]
    QTest.mouseMove(handle, QPoint(70, 50))
    assert reported == [True, True]
    QTest.mouseRelease(handle, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, QPoint(70, 50))
    QTest.keyPress(handle, Qt.Key.Key_A)
    assert reported == [True, True, True]

    now[0] += 0.39
    assert watch.acting
    now[0] += 0.02
    assert not watch.acting


def test_watched_input_still_reaches_the_window(window: QWidget, qtbot: QtBot) -> None:
    InputWatch(window)
    box = window.findChild(QLineEdit, "box")
    box.setFocus()
    qtbot.waitUntil(box.hasFocus)
    for key in (Qt.Key.Key_A, Qt.Key.Key_B):
        QTest.keyClick(window.windowHandle(), key)
    assert box.text() == "ab"


def test_a_window_that_was_never_shown_is_refused(qtbot: QtBot) -> None:
    hidden = QWidget()
    qtbot.addWidget(hidden)
    with pytest.raises(ValueError, match="shown"):
        InputWatch(hidden)
