"""An EAGLE-3 drafter in the whole window, with a tiny model: found, chosen, and with its figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt

from desktop.app import EngineApi
from engine.settings import LoadSettings, SamplerSettings, SpeculationSettings, StopSettings
from tests.desktop.hand import Hand
from tests.engine.models.drafting.eagle3_files import LAYOUTS, write_drafter, write_perfect

LOAD_MS = 240_000  # the first start compiles the kernels

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def hand(qtbot, qapp, tmp_path):
    found = Hand(qtbot, tmp_path, api=EngineApi())
    write_perfect(tmp_path / "models")
    other = LAYOUTS["SafeAILab"]
    write_drafter(replace(other, layer={**other.layer, "vocab_size": 400}), tmp_path / "models" / "other")
    found.session.set_settings(LoadSettings(backend="cpu", threads=2))
    found.window.model_controller.open(tmp_path / "models" / "main")
    found.wait_for("idle", timeout=LOAD_MS)
    found.session.set_settings(SamplerSettings(temperature=0.0))
    found.session.set_settings(StopSettings(max_tokens=40, min_tokens=40))
    yield found
    found.close()


def test_a_drafter_is_found_and_chosen(hand: Hand) -> None:
    pane = hand.window.model_settings.drafting
    good, other = (str(hand.folder / "models" / name) for name in ("drafter", "other"))
    hand.session.set_settings(SpeculationSettings(method="model", adaptive=False))
    drafts = hand.session.drafts
    hand.qtbot.waitUntil(
        lambda: all(drafts.answer(path) is not None for path in (good, other)), timeout=LOAD_MS
    )
    assert pane.choices.paths()[0] == good
    assert "for models with 64 features and 400 tokens" in pane.choices.words(other)
    pane.choices.button(good).click()
    assert hand.session.settings(SpeculationSettings).draft_model == good
    hand.type("Hello")
    hand.press(Qt.Key.Key_Return)
    hand.qtbot.waitUntil(
        lambda: hand.session.state == "idle" and not hand.session.replying_in and len(hand.items()) > 1,
        timeout=LOAD_MS,
    )
    assert "of drafts accepted" in hand.items()[-1].footer
    assert pane.figures.kept.isVisibleTo(pane)
