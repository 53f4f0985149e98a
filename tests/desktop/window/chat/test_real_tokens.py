"""The token inspector with the starter model: a reply drafted by n-grams continues with its exact ids."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from desktop.app import EngineApi
from engine.settings import (
    CacheSettings,
    ConstraintSettings,
    SamplerSettings,
    SpeculationSettings,
    StopSettings,
)
from engine.text.tokenizer.tokenizer import Tokenizer
from engine.weights.checkpoint import open_checkpoint
from tests.desktop.hand import Hand

pytestmark = [pytest.mark.gui, pytest.mark.real_model]


@pytest.fixture
def hand(qtbot, qapp, tmp_path):
    found = Hand(qtbot, tmp_path, api=EngineApi())
    yield found
    found.close()


@pytest.mark.slow
def test_a_drafted_reply_goes_on_from_another_token(qtbot, hand, starter_path) -> None:
    session = hand.session
    for settings in (
        CacheSettings(context_length=512), SamplerSettings(temperature=0.0),
        SpeculationSettings(method="ngram", adaptive=False), StopSettings(max_tokens=40),
        ConstraintSettings(heal=True),
    ):  # fmt: skip
        session.set_settings(settings)
    hand.window.model_controller.open(starter_path)
    hand.wait_for("idle", timeout=300_000)
    session.submit("Repeat three times: the 漢字 cat and the 🎉 dog and the cat and the dog.")
    qtbot.waitUntil(
        lambda: session.state == "idle" and bool(session.messages.items()[-1].footer), timeout=300_000
    )
    first = hand.items()[-1]
    trace = session.tokens(first.id)
    assert trace.text == first.text
    assert any(map(trace.drafted, range(len(trace))))
    assert all(0 <= trace.raw[index] <= 1 for index in range(len(trace)))
    tokenizer = Tokenizer.from_gguf(open_checkpoint(starter_path).metadata)
    assert tokenizer.decode(list(trace.ids)) == first.text

    hand.press(Qt.Key.Key_T, Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier)
    transcript = hand.window.chat.transcript
    transcript.flush()
    place = next(index for index in range(6, len(trace)) if trace.drafted(index))
    row = next(
        row
        for row in transcript.pool.live
        if row.trace is trace and row.start <= trace.starts[place] < row.start + len(row.text)
    )
    transcript.inspection.open(row, place)
    button = next(
        found
        for found in transcript.inspection.popup.buttons
        if found.isEnabled() and found.other.text.isascii()
    )
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(
        lambda: session.state == "idle" and hand.items()[-1].id != first.id and bool(hand.items()[-1].footer),
        timeout=300_000,
    )
    second = session.tokens(hand.items()[-1].id)
    assert list(second.ids)[: place + 1] == [*list(trace.ids)[:place], button.other.id]
    assert len(second) > place + 1
    assert hand.items()[-1].text == second.text == tokenizer.decode(list(second.ids))
    assert not any(map(second.healed, range(len(second))))
