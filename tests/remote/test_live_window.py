"""The window over a real server (see README.md): a reply, a continued one, thoughts, and a notebook."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from engine.remote import Provider, model_address
from engine.settings import SamplerSettings, StopSettings, ThinkingSettings
from engine.settings.thinking import OFF
from engine.text.template.reasoning import PLAIN_TAG
from tests.desktop.hand import Hand
from tests.desktop.remote_server import no_keyring

URL, KEY = os.environ.get("INGLENOOK_REMOTE_URL", ""), os.environ.get("INGLENOOK_REMOTE_KEY", "")
pytestmark = [
    pytest.mark.slow, pytest.mark.loopback, pytest.mark.gui,
    pytest.mark.skipif(not URL, reason="no live server: see tests/remote/README.md"),
]  # fmt: skip
LONG = 200_000


def think(hand: Hand, qtbot) -> None:
    """Choose each level in the composer: a reply has a thought unless thinking is off."""
    picker = hand.window.chat.composer.thinking
    assert picker.isVisible()
    levels = [level for level, _unused in hand.session.model.thinking_levels]
    for level, entry in zip(levels, picker.entries()[1:], strict=True):
        entry.trigger()
        assert hand.session.settings(ThinkingSettings).thinking == level
        replies = len(hand.items())
        assert hand.session.submit("Count again.")
        qtbot.waitUntil(
            lambda before=replies: hand.session.state == "idle" and len(hand.items()) == before + 2,
            timeout=LONG,
        )
        assert hand.texts()[-1].strip()
        assert hand.texts()[-1].startswith(PLAIN_TAG[0]) == (level != OFF)


def test_the_window_over_a_server(qtbot, qapp, tmp_path: Path) -> None:
    with no_keyring():
        hand = Hand(qtbot, tmp_path)
        session, providers = hand.session, hand.desktop.services.providers
        providers.save(Provider("live", "Live", URL))
        providers.set_key("live", KEY, in_keyring=False)
        providers.list_models("live")
        qtbot.waitUntil(lambda: not providers.activity("live"), timeout=LONG)
        server = providers.server("live")
        assert server is not None
        hand.window.model_controller.load(model_address("live", server.models[0].name))
        qtbot.waitUntil(lambda: session.model is not None and session.state == "idle", timeout=LONG)
        session.set_settings(dataclasses.replace(session.settings(StopSettings), max_tokens=12))
        session.set_settings(dataclasses.replace(session.settings(SamplerSettings), temperature=0.0))
        session.set_settings(ThinkingSettings(OFF))
        assert session.submit("Count from one to twenty in words, with commas.")
        qtbot.waitUntil(lambda: session.state == "idle" and len(hand.items()) == 2, timeout=LONG)
        begun = hand.texts()[-1]
        assert begun
        assert hand.items()[-1].notice == ""
        if not session.model.why_not("continue"):
            assert session.continue_reply(hand.items()[-1].id)
            qtbot.waitUntil(lambda: session.state == "idle", timeout=LONG)
            assert hand.texts()[-1].startswith(begun)
            assert len(hand.texts()[-1]) > len(begun)
        if not session.model.why_not("thinking"):
            think(hand, qtbot)
        if not session.model.why_not("plain"):
            session.new_notebook()
            session.set_settings(dataclasses.replace(session.settings(StopSettings), max_tokens=8))
            assert session.write_on("Once upon a time")
            qtbot.waitUntil(lambda: session.state == "idle", timeout=LONG)
            document = session.document()
            assert document is not None
            assert len(document.text) > len("Once upon a time")
        hand.close()
