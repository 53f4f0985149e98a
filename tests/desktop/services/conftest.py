"""A session over a fake model and a store in a temporary folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QObject
from PySide6.QtTest import QAbstractItemModelTester
from pytestqt.qtbot import QtBot

from desktop.services.session.chat_session import ChatSession
from desktop.store.conversations.stores import ConversationStores
from desktop.store.database.open import open_conversations
from desktop.store.settings.preferences import Preferences
from tests.desktop.fakes import EchoApi, EchoChat


class Harness(QObject):
    """The session with its fakes, and a record of all signals."""

    def __init__(self, qtbot: QtBot, folder: Path) -> None:
        super().__init__()
        self.qtbot = qtbot
        self.folder = folder
        self.echo = EchoApi()
        self.database = open_conversations(folder / "conversations.sqlite3")
        self.stores = ConversationStores(self.database)
        self.store = self.stores.kept
        preferences = Preferences(folder / "preferences.json")
        self.session = ChatSession(
            self.stores, preferences, self.echo.open_chat, self.echo.describe, self.echo.draft_problem
        )
        self.testers = [
            QAbstractItemModelTester(model) for model in (self.session.messages, self.session.conversations)
        ]
        self.said: dict[str, list[tuple[Any, ...]]] = {}
        for name in (
            "state_changed",
            "progress",
            "stats_changed",
            "notice",
            "model_changed",
            "conversation_changed",
            "title_changed",
            "settings_changed",
            "undo_available",
            "running_changed",
            "avoided",
            "draft_refused",
        ):
            self.said[name] = []
            getattr(self.session, name).connect(self._note(name))
        self.closed = False

    @property
    def chat(self) -> EchoChat:
        return self.echo.chat

    def load(self, path: str = "/models/echo.gguf") -> None:
        self.session.open_model(path)
        self.until_idle()

    def until_idle(self) -> None:
        self.qtbot.waitUntil(lambda: self.session.state in ("idle", "no_model"))

    def ask(self, text: str) -> None:
        assert self.session.submit(text), self.said["notice"]
        self.until_idle()

    def texts(self) -> list[str]:
        return [item.text for item in self.session.messages.items()]

    def saved(self) -> list[str]:
        return [message.text for message in self.store.path(self.session.conversation)]

    def ids(self) -> list[int]:
        return [item.id for item in self.session.messages.items()]

    def states(self) -> list[str]:
        return [state for (state,) in self.said["state_changed"]]

    def notices(self) -> list[str]:
        return [sentence for sentence, _ in self.said["notice"]]

    def preferences(self) -> Preferences:
        """The content of the preferences file, once it is written."""
        self.qtbot.waitUntil(lambda: not self.session.preferences.unsaved)
        return Preferences(self.folder / "preferences.json")

    def close_session(self) -> None:
        assert self.session.close()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            assert self.session.close()
            self.testers.clear()
            self.stores.close()
            self.database.close()

    def _note(self, name: str) -> Callable[..., None]:
        return lambda *values: self.said[name].append(values)


@pytest.fixture
def harness(qtbot: QtBot, tmp_path: Path) -> Iterator[Harness]:
    found = Harness(qtbot, tmp_path)
    found.session.restore()
    yield found
    found.close()


@pytest.fixture
def talking(harness: Harness) -> Harness:
    harness.load()
    return harness
