"""Files that are not sent yet are kept for the next start, and gone once they were sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PySide6.QtCore import QCoreApplication, QObject, Signal
from pytestqt.qtbot import QtBot

from desktop.items.chats.conversations import ConversationsModel
from desktop.services.composer import draft_attachments
from desktop.services.composer.draft_attachments import DraftAttachments
from desktop.services.session.saving_trouble import SavingTrouble
from desktop.store.attachments.message_format import Attachment
from desktop.store.conversations import drafts
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.conversations.drafts import DraftStore
from desktop.store.conversations.stores import FIRST_TEMPORARY
from desktop.store.database.database import Database, StoreError

ONE, TWO = Attachment("one.txt", "1"), Attachment("two.txt", "2")


class Session(QObject):
    """What saving files asks of a session."""

    notice = Signal(str, str)
    conversation_changed = Signal(int)

    def __init__(self, database: Database) -> None:
        super().__init__()
        self.stores = SimpleNamespace(database=database)
        self.conversation, self.conversations = 0, ConversationsModel()
        self.conversations.reset(ConversationStore(database).list())
        self.saved_again = 0
        self.saving = SavingTrouble(self._count)

    def _count(self, *_said: str) -> None:
        self.saved_again += 1


class Files(QObject):
    """The files for the next message of each chat."""

    changed = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[int, tuple[Attachment, ...]] = {}

    def held(self, conversation: int) -> list[Any]:
        return [SimpleNamespace(attachment=each) for each in self.of.get(conversation, ())]

    def holding(self) -> list[int]:
        return list(self.of)

    def forget(self, conversation: int) -> None:
        del self.of[conversation]

    def put(self, files: Sequence[Attachment], conversation: int) -> None:
        self.of[conversation] = tuple(files)
        self.changed.emit(conversation)


class Desk:
    """The files of two chats, as after a start of the program."""

    def __init__(self, database: Database) -> None:
        self.session, self.files = Session(database), Files()
        session, files = (self.session, self.files)
        self.saver = DraftAttachments(session, files)  # type: ignore[arg-type]
        self.store = DraftStore(database)
        self.told, self.changes = list[tuple[str, str]](), list[frozenset[int]]()
        session.notice.connect(lambda *said: self.told.append(said))
        self.saver.changed.connect(lambda: self.changes.append(self.saver.holding))
        self.saver.begin()


@pytest.fixture
def database() -> Iterator[Database]:
    made = Database(Path(":memory:"))
    chats = ConversationStore(made)
    assert [chats.create().id for _ in range(2)] == [1, 2]
    yield made
    made.close()


@pytest.fixture
def desk(qtbot: QtBot, database: Database, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(draft_attachments, "SAVE_MS", 30)
    return Desk(database)


def test_files_are_saved_after_a_moment(desk: Desk, qtbot: QtBot) -> None:
    desk.files.put([ONE, TWO], 1)
    assert desk.store.files(1) == ()
    qtbot.waitUntil(lambda: desk.store.files(1) == (ONE, TWO))
    assert (desk.changes, desk.told) == ([frozenset({1})], [])
    desk.files.put([ONE], 1)
    desk.saver.save()
    assert desk.store.files(1) == (ONE,)
    assert len(desk.changes) == 1


def test_files_that_were_sent_are_gone_at_once(desk: Desk) -> None:
    desk.files.put([ONE], 1)
    desk.saver.save()
    desk.files.put([], 1)
    assert desk.store.files(1) == ()
    assert desk.changes == [frozenset({1}), frozenset()]


def test_they_come_back_when_their_chat_is_opened(desk: Desk, database: Database) -> None:
    desk.files.put([ONE], 1)
    desk.saver.save()
    later = Desk(database)
    assert later.saver.holding == {1}
    assert later.files.of == {}
    for chat in (2, 1, 1):
        later.session.conversation_changed.emit(chat)
    assert later.files.of == {1: (ONE,)}
    later.files.put([], 1)
    later.session.conversation_changed.emit(1)
    assert later.files.of == {1: ()}
    assert later.store.files(1) == ()


def test_a_file_that_is_added_before_the_chat_was_opened_comes_after_its_own(
    desk: Desk, database: Database
) -> None:
    desk.files.put([ONE], 1)
    desk.saver.save()
    later = Desk(database)
    later.files.put([TWO], 1)
    assert later.files.of[1] == (ONE, TWO)
    later.saver.save()
    assert later.store.files(1) == (ONE, TWO)


def test_files_of_temporary_chats_are_never_written(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []
    monkeypatch.setattr(DraftStore, "put_files", lambda *given: written.append(given))
    for chat in (FIRST_TEMPORARY, 0):
        desk.files.put([ONE], chat)
        desk.files.put([], chat)
    desk.saver.save()
    assert written == []


def test_a_full_disk_is_tried_again_without_another_change(
    database: Database, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft_attachments, "RETRY_MS", 1)
    desk = Desk(database)

    def fail(*_unused: Any) -> None:
        raise StoreError("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(DraftStore, "put_files", fail)
        desk.files.put([ONE], 1)
        desk.saver.save()
        assert desk.session.saved_again == 0
    qtbot.waitUntil(lambda: desk.store.files(1) == (ONE,))
    assert desk.session.saved_again == 1


def test_a_chat_that_is_gone_gets_no_files(desk: Desk, database: Database) -> None:
    desk.files.put([ONE], 1)
    database.execute("DELETE FROM conversations WHERE id = 1")
    desk.saver.save()
    assert (desk.told, desk.store.files(1)) == ([], ())


def test_a_full_disk_is_told_once_and_tried_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_unused: Any) -> None:
        raise StoreError("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(DraftStore, "put_files", fail)
        for files in ([ONE], [ONE, TWO]):
            desk.files.put(files, 1)
            desk.saver.save()
    assert desk.told == [("The attached files are not saved yet: The disk is full.", "error")]
    desk.saver.save()
    assert desk.store.files(1) == (ONE, TWO)
    with monkeypatch.context() as patch:
        patch.setattr(DraftStore, "put_files", fail)
        desk.files.put([TWO], 1)
        desk.saver.save()
    assert len(desk.told) == 2  # it is told of again
    desk.saver.save()


def test_what_is_too_large_is_named(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "MOST_FILES", 1)
    desk.files.put([ONE, TWO], 1)
    desk.saver.save()
    assert desk.told == [
        ("Too large to be saved with the draft, so attached only until you quit: “two.txt”.", "info")
    ]
    assert desk.store.files(1) == (ONE,)
    desk.session.conversations.remove_all([1])
    QCoreApplication.processEvents()
    assert desk.files.of == {1: (ONE, TWO)}, "deleting the chat can be undone"


def test_files_of_a_deleted_chat_are_in_the_store_alone(
    desk: Desk, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    chats = desk.session.conversations
    for chat in (1, 2, FIRST_TEMPORARY):
        desk.files.put([ONE, TWO], chat)
    chats.remove_all([1])
    QCoreApplication.processEvents()
    assert list(desk.files.of) == [1, 2], (
        "those of the temporary chat are gone with it, others are not saved yet"
    )
    desk.saver.save()
    desk.session.conversation = 1
    desk.session.conversation_changed.emit(1)
    QCoreApplication.processEvents()
    assert list(desk.files.of) == [1, 2], "those of the open chat are shown"
    desk.session.conversation = 2
    with monkeypatch.context() as patch:
        patch.setattr(DraftStore, "files", lambda *_asked: ())
        desk.session.conversation_changed.emit(2)
        QCoreApplication.processEvents()
    assert list(desk.files.of) == [1, 2], "what is not as it was saved stays"
    desk.session.conversation_changed.emit(2)
    QCoreApplication.processEvents()
    assert list(desk.files.of) == [2]
    chats.put(ConversationStore(database).get(1))
    desk.session.conversation_changed.emit(1)
    assert desk.files.of[1] == (ONE, TWO), "the deletion was undone"


def test_what_cannot_be_read_is_told(desk: Desk, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.files.put([ONE], 1)
    desk.saver.save()
    later = Desk(database)

    def fail(*_unused: Any) -> None:
        raise StoreError("It is locked.")

    with monkeypatch.context() as patch:
        patch.setattr(DraftStore, "files", fail)
        later.session.conversation_changed.emit(1)
    assert (later.told, later.files.of) == ([("It is locked.", "error")], {})
    later.session.conversation_changed.emit(1)
    assert later.files.of == {1: (ONE,)}
