"""Every control of every window and dialog has a name, a role and a target of 24 pixels, and no markup."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QLineEdit, QPushButton, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from desktop.views.widgets.combo_box import ComboBox, add_clear_button
from tests.desktop.accessible import faults, popup_faults

pytestmark = pytest.mark.gui


@pytest.fixture
def window(qtbot: QtBot) -> QWidget:
    made = QWidget()
    made.setWindowTitle("Window")
    QVBoxLayout(made)
    qtbot.addWidget(made)
    return made


def shown(window: QWidget, *widgets: QWidget) -> list[str]:
    for widget in widgets:
        window.layout().addWidget(widget)
        widget.setMinimumHeight(max(24, widget.minimumHeight()))
    window.show()
    return [fault.partition(":")[0] for fault in faults(window)]


def test_a_control_without_a_name_is_found(window: QWidget) -> None:
    button, line = QPushButton(), QLineEdit()
    assert shown(window, button, line) == ["no name", "no name"]
    button.setText("Send")
    line.setAccessibleName("Message")
    assert faults(window) == []


def test_markup_in_a_name_or_a_description_is_found(window: QWidget) -> None:
    label, button = QLabel("stopped at <|im_end|>"), QPushButton("Send")
    button.setToolTip("<p>Sends it</p>")
    assert [fault.split(":")[0] for fault in shown(window, label, button)] == [
        "markup in 'stopped at <|im_end|>'", "markup in '<p>Sends it</p>'",
    ]  # fmt: skip
    label.setAccessibleName("2 < 3")
    button.setAccessibleDescription("Sends it")
    assert faults(window) == []


def test_a_widget_that_takes_keys_and_has_no_role_is_found(window: QWidget) -> None:
    plain = QWidget()
    plain.setAccessibleName("Picture")
    plain.setFocusPolicy(Qt.FocusPolicy.TabFocus)
    assert shown(window, plain) == ["no role"]
    plain.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    assert faults(window) == []


def test_a_small_target_is_found(window: QWidget) -> None:
    button = QPushButton("Send")
    assert shown(window, button) == []
    button.setFixedSize(40, 23)
    assert [fault.partition(":")[0] for fault in faults(window)] == ["40x23 px"]


def test_inner_parts_of_boxes_have_names(window: QWidget) -> None:
    box, line = ComboBox(), QLineEdit("words")
    box.addItems(["one", "two"])
    box.setAccessibleName("Number")
    box.setMinimumHeight(24)
    line.setAccessibleName("Search")
    add_clear_button(line)
    assert shown(window, box, line) == []
    assert popup_faults(window) == []


@pytest.mark.slow
def test_every_page_and_dialog_keeps_the_rules() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.tools.accessible_pages"], stdout=subprocess.PIPE, text=True, timeout=280
    )
    found = json.loads(ran.stdout.splitlines()[-1])
    assert len(found["reached"]) >= 90
    assert found["faults"] == []
