"""Temporary chats: forgotten when they are left, kept on request, never on the disk."""

from __future__ import annotations

import threading

import pytest

from desktop.services.session import visible_chat
from desktop.services.session.context import is_temporary
from desktop.store.database.database import StoreError

SECRET = "zanzibar-marmalade"


def written(harness) -> bytes:
    return b"".join(path.read_bytes() for path in harness.folder.rglob("*") if path.is_file())


def test_a_temporary_chat_is_not_listed_and_forgotten_when_left(talking) -> None:
    session = talking.session
    kept, rows = session.conversation, session.conversations.rowCount()
    assert session.new_temporary()
    temporary = session.conversation
    assert session.temporary
    assert is_temporary(temporary)
    session.set_system_prompt(SECRET)
    talking.ask(f"Tell me of {SECRET}")
    assert talking.texts() == [f"Tell me of {SECRET}"] * 2
    assert session.conversations.rowCount() == rows
    assert talking.preferences().last_conversation == kept
    assert SECRET.encode() not in written(talking)
    session.delete_message(talking.ids()[-1])
    session.open_conversation(kept)
    with pytest.raises(StoreError):
        talking.stores.temporary.get(temporary)
    session.undo()
    assert "discarded" in talking.notices()[-1]


def test_a_running_reply_keeps_a_temporary_chat_until_its_end(talking) -> None:
    session = talking.session
    kept = session.conversation
    session.new_temporary()
    temporary = session.conversation
    end = threading.Event()
    talking.chat.pauses = {5: end}
    session.submit("one two three four five")
    talking.qtbot.waitUntil(lambda: session.state == "answering")
    assert not session.keep_temporary()
    assert "still being written" in talking.notices()[-1]
    session.open_conversation(kept)
    assert talking.stores.temporary.get(temporary).id == temporary
    end.set()
    talking.qtbot.waitUntil(lambda: not talking.stores.temporary.path(temporary))


def test_a_kept_chat_is_like_any_other(talking) -> None:
    session = talking.session
    assert not session.keep_temporary()
    session.new_temporary()
    talking.ask("Keep this")
    assert session.keep_temporary()
    assert not session.temporary
    assert talking.texts() == ["Keep this", "Keep this"] == talking.saved()
    assert session.conversations.row(session.conversation) == 0
    assert talking.preferences().last_conversation == session.conversation


def test_a_failing_disk_leaves_the_temporary_chat_open(talking, monkeypatch) -> None:
    session = talking.session
    session.new_temporary()
    talking.ask("Stay")
    monkeypatch.setattr(
        talking.database, "execute", lambda *_: (_ for _ in ()).throw(StoreError("There is no room."))
    )
    assert not session.keep_temporary()
    assert session.temporary
    assert talking.texts() == ["Stay", "Stay"]
    monkeypatch.undo()
    assert session.keep_temporary()


def test_a_chat_that_is_kept_but_cannot_be_shown_anew_is_the_kept_one(talking, monkeypatch) -> None:
    session = talking.session
    session.new_temporary()
    talking.ask("Stay")

    def fails(*_: object) -> None:
        raise StoreError("The disk is gone.")

    monkeypatch.setattr(visible_chat, "read_context", fails)
    assert not session.keep_temporary()
    monkeypatch.undo()
    assert not session.temporary
    assert talking.saved() == ["Stay", "Stay"]
    talking.ask("More")
    assert talking.saved()[2:] == ["More", "More"]


def test_deleting_a_temporary_chat_forgets_it(talking) -> None:
    session = talking.session
    session.new_temporary()
    temporary = session.conversation
    assert session.delete_conversation(temporary)
    assert not session.temporary
    with pytest.raises(StoreError):
        talking.stores.temporary.get(temporary)
