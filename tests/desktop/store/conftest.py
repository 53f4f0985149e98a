"""A store in a temporary folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.database import Database


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    found = Database(tmp_path / "conversations.sqlite3")
    yield found
    found.close()


@pytest.fixture
def store(database: Database) -> ConversationStore:
    return ConversationStore(database)
