"""The settings panes in the window: presets, checks while typing, memory, search, what is remembered."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QFileDialog,
    QInputDialog,
    QLineEdit,
    QPlainTextEdit,
    QSlider,
    QWidget,
)

from desktop.settings import PANES, Appearance, Behaviour
from engine.settings import (
    CacheSettings,
    ConstraintSettings,
    LoadSettings,
    SamplerSettings,
    SpeculationSettings,
    StopSettings,
)
from engine.units import size_text
from tests.desktop.hand import Hand

pytestmark = pytest.mark.gui
Key = Qt.Key


@pytest.fixture
def hand(qtbot, qapp, tmp_path):
    found = Hand(qtbot, tmp_path)
    found.load()
    yield found
    found.close()


def inspector(hand: Hand):
    return hand.window.inspector


def unfold(hand: Hand, *titles: str) -> None:
    for group in inspector(hand).groups:
        if (group.title in titles) != group.opened:
            QTest.mouseClick(group.header, Qt.MouseButton.LeftButton)


def control(hand: Hand, kind: type[QWidget], name: str) -> QWidget:
    found = [widget for widget in inspector(hand).findChildren(kind) if widget.accessibleName() == name]
    assert len(found) == 1, (name, len(found))
    return found[0]


def choose(combo: QComboBox, text: str) -> None:
    """By keys, as with the list folded."""
    combo.setFocus()
    QTest.keyClick(combo, Key.Key_Home)
    for _ in range(combo.count()):
        if combo.currentText() == text:
            return
        QTest.keyClick(combo, Key.Key_Down)
    assert combo.currentText() == text


def type_text(box: QWidget, text: str) -> None:
    box.setFocus()
    box.selectAll()
    QTest.keyClick(box, Key.Key_Delete)
    for position, line in enumerate(text.split("\n")):
        if position:
            QTest.keyClick(box, Key.Key_Return)
        QTest.keyClicks(box, line)


def note(hand: Hand, cls: type, name: str) -> str:
    label = inspector(hand).forms[cls].row(name).note
    return label.text() if not label.isHidden() else ""


def in_force(hand: Hand, cls: type):
    return hand.session.settings(cls)


# -- the pane as a whole


@pytest.mark.slow
def test_every_control_has_a_name_and_can_be_reached_by_keys(hand) -> None:
    hand.session.set_settings(Behaviour(show_advanced=True))
    unfold(hand, *[title for title, _ in PANES])
    kinds = (QAbstractButton, QAbstractSpinBox, QComboBox, QLineEdit, QPlainTextEdit, QSlider)
    seen = [widget for kind in kinds for widget in inspector(hand).findChildren(kind) if widget.isVisible()]
    assert len(seen) > 150
    inner = [
        widget
        for widget in seen
        if widget.objectName().startswith("qt_") or widget.parent().inherits("QLineEdit")
    ]
    nameless = [
        widget
        for widget in seen
        if widget not in inner and not (widget.accessibleName() or getattr(widget, "text", str)())
    ]
    assert nameless == []
    unreachable = [
        w for w in seen if w not in inner and w.isEnabled() and not w.focusPolicy() & Qt.FocusPolicy.TabFocus
    ]
    assert [w.accessibleName() for w in unreachable] == []


@pytest.mark.slow
def test_tab_follows_the_layout_of_the_panes(hand, qtbot) -> None:
    """Also where rows were made later than those below them."""
    hand.session.set_settings(Behaviour(show_advanced=False))
    unfold(hand, "Stop conditions", "Output")
    hand.session.set_settings(Behaviour(show_advanced=True))
    unfold(hand, "Sampling", "Stop conditions", "Constraints", "Output")
    pane = inspector(hand)
    qtbot.wait(1)
    expected = [
        widget for widget in pane._scroll.findChildren(QWidget) if widget.isVisible() and widget.isEnabled()
    ]
    by_tab = {
        widget
        for widget in expected
        if widget.focusPolicy() & Qt.FocusPolicy.TabFocus and widget.focusProxy() is None
    }
    pane.query.setFocus()
    order: list[QWidget] = []
    while not order or order[-1] is not pane.save:
        QTest.keyClick(QApplication.focusWidget(), Qt.Key.Key_Tab)
        order.append(QApplication.focusWidget())
        assert len(order) < 300
    assert len(order) > 60
    inside = [widget for widget in order if pane._scroll.isAncestorOf(widget)]
    heights = [widget.mapTo(pane._scroll.widget(), widget.rect().center()).y() for widget in inside]
    # on a line from left to right
    steps_up = [(before, after) for before, after in itertools.pairwise(heights) if after < before - 12]
    assert steps_up == []
    assert set(inside) == by_tab


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("scale", [100, 150])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_label_is_cut_in_a_narrow_window(hand, qtbot, theme: str, scale: int) -> None:
    hand.session.set_settings(Appearance(theme=theme, text_scale=scale))
    hand.session.set_settings(Behaviour(show_advanced=True))
    hand.window.resize(360, 700)
    hand.window.panes.show_side("right")
    unfold(hand, *[title for title, _ in PANES])

    def cut() -> list[str]:
        rows = [form.row(name) for form in inspector(hand).forms.values() for name in form.shown.to_json()]
        labels = [
            label
            for row in rows
            for label in (row.label, row.note)
            if label is not None and label.isVisible()
        ]
        return [label.text() for label in labels if label.height() < label.heightForWidth(label.width())]

    try:
        qtbot.waitUntil(lambda: cut() == [])
        body = inspector(hand)._scroll
        assert body.widget().width() <= body.viewport().width()
    finally:
        hand.session.set_settings(Appearance())  # the application's font is everybody's


@pytest.mark.slow
def test_the_advanced_switch_is_one_for_all_panes_and_is_remembered(hand) -> None:
    unfold(hand, "Sampling", "Stop conditions")
    assert not inspector(hand).forms[SamplerSettings].row("xtc_probability").isVisible()
    hand.click("Show advanced settings")
    assert inspector(hand).forms[SamplerSettings].row("xtc_probability").isVisible()
    assert inspector(hand).forms[StopSettings].row("stop_token_ids").isVisible()
    hand.restart()
    assert inspector(hand).advanced.isChecked()
    assert in_force(hand, Behaviour).show_advanced


def test_unfolded_groups_are_remembered(hand) -> None:
    assert inspector(hand).opened_groups() == ("Sampling",)
    unfold(hand, "Context", "Output")
    hand.restart()
    assert inspector(hand).opened_groups() == ("Context", "Output")


def test_a_folded_group_says_how_much_is_changed_in_it(hand) -> None:
    hand.session.set_settings(StopSettings(max_tokens=5, keep_stop=True))
    group = inspector(hand).group(StopSettings)
    assert group.note.text() == "2 changed"
    assert "2 changed" in group.header.accessibleDescription()
    hand.session.reset_setting(StopSettings, "keep_stop")
    hand.session.reset_setting(StopSettings, "max_tokens")
    assert group.note.text() == ""


@pytest.mark.slow
def test_search_finds_settings_in_folded_groups_and_hidden_ones(hand) -> None:
    query = inspector(hand).query
    query.setFocus()
    QTest.keyClicks(query, "xtc thresh")
    rows = [
        name
        for name in SamplerSettings().to_json()
        if inspector(hand).forms[SamplerSettings].row(name).isVisible()
    ]
    assert rows == ["xtc_threshold"]
    assert [group.title for group in inspector(hand).groups if group.isVisible()] == ["Sampling"]
    assert not inspector(hand).prompt.isVisible()
    type_text(query, "guidance")
    assert [group.title for group in inspector(hand).groups if group.isVisible()] == ["Guidance"]
    type_text(query, "preset")
    assert hand.window.settings_controller.preset_bar.isVisible()
    type_text(query, "zebra")
    assert inspector(hand)._nothing.isVisible()
    QTest.keyClick(query, Key.Key_Escape)
    assert query.text() == ""
    assert inspector(hand).opened_groups() == ("Sampling",)
    assert inspector(hand).prompt.isVisible()
    assert not inspector(hand).forms[SamplerSettings].row("xtc_threshold").isVisible()


def test_typed_text_is_committed_before_another_chat_opens(hand) -> None:
    hand.say("first")
    first = hand.session.conversation
    unfold(hand, "Guidance")
    type_text(control(hand, QPlainTextEdit, "Negative system prompt"), "rude")
    hand.window.navigation.new_chat()  # Within the pause before a text is emitted.
    assert control(hand, QPlainTextEdit, "Negative system prompt").toPlainText() == ""
    hand.window.navigation.open_chat(first)
    assert control(hand, QPlainTextEdit, "Negative system prompt").toPlainText() == "rude"


# -- presets


def test_a_preset_is_chosen_changed_and_reset(hand) -> None:
    combo = control(hand, QComboBox, "Preset")
    assert combo.currentText() == "Balanced"
    choose(combo, "Creative")
    assert in_force(hand, SamplerSettings).temperature == 1.1
    form = inspector(hand).forms[SamplerSettings]
    assert "From the preset Creative" in form.row("temperature").toolTip()
    assert form.row("xtc_probability").isVisible()  # an advanced one with a value of its own
    box = control(hand, QAbstractSpinBox, "Top P")
    type_text(box, "0.5")
    QTest.keyClick(box, Key.Key_Return)
    assert "Set in this chat" in form.row("top_p").toolTip()
    assert hand.window.settings_controller.preset_bar.state.text() == "changed"
    assert combo.accessibleDescription() == "Creative, changed since"
    hand.click("Reset temperature", inspector(hand))
    assert in_force(hand, SamplerSettings).temperature == 0.7


def preset_action(hand: Hand, name: str) -> None:
    actions = {
        action.text(): action for action in hand.window.settings_controller.preset_bar.more.menu().actions()
    }
    found = next(action for text, action in actions.items() if text.startswith(name))
    assert found.isEnabled(), name
    found.trigger()


def answer_name(hand: Hand, name: str) -> None:
    dialog = next(dialog for dialog in hand.window.findChildren(QInputDialog) if dialog.isVisible())
    line = dialog.findChild(QLineEdit)
    line.selectAll()
    QTest.keyClicks(line, name)
    QTest.keyClick(line, Key.Key_Return)


def test_save_rename_and_delete_by_menu(hand) -> None:
    bar = hand.window.settings_controller.preset_bar
    assert not bar.rename_action.isEnabled()
    assert not bar.delete_action.isEnabled()
    hand.session.set_settings(SamplerSettings(temperature=1.3))
    assert bar.combo.currentIndex() == -1
    preset_action(hand, "Save as a new preset")
    answer_name(hand, "Tales")
    assert bar.combo.currentText() == "Tales"
    assert "Saved as the preset" in hand.window.chat.banner.text.text()
    hand.session.set_settings(SamplerSettings(temperature=1.4))
    preset_action(hand, "Save the changes to “Tales”")
    assert bar.state.text() == ""
    preset_action(hand, "Rename")
    answer_name(hand, "Long tales")
    assert bar.combo.currentText() == "Long tales"
    hand.restart()
    bar = hand.window.settings_controller.preset_bar
    assert bar.combo.currentText() == "Long tales"
    preset_action(hand, "Delete")
    assert bar.combo.currentIndex() == -1
    hand.click("Undo", hand.window.chat.banner)
    assert bar.combo.currentText() == "Long tales"


def test_import_and_export_by_menu(hand, tmp_path: Path) -> None:
    theirs = tmp_path / "From elsewhere.json"
    theirs.write_text(json.dumps({"temp": 1.2, "rep_pen": 1.1, "epsilon_cutoff": 3}))
    preset_action(hand, "Import")
    dialog = next(d for d in hand.window.findChildren(QFileDialog) if d.isVisible())
    dialog.filesSelected.emit([str(theirs)])
    dialog.close()
    assert in_force(hand, SamplerSettings).repetition_penalty == 1.1
    assert "epsilon_cutoff" in hand.window.chat.banner.text.text()
    preset_action(hand, "Export")
    dialog = next(d for d in hand.window.findChildren(QFileDialog) if d.isVisible())
    dialog.filesSelected.emit([str(tmp_path / "out.json")])
    dialog.close()
    data = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert (data["format"], data["name"]) == ("inglenook-sampler-preset", "From elsewhere")
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    preset_action(hand, "Import")
    dialog = next(d for d in hand.window.findChildren(QFileDialog) if d.isVisible())
    dialog.filesSelected.emit([str(broken)])
    dialog.close()
    assert "not a preset" in hand.window.chat.banner.text.text()
    assert in_force(hand, SamplerSettings).repetition_penalty == 1.1


# -- checks while typing


def test_a_format_applies_when_its_pattern_is_valid(hand, qtbot) -> None:
    unfold(hand, "Constraints")
    combo, box = (
        control(hand, QComboBox, "Format"),
        inspector(hand).forms[ConstraintSettings].editor("pattern").box,
    )
    assert not box.isEnabled()
    choose(combo, "JSON")
    assert in_force(hand, ConstraintSettings).format == "json"
    choose(combo, "JSON schema")
    assert box.isEnabled()
    # While there is no schema.
    assert in_force(hand, ConstraintSettings) == ConstraintSettings(format="json")
    assert "insert an example" in note(hand, ConstraintSettings, "pattern")
    type_text(box, '{"type": "objekt"}')
    qtbot.waitUntil(lambda: "schema" in note(hand, ConstraintSettings, "pattern"))
    assert "Replies keep the previous format" in note(hand, ConstraintSettings, "pattern")
    assert in_force(hand, ConstraintSettings) == ConstraintSettings(format="json")
    type_text(box, '{"type": "object"}')
    qtbot.waitUntil(lambda: in_force(hand, ConstraintSettings).format == "json_schema")
    assert in_force(hand, ConstraintSettings).pattern == '{"type": "object"}'
    assert note(hand, ConstraintSettings, "pattern") == ""
    choose(combo, "Free text")
    assert in_force(hand, ConstraintSettings).format == "none"
    assert not box.isEnabled()


def test_what_is_not_valid_says_what_applies_to_replies_meanwhile(hand, qtbot) -> None:
    unfold(hand, "Constraints")
    combo, box = (
        control(hand, QComboBox, "Format"),
        inspector(hand).forms[ConstraintSettings].editor("pattern").box,
    )
    choose(combo, "Free text")
    assert in_force(hand, ConstraintSettings).format == "none"
    QTest.keyClicks(combo, "Reg")  # past the others
    assert note(hand, ConstraintSettings, "pattern").endswith("Until then, replies are not affected.")
    type_text(box, "(")
    qtbot.waitUntil(lambda: "unclosed group" in note(hand, ConstraintSettings, "pattern"))
    assert "Replies are not affected until" in note(hand, ConstraintSettings, "pattern")
    type_text(box, "[0-9]+")
    qtbot.waitUntil(lambda: in_force(hand, ConstraintSettings).format == "regex")
    type_text(box, "(")
    qtbot.waitUntil(lambda: "unclosed group" in note(hand, ConstraintSettings, "pattern"))
    assert "Replies keep the previous format until" in note(hand, ConstraintSettings, "pattern")
    box.replace_text("")
    assert note(hand, ConstraintSettings, "pattern").endswith("Until then, replies keep the previous format.")
    assert in_force(hand, ConstraintSettings) == ConstraintSettings(format="regex", pattern="[0-9]+")
    choose(combo, "Free text")
    assert in_force(hand, ConstraintSettings) == ConstraintSettings()


def test_each_format_keeps_its_own_text(hand, qtbot) -> None:
    unfold(hand, "Constraints")
    form = inspector(hand).forms[ConstraintSettings]
    combo, box = control(hand, QComboBox, "Format"), form.editor("pattern").box
    choose(combo, "Choices")
    assert form.row("pattern").label.text() == "Choices, one per line"
    type_text(box, "yes\nno")
    qtbot.waitUntil(lambda: in_force(hand, ConstraintSettings).format == "choices")
    combo.setFocus()
    QTest.keyClick(combo, Key.Key_Up)  # the grammar
    assert box.toPlainText() == ""
    assert in_force(hand, ConstraintSettings) == ConstraintSettings(format="choices", pattern="yes\nno")
    QTest.keyClick(combo, Key.Key_Down)
    assert box.toPlainText() == "yes\nno"
    qtbot.waitUntil(lambda: note(hand, ConstraintSettings, "pattern") == "")


def test_every_example_is_valid_and_comes_by_menu(hand, qtbot) -> None:
    from desktop.views.settings.constraint_fields import _EXAMPLES
    from engine.constraint import check_constraint

    for form, examples in _EXAMPLES.items():
        assert examples
        for title, text in examples:
            assert check_constraint(form, text) == "", title
    unfold(hand, "Constraints")
    choose(control(hand, QComboBox, "Format"), "Regular expression")
    menu = hand.button("Insert example").menu()
    menu.actions()[0].trigger()
    expected = _EXAMPLES["regex"][0][1]
    qtbot.waitUntil(lambda: in_force(hand, ConstraintSettings).pattern == expected)
    assert in_force(hand, ConstraintSettings).format == "regex"


def test_an_unfinished_pattern_waits_in_its_chat(hand, qtbot) -> None:
    hand.say("first")
    first = hand.session.conversation
    unfold(hand, "Constraints")
    combo, box = (
        control(hand, QComboBox, "Format"),
        inspector(hand).forms[ConstraintSettings].editor("pattern").box,
    )
    choose(combo, "Regular expression")
    type_text(box, "(half")
    qtbot.waitUntil(lambda: "expression" in note(hand, ConstraintSettings, "pattern"))
    hand.window.navigation.new_chat()
    assert (combo.currentText(), box.toPlainText(), box.isEnabled()) == ("Free text", "", False)
    assert note(hand, ConstraintSettings, "pattern") == ""
    hand.window.navigation.open_chat(first)
    assert (combo.currentText(), box.toPlainText(), box.isEnabled()) == ("Regular expression", "(half", True)
    qtbot.waitUntil(lambda: "expression" in note(hand, ConstraintSettings, "pattern"))
    assert in_force(hand, ConstraintSettings).pattern == ""


def test_a_format_without_its_text_says_so(hand) -> None:
    unfold(hand, "Constraints")
    hand.session.set_settings(ConstraintSettings(format="regex", pattern="a+"))
    assert note(hand, ConstraintSettings, "pattern") == ""
    hand.click("Reset schema", inspector(hand))
    assert in_force(hand, ConstraintSettings) == ConstraintSettings(format="regex")
    assert "needs a text" in note(hand, ConstraintSettings, "pattern")
    hand.click("Reset format", inspector(hand))
    assert in_force(hand, ConstraintSettings) == ConstraintSettings()
    assert note(hand, ConstraintSettings, "pattern") == ""


def test_a_stop_expression_applies_when_it_is_valid(hand, qtbot) -> None:
    unfold(hand, "Stop conditions")
    line = control(hand, QLineEdit, "Stop expression")
    type_text(line, "(a")
    qtbot.waitUntil(lambda: "stop expression" in note(hand, StopSettings, "stop_regex"))
    assert in_force(hand, StopSettings).stop_regex == ""
    QTest.keyClicks(line, "|b)")
    qtbot.waitUntil(lambda: in_force(hand, StopSettings).stop_regex == "(a|b)")
    assert note(hand, StopSettings, "stop_regex") == ""
    line.setCursorPosition(2)
    QTest.keyClicks(line, "c")
    qtbot.waitUntil(lambda: in_force(hand, StopSettings).stop_regex == "(ac|b)")
    assert line.cursorPosition() == 3  # it does not jump while one writes


@pytest.mark.slow
def test_biases_are_lines_that_can_be_read(hand, qtbot) -> None:
    hand.session.set_settings(Behaviour(show_advanced=True))
    unfold(hand, "Constraints")
    box = control(hand, QPlainTextEdit, "Token bias")
    type_text(box, "' sure' = -5\n7 twelve")
    qtbot.waitUntil(lambda: "7 twelve" in note(hand, ConstraintSettings, "logit_bias"))
    assert in_force(hand, ConstraintSettings).logit_bias == ()
    type_text(box, "' sure' = -5\n7 = 12")
    qtbot.waitUntil(lambda: in_force(hand, ConstraintSettings).logit_bias == ("' sure' = -5", "7 = 12"))


def test_the_form_reaches_the_request(hand, qtbot) -> None:
    unfold(hand, "Constraints", "Stop conditions", "Guidance")
    choose(control(hand, QComboBox, "Format"), "Choices")
    type_text(inspector(hand).forms[ConstraintSettings].editor("pattern").box, "yes\nno")
    qtbot.waitUntil(lambda: in_force(hand, ConstraintSettings).format == "choices")
    type_text(control(hand, QPlainTextEdit, "Banned strings"), "never\nthe end")
    type_text(control(hand, QPlainTextEdit, "Negative system prompt"), "rude")
    hand.say("well?")
    request = hand.echo.chat.requests[-1]
    assert (request.constraint.format, request.constraint.pattern) == ("choices", "yes\nno")
    assert request.constraint.banned_strings == ("never", "the end")
    assert request.guidance.negative_prompt == "rude"


# -- context and model


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1 kB"),
        (11520, "11.5 kB"),
        (94_371_840, "94.4 MB"),
        (1.5e12, "1.5 TB"),
    ],
)
def test_sizes_in_words(count: float, text: str) -> None:
    assert size_text(count) == text


def memory(hand: Hand) -> str:
    return hand.window.settings_controller.memory.label.text()


def test_the_memory_of_the_context_follows_the_slider(hand) -> None:
    hand.session.set_settings(CacheSettings(dtype="fp16"))
    unfold(hand, "Context")
    assert memory(hand).startswith("4,096 tokens: ")
    slider = control(hand, QSlider, "Context length, slider")
    slider.setSliderDown(True)
    slider.setSliderPosition(8)
    assert memory(hand).startswith("2,048 tokens: ")
    assert in_force(hand, CacheSettings).context_length == 0  # only when it is let go
    slider.setSliderDown(False)
    assert in_force(hand, CacheSettings).context_length == 2048
    hand.session.set_settings(CacheSettings(context_length=2048, dtype="fp32"))
    double = memory(hand)
    hand.session.set_settings(CacheSettings(context_length=2048, dtype="fp16"))
    assert double != memory(hand)


def test_an_impossible_context_is_shown_in_the_warning_colour(hand, monkeypatch) -> None:
    import psutil

    unfold(hand, "Context")
    hand.session.set_settings(CacheSettings(context_length=9999))
    assert "at most 4,096" in memory(hand)
    assert hand.window.settings_controller.memory.label.property("tone") == "danger"
    hand.session.set_settings(CacheSettings(context_length=1024))
    assert hand.window.settings_controller.memory.label.property("tone") == "muted"
    none = psutil.virtual_memory()._replace(available=1000)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: none)
    hand.session.set_settings(CacheSettings(context_length=2048))
    assert "does not fit in memory" in memory(hand)
    assert hand.window.settings_controller.memory.label.property("tone") == "danger"


def test_changed_cache_settings_wait_for_the_model_to_be_loaded_again(hand) -> None:
    unfold(hand, "Context", "Model")
    strips = hand.window.settings_controller.reload_strips
    assert not strips[CacheSettings].button.isVisible()
    hand.session.set_settings(CacheSettings(context_length=2048))
    assert strips[CacheSettings].button.isVisible()
    assert not strips[LoadSettings].button.isVisible()
    QTest.mouseClick(strips[CacheSettings].button, Qt.MouseButton.LeftButton)
    hand.wait_for("idle")
    assert hand.echo.settings[-1][1] == CacheSettings(context_length=2048)
    assert not strips[CacheSettings].button.isVisible()
    hand.session.set_settings(CacheSettings())
    assert strips[CacheSettings].button.isVisible()
    hand.session.set_settings(CacheSettings(context_length=2048))
    assert not strips[CacheSettings].button.isVisible()


def test_without_a_model_there_is_no_estimate(hand) -> None:
    unfold(hand, "Context")
    hand.session.unload_model()
    hand.wait_for("no_model")
    assert memory(hand).startswith("Load a model")
    hand.session.set_settings(CacheSettings(context_length=2048))
    assert not hand.window.settings_controller.reload_strips[CacheSettings].button.isVisible()


def test_the_drafting_pane_replaces_its_rows(hand) -> None:
    unfold(hand, "Drafting")
    form = inspector(hand).forms[SpeculationSettings]
    assert not form.row("draft_model").isVisible()
    assert QApplication.focusWidget() is not None
