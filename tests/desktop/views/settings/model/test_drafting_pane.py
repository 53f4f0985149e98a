"""The Drafting pane's own part: the method, the possible draft models, the figures."""

from __future__ import annotations

import dataclasses

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QComboBox

from desktop.items.models.local_models import ModelEntry, entry
from desktop.services.models.draft_models import DraftCandidate
from desktop.views.settings.model.draft_model_list import CHECKING
from desktop.views.settings.model.drafting_pane import DraftingPane
from desktop.views.settings.model.drafting_stats import speed_words
from engine.core import Stats
from engine.settings import SpeculationSettings
from tests.desktop.fakes import ECHO_INFO

SMALL = ModelEntry("/m/small.gguf", "Small & quick", "135 M · 4.5 bit · 98 MB")
OTHER = ModelEntry("/m/other.gguf", "Other family")
BROKEN = ModelEntry("/m/broken.gguf", "Broken", trouble="The file ends too early.")
REASON = "Token 17 is 'a' in the model but 'b' in the draft model."
DRAFTED = Stats(
    new_tokens=25, passes=10, drafted_tokens=40, accepted_tokens=14, decode_seconds=1.0, speedup=1.42
)
DEFAULTS = SpeculationSettings()


def sources(**own: str) -> dict[str, str]:
    return {field.name: "default" for field in dataclasses.fields(SpeculationSettings)} | own


@pytest.fixture
def pane(qtbot):
    found = DraftingPane()
    qtbot.addWidget(found)
    found.resize(280, 600)
    found.show()
    return found


def show(pane: DraftingPane, **values) -> None:
    pane.show_values(
        SpeculationSettings(**values), sources(**dict.fromkeys(values, "conversation")), DEFAULTS
    )


def test_without_drafting_only_the_choice_is_shown(pane) -> None:
    show(pane)
    assert pane.method.isVisible()
    assert not pane.models.isVisible()
    assert not pane.figures.isVisible()


def test_choosing_who_drafts(pane, qtbot) -> None:
    show(pane)
    combo = pane.method.editor.findChild(QComboBox)
    combo.setFocus()
    with qtbot.waitSignal(pane.changed) as change:
        qtbot.keyClick(combo, Qt.Key.Key_Down)
    assert change.args == ["method", "ngram"]


def test_models_are_searched_when_they_become_visible(pane, qtbot) -> None:
    pane.show_model(ECHO_INFO)
    with qtbot.waitSignal(pane.candidates_requested):
        show(pane, method="model")
    with qtbot.assertNotEmitted(pane.candidates_requested, wait=20):
        show(pane, method="model", draft_model="/m/small.gguf")
    with qtbot.waitSignal(pane.candidates_requested):
        pane.show_model(ECHO_INFO)


def test_without_a_model_it_says_so(pane) -> None:
    show(pane, method="model")
    assert pane.model.note.text().startswith("Load a model to see")
    assert pane.model.note.isVisible()
    pane.show_model(ECHO_INFO)
    assert pane.model.note.text().startswith("No other models were found")
    pane.show_candidates([DraftCandidate(SMALL, "")])
    assert not pane.model.note.isVisible()
    pane.show_model(None)
    assert not pane.choices.isVisible()


def test_those_that_fit_can_be_chosen_and_the_others_say_why(pane, qtbot) -> None:
    pane.show_model(ECHO_INFO)
    show(pane, method="model")
    pane.show_candidates(
        [DraftCandidate(OTHER, REASON), DraftCandidate(BROKEN, BROKEN.trouble), DraftCandidate(SMALL)]
    )
    choices = pane.choices
    assert choices.paths() == (SMALL.path, OTHER.path, BROKEN.path)
    assert choices.words(SMALL.path) == CHECKING
    pane.show_candidates(
        [DraftCandidate(OTHER, REASON), DraftCandidate(BROKEN, BROKEN.trouble), DraftCandidate(SMALL, "")]
    )
    assert [choices.button(path).isEnabled() for path in choices.paths()] == [True, False, False]
    assert choices.words(SMALL.path) == SMALL.detail
    assert choices.words(OTHER.path) == REASON
    assert REASON in choices.button(OTHER.path).parentWidget().toolTip()
    assert choices.button(OTHER.path).accessibleDescription() == REASON
    with qtbot.assertNotEmitted(pane.changed, wait=20):
        qtbot.mouseClick(choices.button(OTHER.path), Qt.MouseButton.LeftButton)
    with qtbot.waitSignal(pane.changed) as change:
        qtbot.mouseClick(
            choices.button(SMALL.path),
            Qt.MouseButton.LeftButton,
            pos=choices.button(SMALL.path).rect().center() / 4,
        )
    assert change.args == ["draft_model", SMALL.path]
    assert not choices.button(SMALL.path).isChecked()  # until the settings say so
    show(pane, method="model", draft_model=SMALL.path)
    assert choices.button(SMALL.path).isChecked()


def test_rows_stay_in_place_while_answers_arrive(pane) -> None:
    pane.show_model(ECHO_INFO)
    show(pane, method="model")
    pane.show_candidates([DraftCandidate(SMALL), DraftCandidate(OTHER)])
    button = pane.choices.button(SMALL.path)
    button.setFocus()
    pane.show_candidates([DraftCandidate(SMALL, ""), DraftCandidate(OTHER, REASON)])
    assert pane.choices.button(SMALL.path) is button
    assert pane.focusWidget() is button
    pane.show_candidates([DraftCandidate(OTHER, REASON)])
    assert pane.choices.paths() == (OTHER.path,)


