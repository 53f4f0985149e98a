"""Forms built from settings: what goes in comes out, what the user does is told, and nothing else."""

import dataclasses
import typing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QAbstractSpinBox, QApplication, QCheckBox, QComboBox, QLineEdit, QPushButton, QSlider

from desktop.settings import PANES
from desktop.views.editors import escape, make_editor, unescape
from desktop.views.form import SettingsForm
from desktop.views.icons import IconButton
from engine.settings import LoadSettings, SamplerSettings, SettingInfo, Settings, StopSettings, setting_info


def sources(cls: type[Settings], value: str = "default") -> dict[str, str]:
    return {field.name: value for field in dataclasses.fields(cls)}


def values_of(cls: type[Settings]) -> st.SearchStrategy[Settings]:
    """Any valid settings of `cls`, numbers on the grid that the boxes can show."""
    kinds, parts = typing.get_type_hints(cls), {}
    for field in dataclasses.fields(cls):
        info, kind = setting_info(field), kinds[field.name]
        low, high = info.low, info.high
        if info.choices:
            parts[field.name] = st.sampled_from([value for value, _ in info.choices])
        elif kind is bool:
            parts[field.name] = st.booleans()
        elif kind is int:
            parts[field.name] = st.integers(int(low or 0), int(high or 100))
        elif kind is float:
            parts[field.name] = st.integers(round((low or 0) * 100), round((high or 1) * 100)).map(lambda n: n / 100)
        elif kind == int | None:
            parts[field.name] = st.none() | st.integers(int(low or 0), int(high or 100))
        elif kind == tuple[int, ...]:
            parts[field.name] = st.lists(st.integers(0, 200_000), max_size=4).map(tuple)
        elif kind == tuple[str, ...]:
            text = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]) | st.sampled_from("\n\t\\"), min_size=1, max_size=8)
            parts[field.name] = st.lists(text, max_size=3).map(tuple)
        else:
            parts[field.name] = st.text("abc äλ", max_size=6)
    return st.builds(cls, **parts)


@pytest.mark.parametrize("cls", [cls for _, cls in PANES])
def test_what_goes_in_comes_out_and_is_not_told_as_a_change(qtbot, cls: type[Settings]) -> None:
    form = SettingsForm(cls)
    qtbot.addWidget(form)
    told: list[tuple[str, object]] = []
    form.changed.connect(lambda name, value: told.append((name, value)))

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(values_of(cls))
    def check(value: Settings) -> None:
        form.show_values(value, sources(cls))
        assert form.values() == value

    check()
    assert told == []


@given(st.text())
def test_escape_round_trip(text: str) -> None:
    assert unescape(escape(text)) == text
    assert "\n" not in escape(text)


def test_unknown_escape_stands_for_itself() -> None:
    assert unescape(r"\d\n") == "\\d\n"


def find(form: SettingsForm, kind: type, name: str):
    found = [w for w in form.findChildren(kind) if w.accessibleName() == name]
    assert len(found) == 1, (name, [w.accessibleName() for w in form.findChildren(kind)])
    return found[0]


@pytest.fixture
def sampling(qtbot):
    form = SettingsForm(SamplerSettings)
    qtbot.addWidget(form)
    form.show_values(SamplerSettings(), sources(SamplerSettings))
    form.told = []
    form.changed.connect(lambda name, value: form.told.append((name, value)))
    form.show()
    return form


def test_slider_and_box_are_bound_both_ways(sampling) -> None:
    slider, box = find(sampling, QSlider, "Temperature, slider"), find(sampling, QAbstractSpinBox, "Temperature")
    assert (slider.maximum(), slider.value(), box.text()) == (40, 14, "0.70")
    slider.setValue(20)
    assert box.text() == "off"
    assert sampling.told[-1] == ("temperature", 1.0)
    box.setValue(1.5)
    assert slider.value() == 30
    assert sampling.told[-1] == ("temperature", 1.5)
    box.setValue(7.25)  # beyond the end of the slider, inside the true range
    assert slider.value() == slider.maximum()
    assert sampling.values().temperature == 7.25


def test_a_dragged_slider_tells_once_when_it_is_let_go(sampling) -> None:
    slider, box = find(sampling, QSlider, "Top P, slider"), find(sampling, QAbstractSpinBox, "Top P")
    slider.setSliderDown(True)
    for position in (90, 80, 70):
        slider.setSliderPosition(position)
    assert box.text() == "0.70"
    assert sampling.told == []
    slider.setSliderDown(False)
    assert sampling.told == [("top_p", 0.7)]


def test_off_can_be_typed(sampling, qtbot) -> None:
    box = find(sampling, QAbstractSpinBox, "Top K")
    box.setFocus()
    box.selectAll()
    qtbot.keyClicks(box, "off")
    qtbot.keyClick(box, Qt.Key.Key_Return)
    assert sampling.told == [("top_k", 0)]
    box.selectAll()
    qtbot.keyClicks(box, "12")
    qtbot.keyClick(box, Qt.Key.Key_Return)
    assert sampling.told[-1] == ("top_k", 12)


