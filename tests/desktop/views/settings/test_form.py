"""Forms made from settings: values round trip, and only the user's changes are emitted."""

import dataclasses
import typing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QTextCursor, QWheelEvent
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QApplication,
    QCheckBox,
    QComboBox,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QSlider,
)

from desktop.settings import PANES
from desktop.views.settings.editors import escape, make_editor, unescape
from desktop.views.settings.form import SettingsForm
from desktop.views.widgets.growing_text_edit import GrowingTextEdit
from engine.settings import (
    GuidanceSettings,
    LoadSettings,
    SamplerSettings,
    SettingInfo,
    Settings,
    SpeculationSettings,
    StopSettings,
    setting_info,
)
from engine.words import languages, set_language, translate


def sources(cls: type[Settings], value: str = "default") -> dict[str, str]:
    return {field.name: value for field in dataclasses.fields(cls)}


def values_of(cls: type[Settings]) -> st.SearchStrategy[Settings]:
    """Any valid settings of `cls`, numbers on the grid that the boxes can show."""
    kinds, parts = typing.get_type_hints(cls), {}
    for field in dataclasses.fields(cls):
        info, kind = setting_info(field), kinds[field.name]
        low, high = info.low, info.high
        many = typing.get_origin(kind) is tuple
        if info.choices:
            names = [value for value, _ in info.choices]
            parts[field.name] = st.permutations(names).map(tuple) if many else st.sampled_from(names)
        elif kind is bool:
            parts[field.name] = st.booleans()
        elif kind is int:
            parts[field.name] = st.integers(int(low or 0), int(high or 100))
        elif kind is float:
            parts[field.name] = st.integers(round((low or 0) * 100), round((high or 1) * 100)).map(
                lambda n: n / 100
            )
        elif kind == int | None:
            parts[field.name] = st.none() | st.integers(int(low or 0), int(high or 100))
        elif kind == tuple[int, ...]:
            parts[field.name] = st.lists(st.integers(0, 200_000), max_size=4).map(tuple)
        elif kind == tuple[str, ...]:
            breaks = "\t\\" if info.escaped or info.folders else "\n\t\\"
            letters = st.characters(exclude_categories=["Cs", "Cc", "Cn", "Zl", "Zp"])
            text = st.text(letters | st.sampled_from(breaks), min_size=1, max_size=8)
            parts[field.name] = st.lists(text, max_size=3).map(tuple)
        elif info.pattern:
            printable = st.characters(codec="ascii", exclude_categories=["Cc"])
            parts[field.name] = st.from_regex(info.pattern, fullmatch=True, alphabet=printable)
        else:
            parts[field.name] = st.text("abc äλ\u00a0\n" if info.multiline else "abc äλ", max_size=6)
    return st.builds(cls, **parts)


@pytest.mark.parametrize("cls", [cls for _, cls in PANES])
def test_values_round_trip_without_a_change_signal(qtbot, cls: type[Settings]) -> None:
    form = SettingsForm(cls)
    qtbot.addWidget(form)
    reported: list[tuple[str, object]] = []
    form.changed.connect(lambda name, value: reported.append((name, value)))

    @settings(max_examples=40, suppress_health_check=list(HealthCheck))
    @given(values_of(cls))
    def check(value: Settings) -> None:
        form.show_values(value, sources(cls))
        assert form.values() == value

    check()
    assert reported == []


@given(st.text())
def test_escape_round_trip(text: str) -> None:
    assert unescape(escape(text)) == text
    assert "\n" not in escape(text)


def test_an_unknown_escape_is_kept() -> None:
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
    form.reported = []
    form.changed.connect(lambda name, value: form.reported.append((name, value)))
    form.show()
    return form


def test_slider_and_box_are_bound_both_ways(sampling) -> None:
    slider, box = (
        find(sampling, QSlider, "Temperature, slider"),
        find(sampling, QAbstractSpinBox, "Temperature"),
    )
    assert (slider.maximum(), slider.value(), box.text()) == (40, 14, "0.70")
    slider.setValue(20)
    assert box.text() == "off"
    assert sampling.reported[-1] == ("temperature", 1.0)
    box.setValue(1.5)
    assert slider.value() == 30
    assert sampling.reported[-1] == ("temperature", 1.5)
    box.setValue(7.25)  # beyond the end of the slider, inside the true range
    assert slider.value() == slider.maximum()
    assert sampling.values().temperature == 7.25


