"""Unsent text is saved half a second after a key and when its chat is left, and is gone once it was sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PySide6.QtCore import QObject, Signal
from pytestqt.qtbot import QtBot

from desktop.services.session.saving_trouble import SavingTrouble
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.conversations.drafts import DraftStore
from desktop.store.conversations.stores import FIRST_TEMPORARY
from desktop.store.database.database import Database, StoreError
from desktop.views.composer import autosave
from desktop.views.composer.autosave import DraftAutosave, saved_draft
from desktop.views.composer.composer import Composer


class Session(QObject):
    """What the drafts ask of a session."""

    notice = Signal(str, str)
    file_replaced = Signal()

    def __init__(self, database: Database) -> None:
        super().__init__()
        self.stores = SimpleNamespace(database=database)
        self.saved_again = 0
        self.saving = SavingTrouble(self._count)

    def _count(self, *_said: str) -> None:
        self.saved_again += 1


class Files(QObject):
    """The attached files of drafts."""

    changed = Signal()
    holding: frozenset[int] = frozenset()
    saves = 0

    def begin(self) -> None:
        self.holding = frozenset({77})

    def save(self) -> None:
        self.saves += 1


class Desk:
    """Two chats, the first of them open in the composer."""

    def __init__(self, qtbot: QtBot) -> None:
        self.database = Database(Path(":memory:"))
        chats = ConversationStore(self.database)
        self.first, self.second = chats.create().id, chats.create().id
        self.store = DraftStore(self.database)
        self.session: Any = Session(self.database)
        self.files: Any = Files()
        self.composer = Composer()
        qtbot.addWidget(self.composer)
        self.saver = DraftAutosave(self.session, self.composer, self.files)
        self.marked: list[frozenset[int]] = []
        self.notices: list[tuple[str, str]] = []
        self.saver.changed.connect(self.marked.append)
        self.session.notice.connect(lambda *said: self.notices.append(said))
        self.composer.switch_conversation(self.first)

    def draft(self, chat: int = 0) -> tuple[str, str]:
        return saved_draft(self.session, chat or self.first)


@pytest.fixture
def desk(qtbot: QtBot) -> Iterator[Desk]:
    made = Desk(qtbot)
    yield made
    made.database.close()


def test_text_is_saved_after_a_pause(desk: Desk, qtbot: QtBot) -> None:
    desk.composer.box.setPlainText("Hello")
    assert desk.draft() == ("", "")
    qtbot.waitUntil(lambda: desk.draft() == ("Hello", ""))
    assert desk.marked == [frozenset({desk.first})]
    saves = desk.files.saves
    desk.composer.box.setPlainText("Hello there")
    desk.saver.save()
    assert (desk.draft(), desk.files.saves) == (("Hello there", ""), saves + 1)
    assert desk.marked == [frozenset({desk.first})]


def test_text_that_was_sent_is_gone_at_once(desk: Desk) -> None:
    desk.composer.box.setPlainText("Hello")
    desk.saver.save()
    desk.composer.box.setPlainText("")
    assert desk.draft() == ("", "")
    assert desk.marked == [frozenset({desk.first}), frozenset()]


def test_the_opening_of_a_reply_is_a_draft_too(desk: Desk) -> None:
    desk.composer.set_opening("Well,")
    desk.saver.save()
    assert desk.draft() == ("", "Well,")
    desk.composer.box.setPlainText("Hello")
    desk.composer.box.setPlainText("")
    desk.saver.save()
    assert desk.draft() == ("", "Well,")
    assert desk.marked == [frozenset({desk.first})]


def test_a_chat_that_is_left_is_saved_at_once(desk: Desk) -> None:
    desk.composer.box.setPlainText("one")
    desk.composer.switch_conversation(desk.second)
    assert desk.draft() == ("one", "")
    assert desk.draft(desk.second) == ("", "")
    desk.composer.box.setPlainText("two")
    desk.saver.save()
    assert desk.draft(desk.second) == ("two", "")
    assert desk.marked[-1] == {desk.first, desk.second}


def test_blank_text_leaves_no_draft(desk: Desk) -> None:
    desk.composer.box.setPlainText(" \n")
    desk.saver.save()
    assert desk.store.conversations() == frozenset()
    assert desk.marked == []


def test_temporary_chats_are_never_written(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []
    monkeypatch.setattr(DraftStore, "put", lambda *given: written.append(given))
    desk.composer.switch_conversation(FIRST_TEMPORARY)
    desk.composer.box.setPlainText("secret")
    desk.saver.save()
    desk.composer.switch_conversation(desk.first)
    assert written == []


def test_which_chats_have_drafts_is_told_at_the_start(desk: Desk) -> None:
    desk.store.put(desk.second, "waits", "")
    desk.saver.begin()
    assert desk.marked == [frozenset({desk.second, 77})]
    desk.files.holding = frozenset()
    desk.files.changed.emit()
    assert desk.marked[-1] == {desk.second}


def test_a_full_disk_is_told_once_and_tried_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_unused: Any) -> None:
        raise StoreError("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(DraftStore, "put", fail)
        for text in ("one", "one two"):
            desk.composer.box.setPlainText(text)
            desk.saver.save()
    assert desk.notices == [("Your text is not saved yet: The disk is full.", "error")]
    assert desk.session.saved_again == 0
    desk.saver.save()
    assert (desk.draft(), desk.session.saved_again) == (("one two", ""), 1)
    desk.saver.save()
    assert desk.session.saved_again == 1


def test_a_full_disk_is_tried_again_without_a_key_and_for_every_chat(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autosave, "RETRY_MS", 1)
    desk = Desk(qtbot)

    def fail(*_unused: Any) -> None:
        raise StoreError("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(DraftStore, "put", fail)
        desk.composer.box.setPlainText("one")
        desk.composer.switch_conversation(desk.second)  # its empty box is no proof that saving works
        desk.composer.box.setPlainText("two")
        desk.composer.box.setPlainText("")
        desk.saver.save()
        assert desk.session.saved_again == 0
    qtbot.waitUntil(lambda: desk.draft() == ("one", ""))
    assert desk.draft(desk.second) == ("", "")
    desk.database.close()


def test_a_chat_that_is_gone_gets_no_draft(desk: Desk) -> None:
    desk.composer.box.setPlainText("one")
    desk.database.execute("DELETE FROM conversations WHERE id = ?", (desk.first,))
    desk.saver.save()
    assert (desk.notices, desk.store.conversations()) == ([], frozenset())


def test_what_was_not_saved_is_dropped_with_the_file_of_its_chat(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_unused: Any) -> None:
        raise StoreError("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(DraftStore, "put", fail)
        desk.composer.box.setPlainText("one")
        desk.saver.save()
    desk.session.file_replaced.emit()
    desk.saver.save()
    assert desk.draft() == ("", "")


def test_what_cannot_be_read_is_told(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_unused: Any) -> None:
        raise StoreError("It is locked.")

    monkeypatch.setattr(DraftStore, "get", fail)
    monkeypatch.setattr(DraftStore, "conversations", fail)
    assert desk.draft() == ("", "")
    desk.saver.begin()
    assert desk.notices == [("It is locked.", "error")] * 2
    assert desk.marked == []
