"""A named pipe in the place of a file: it is refused, and nothing waits for what will never come."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from desktop.services.composer.pictures import is_picture
from desktop.store.attachments.files import Unreadable, read_attachment
from desktop.store.database.database import Database, StoreError
from desktop.store.settings.preferences import Preferences
from desktop.store.settings.presets import read_preset
from desktop.store.settings.saved_prompts import read_prompts
from desktop.store.transfer.importers import import_conversations
from desktop.store.transfer.importers.peek import is_chats
from desktop.store.transfer.records import Broken
from desktop.views.personas.avatar import read_picture
from engine.platform.language import SYSTEM, saved_choice

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX systems")
READERS: tuple[Callable[[Path], Any], ...] = (
    lambda path: read_attachment(path, threading.Event()),
    read_preset,
    read_prompts,
    read_picture,
    Preferences,
)


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "preferences.json")
    return tmp_path / "preferences.json"


@pytest.mark.timeout(20)
@pytest.mark.parametrize("read", READERS)
def test_readers_refuse_it_with_a_sentence(read: Callable[[Path], Any], pipe: Path) -> None:
    with pytest.raises((StoreError, Unreadable), match="cannot be read"):
        read(pipe)


@pytest.mark.timeout(20)
def test_what_only_looks_at_it_does_not_wait(
    pipe: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_picture(pipe)
    assert not is_chats(pipe)
    assert any(isinstance(event, Broken) for event in import_conversations(database, pipe))
    monkeypatch.setenv("INGLENOOK_DATA", str(pipe.parent))
    assert saved_choice() == SYSTEM