def test_a_dragged_slider_emits_once_when_it_is_released(sampling) -> None:
    slider, box = find(sampling, QSlider, "Top P, slider"), find(sampling, QAbstractSpinBox, "Top P")
    slider.setSliderDown(True)
    for position in (90, 80, 70):
        slider.setSliderPosition(position)
    assert box.text() == "0.70"
    assert sampling.reported == []
    slider.setSliderDown(False)
    assert sampling.reported == [("top_p", 0.7)]


def test_off_can_be_typed(sampling, qtbot) -> None:
    box = find(sampling, QAbstractSpinBox, "Top K")
    box.setFocus()
    box.selectAll()
    qtbot.keyClicks(box, "off")
    qtbot.keyClick(box, Qt.Key.Key_Return)
    assert sampling.reported == [("top_k", 0)]
    box.selectAll()
    qtbot.keyClicks(box, "12")
    qtbot.keyClick(box, Qt.Key.Key_Return)
    assert sampling.reported[-1] == ("top_k", 12)


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


@pytest.mark.parametrize("code", languages())
def test_words_fit_into_the_boxes_of_numbers(code, qtbot) -> None:
    set_language(code)
    try:
        form = SettingsForm(SamplerSettings)
        qtbot.addWidget(form)
        form.show_values(SamplerSettings(), sources(SamplerSettings))
        form.resize(300, 2000)
        form.show()
        boxes = [box for box in form.findChildren(QAbstractSpinBox) if box.text()[0].isalpha()]
        assert len(boxes) > 5
        for box in boxes:
            around = box.lineEdit().textMargins()
            needed = box.fontMetrics().horizontalAdvance(box.text()) + around.left() + around.right()
            assert needed + 8 <= box.width(), box.text()  # with the border
    finally:
        set_language("en")


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
    assert sampling.reported == [("seed", 9223372036854775807)]
    line.clear()
    qtbot.keyClick(line, Qt.Key.Key_Return)
    assert sampling.reported[-1] == ("seed", None)


def test_stop_strings_are_lines_with_escapes(qtbot) -> None:
    form = SettingsForm(StopSettings)
    qtbot.addWidget(form)
    form.show_values(StopSettings(stop_strings=("a\nb", " c")), sources(StopSettings))
    reported: list[object] = []
    form.changed.connect(lambda name, value: reported.append((name, value)))
    box = find(form, QPlainTextEdit, "Stop strings")
    assert box.toPlainText() == "a\\nb\n c"
    box.moveCursor(QTextCursor.MoveOperation.End)
    qtbot.keyClick(box, Qt.Key.Key_Return)
    qtbot.keyClick(box, Qt.Key.Key_Return)
    qtbot.keyClicks(box, r"\tEND")
    assert reported == []  # only when the user pauses
    qtbot.waitUntil(lambda: reported == [("stop_strings", ("a\nb", " c", "\tEND"))])


def test_a_text_box_grows_with_its_text_up_to_a_bound(qtbot) -> None:
    box = GrowingTextEdit("Notes", least=2, most=6)
    qtbot.addWidget(box)
    box.resize(300, 40)
    box.show()
    low = box.height()
    box.show_text("\n".join("abcd"))
    middle = box.height()
    box.show_text("\n" * 5)
    full = box.height()
    box.show_text("\n" * 40)
    assert low < middle < full == box.height()
    assert box.verticalScrollBarPolicy() == Qt.ScrollBarPolicy.ScrollBarAsNeeded


def test_a_text_is_emitted_when_its_box_loses_the_focus(qtbot) -> None:
    form = SettingsForm(GuidanceSettings)
    qtbot.addWidget(form)
    form.show_values(GuidanceSettings(), sources(GuidanceSettings))
    form.show()
    form.activateWindow()
    box = find(form, QPlainTextEdit, "Negative system prompt")
    box.setFocus()
    qtbot.waitUntil(box.hasFocus)
    qtbot.keyClicks(box, "rude")
    with qtbot.waitSignal(form.changed) as change:
        qtbot.keyClick(box, Qt.Key.Key_Tab)
    assert change.args == ["negative_prompt", "rude"]


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


