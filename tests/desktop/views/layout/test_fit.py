"""Dialogs are as high as their text needs."""

from __future__ import annotations

from PySide6.QtWidgets import QDialog, QLabel, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from desktop.views.layout.fit import fit_dialog, grow_dialog
from desktop.views.widgets.scroll_area import DialogBody


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


def test_a_dialog_is_at_once_as_high_as_what_scrolls_in_it(qtbot: QtBot) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    window.resize(900, 800)
    dialog, content, late = QDialog(window), QWidget(), QLabel("one\ntwo\nthree\nfour")
    for label in (QLabel("first"), late):
        label.setWordWrap(True)
        (content.layout() or QVBoxLayout(content)).addWidget(label)
    late.hide()
    body = DialogBody(content)
    QVBoxLayout(dialog).addWidget(body)
    window.show()
    dialog.show()
    qtbot.waitExposed(dialog)
    fit_dialog(dialog, 400)
    late.show()
    fit_dialog(dialog, 400)
    assert late.height() >= late.sizeHint().height()
    assert body.verticalScrollBar().maximum() == 0
