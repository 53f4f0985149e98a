"""Dialogs that save as they are changed: closing saves, and never loses changes without a warning."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QPushButton, QWidget

from desktop.views.dialogs.saving_dialog import SavingDialog


@pytest.fixture
def parent(qtbot) -> QWidget:
    made = QWidget()
    qtbot.addWidget(made)
    made.resize(400, 300)
    return made


@pytest.mark.parametrize("way", ["button", "escape"])
def test_a_close_saves_and_a_failure_keeps_it_open_once(qtbot, parent, way: str) -> None:
    answers, asked = [False, False], []

    def save() -> bool:
        asked.append(True)
        return answers.pop(0)

    dialog = SavingDialog(save, parent)
    dialog.arrange(QLabel("content"), 500, 100)
    assert (dialog.width(), dialog.height()) <= (400, 300)
    dialog.show()
    button = next(each for each in dialog.findChildren(QPushButton) if each.text() == "Close")
    for visible in (True, False):
        button.click() if way == "button" else qtbot.keyClick(dialog, Qt.Key.Key_Escape)
        assert dialog.isVisible() == visible
    assert len(asked) == 2


def test_a_close_that_saves_asks_nothing(qtbot, parent) -> None:
    dialog = SavingDialog(lambda: True, parent)
    dialog.arrange(QLabel("content"), 20, 10)
    dialog.show()
    assert dialog.close()
    assert not dialog.warned
