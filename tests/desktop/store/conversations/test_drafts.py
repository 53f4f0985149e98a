"""Unsent text and files of each chat, as they lie on the disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from desktop.store.attachments.message_format import Attachment
from desktop.store.conversations import drafts
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.conversations.drafts import DraftStore
from desktop.store.database.database import Database


class Desk:
    """A store with two chats."""

    def __init__(self) -> None:
        self.database = Database(Path(":memory:"))
        self.chats = ConversationStore(self.database)
        self.first, self.second = self.chats.create().id, self.chats.create().id
        self.drafts = DraftStore(self.database)


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.database.close()


def test_each_chat_has_its_text_and_opening(desk: Desk) -> None:
    desk.drafts.put(desk.first, " one\n", "Well,")
    desk.drafts.put(desk.second, "two")
    assert (desk.drafts.get(desk.first), desk.drafts.opening(desk.first)) == (" one\n", "Well,")
    assert (desk.drafts.get(desk.second), desk.drafts.opening(desk.second)) == ("two", "")
    desk.drafts.put(desk.first, "", "Well")
    assert (desk.drafts.get(desk.first), desk.drafts.opening(desk.first)) == ("", "Well")
    assert desk.drafts.conversations() == {desk.first, desk.second}


def test_blank_drafts_are_deleted(desk: Desk) -> None:
    for text, opening in (("one", "Well"), (" \n", "  ")):
        desk.drafts.put(desk.first, text, opening)
    assert (desk.drafts.get(desk.first), desk.drafts.opening(desk.first)) == ("", "")
    assert desk.drafts.conversations() == frozenset()


def test_a_draft_leaves_the_chat_in_its_place(desk: Desk) -> None:
    before = desk.chats.get(desk.first).updated_at
    desk.drafts.put(desk.first, "one")
    assert desk.chats.get(desk.first).updated_at == before


def test_very_long_text_is_kept_in_part(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "LONGEST_DRAFT", 4)
    desk.drafts.put(desk.first, "123456", "abcdef")
    assert (desk.drafts.get(desk.first), desk.drafts.opening(desk.first)) == ("1234", "abcd")


def test_files_are_replaced_and_keep_their_order(desk: Desk) -> None:
    files = (Attachment("b.txt", "B", "cut"), Attachment("a.txt", "A"))
    assert desk.drafts.put_files(desk.first, files) == ()
    assert desk.drafts.files(desk.first) == files
    assert (desk.drafts.files(desk.second), desk.drafts.conversations_with_files()) == ((), {desk.first})
    desk.drafts.put_files(desk.first, files[1:])
    assert desk.drafts.files(desk.first) == files[1:]
    desk.drafts.put_files(desk.first, ())
    assert (desk.drafts.files(desk.first), desk.drafts.conversations_with_files()) == ((), frozenset())


def test_files_that_are_too_large_are_named_and_others_kept(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafts, "MOST_FILES", 5)
    files = [Attachment("one", "123"), Attachment("two", "456"), Attachment("three", "78")]
    assert desk.drafts.put_files(desk.first, files) == ("two",)
    assert [file.name for file in desk.drafts.files(desk.first)] == ["one", "three"]
