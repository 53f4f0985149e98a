"""Every control of every window and dialog has a name, a role and a target of 24 pixels, and no markup;
nothing is cut off with large text or in a narrow window.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QLineEdit, QPushButton, QScrollArea, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from desktop.views.widgets.combo_box import ComboBox, add_clear_button
from tests.desktop.accessible import faults, popup_faults
from tests.desktop.clipped import clipped, lost
from tests.desktop.focus_ring import unseen_focus

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


def test_a_text_without_room_is_found(window: QWidget) -> None:
    button, label, outside = (
        QPushButton("A rather long text"),
        QLabel("one two three four"),
        QPushButton("far"),
    )
    label.setWordWrap(True)
    window.resize(300, 200)
    window.show()
    for widget, place in (
        (button, (10, 10, 60, 30)),
        (label, (10, 60, 40, 15)),
        (outside, (290, 90, 90, 30)),
    ):
        widget.setParent(window)
        widget.setGeometry(*place)
        widget.show()
    assert [fault[:24] for fault in clipped(window)] == [
        "cut: 'A rather long text",
        "cut: 'one two three four",
    ]
    assert [fault[:30] for fault in lost(window)] == ["out of reach sideways: 'far': "]
    button.resize(button.sizeHint())
    label.resize(200, 60)
    outside.move(200, 90)
    assert [*clipped(window), *lost(window)] == []


def test_what_can_be_scrolled_to_is_not_lost(window: QWidget) -> None:
    area, inner = QScrollArea(), QWidget()
    inner.resize(400, 900)
    QPushButton("below", inner).setGeometry(0, 850, 80, 30)
    QPushButton("beside", inner).setGeometry(310, 0, 80, 30)
    area.setWidget(inner)
    window.layout().addWidget(area)
    window.resize(200, 200)
    window.show()
    assert [*lost(window)] == []
    area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    assert [fault.split(":")[1] for fault in lost(window)] == [" 'beside'"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("screen", "language"),
    [
        (("1180", "800", "200"), "en"), (("400", "700", "100"), "en"), (("400", "700", "200"), "en"),
        (("400", "700", "200"), "de"), (("400", "700", "200"), "ar"), (("400", "700", "200"), "es"),
        (("400", "700", "200"), "zh_CN"), (("400", "700", "200"), "ja"),
    ],
    ids=[
        "large", "narrow", "both", "both-german", "both-mirrored", "both-spanish", "both-chinese",
        "both-japanese",
    ],
)  # fmt: skip
def test_no_page_loses_anything_with_large_text_or_in_a_narrow_window(
    screen: tuple[str, str, str], language: str
) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.tools.accessible_pages", "--screen", *screen, "--language", language],
        stdout=subprocess.PIPE, text=True, timeout=800, check=False,
    )  # fmt: skip
    found = json.loads(ran.stdout.splitlines()[-1])
    assert len(found["reached"]) >= 90
    assert found["faults"] == []


def test_a_focus_that_is_not_seen_is_found(window: QWidget, qtbot: QtBot) -> None:
    seen, unseen = QPushButton("Seen"), QPushButton("Unseen")
    frame = "QPushButton { border: 2px solid white; outline: none; }"
    seen.setStyleSheet(f"{frame} QPushButton:focus {{ border: 2px solid black; }}")
    unseen.setStyleSheet(frame)
    for button in (seen, unseen):
        window.layout().addWidget(button)
    window.show()
    window.activateWindow()
    qtbot.waitUntil(window.isActiveWindow)
    assert [fault.split("'")[1] for fault in unseen_focus(window)] == ["Unseen"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_page_and_dialog_keeps_the_rules_and_shows_the_focus() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.tools.accessible_pages", "--focus"],
        stdout=subprocess.PIPE, text=True, timeout=800, check=False,
    )  # fmt: skip
    found = json.loads(ran.stdout.splitlines()[-1])
    assert len(found["reached"]) >= 90
    assert found["faults"] == []
