"""Nothing grows in a window that is used for days: what is counted are objects and the contents of
containers, not bytes.
"""

from __future__ import annotations

import gc
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from desktop.items.chats import chat_list
from desktop.services.session import undo
from desktop.store.conversations.trash import empty_trash
from desktop.store.database.database import FILE_NAME, Database
from tests.desktop.hand import Hand

ROUNDS = 6
OPENED = (
    "about", "compare", "emoji", "export_all", "export_chat", "figures", "find", "get_models", "import_chats",
    "library", "local_server", "log", "open_file", "origin", "palette", "personas", "preferences", "prompts",
    "reading", "restore_backup", "roles", "servers", "shortcuts", "tokens", "tools", "trash",
)  # fmt: skip
"""Commands that open a window, a page or a menu."""


@pytest.fixture
def hand(qtbot, tmp_path) -> Iterator[Hand]:
    found = Hand(qtbot, tmp_path)
    found.load()
    found.say("apples")
    yield found
    found.close()


def settle() -> None:
    """Let what was closed be deleted."""
    for _ in range(3):
        QTest.qWait(5)
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)


def held() -> Counter[str]:
    """The number of objects of each class of the window and of Qt, and of what is in their containers."""
    gc.collect()
    found: Counter[str] = Counter()
    for each in gc.get_objects():
        cls = type(each)
        name = f"{cls.__module__}.{cls.__qualname__}"
        if name.startswith(("desktop.", "PySide6.QtWidgets.", "PySide6.QtGui.")):
            found[name] += 1
            for key, value in getattr(each, "__dict__", {}).items():
                if isinstance(value, dict | list | set | deque):
                    found[f"{name}.{key}"] += len(value)
    return found


def grown(act: Callable[[], None]) -> dict[str, int]:
    """What there is more of with every time that the user acts so, and more yet when they go on: caches are
    filled once.
    """
    found: dict[str, int] = {}
    for turn in range(4):
        before = held()
        for _ in range(ROUNDS):
            act()
            settle()
        more = {name: count - before[name] for name, count in held().items()}
        found = {
            name: count for name, count in more.items() if count >= ROUNDS and (turn == 0 or name in found)
        }
        if not found:
            break
    return found


def close_all(hand: Hand) -> None:
    while (popup := QApplication.activePopupWidget()) is not None:
        popup.close()
    for window in QApplication.topLevelWidgets():
        if window.isVisible() and window is not hand.window:
            window.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", OPENED)
def test_what_is_opened_is_gone_when_it_is_closed(hand: Hand, name: str) -> None:
    def open_and_close() -> None:
        assert hand.window.actions_by_name[name].isEnabled()
        hand.window.actions_by_name[name].trigger()
        settle()
        close_all(hand)

    assert grown(open_and_close) == {}


@pytest.mark.slow
@pytest.mark.parametrize("sent", [True, False])
def test_nothing_is_kept_of_chats_that_are_gone(
    hand: Hand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bool
) -> None:
    """Whether their files were sent, or still waited to be."""
    monkeypatch.setattr(chat_list, "_SPARE_ROWS", 0)
    monkeypatch.setattr(undo, "DEPTH", 2)
    session, window = hand.session, hand.window
    attachments = hand.desktop.services.composer.attachments

    def live_and_die() -> None:
        window.navigation.new_chat()
        path = tmp_path / "note.txt"
        path.write_text("one two three " * 50)
        window.files.open([path])
        hand.qtbot.waitUntil(lambda: bool(attachments.held(session.conversation)))
        if sent:
            ask()
        else:
            hand.desktop.services.composer.draft_files.save()
        session.delete_conversation(session.conversation)
        settle()
        database = Database(hand.desktop.services.folder / FILE_NAME)
        for _ in empty_trash(database):
            pass
        database.close()

    def ask() -> None:
        hand.say("What is in it?")
        hand.qtbot.waitUntil(lambda: len(hand.items()) == 2 and not session.replying_in)
        window.actions_by_name["regenerate"].trigger()
        hand.qtbot.waitUntil(lambda: not session.replying_in)
        window.actions_by_name["several"].trigger()
        hand.qtbot.waitUntil(lambda: not session.busy and session.state == "idle")
        hand.press(Qt.Key.Key_Escape)

    assert grown(live_and_die) == {}