def test_numbers_with_a_meaning_are_words(qtbot) -> None:
    form = SettingsForm(LoadSettings)
    qtbot.addWidget(form)
    form.show_values(LoadSettings(), sources(LoadSettings))
    box = find(form, QAbstractSpinBox, "Threads")
    assert box.text() == "auto"
    box.setValue(4)
    assert box.text() == "4"
    box.selectAll()
    qtbot.keyClicks(box, "Auto")
    with qtbot.waitSignal(form.changed) as change:
        qtbot.keyClick(box, Qt.Key.Key_Return)
    assert change.args == ["threads", 0]


def test_letters_cannot_be_typed_into_a_number(sampling, qtbot) -> None:
    box = find(sampling, QAbstractSpinBox, "Min P")
    box.selectAll()
    qtbot.keyClicks(box, "0x.2q")
    qtbot.keyClick(box, Qt.Key.Key_Return)
    assert sampling.values().min_p == 0.2


def test_seed_is_a_number_or_random(sampling, qtbot) -> None:
    line = find(sampling, QLineEdit, "Seed")
    assert line.text() == ""
    assert line.placeholderText() == "random"
    qtbot.keyClicks(line, "9223372036854775807")
    qtbot.keyClick(line, Qt.Key.Key_Return)
    assert sampling.told == [("seed", 9223372036854775807)]
    line.clear()
    qtbot.keyClick(line, Qt.Key.Key_Return)
    assert sampling.told[-1] == ("seed", None)


def test_stop_strings_are_added_and_removed(qtbot) -> None:
    form = SettingsForm(StopSettings)
    qtbot.addWidget(form)
    form.show_values(StopSettings(stop_strings=("a\nb",)), sources(StopSettings))
    told: list[object] = []
    form.changed.connect(lambda name, value: told.append(value))
    assert find(form, QLineEdit, "Stop strings 1").text() == r"a\nb"
    qtbot.mouseClick(find(form, QPushButton, "Add to Stop strings"), Qt.MouseButton.LeftButton)
    line = find(form, QLineEdit, "Stop strings 2")
    qtbot.keyClicks(line, r"\tEND")
    qtbot.keyClick(line, Qt.Key.Key_Return)
    assert told == [("a\nb", "\tEND")]
    qtbot.mouseClick(find(form, IconButton, "Remove stop strings 1"), Qt.MouseButton.LeftButton)
    assert told[-1] == ("\tEND",)


def test_ids_are_read_with_commas_or_spaces(qtbot) -> None:
    form = SettingsForm(StopSettings)
    qtbot.addWidget(form)
    form.show_values(StopSettings(), sources(StopSettings))
    line = find(form, QLineEdit, "Stop token ids")
    qtbot.keyClicks(line, "2, 7 32000")
    with qtbot.waitSignal(form.changed) as change:
        qtbot.keyClick(line, Qt.Key.Key_Return)
    assert change.args == ["stop_token_ids", (2, 7, 32000)]
    assert line.text() == "2, 7, 32000"


def test_choices_are_told_by_value(qtbot) -> None:
    form = SettingsForm(StopSettings)
    qtbot.addWidget(form)
    form.show_values(StopSettings(), sources(StopSettings))
    combo = find(form, QComboBox, "When the context is full")
    with qtbot.waitSignal(form.changed) as change:
        qtbot.keyClick(combo, Qt.Key.Key_Down)
    assert change.args == ["when_full", "stop"]


def test_check_box_for_on_and_off(qtbot) -> None:
    editor = make_editor(SettingInfo(label="Wrap", help="Wraps."), bool)
    qtbot.addWidget(editor)
    editor.set_value(True)
    with qtbot.waitSignal(editor.edited) as change:
        editor.findChild(QCheckBox).click()
    assert change.args == [False]


def test_a_type_without_an_editor_is_refused() -> None:
    with pytest.raises(TypeError, match="no editor"):
        make_editor(SettingInfo(label="X", help="x"), bytes)


def test_reset_shows_only_away_from_the_default_and_says_where_the_value_comes_from(sampling, qtbot) -> None:
    button = sampling.reset_button("top_p")
    assert not button.isVisible()
    sampling.show_values(SamplerSettings(top_p=0.5), {**sources(SamplerSettings), "top_p": "conversation"})
    assert button.isVisible()
    assert "this conversation" in button.toolTip()
    assert "saved default" in button.accessibleName()
    with qtbot.waitSignal(sampling.reset_requested) as wanted:
        qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    assert wanted.args == ["top_p"]


def test_wheel_over_an_unfocused_control_changes_nothing(sampling) -> None:
    before = sampling.values()
    for control in (*sampling.findChildren(QSlider), *sampling.findChildren(QAbstractSpinBox), *sampling.findChildren(QComboBox)):
        control.clearFocus()
        here = QPointF(control.rect().center())
        event = QWheelEvent(
            here, QPointF(control.mapToGlobal(here)), QPoint(), QPoint(0, 120), Qt.MouseButton.NoButton,
            Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False,
        )  # fmt: skip
        QApplication.sendEvent(control, event)
        assert not event.isAccepted(), control.accessibleName()
    assert sampling.values() == before
    assert sampling.told == []
