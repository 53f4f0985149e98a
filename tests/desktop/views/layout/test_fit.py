"""Dialogs are as high as their text needs."""

from __future__ import annotations

from PySide6.QtWidgets import QDialog, QLabel, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from desktop.views.layout.fit import fit_dialog, grow_dialog


def test_a_dialog_grows_at_once_with_a_text_in_a_widget_inside_it(qtbot: QtBot) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    window.resize(900, 800)
    dialog = QDialog(window)
    heading, holder, middle, stage = QLabel("heading " * 40), QWidget(), QWidget(), QLabel("Writing")
    heading.setWordWrap(True)
    for outer, inner in ((middle, stage), (holder, middle)):
        QVBoxLayout(outer).addWidget(inner)
    layout = QVBoxLayout(dialog)
    layout.addWidget(heading)
    layout.addWidget(holder)
    window.show()
    dialog.show()
    qtbot.waitExposed(dialog)
    fit_dialog(dialog, 400)
    before = dialog.height()

    stage.setText("Writing\nand reading\nand counting")
    grow_dialog(dialog)
    assert dialog.height() >= before + stage.fontMetrics().height()
    qtbot.wait(1)
    assert stage.height() >= stage.sizeHint().height()
    assert heading.height() >= heading.heightForWidth(heading.width())
