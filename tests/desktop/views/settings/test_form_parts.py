"""What others put into a form: reasons, notes, widgets in the place of fields; and what a search shows."""

from __future__ import annotations

import dataclasses

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel, QPushButton, QSlider, QWidget
from pytestqt.qtbot import QtBot

from desktop.services.settings.validation import ValidationService
from desktop.views.settings.form import SettingsForm
from desktop.views.settings.order_editor import OrderEditor
from desktop.views.settings.validated_fields import ValidatedFields
from engine.settings import SamplerSettings, Settings, StopSettings


def show_values(form: SettingsForm, values: Settings, source: str = "default") -> None:
    form.show_values(values, {field.name: source for field in dataclasses.fields(values)})  # type: ignore[arg-type]


@pytest.fixture
def form(qtbot: QtBot) -> SettingsForm:
    made = SettingsForm(SamplerSettings, advanced=False)
    qtbot.addWidget(made)
    show_values(made, SamplerSettings())
    made.resize(400, 2000)
    made.show()
    return made


def labels(widget: QWidget) -> list[str]:
    return [label.text() for label in widget.findChildren(QLabel) if label.isVisible()]


def test_reasons_disable_fields_and_what_stands_in_their_place(form: SettingsForm) -> None:
    extra, other = QPushButton("Steps"), QPushButton("More")
    form.add_extra(extra, below=False, replaces=("top_k", "top_p"))
    form.add_extra(other, below=True)
    form.show_reasons({"top_k": "It has no effect.", "min_p": "It has no effect."}, "This model is odd.")
    assert not form.row("min_p").isEnabled()
    assert form.row("temperature").isEnabled()
    assert (extra.isEnabled(), other.isEnabled()) == (True, True)
    assert labels(form).count("This model is odd.") == 1
    form.show_reasons({"top_k": "It has no effect.", "top_p": "It has no effect."})
    assert (extra.isEnabled(), other.isEnabled()) == (False, True)
    assert form.row("min_p").isEnabled()
    assert "This model is odd." not in labels(form)
    form.show_reasons({}, "Another one.")
    assert extra.isEnabled()
    assert labels(form).count("Another one.") == 1


def test_only_the_answer_about_the_present_text_counts(qtbot: QtBot) -> None:
    form, validation = SettingsForm(StopSettings), ValidationService({})
    qtbot.addWidget(form)
    show_values(form, StopSettings())
    form.set_query(["expression"])
    form.show()
    ValidatedFields(form, ("stop_regex",), validation, "expression")
    accepted: list[tuple[str, object]] = []
    form.changed.connect(lambda *values: accepted.append(values))
    form.propose("stop_regex", "x+")
    for kind, text, sentence in (
        ("bias", "x+", ""), ("expression", "x", ""), ("bias", "x+", "Other."), ("expression", "x+", "Wrong."),
    ):  # fmt: skip
        validation.checked.emit(kind, (text,), sentence)
    assert accepted == []
    assert [label for label in labels(form) if label in ("Other.", "Wrong.")] == ["Wrong."]
    validation.checked.emit("expression", ("x+",), "")
    assert accepted == [("stop_regex", "x+")]
    assert "Wrong." not in labels(form)


def test_widgets_stand_above_or_below_the_fields_and_in_their_place(form: SettingsForm) -> None:
    above, below = QPushButton("Steps"), QPushButton("More")
    form.add_extra(above, below=False, replaces=("top_k",), words="Favourites")
    form.add_extra(below, below=True)
    form.layout().activate()
    field = form.row("temperature")
    assert above.y() < field.y() < below.y()
    assert form.replaced("top_k")
    assert not form.row("top_k").isVisible()
    assert form.call("top_k") is above
    for words, seen in ((["top", "k"], True), (["favour"], True), (["zebra"], False), ([], True)):
        form.set_query(words)
        assert above.isVisible() is seen, words
    assert form.call("xtc_threshold") is form.row("xtc_threshold")
    assert form.row("xtc_threshold").isVisible()
    form.set_query([])
    assert not form.row("xtc_threshold").isVisible()


def test_a_search_marks_rows_that_are_there_and_those_it_brings(form: SettingsForm) -> None:
    assert form.set_query(["threshold"])
    marked = [text for text in labels(form.row("xtc_threshold")) if "<span" in text]
    assert len(marked) == 1
    assert form.set_query(["temp"])
    assert any("<span" in text for text in labels(form.row("temperature")))
    assert form.set_query([])
    assert not any("<span" in text for text in labels(form))


def test_a_note_waits_until_its_field_is_shown(form: SettingsForm) -> None:
    form.show_note("xtc_threshold", "This is too much.")
    assert "This is too much." not in labels(form)
    form.set_advanced(True)
    assert "This is too much." in labels(form)
    form.show_note("xtc_threshold", "")
    assert "This is too much." not in labels(form)
    form.set_advanced(False)
    assert not form.row("xtc_threshold").isVisible()


def test_what_is_dragged_is_typed_and_what_is_set_is_changed(form: SettingsForm) -> None:
    typed, changed = list[tuple[str, object]](), list[tuple[str, object]]()
    form.typed.connect(lambda name, value: typed.append((name, value)))
    form.changed.connect(lambda name, value: changed.append((name, value)))
    slider = form.row("top_p").findChild(QSlider)
    assert isinstance(slider, QSlider)
    slider.setSliderDown(True)
    slider.setSliderPosition(80)
    assert (typed, changed) == ([("top_p", 0.8)], [])
    slider.setSliderDown(False)
    assert (typed, changed) == ([("top_p", 0.8)], [("top_p", 0.8)])


def test_the_order_shows_which_steps_do_nothing_with_the_values_shown(form: SettingsForm) -> None:
    def off() -> set[str]:
        editor = form.editor("order")
        assert isinstance(editor, OrderEditor)
        items = [editor.list.item(row) for row in range(editor.list.count())]
        spoken = ((item.text(), item.data(Qt.ItemDataRole.AccessibleTextRole)) for item in items)
        return {text for text, words in spoken if words.endswith(", off")}

    form.set_advanced(True)
    assert "XTC" in off()
    assert "Top K" not in off()
    show_values(form, SamplerSettings(xtc_probability=0.5, top_k=0))
    assert "XTC" not in off()
    assert "Top K" in off()


def test_other_keys_with_alt_move_no_step(form: SettingsForm) -> None:
    form.set_advanced(True)
    editor = form.editor("order")
    assert isinstance(editor, OrderEditor)
    editor.list.setCurrentRow(3)
    before = [editor.list.item(row).text() for row in range(editor.list.count())]
    for key in (Qt.Key.Key_Left, Qt.Key.Key_Home, Qt.Key.Key_X):
        QTest.keyClick(editor.list, key, Qt.KeyboardModifier.AltModifier)
    assert [editor.list.item(row).text() for row in range(editor.list.count())] == before
    editor.list.setCurrentRow(3)
    QTest.keyClick(editor.list, Qt.Key.Key_Up, Qt.KeyboardModifier.AltModifier)
    assert editor.list.item(2).text() == before[3]


def test_the_control_of_a_number_without_a_slider_is_its_box(qtbot: QtBot) -> None:
    form = SettingsForm(StopSettings)
    qtbot.addWidget(form)
    show_values(form, StopSettings())
    form.resize(400, 2000)
    form.show()
    for name in StopSettings().to_json():
        control, row = form.control(name), form.row(name)
        assert control is not None, name
        assert row.isAncestorOf(control), name
