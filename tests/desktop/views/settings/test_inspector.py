"""The search of the inspector: which settings it shows, in every group and language."""

from __future__ import annotations

import dataclasses

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel, QSlider
from pytestqt.qtbot import QtBot

from desktop.views.settings.settings_pane import Inspector
from engine.settings import SamplerSettings, Settings, StopSettings
from engine.words import languages, set_language, translate

PANES: tuple[tuple[str, type[Settings]], ...] = (
    ("Sampling", SamplerSettings), ("Stop conditions", StopSettings),
)  # fmt: skip
NOTHING = "No matching settings."


def made(qtbot: QtBot) -> Inspector:
    pane = Inspector(PANES)
    qtbot.addWidget(pane)
    for _, cls in PANES:
        pane.show_values(cls(), {field.name: "default" for field in dataclasses.fields(cls)})
    pane.resize(400, 900)
    pane.show()
    return pane


@pytest.fixture
def pane(qtbot: QtBot) -> Inspector:
    return made(qtbot)


def rows(pane: Inspector, cls: type[Settings]) -> list[str]:
    """The fields whose rows are shown."""
    return [name for name in cls().to_json() if pane.forms[cls].row(name).isVisible()]


def groups(pane: Inspector) -> list[str]:
    return [group.title for group in pane.groups if group.isVisible()]


def labels(pane: Inspector) -> set[str]:
    return {label.text() for label in pane.findChildren(QLabel) if label.isVisible()}


def test_a_search_shows_the_settings_it_finds_in_every_group_and_no_others(pane: Inspector) -> None:
    usual = rows(pane, SamplerSettings)
    assert "temperature" in usual
    assert "xtc_threshold" not in usual
    pane.query.setText("xtc thresh")
    assert (groups(pane), rows(pane, SamplerSettings)) == (["Sampling"], ["xtc_threshold"])
    assert pane.prompt_field.isHidden()
    assert NOTHING not in labels(pane)
    pane.query.setText("keep the stop")  # in a group that was folded
    assert groups(pane) == ["Stop conditions"]
    assert rows(pane, StopSettings)
    pane.query.setText("sampling")  # the name of a group
    assert "temperature" in rows(pane, SamplerSettings)
    pane.query.clear()
    assert (groups(pane), rows(pane, SamplerSettings)) == (["Sampling", "Stop conditions"], usual)
    assert pane.opened_groups() == ("Sampling",)


def test_a_search_without_a_match_says_so_and_escape_ends_it(pane: Inspector, qtbot: QtBot) -> None:
    pane.query.setText("zebra")
    assert groups(pane) == []
    assert NOTHING in labels(pane)
    QTest.keyClick(pane.query, Qt.Key.Key_Escape)
    assert pane.query.text() == ""
    assert NOTHING not in labels(pane)
    assert pane.prompt_field.isVisible()
    pane.query.setText("system")
    assert pane.prompt_field.isVisible()
    assert NOTHING not in labels(pane)


@pytest.mark.parametrize("code", languages())
def test_the_system_prompt_is_found_by_its_name_in_the_language_of_the_user(qtbot: QtBot, code: str) -> None:
    set_language(code)
    try:
        pane = made(qtbot)
        for words in ("system prompt", translate("System prompt"), translate("System prompt").upper()):
            pane.query.setText(words)
            assert pane.prompt_field.isVisible(), words
            assert translate(NOTHING) not in labels(pane)
        pane.query.setText("zebra")
        assert not pane.prompt_field.isVisible()
    finally:
        set_language("en")


def test_a_setting_that_is_gone_to_is_shown_though_it_is_advanced(pane: Inspector) -> None:
    pane.query.setText("zebra")
    pane.reveal(SamplerSettings, "xtc_threshold")
    assert pane.query.text() == ""
    assert "xtc_threshold" in rows(pane, SamplerSettings)
    pane.reveal(StopSettings, "")
    assert pane.prompt_field.isVisible()


def test_groups_say_how_many_of_their_settings_were_changed(pane: Inspector) -> None:
    sources = {field.name: "default" for field in dataclasses.fields(SamplerSettings)}
    pane.show_values(SamplerSettings(temperature=0.5, top_k=7), {**sources, "top_k": "conversation"})
    assert pane.group(SamplerSettings).note.text() == "2 changed"
    assert pane.group(StopSettings).note.text() == ""


def test_what_the_user_does_is_reported_with_its_settings(pane: Inspector) -> None:
    changed, reset, prompts = list[object](), list[object](), list[object]()
    pane.changed.connect(lambda *what: changed.append(what))
    pane.reset_requested.connect(lambda *what: reset.append(what))
    pane.system_prompt_changed.connect(lambda *what: prompts.append(what))
    sources = {field.name: "default" for field in dataclasses.fields(SamplerSettings)}
    pane.show_values(SamplerSettings(top_k=7), {**sources, "top_k": "conversation"})
    slider = pane.forms[SamplerSettings].row("top_p").findChild(QSlider)
    assert isinstance(slider, QSlider)
    slider.setValue(50)
    QTest.mouseClick(pane.forms[SamplerSettings].row("top_k").reset, Qt.MouseButton.LeftButton)
    QTest.keyClicks(pane.prompt, "Be brief.")
    assert (changed, reset) == ([(SamplerSettings, "top_p", 0.5)], [(SamplerSettings, "top_k")])
    pane.finish()
    assert prompts == [("Be brief.", True)]


def test_advanced_settings_and_groups_are_shown_as_told(pane: Inspector) -> None:
    pane.show_advanced(True)
    assert pane.advanced.isChecked()
    assert "xtc_threshold" in rows(pane, SamplerSettings)
    pane.show_advanced(False)
    assert "xtc_threshold" not in rows(pane, SamplerSettings)
    pane.open_groups(["Stop conditions"])
    assert pane.opened_groups() == ("Stop conditions",)
    assert rows(pane, SamplerSettings) == []
    assert rows(pane, StopSettings)
    assert not pane.back.isVisible()


def test_names_of_folders_are_no_markup(pane: Inspector) -> None:
    sources = {field.name: "default" for field in dataclasses.fields(SamplerSettings)}
    pane.show_values(SamplerSettings(top_k=7), {**sources, "top_k": "folder <b>x"})
    row = pane.forms[SamplerSettings].row("top_k")
    (source,) = [label for label in row.findChildren(QLabel) if label.property("tone") == "source"]
    assert source.isVisible()
    assert source.textFormat() == Qt.TextFormat.PlainText
    assert "From the folder &lt;b&gt;x." in row.toolTip()
