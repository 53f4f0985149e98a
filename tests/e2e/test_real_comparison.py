"""Several replies side by side, and a title, with the starter model in the whole window."""

from __future__ import annotations

import dataclasses
import shutil

import pytest
from PySide6.QtCore import Qt

from desktop.app import EngineApi
from desktop.services.engine.reply_record import stats_of
from desktop.services.session.several import ColumnSettings
from desktop.settings import Behaviour
from engine.settings import SamplerSettings, StopSettings
from tests.desktop.hand import Hand

LOAD_MS = 240_000  # the first start compiles the kernels
REPLY_MS = 120_000
QUESTION = "Tell me a very short story about a lighthouse and a storm."
CTRL_SHIFT = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier

pytestmark = [pytest.mark.real_model, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def hand(qtbot, qapp, tmp_path, starter_path):
    found = Hand(qtbot, tmp_path, api=EngineApi(), titles=True)
    found.window.model_controller.open(starter_path)
    found.wait_for("idle", timeout=LOAD_MS)
    found.session.set_settings(SamplerSettings(seed=11))
    found.session.set_settings(StopSettings(max_tokens=48))
    found.session.set_settings(dataclasses.replace(found.session.settings(Behaviour), several=3))
    yield found
    found.close()


def until_written(hand: Hand) -> None:
    service = hand.desktop.services.comparisons
    hand.qtbot.waitUntil(
        lambda: (
            not hand.session.busy
            and (found := service.of(hand.session.conversation)) is not None
            and not found.waiting
        ),
        timeout=REPLY_MS,
    )


def texts(hand: Hand) -> list[str]:
    return [
        "".join(item.text for item in column.messages.items())
        for column in hand.window.comparisons.page.columns
    ]


def test_replies_side_by_side_are_those_that_would_be_written_alone(hand, tmp_path, starter_path) -> None:
    hand.type(QUESTION)
    hand.press(Qt.Key.Key_S, CTRL_SHIFT)
    until_written(hand)
    together = texts(hand)
    assert len(set(together)) == 3
    columns = hand.desktop.services.comparisons.of(hand.session.conversation).columns
    store = hand.session.stores.kept
    figures = [stats_of(store.message(column.message).stats) for column in columns]
    assert [each.seed for each in figures] == [11, 12, 13]
    assert max(each.cached_tokens for each in figures) > 0, "the prompt is read once"
    hand.window.comparisons.page.leave()
    for seed, text in zip((11, 12, 13), together, strict=True):
        hand.session.set_settings(SamplerSettings(seed=seed))
        assert hand.session.regenerate(hand.items()[-1].id)
        hand.qtbot.waitUntil(lambda: not hand.session.replying_in, timeout=REPLY_MS)
        assert hand.items()[-1].text == text
    twin = tmp_path / "models" / "twin.gguf"
    twin.parent.mkdir(exist_ok=True)
    shutil.copy(starter_path, twin)
    hand.session.set_settings(SamplerSettings(seed=11))
    service = hand.desktop.services.comparisons
    cold = ColumnSettings(temperature=0.0, label="Cold")
    assert service.begin(hand.items()[-1].id, [ColumnSettings(model=str(twin)), cold, ColumnSettings()])
    until_written(hand)
    found = texts(hand)
    assert found[0] == found[2] == together[0], "the twin is the same model"
    assert found[1] != found[0]
    assert hand.session.model.path == str(twin)
    hand.click("Keep reply 2")
    assert hand.items()[-1].text == found[1]


def test_the_model_names_the_chat_and_a_message_does_not_wait(hand) -> None:
    hand.session.set_settings(SamplerSettings(temperature=0.0))
    titles = hand.desktop.services.titles
    first = "Explain the difference between TCP and UDP in simple words."
    hand.type(first)
    hand.press(Qt.Key.Key_Return)
    hand.qtbot.waitUntil(lambda: len(hand.items()) == 2 and not hand.session.replying_in, timeout=REPLY_MS)
    hand.type("Which one is faster?")
    hand.press(Qt.Key.Key_Return)
    hand.qtbot.waitUntil(
        lambda: len(hand.items()) == 4 and not hand.session.replying_in and not titles.waiting,
        timeout=REPLY_MS,
    )
    title = hand.session.title
    assert "TCP" in title
    assert not first.startswith(title.rstrip("…")), title
    assert len(title) <= 48
    assert hand.window.windowTitle().startswith(title)