def test_choices_are_emitted_by_value(qtbot) -> None:
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
    button = sampling.row("top_p").reset
    assert not button.isVisible()
    sampling.show_values(SamplerSettings(top_p=0.5), {**sources(SamplerSettings), "top_p": "conversation"})
    assert button.isVisible()
    assert "this chat" in button.toolTip()
    assert "default" in button.accessibleName()
    with qtbot.waitSignal(sampling.reset_requested) as expected:
        qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    assert expected.args == ["top_p"]


def test_wheel_over_an_unfocused_control_changes_nothing(sampling) -> None:
    before = sampling.values()
    for control in (
        *sampling.findChildren(QSlider),
        *sampling.findChildren(QAbstractSpinBox),
        *sampling.findChildren(QComboBox),
    ):
        control.clearFocus()
        here = QPointF(control.rect().center())
        event = QWheelEvent(
            here, QPointF(control.mapToGlobal(here)), QPoint(), QPoint(0, 120), Qt.MouseButton.NoButton,
            Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False,
        )  # fmt: skip
        QApplication.sendEvent(control, event)
        assert not event.isAccepted(), control.accessibleName()
    assert sampling.values() == before
    assert sampling.reported == []


# -- which rows are seen, and what they say


def seen(form: SettingsForm) -> set[str]:
    return {field.name for field in dataclasses.fields(form.cls) if not form.row(field.name).isHidden()}


def test_advanced_rows_are_shown_by_the_switch_or_when_changed(qtbot) -> None:
    form = SettingsForm(SamplerSettings)
    qtbot.addWidget(form)
    form.show_values(SamplerSettings(), sources(SamplerSettings))
    every = seen(form)
    form.set_advanced(False)
    usual = {field.name for field in dataclasses.fields(SamplerSettings) if not setting_info(field).advanced}
    assert seen(form) == usual < every
    form.show_values(SamplerSettings(skew=0.5), {**sources(SamplerSettings), "skew": "conversation"})
    assert seen(form) == usual | {"skew"}
    form.show_values(SamplerSettings(), sources(SamplerSettings, "preset Everything"))
    assert seen(form) == usual  # A preset that changes nothing shows no advanced row.


def test_headings_are_shown_only_with_their_rows(qtbot) -> None:
    form = SettingsForm(SamplerSettings)
    qtbot.addWidget(form)
    form.set_advanced(False)

    def headings() -> list[str]:
        return [
            label.text()
            for label in form.findChildren(QLabel)
            if label.property("tone") == "subheading" and not label.isHidden()
        ]

    assert headings() == ["Variety", "Truncation", "Repetition"]
    form.set_advanced(True)
    assert headings() == ["Variety", "Truncation", "Repetition", "Special", "Order"]
    assert form.set_query(["xtc", "probability"])
    assert headings() == ["Special"]
    assert not form.set_query(["zebra"])
    assert headings() == []


def test_a_search_finds_advanced_rows_by_label_help_and_choices(qtbot) -> None:
    form = SettingsForm(StopSettings)
    qtbot.addWidget(form)
    form.set_advanced(False)
    assert form.set_query(["oldest", "messages"])
    assert seen(form) == {"when_full"}
    assert form.set_query(["end-of-turn"])
    assert seen(form) == {"min_tokens"}
    form.set_query([])
    assert "min_tokens" not in seen(form)


def test_a_field_that_another_widget_shows_has_no_row(qtbot) -> None:
    form = SettingsForm(SpeculationSettings)
    qtbot.addWidget(form)
    extra = QLabel("drafts")
    form.add_extra(extra, below=False, replaces=("method", "draft_model"))
    form.show_values(
        SpeculationSettings(method="ngram"), {**sources(SpeculationSettings), "method": "conversation"}
    )
    assert seen(form).isdisjoint({"method", "draft_model"})
    assert form.values().method == "ngram"
    form.set_query(["draft", "model"])
    assert not extra.isHidden()
    form.set_query(["longest", "match"])
    assert extra.isHidden()


