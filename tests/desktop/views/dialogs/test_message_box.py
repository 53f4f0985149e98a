"""Questions: their texts begin at the left edge, and their icons are the program's own."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QLabel, QMessageBox, QWidget

from desktop.views.dialogs.message_box import MessageBox


def asked(qtbot, icon: QMessageBox.Icon, parent: QWidget) -> MessageBox:
    box = MessageBox(icon, "Title", "Remove the folder?", parent=parent)
    box.setInformativeText("It contains 2 chats. Keep the chats, or move them to the trash?")
    for words in ("Keep chats", "Move to trash", "Cancel"):
        box.addButton(words, QMessageBox.ButtonRole.ActionRole)
    box.open()
    qtbot.waitExposed(box)
    return box


@pytest.fixture
def parent(qtbot) -> QWidget:
    made = QWidget()
    qtbot.addWidget(made)
    made.resize(900, 500)
    made.show()
    return made


def left(box: MessageBox, name: str) -> int:
    label = box.findChild(QLabel, name)
    assert label is not None
    return label.mapTo(box, label.rect().topLeft()).x()


def test_without_an_icon_the_texts_are_not_indented(qtbot, parent) -> None:
    box = asked(qtbot, QMessageBox.Icon.NoIcon, parent)
    edge = min(button.mapTo(box, button.rect().topLeft()).x() for button in box.buttons())
    for name in ("qt_msgbox_label", "qt_msgbox_informativelabel"):
        assert left(box, name) <= edge
    box.close()


def test_a_warning_has_the_programs_icon_beside_its_texts(qtbot, parent) -> None:
    box = asked(qtbot, QMessageBox.Icon.Warning, parent)
    side = box.iconPixmap().deviceIndependentSize().width()
    assert side == round(box.fontMetrics().height() * 2)
    assert left(box, "qt_msgbox_label") >= side
    box.close()
