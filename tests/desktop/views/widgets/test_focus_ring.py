"""The ring in filled buttons: there while they have the focus, even on all sides at every screen scale."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, Qt
from PySide6.QtWidgets import QApplication, QHBoxLayout, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from desktop.views.widgets.focus_ring import FocusRing
from desktop.views.widgets.theme import Theme


@pytest.fixture
def row(qtbot: QtBot, qapp: QApplication) -> QWidget:
    Theme(qapp).apply("light", 100)
    row = QWidget()
    layout = QHBoxLayout(row)
    for tone in ("primary", "primary", ""):
        button = QPushButton("Open")
        button.setProperty("tone", tone)
        layout.addWidget(button)
    qtbot.addWidget(row)
    row.show()
    row.activateWindow()
    qtbot.waitUntil(row.isActiveWindow)
    return row


def rings(button: QWidget) -> int:
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
    return len([ring for ring in button.findChildren(FocusRing) if ring.isVisible()])


def test_a_filled_button_has_one_ring_while_it_has_the_focus(row: QWidget) -> None:
    first, second, plain = row.findChildren(QPushButton)
    for _ in range(2):
        first.setFocus()
        assert [rings(button) for button in (first, second, plain)] == [1, 0, 0]
        second.setFocus()
        assert [rings(button) for button in (first, second, plain)] == [0, 1, 0]
        plain.setFocus()
        assert [rings(button) for button in (first, second, plain)] == [0, 0, 0]
    second.setFocus()
    second.setProperty("tone", "")
    assert rings(second) == 0


def test_the_ring_follows_the_size_and_lets_clicks_through(row: QWidget, qtbot: QtBot) -> None:
    button = row.findChildren(QPushButton)[0]
    button.setFocus()
    row.resize(700, 90)
    assert button.findChild(FocusRing).size() == button.size()
    with qtbot.waitSignal(button.clicked):
        qtbot.mouseClick(row.childAt(button.geometry().center()), Qt.MouseButton.LeftButton)


_EVEN = """
import sys
from PySide6.QtCore import Qt
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QApplication, QPushButton, QWidget
from desktop.views.widgets.theme import Theme
app = QApplication(sys.argv)
Theme(app).apply("light", 100)
window = QWidget()
other, button = QPushButton(window), QPushButton(window)
button.setProperty("tone", "primary")
button.setGeometry(0, 0, 120, 40)
window.show()
window.activateWindow()
other.setFocus()
app.processEvents()
before = button.grab().toImage()
button.setFocus()
app.processEvents()
after = button.grab().toImage()
assert after != before
for flip in (Qt.Orientation.Horizontal, Qt.Orientation.Vertical):
    turned = after.flipped(flip)
    for y in range(after.height()):
        for x in range(after.width()):
            one, two = after.pixelColor(x, y), turned.pixelColor(x, y)
            assert abs(one.green() - two.green()) < 64, (x, y)
"""


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["1", "1.25", "2"])
def test_the_ring_is_even_on_all_sides(scale: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _EVEN], env={**os.environ, "QT_SCALE_FACTOR": scale}, capture_output=True,
        text=True, check=False, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
