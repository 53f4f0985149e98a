"""Drafting: choosing a draft model, figures while a reply is written, and a draft model that does not fit."""

from __future__ import annotations

import dataclasses
import threading

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog

from desktop.views.settings.model.drafting_pane import DraftingPane
from engine.settings import SpeculationSettings
from tests.desktop.hand import Hand

Key = Qt.Key


@pytest.fixture
def hand(qtbot, qapp, tmp_path):
    found = Hand(qtbot, tmp_path)
    models = tmp_path / "models"
    models.mkdir()
    for name in ("small.gguf", "other.gguf"):
        (models / name).write_bytes(b"x")
    found.load("big.gguf")
    yield found
    found.close()


def pane(hand: Hand) -> DraftingPane:
    return hand.window.model_settings.drafting


def draft_with(hand: Hand, **values) -> None:
    for name, value in values.items():
        hand.window.inspector.changed.emit(SpeculationSettings, name, value)


def path(hand: Hand, name: str) -> str:
    return str(hand.folder / "models" / name)


def until_known(hand: Hand) -> None:
    expected = {path(hand, "small.gguf"), path(hand, "other.gguf"), str(hand.folder / "big.gguf")}
    hand.qtbot.waitUntil(lambda: {found.entry.path for found in hand.session.drafts.candidates} >= expected)
    hand.qtbot.waitUntil(lambda: all(found.problem is not None for found in hand.session.drafts.candidates))


def test_the_pane_shows_the_models_of_this_computer_and_one_is_chosen(hand) -> None:
    draft_with(hand, method="model")
    until_known(hand)
    choices = pane(hand).choices
    assert choices.paths()[0] == path(hand, "small.gguf")
    assert "vocabulary is not that of big" in choices.words(path(hand, "other.gguf"))
    assert "loaded model itself" in choices.words(str(hand.folder / "big.gguf"))
    choices.button(path(hand, "small.gguf")).click()
    assert hand.session.settings(SpeculationSettings).draft_model == path(hand, "small.gguf")
    assert choices.button(path(hand, "small.gguf")).isChecked()
    hand.say("a b c d e f g h i j k")
    assert hand.echo.chat.requests[-1].speculation.draft_model == path(hand, "small.gguf")
    assert pane(hand).figures.kept.text() == "75 % of 12 drafted tokens accepted"
    assert hand.window.chat.status.drafting.text() == "3.3 per pass, 75 % accepted"


def test_figures_move_while_the_reply_is_written(hand) -> None:
    draft_with(hand, method="ngram")
    hand.echo.chat.running_every, hand.echo.chat.delay_s, hand.echo.chat.speedup = 5, 0.01, 1.4
    hand.echo.chat.reply = "word " * 1000
    hand.echo.chat.suppressed = {3: " bad words"}
    hand.type("go")
    hand.press(Key.Key_Return)
    status = hand.window.chat.status
    hand.qtbot.waitUntil(lambda: "per pass" in status.drafting.text())
    assert status.state.text() == "Answering, 1 banned phrase avoided"
    assert "tok/s" in status.reply.text()
    assert "/ 4,096 tokens" in status.context.text()
    assert pane(hand).figures.speed.text() == "1.4× the speed without drafting"
    shown = status.context.text()
    hand.qtbot.waitUntil(lambda: status.context.text() != shown)
    hand.press(Key.Key_Escape)
    hand.wait_for("idle")
    assert "stopped by you · 1 banned phrase avoided · " in hand.items()[-1].footer


def test_a_draft_that_does_not_fit_keeps_the_text_and_can_be_switched_off(hand) -> None:
    draft_with(hand, method="model", draft_model=path(hand, "other.gguf"))
    banner = hand.window.chat.banner
    hand.qtbot.waitUntil(lambda: "“other” cannot be used" in banner.text.text() and banner.isVisible())
    hand.press(Key.Key_Escape)
    hand.type("hello")
    hand.press(Key.Key_Return)
    assert hand.window.chat.composer.text() == "hello"
    assert "Your text is kept." in banner.text.text()
    hand.click("Turn off drafting", banner)
    assert not banner.isVisible()
    assert hand.session.settings(SpeculationSettings).method == "none"
    hand.box.setFocus()
    hand.press(Key.Key_Return)
    hand.qtbot.waitUntil(lambda: hand.texts() == ["hello", "hello"])
    hand.wait_for("idle")


def test_choosing_another_draft_model_hides_the_offer(hand) -> None:
    draft_with(hand, method="model", draft_model=path(hand, "other.gguf"))
    banner = hand.window.chat.banner
    hand.qtbot.waitUntil(banner.isVisible)
    draft_with(hand, draft_model=path(hand, "small.gguf"))
    assert not banner.isVisible()
    hand.say("hello")


def test_a_file_from_elsewhere(hand, tmp_path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "other.gguf").write_bytes(b"x")
    draft_with(hand, method="model")
    until_known(hand)
    pane(hand).folder.click()
    dialog = next(found for found in hand.window.findChildren(QFileDialog) if found.isVisible())
    dialog.filesSelected.emit([str(tmp_path / "elsewhere")])
    dialog.reject()
    chosen = str(tmp_path / "elsewhere" / "other.gguf")  # the folder's only model
    assert hand.session.settings(SpeculationSettings).draft_model == chosen
    hand.qtbot.waitUntil(
        lambda: chosen in pane(hand).choices.paths() and "vocabulary" in pane(hand).choices.words(chosen)
    )


@pytest.mark.slow
def test_settings_and_choice_come_back_after_a_restart(hand) -> None:
    draft_with(hand, method="model", draft_model=path(hand, "small.gguf"))
    hand.say("hello")
    hand.restart()
    hand.wait_for("idle")
    until_known(hand)
    assert pane(hand).choices.button(path(hand, "small.gguf")).isChecked()
    hand.say("again")
    assert hand.echo.chat.requests[-1].speculation.method == "model"


def test_closing_the_window_while_draft_models_are_checked(hand) -> None:
    gate = threading.Event()
    hand.session.drafts._ask = lambda target, draft: "" if gate.wait(0.3) else "late"
    draft_with(hand, method="model", draft_model=path(hand, "small.gguf"))
    hand.qtbot.wait(20)


def test_the_models_own_head(hand, monkeypatch) -> None:
    describe = hand.echo.describe
    monkeypatch.setattr(
        hand.echo,
        "describe",
        lambda path: dataclasses.replace(describe(path), mtp=path.name == "headed.gguf"),
    )
    hand.load("headed.gguf")
    draft_with(hand, method="mtp")
    hand.say("a b c d e f g h i j k")
    assert hand.echo.chat.requests[-1].speculation.method == "mtp"
    assert pane(hand).figures.kept.text() == "75 % of 12 drafted tokens accepted"
    hand.load("big.gguf")
    hand.type("more")
    hand.press(Key.Key_Return)
    assert "big has no head of its own" in hand.window.chat.banner.text.text()
    assert hand.window.chat.composer.text() == "more"
    hand.click("Turn off drafting", hand.window.chat.banner)
    assert hand.session.settings(SpeculationSettings).method == "none"
