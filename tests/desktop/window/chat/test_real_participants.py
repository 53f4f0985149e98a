"""Named participants with the starter model."""

from __future__ import annotations

from pathlib import Path

import pytest

from desktop.services.composer.composer_services import make_composer_services
from desktop.services.engine.model_host import describe, open_chat
from desktop.services.session.chat_session import ChatSession
from desktop.store.conversations.participants import Cast, Participant
from desktop.store.conversations.stores import ConversationStores
from desktop.store.database.database import Database
from desktop.store.settings.preferences import Preferences
from engine.settings import SamplerSettings, StopSettings


@pytest.mark.slow
@pytest.mark.real_model
def test_two_participants_talk_each_for_itself(qtbot, tmp_path, starter_path: Path) -> None:
    database = Database(tmp_path / "conversations.sqlite3")
    stores = ConversationStores(database)
    session = ChatSession(stores, Preferences(tmp_path / "preferences.json"), open_chat, describe)
    writing = make_composer_services(session, session)
    session.restore()
    session.open_model(starter_path)
    qtbot.waitUntil(lambda: session.state == "idle", timeout=300_000)
    cast = (
        Participant("Ada", "Ada is a mathematician who loves puzzles."),
        Participant("Bob", "Bob is a baker and likes to joke."),
    )
    session.set_cast(Cast(cast, ("Cy",), "turn", automatic=3))
    session.set_settings(SamplerSettings(temperature=0.7, seed=5))
    session.set_settings(StopSettings(max_tokens=60))
    assert session.submit("Ada and Bob, talk about how to share a cake fairly.")
    qtbot.waitUntil(
        lambda: len(session.messages.items()) == 5 and session.state == "idle" and not session.replying_in,
        timeout=400_000,
    )
    items = session.messages.items()
    assert [item.author for item in items] == ["Cy", "Ada", "Bob", "Ada", "Bob"]
    for item in items[1:]:
        lines = [line.strip().casefold() for line in item.text.splitlines()]
        other = {"Ada": "bob", "Bob": "ada"}[item.author]
        assert item.text.strip()
        assert not lines[0].startswith((f"{item.author.casefold()}:", f"{other}:"))
        assert not any(line.startswith((f"{other}:", "cy:")) for line in lines)
        trace = session.tokens(item.id)
        assert trace is not None
        assert item.text.startswith(trace.text)
        assert len(trace) > 1
    assert writing.close()
    assert session.close()
    stores.close()
    database.close()
