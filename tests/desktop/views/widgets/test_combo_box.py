"""Boxes with choices and lines with a clear button, by mouse and by name."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QComboBox, QLineEdit, QToolButton
from pytestqt.qtbot import QtBot

from desktop.views.widgets.combo_box import ComboBox, add_clear_button


def test_a_box_opens_a_list_of_its_own_name(qtbot: QtBot) -> None:
    box = ComboBox()
    qtbot.addWidget(box)
    box.addItems(["One", "Two"])
    box.setAccessibleName("Numbers")
    box.show()
    QTest.mouseClick(box, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(box.view().isVisible)
    assert box.view().accessibleName() == "Numbers"
    QTest.keyClick(box.view(), Qt.Key.Key_Escape)


def test_a_box_may_be_narrower_than_its_choices_but_not_taller_or_wider_than_qt_s(qtbot: QtBot) -> None:
    for choice, narrower in (("x", False), ("a choice of many words " * 20, True)):
        plain, box = QComboBox(), ComboBox()
        for each in (plain, box):
            qtbot.addWidget(each)
            each.addItem(choice)
        usual, least = plain.minimumSizeHint(), box.minimumSizeHint()
        twelve = box.fontMetrics().averageCharWidth() * 12
        assert least == QSize(twelve if narrower else usual.width(), usual.height())
        assert (usual.width() > twelve) == narrower


def test_a_clear_button_has_a_name_and_clears(qtbot: QtBot) -> None:
    line = QLineEdit()
    qtbot.addWidget(line)
    add_clear_button(line)
    line.setText("what is sought")
    line.show()
    (button,) = line.findChildren(QToolButton)
    assert (button.accessibleName(), button.toolTip()) == ("Clear", "Clear")
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)
    assert line.text() == ""
