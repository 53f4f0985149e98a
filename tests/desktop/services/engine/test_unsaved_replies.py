"""Replies that could not be saved are kept, tried again, and told of once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pytestqt.qtbot import QtBot

from desktop.services.engine import unsaved_replies
from desktop.services.engine.unsaved_replies import Ended, UnsavedReplies
from desktop.store.conversations.token_trace import TokenTrace
from desktop.store.database.database import StoreError
from tests.desktop.store.conversations.test_tokens import traced, word


class Disk:
    """A store whose disk may be full, altogether or for some messages."""

    def __init__(self) -> None:
        self.full: set[int] = set()
        self.saved: list[tuple[Any, ...]] = []
        self.tries = 0

    def finish(self, number: int, *rest: Any) -> None:
        self.tries += 1
        if number in self.full:
            raise StoreError(f"No room for {number}.")
        self.saved.append((number, *rest))


@pytest.fixture
def disk() -> Disk:
    return Disk()


class Heard(UnsavedReplies):
    """With what its signals said."""

    def __init__(self, stores: Any) -> None:
        super().__init__(stores)
        self.told: list[str] = []
        self.trouble.connect(self.told.append)
        self.saved_again.connect(lambda: self.told.append("saved again"))


@pytest.fixture
def replies(qtbot: QtBot, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> Heard:
    monkeypatch.setattr(unsaved_replies, "RETRY_MS", 20)
    return Heard(SimpleNamespace(of=lambda number: disk))


def ended(text: str, tokens: TokenTrace | None = None) -> Ended:
    return Ended(text, "complete", {"reason": "stop_token"}, tokens or TokenTrace())


def test_a_reply_is_saved_with_its_tokens(replies: Heard, disk: Disk) -> None:
    trace = traced(word(1, "one"))
    replies.put(5, ended("one", trace))
    assert replies.waiting == {5: "one"}
    replies.save()
    replies.put(6, ended("two"))
    replies.save()
    kept = ("complete", {"reason": "stop_token"})
    assert disk.saved == [(5, "one", *kept, trace.pack()), (6, "two", *kept, b"")]
    assert (replies.waiting, replies.in_trouble, replies.told) == ({}, False, [])


def test_the_first_failure_is_told_and_the_end_of_all(replies: Heard, disk: Disk, qtbot: QtBot) -> None:
    disk.full = {5, 6}
    for number in (5, 6, 7):
        replies.put(number, ended(str(number)))
    replies.save()
    assert replies.waiting == {5: "5", 6: "6"}
    found = replies.find(6)
    assert found is not None
    assert found.text == "6"
    assert (replies.told, replies.in_trouble) == (["No room for 5."], True)
    assert replies.reason == "No room for 6."
    disk.full = {6}
    qtbot.waitUntil(lambda: replies.waiting == {6: "6"})  # it is tried again without a call
    replies.went_well()
    assert replies.in_trouble
    disk.full = set()
    qtbot.waitUntil(lambda: not replies.waiting)
    assert (replies.told, replies.in_trouble) == (["No room for 5.", "saved again"], False)
    tries = disk.tries
    qtbot.wait(60)
    assert disk.tries == tries


def test_between_two_tries_the_disk_is_left_alone(
    qtbot: QtBot, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unsaved_replies, "RETRY_MS", 60_000)
    replies = Heard(SimpleNamespace(of=lambda number: disk))
    disk.full = {5}
    replies.put(5, ended("one"))
    replies.save()
    qtbot.wait(30)
    assert disk.tries == 1
    replies.forget()


def test_what_went_well_after_a_failure_is_told_once(replies: Heard) -> None:
    replies.went_well()
    assert replies.told == []
    replies.report(StoreError("Locked."))
    replies.went_well()
    replies.went_well()
    assert replies.told == ["Locked.", "saved again"]


def test_the_last_try_is_at_the_end(replies: Heard, disk: Disk, qtbot: QtBot) -> None:
    disk.full = {5}
    replies.put(5, ended("one"))
    replies.save()
    disk.full = set()
    replies.close()
    assert [each[0] for each in disk.saved] == [5]
    disk.full = {6}
    replies.put(6, ended("two"))
    replies.close()
    tries = disk.tries
    qtbot.wait(60)
    assert disk.tries == tries


def test_replies_of_another_file_are_forgotten(replies: Heard, disk: Disk, qtbot: QtBot) -> None:
    disk.full = {5}
    replies.put(5, ended("one"))
    replies.save()
    replies.forget()
    assert (replies.waiting, replies.in_trouble, replies.find(5)) == ({}, False, None)
    tries = disk.tries
    qtbot.wait(60)
    assert disk.tries == tries
