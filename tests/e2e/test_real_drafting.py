"""Drafting, avoided phrases and branches with the starter model in the whole window."""

from __future__ import annotations

import shutil

import pytest
from PySide6.QtCore import Qt

from desktop.app import EngineApi
from desktop.services.engine.running_reply import RunningReply
from engine.core import Text, TokenInfo
from engine.settings import ConstraintSettings, SamplerSettings, SpeculationSettings, StopSettings
from tests.desktop.hand import Hand

LOAD_MS = 240_000  # the first start compiles the kernels
REPLY_MS = 120_000
QUESTION = "Write the numbers from one to twelve, then write them again."

pytestmark = [pytest.mark.real_model, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def hand(qtbot, qapp, tmp_path, starter_path):
    found = Hand(qtbot, tmp_path, api=EngineApi())
    found.window.model_controller.open(starter_path)
    found.wait_for("idle", timeout=LOAD_MS)
    found.session.set_settings(SamplerSettings(temperature=0.0))
    found.session.set_settings(StopSettings(max_tokens=96))
    yield found
    found.close()


def wait_for_reply(hand: Hand) -> str:
    hand.qtbot.waitUntil(
        lambda: hand.session.state == "idle" and not hand.session.replying_in, timeout=REPLY_MS
    )
    return hand.texts()[-1]


def ask(hand: Hand) -> str:
    """The reply to the question in a chat of its own."""
    settings = [
        hand.session.settings(cls)
        for cls in (SamplerSettings, StopSettings, SpeculationSettings, ConstraintSettings)
    ]
    hand.session.new_conversation()
    for each in settings:
        hand.session.set_settings(each)
    hand.type(QUESTION)
    hand.press(Qt.Key.Key_Return)
    return wait_for_reply(hand)


def test_drafting_changes_only_the_speed(hand, tmp_path, starter_path) -> None:
    plain = ask(hand)
    assert hand.window.model_settings.drafting.figures.isHidden()
    twin = tmp_path / "models" / "twin.gguf"  # its guesses are right, or nearly always
    twin.parent.mkdir(exist_ok=True)
    shutil.copy(starter_path, twin)
    for settings in (
        SpeculationSettings(method="ngram"),
        SpeculationSettings(method="model", draft_model=str(twin), adaptive=False),
    ):
        hand.session.set_settings(settings)
        assert ask(hand) == plain
        assert "of drafts accepted" in hand.items()[-1].footer
        assert "per pass" in hand.window.chat.status.drafting.text()
        assert hand.window.model_settings.drafting.figures.kept.isVisibleTo(
            hand.window.model_settings.drafting
        )
    kept = hand.window.model_settings.drafting.figures.bar.value()
    assert kept > 800


def test_a_loaded_model_does_not_draft_for_itself(hand, starter_path) -> None:
    hand.session.set_settings(SpeculationSettings(method="model", draft_model=str(starter_path)))
    hand.qtbot.waitUntil(lambda: hand.session.drafts.answer(str(starter_path)) is not None, timeout=REPLY_MS)
    hand.type(QUESTION)
    hand.press(Qt.Key.Key_Return)
    assert hand.texts() == []
    assert hand.window.chat.composer.text() == QUESTION
    hand.click("Turn off drafting", hand.window.chat.banner)
    hand.box.setFocus()
    hand.press(Qt.Key.Key_Return)
    assert wait_for_reply(hand)


def test_banned_phrases_are_avoided_and_reported(hand) -> None:
    usual = ask(hand)
    banned = (usual[2:4], usual[5:6])
    hand.session.set_settings(SpeculationSettings(method="ngram"))
    hand.session.set_settings(ConstraintSettings(banned_strings=banned))
    reply = ask(hand)
    assert not any(phrase.lower() in reply.lower() for phrase in banned)
    assert "avoided" in hand.items()[-1].footer


def test_a_branch_continues_from_another_token(hand, monkeypatch) -> None:
    tokens: list[TokenInfo] = []
    take = RunningReply.take

    def taken(reply: RunningReply, event: Text) -> str:
        tokens.extend(event.tokens)
        return take(reply, event)

    monkeypatch.setattr(RunningReply, "take", taken)
    first = ask(hand)
    assert "".join(token.text for token in tokens).startswith(first[:40])
    place = next(
        place for place, token in enumerate(tokens) if place > 3 and token.alternatives[1].text.strip()
    )
    other = tokens[place].alternatives[1]
    ids = [*(token.id for token in tokens[:place]), other.id]
    text = "".join(token.text for token in tokens[:place]) + other.text
    tokens.clear()
    assert hand.session.branch(hand.items()[-1].id, text, ids)
    reply = wait_for_reply(hand)
    assert reply.startswith(text)
    assert len(reply) > len(text)
    assert reply != first
    assert (hand.items()[-1].variant_index, hand.items()[-1].variant_count) == (1, 2)
