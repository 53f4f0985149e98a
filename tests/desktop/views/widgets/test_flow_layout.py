"""The heights of a row that flows: asked for thousands of times while a dialog is filled, worked out once."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QWidget

from desktop.views.widgets.flow_layout import FlowLayout


class Box(QWidget):
    """Of a size that it is told, and counts how often it is asked for it."""

    def __init__(self, width: int, height: int) -> None:
        super().__init__()
        self.wished, self.asked = QSize(width, height), 0

    def sizeHint(self) -> QSize:
        self.asked += 1
        return self.wished

    def become(self, width: int, height: int) -> None:
        self.wished = QSize(width, height)
        self.updateGeometry()


def test_heights_are_worked_out_once_for_each_width_until_something_changes(qtbot) -> None:
    row = QWidget()
    qtbot.addWidget(row)
    layout, boxes = FlowLayout(row, gap=5), [Box(100, 20), Box(100, 30)]
    for box in boxes:
        layout.addWidget(box)
    row.show()
    assert (layout.heightForWidth(300), layout.heightForWidth(150)) == (30, 55)
    asked = [box.asked for box in boxes]
    for _ in range(20):
        assert (layout.heightForWidth(300), layout.heightForWidth(150)) == (30, 55)
    assert [box.asked for box in boxes] == asked
    boxes[0].become(100, 50)
    assert (layout.heightForWidth(300), layout.heightForWidth(150)) == (50, 85)
    boxes[1].hide()
    assert layout.heightForWidth(150) == 50
    boxes[1].show()
    third = Box(10, 70)
    layout.addWidget(third)
    third.show()
    assert layout.heightForWidth(300) == 70
    layout.removeWidget(third)
    assert layout.heightForWidth(300) == 50
    layout.setSpacing(9)
    assert layout.heightForWidth(150) == 89
    layout.setContentsMargins(0, 1, 0, 2)
    assert layout.heightForWidth(150) == 92


def test_parts_are_placed_once_for_each_place_until_something_changes(qtbot) -> None:
    row = QWidget()
    qtbot.addWidget(row)
    layout, box = FlowLayout(row), Box(100, 20)
    layout.addWidget(box)
    row.resize(300, 40)
    row.show()
    place = row.rect()
    layout.setGeometry(place)
    asked = box.asked
    layout.setGeometry(place)
    assert box.asked == asked
    box.become(150, 20)
    layout.activate()
    assert box.width() == 150
    row.setLayoutDirection(Qt.LayoutDirection.RightToLeft)
    layout.setGeometry(place)
    assert box.geometry().right() == place.right()