def test_the_source_is_a_word_in_the_row_and_a_phrase_for_a_screen_reader(sampling) -> None:
    reported = {
        **sources(SamplerSettings),
        "top_p": "conversation",
        "top_k": "saved default",
        "min_p": "preset Creative",
    }
    sampling.show_values(SamplerSettings(top_p=0.5, top_k=3, min_p=0.2), reported)
    words = {name: sampling.row(name).toolTip() for name in reported}
    shown = {
        name: [label.text() for label in sampling.row(name).findChildren(QLabel) if label.isVisible()]
        for name in reported
    }
    assert (shown["top_p"], shown["top_k"], shown["temperature"]) == (
        ["Top P", "this chat"],
        ["Top K", "saved"],
        ["Temperature"],
    )
    assert "Set in this chat" in words["top_p"]
    assert "Your saved default" in words["top_k"]
    assert "From the preset Creative" in sampling.editor("min_p").accessibleDescription()
    assert "The program's default" in sampling.editor("temperature").accessibleDescription()
    assert sampling.own_values == 3


def test_reset_is_offered_only_where_it_would_change_something(sampling) -> None:
    reported = {**sources(SamplerSettings), "top_p": "preset Creative", "min_p": "preset Creative"}
    sampling.show_values(SamplerSettings(top_p=0.5), reported, SamplerSettings(top_p=0.9))
    assert sampling.row("top_p").reset.isVisible()
    assert not sampling.row("min_p").reset.isVisible()


# -- fields whose values are checked before they apply


@pytest.fixture
def held(qtbot) -> SettingsForm:
    form = SettingsForm(StopSettings)
    form.hold(["stop_regex"])
    qtbot.addWidget(form)
    form.show_values(StopSettings(stop_regex="old"), sources(StopSettings))
    form.reported, form.asked = [], []
    form.changed.connect(lambda name, value: form.reported.append((name, value)))
    form.proposed.connect(lambda name, value, at_leisure: form.asked.append((name, value, at_leisure)))
    return form


def type_over(qtbot, line: QLineEdit, text: str) -> None:
    line.selectAll()
    qtbot.keyClicks(line, text)


def test_a_held_field_proposes_and_applies_only_when_accepted(held, qtbot) -> None:
    line = find(held, QLineEdit, "Stop expression")
    type_over(qtbot, line, "a(")
    assert held.asked == [("stop_regex", "a", False), ("stop_regex", "a(", False)]
    qtbot.keyClick(line, Qt.Key.Key_Return)
    assert held.asked[-1] == ("stop_regex", "a(", True)
    assert held.reported == []
    held.show_values(StopSettings(stop_regex="old", max_tokens=5), sources(StopSettings))
    assert line.text() == "a("  # another change of the pane does not take it away
    held.accept("stop_regex")
    assert held.reported == [("stop_regex", "a(")]


def test_another_value_from_outside_ends_a_proposal(held, qtbot) -> None:
    line = find(held, QLineEdit, "Stop expression")
    type_over(qtbot, line, "a(")
    held.row("stop_regex").show_note("no")
    held.show_values(StopSettings(stop_regex="new"), sources(StopSettings))
    assert line.text() == "new"
    assert held.row("stop_regex").note.isHidden()
    held.accept("stop_regex")
    assert held.reported == []


def test_proposals_can_be_taken_out_and_restored(held, qtbot) -> None:
    line = find(held, QLineEdit, "Stop expression")
    type_over(qtbot, line, "a(")
    taken = held.take_proposals()
    assert (taken, line.text()) == ({"stop_regex": "a("}, "old")
    held.asked.clear()
    held.put_proposals(taken)
    assert line.text() == "a("
    assert held.asked == [("stop_regex", "a(", True)]


def test_each_row_is_below_the_heading_of_its_group_whenever_it_is_made(qtbot) -> None:
    form = SettingsForm(SamplerSettings, advanced=False)
    qtbot.addWidget(form)
    names = [field.name for field in dataclasses.fields(SamplerSettings)]
    for name in (names[-1], names[0], *names):
        form.row(name)
    form.resize(500, 4000)
    form.show()
    form.set_advanced(True)
    tops = {label.text(): label.y() for label in form.findChildren(QLabel) if label.parent() is form}
    groups = [setting_info(field).group for field in dataclasses.fields(SamplerSettings)]
    placed = {name: form.row(name).y() for name in names}
    for group in filter(None, dict.fromkeys(groups)):
        inside = [placed[name] for name, its in zip(names, groups, strict=True) if its == group]
        lower = [top for words, top in tops.items() if top > tops[translate(group)]]
        assert inside == sorted(inside)
        assert tops[translate(group)] < inside[0]
        assert inside[-1] < min(lower, default=10**6)