def test_many_that_do_not_fit_are_folded(pane, qtbot) -> None:
    pane.show_model(ECHO_INFO)
    show(pane, method="model", draft_model="/m/3.gguf")
    misfits = [
        DraftCandidate(ModelEntry(f"/m/{number}.gguf", f"Other {number}"), REASON) for number in range(12)
    ]
    pane.show_candidates([*misfits, DraftCandidate(SMALL, "")])
    choices = pane.choices

    def shown() -> list[str]:
        return [path for path in choices.paths() if choices.button(path).isVisible()]

    assert shown() == [SMALL.path, "/m/3.gguf"]
    assert choices.more.text() == "Show 12 that do not fit, and why"
    qtbot.mouseClick(choices.more, Qt.MouseButton.LeftButton)
    assert len(shown()) == 13
    assert choices.more.text() == "Hide the 12 that do not fit"
    pane.show_candidates([*misfits[:3], DraftCandidate(SMALL, "")])
    assert len(shown()) == 4
    assert not choices.more.isVisible()


def test_buttons_ask_for_other_files(pane, qtbot) -> None:
    show(pane, method="model")
    with qtbot.waitSignal(pane.file_requested):
        qtbot.mouseClick(pane.file, Qt.MouseButton.LeftButton)
    with qtbot.waitSignal(pane.folder_requested):
        qtbot.mouseClick(pane.folder, Qt.MouseButton.LeftButton)


def test_reset(pane, qtbot) -> None:
    show(pane, method="model", draft_model=SMALL.path)
    for row, name in ((pane.method, "method"), (pane.model, "draft_model")):
        with qtbot.waitSignal(pane.reset_requested) as reset:
            qtbot.mouseClick(row.reset, Qt.MouseButton.LeftButton)
        assert reset.args == [name]
    show(pane)
    assert not pane.method.reset.isVisible()


def test_figures(pane) -> None:
    show(pane, method="ngram")
    figures = pane.figures
    assert figures.per_pass.text() == "Statistics appear after the next reply."
    pane.show_stats(DRAFTED)
    assert figures.per_pass.text() == "2.4 tokens per pass of the model"
    assert figures.bar.value() == 350
    assert figures.kept.text() == "35 % of 40 drafted tokens accepted"
    assert figures.speed.text() == "1.4× the speed without drafting"
    assert figures.bar.isVisible()
    pane.show_stats(Stats(new_tokens=9, passes=8))
    assert figures.per_pass.text() == "No tokens were drafted in the last reply."
    assert not figures.bar.isVisible()


@pytest.mark.parametrize(
    ("speedup", "adaptive", "words"),
    [
        (0.0, True, "Speed-up: measuring…"),
        (1.4, True, "1.4× the speed without drafting"),
        (1.05, True, "1.05× the speed without drafting"),
        (0.99, True, "Same speed as without drafting"),
        (0.8, True, "Paused: slower than without drafting (0.80×)"),
        (0.8, False, "Slower than without drafting (0.80×)"),
    ],
)
def test_speed_words(speedup: float, adaptive: bool, words: str) -> None:
    assert speed_words(speedup, adaptive) == words


def offered(pane: DraftingPane) -> list[str]:
    combo = pane.method.editor.findChild(QComboBox)
    return [combo.itemData(at) for at in range(combo.count())]


def test_an_assistant_that_fits_is_offered_and_comes_first(pane) -> None:
    """Though nothing else can be done with it, which its entry says."""
    made = entry(dataclasses.replace(ECHO_INFO, path="/m/helper", name="helper", assistant=True))
    assert made.trouble.startswith("helper is an assistant")
    assert made.detail.startswith("assistant for drafting")
    small = ModelEntry("/m/small.gguf", "small")
    show(pane)
    pane.show_candidates([DraftCandidate(small, ""), DraftCandidate(made, None)])
    assert pane.method.note.text() == ""
    pane.show_candidates([DraftCandidate(small, ""), DraftCandidate(made, "It is for another one.")])
    assert pane.method.note.text() == ""
    pane.show_candidates([DraftCandidate(small, ""), DraftCandidate(made, "")])
    assert "assistant that drafts for this model" in pane.method.note.text()
    show(pane, method="model")
    assert pane.method.note.text() == ""
    assert pane.choices.paths() == ("/m/helper", "/m/small.gguf")


def test_the_models_own_head_is_offered_where_there_is_one(pane) -> None:
    show(pane)
    assert offered(pane) == ["none", "ngram", "model"]
    pane.show_model(dataclasses.replace(ECHO_INFO, mtp=True))
    assert offered(pane) == ["none", "ngram", "model", "mtp"]
    assert "head of its own" in pane.method.note.text()
    show(pane, method="mtp")
    assert pane.method.editor.value() == "mtp"
    assert pane.method.note.text() == ""
    assert not pane.models.isVisible()
    pane.show_stats(DRAFTED)
    assert pane.figures.kept.isVisible()
    # another model has none: the choice stays until another one is made
    pane.show_model(ECHO_INFO)
    assert pane.method.editor.value() == "mtp"
    assert "has no head of its own" in pane.method.note.text()
    show(pane)
    assert pane.method.note.text() == ""
    pane.show_model(ECHO_INFO)
    assert offered(pane) == ["none", "ngram", "model"]
    pane.show_model(dataclasses.replace(ECHO_INFO, mtp=True, where="NVIDIA H200"))
    assert offered(pane) == ["none", "ngram", "model", "mtp"]


def test_a_method_that_the_model_does_not_have_is_shown_all_the_same(pane) -> None:
    pane.show_model(ECHO_INFO)
    show(pane, method="model")
    show(pane, method="mtp")  # as of a chat that another model began
    assert pane.method.editor.value() == "mtp"
    assert "has no head of its own" in pane.method.note.text()
    show(pane, method="ngram")
    pane.show_model(ECHO_INFO)
    assert offered(pane) == ["none", "ngram", "model"]
