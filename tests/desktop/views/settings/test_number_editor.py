"""The editor of numbers: what can be typed, and which part of a range the slider has."""

from __future__ import annotations

from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QValidator
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QDoubleSpinBox, QSlider
from pytestqt.qtbot import QtBot

from desktop.views.settings.number_editor import NumberEditor
from engine.settings import SettingInfo

DONE, BEGUN, WRONG = QValidator.State.Acceptable, QValidator.State.Intermediate, QValidator.State.Invalid
USUAL: dict[str, Any] = {"low": -2.0, "high": 5.0, "step": 0.25, "neutral": 0.0, "words": ((-1.0, "auto"),)}


def made(qtbot: QtBot, kind: type = float, **info: Any) -> tuple[NumberEditor, QDoubleSpinBox]:
    editor = NumberEditor(SettingInfo("Share", "A share.", **info), kind)
    qtbot.addWidget(editor)
    box = editor.beside
    assert isinstance(box, QDoubleSpinBox)
    qtbot.addWidget(box)
    return editor, box


def slider_of(editor: NumberEditor) -> QSlider:
    found = editor.findChild(QSlider)
    assert isinstance(found, QSlider)
    return found


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("1.5", DONE), ("1,5", DONE), (" 2 ", DONE), ("-2", DONE), ("5", DONE), ("5.01", BEGUN),
        ("-3", BEGUN),
        ("", BEGUN), ("-", BEGUN), (".", BEGUN), ("-.", BEGUN), (",", BEGUN), ("-,", BEGUN),
        ("of", BEGUN), ("OFF", DONE),
        ("Auto", DONE), ("autos", WRONG), ("x", WRONG), ("1.2.3", WRONG), ("1e3", WRONG), ("--1", WRONG),
    ],
)  # fmt: skip
def test_what_can_be_typed(qtbot: QtBot, text: str, state: QValidator.State) -> None:
    _editor, box = made(qtbot, **USUAL)
    assert box.validate(text, 0)[:2] == (state, text)


@pytest.mark.parametrize(
    ("text", "shown", "value"),
    [
        ("99999999999999999999", "5.00", 5.0), ("5.01", "5.00", 5.0), ("-3", "-2.00", -2.0),
        ("9" * 400, "5.00", 5.0),
        ("", "1.50", 1.5), ("-", "1.50", 1.5), ("of", "1.50", 1.5),
    ],
)  # fmt: skip
def test_a_number_outside_the_range_becomes_its_bound(
    qtbot: QtBot, text: str, shown: str, value: float
) -> None:
    """What is no number yet is taken back."""
    editor, box = made(qtbot, **USUAL)
    editor.set_value(1.5)
    box.selectAll()
    QTest.keyClicks(box, text)
    if not text:
        QTest.keyClick(box, Qt.Key.Key_Delete)
    QTest.keyClick(box, Qt.Key.Key_Return)
    assert (box.text(), editor.value()) == (shown, value)


def test_whole_numbers_have_no_fractions(qtbot: QtBot) -> None:
    editor, box = made(qtbot, int, low=0, high=100)
    assert [box.validate(text, 0)[0] for text in ("7", "7.", "7,5", "101")] == [DONE, WRONG, WRONG, BEGUN]
    editor.set_value(7)
    assert (box.text(), editor.value(), type(editor.value()), box.singleStep()) == ("7", 7, int, 1.0)


def test_words_stand_for_numbers(qtbot: QtBot) -> None:
    editor, box = made(qtbot, **USUAL)
    for text, value in (("off", 0.0), (" Auto ", -1.0), ("1,25", 1.25), ("-0.5", -0.5)):
        assert box.valueFromText(text) == value
    for value, text in ((0.0, "off"), (-1.0, "auto"), (0.5, "0.50")):
        editor.set_value(value)
        assert (box.text(), editor.value()) == (text, value)
    _plain, other = made(qtbot, low=0.0, high=1.0, step=0.1)
    assert other.textFromValue(0.0) == "0.00"


def test_a_word_with_capitals_is_typed_in_any_case(qtbot: QtBot) -> None:
    """As in German, where "any free port" is "beliebiger freier Port"."""
    editor, box = made(qtbot, int, low=0, high=9, words=((0.0, "freier Port"),))
    for text in ("freier Port", "FREIER port"):
        assert box.validate(text, 0)[0] == DONE
        assert box.valueFromText(text) == 0.0
    assert box.validate("Freier P", 0)[0] == BEGUN
    editor.set_value(7)
    box.lineEdit().setText("freier Port")
    box.interpretText()
    assert editor.value() == 0


def test_a_word_of_its_own_stands_above_off(qtbot: QtBot) -> None:
    _editor, box = made(qtbot, int, low=0, high=9, neutral=0, words=((0.0, "auto"),))
    assert box.textFromValue(0.0) == "auto"


def test_small_steps_have_their_decimals(qtbot: QtBot) -> None:
    editor, box = made(qtbot, low=0.0, high=1.0, step=0.0005)
    editor.set_value(0.0125)
    assert (box.decimals(), box.text(), editor.value()) == (4, "0.0125", 0.0125)
    assert made(qtbot, low=0.0, high=1.0, step=0.1)[1].decimals() == 2


def test_the_slider_has_the_whole_range_in_steps(qtbot: QtBot) -> None:
    editor, box = made(qtbot, **USUAL)
    slider = slider_of(editor)
    assert (slider.minimum(), slider.maximum(), slider.pageStep()) == (0, 28, 2)
    editor.set_value(0.5)
    assert slider.value() == 10
    edits: list[float] = []
    editor.edited.connect(edits.append)
    slider.setValue(1)
    assert (box.value(), edits) == (-1.75, [-1.75])
    box.setValue(5.0)
    assert (slider.value(), edits) == (28, [-1.75, 5.0])
    few, _box = made(qtbot, int, low=0, high=5)
    assert slider_of(few).pageStep() == 1


def test_a_slider_ends_before_a_far_bound_on_both_sides(qtbot: QtBot) -> None:
    editor, box = made(qtbot, low=-100.0, high=100.0, step=0.5, slider_high=2.0)
    slider = slider_of(editor)
    assert slider.maximum() == 8
    editor.set_value(0.0)
    assert slider.value() == 4
    editor.set_value(50.0)
    assert (slider.value(), box.value()) == (8, 50.0)
    from_zero, _box = made(qtbot, low=0.0, high=100.0, step=0.5, slider_high=2.0)
    assert slider_of(from_zero).maximum() == 4


def test_long_and_open_ranges_have_no_slider(qtbot: QtBot) -> None:
    for info in ({"low": 0, "high": 1001}, {"low": 0}):
        editor, box = made(qtbot, int, **info)
        assert editor.findChild(QSlider) is None
        editor.set_value(900)
        assert box.value() == 900
    assert slider_of(made(qtbot, int, low=0, high=1000)[0]).maximum() == 1000
    assert made(qtbot, int, low=0)[1].maximum() == 1e9


def test_a_dragged_slider_is_told_apart_from_an_edit(qtbot: QtBot) -> None:
    editor, box = made(qtbot, **USUAL)
    slider = slider_of(editor)
    editor.set_value(0.0)
    typed, edits = list[float](), list[float]()
    editor.typed.connect(typed.append)
    editor.edited.connect(edits.append)
    slider.setSliderDown(True)
    slider.setSliderPosition(12)
    assert (box.value(), typed, edits) == (1.0, [1.0], [])
    editor.set_value(3.0)
    assert slider.value() == 12  # it stays below the pointer
    slider.setSliderPosition(13)
    slider.setSliderDown(False)
    assert edits == [1.25]
