"""A GPU with wrong kernels in the window: the notice, the report on the clipboard, correct replies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication

from desktop.app import EngineApi
from engine.backends.cuda.program import CudaProgram
from engine.backends.cuda.proof import proven
from engine.models.proof import cases, first_use
from engine.settings import CacheSettings, SamplerSettings, StopSettings
from tests.desktop.hand import Hand
from tests.desktop.window.models.test_engine_trouble import RELOAD, banner_text, offered
from tests.simt.fake import FakeDevice
from tests.simt.fake_machine import FakeMachine, install
from tests.tiny import TINY, write_gguf

pytestmark = [pytest.mark.gui, pytest.mark.timeout(300)]
MS = 120_000
REPORT = "Kernels on fake 0 with its driver, 4 multiprocessors, against the reference:"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeMachine:
    monkeypatch.setattr(proven, "cache_dir", lambda: tmp_path / "cache")
    monkeypatch.setattr(first_use, "SECONDS", 1000.0)  # another program may be at it
    monkeypatch.setattr(cases, "ATTENTION_STEPS", (1, 3, 8, 20, 1, 70))  # shorter ones, for NumPy is slow
    made = install(monkeypatch, FakeDevice())
    made.devices[0].identity = "fake 0 with its driver"
    return made


@pytest.fixture
def hand(qtbot, tmp_path, machine) -> Iterator[Hand]:
    found = Hand(qtbot, tmp_path, api=EngineApi())
    session = found.session
    session.set_settings(replace(session.settings(CacheSettings), context_length=512, memory=1))
    session.set_settings(replace(session.settings(SamplerSettings), temperature=0.0))
    session.set_settings(replace(session.settings(StopSettings), max_tokens=5))
    yield found
    found.close()


def wrong(work: Any) -> None:
    """The kernel does nothing."""


def copied(hand: Hand) -> str:
    hand.click("Copy details")
    return QGuiApplication.clipboard().text()


def say(hand: Hand) -> None:
    hand.type("the dog and the fox")
    hand.press(Qt.Key.Key_Return)
    hand.qtbot.waitUntil(
        lambda: not hand.session.replying_in and hand.session.state != "replying", timeout=MS
    )


@pytest.mark.slow
def test_a_wrong_kernel_is_reported_and_replaced(hand: Hand, machine: FakeMachine, tmp_path: Path) -> None:
    machine.devices[0].broken["linear_q40"] = wrong
    hand.window.model_controller.open(write_gguf(tmp_path / "m.gguf", TINY, "Q4_0"))
    hand.wait_for("idle", timeout=MS)
    said = banner_text(hand)
    assert said.startswith("On fake 0, ")
    assert "PyTorch's own operations are used instead: replies are correct, but slow." in said
    text = copied(hand)
    assert said in text
    assert REPORT in text
    assert "linear, Q4_0: 1.00e+00 of at most 1e-03, FAILED" in text
    assert not offered(hand)
    say(hand)
    assert hand.items()[-1].text
    assert hand.session.stores.kept.message(hand.items()[-1].id).state == "complete"


@pytest.mark.slow
@pytest.mark.parametrize("now_wrong", [False, True])
def test_scores_that_are_no_numbers_end_the_reply_with_a_sentence(
    hand: Hand, machine: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now_wrong: bool
) -> None:
    """The kernels are checked again. Where they are right the model's file is suspected; where not, a button
    loads the model again, and PyTorch's operations take their place.
    """
    hand.window.model_controller.open(write_gguf(tmp_path / "m.gguf", TINY, "Q4_0"))
    hand.wait_for("idle", timeout=MS)
    assert banner_text(hand) == ""
    with monkeypatch.context() as patch:
        run = CudaProgram.run
        # Not in cases, whose steps are short.
        patch.setattr(
            CudaProgram,
            "run",
            lambda self, step: run(self, step) * np.float32(np.nan if self.max_rows > 100 else 1),
        )
        if now_wrong:
            machine.devices[0].broken["linear_q40"] = wrong
        say(hand)
    item = hand.items()[-1]
    assert hand.session.stores.kept.message(item.id).state == "failed"
    if not now_wrong:
        assert (
            "The GPU's kernels were checked again and are correct, so the model's file is probably damaged"
            in item.notice
        )
        assert hand.session.model is not None
        assert banner_text(hand) == ""
        return
    assert "Some GPU kernels now give wrong results. Reload the model" in item.notice
    assert "Some GPU kernels now give wrong results. Reload the model" in banner_text(hand)
    assert hand.session.model is None
    text = copied(hand)
    assert REPORT in text
    assert "FAILED" in text
    assert offered(hand)
    hand.click(RELOAD)
    hand.wait_for("idle", timeout=MS)
    assert "PyTorch's own operations are used instead" in banner_text(hand)
    say(hand)
    assert hand.session.stores.kept.message(hand.items()[-1].id).state == "complete"
