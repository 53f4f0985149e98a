"""Pins, folders, the trash and the search in steps, over a real session and store."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from desktop.items.chats.chat_list import ChatListModel
from desktop.services.conversations import chat_list as chat_list_module
from desktop.services.conversations.chat_list import ChatList
from desktop.settings import Behaviour
from desktop.store.conversations.records import SearchHit
from tests.desktop.services.conftest import Harness


@pytest.fixture
def chat_list(harness: Harness) -> Iterator[ChatList]:
    found = ChatList(harness.session)
    found.load()
    yield found
    assert found.close()


def chat(harness: Harness, title: str, *texts: str) -> int:
    made = harness.store.create(title)
    parent = None
    for text in texts:
        parent = harness.store.add_message(made.id, parent, "user", text).id
    harness.session.reload_conversations()
    return made.id


def shown(chat_list: ChatList) -> list[str]:
    return [
        "  " * row.depth + str(chat_list.rows.index(place).data())
        for place, row in enumerate(chat_list.rows.shown())
    ]


def test_days_pass_while_the_window_is_open(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_list_module, "CLOCK_MS", 1)
    passed: list[object] = []
    monkeypatch.setattr(ChatListModel, "refresh_dates", lambda self: passed.append(self))
    chat_list = ChatList(harness.session)
    chat_list.load()
    chat_list.begin_upkeep()
    harness.qtbot.waitUntil(lambda: bool(passed))
    assert chat_list.close()


def test_pins_and_folders_are_kept(harness: Harness, chat_list: ChatList) -> None:
    one, two = chat(harness, "one"), chat(harness, "two")
    outer = chat_list.new_folder()
    inner = chat_list.new_folder(outer)
    chat_list.rename_folder(outer, "Work")
    chat_list.rename_folder(inner, "  ")
    assert chat_list.move([one, two], inner)
    chat_list.rows.set_open_folders({outer, inner})
    assert shown(chat_list)[:5] == ["Folders", "Work", "  New folder", "    two", "    one"]
    assert chat_list.pin([one], True)
    assert shown(chat_list)[:2] == ["Pinned", "one"]
    assert chat_list.chats_in(outer) == 2
    again = ChatList(harness.session)
    again.load()
    again.rows.set_open_folders({outer, inner})
    assert shown(again) == shown(chat_list)
    assert chat_list.move([one], None, unpin=True)
    assert "Pinned" not in shown(chat_list)
    assert not chat_list.move([one], 999)
    assert "no folder number 999" in harness.notices()[-1]


def test_undo_restores_a_removed_folder_with_its_chats(harness: Harness, chat_list: ChatList) -> None:
    one = chat(harness, "one")
    number = chat_list.new_folder()
    chat_list.move([one], number)
    harness.session.open_conversation(one)
    counts: list[int] = []
    chat_list.trash_changed.connect(counts.append)
    assert chat_list.remove_folder(number, throw_away=True)
    assert "one" not in shown(chat_list)
    assert harness.session.conversation != one
    assert counts[-1] == 1
    assert harness.session.undo()
    chat_list.rows.set_open_folders({number})
    assert shown(chat_list)[:3] == ["Folders", "New folder", "  one"]
    assert chat_list.remove_folder(number)
    assert "one" in shown(chat_list)
    assert counts[-1] == 0


def test_moving_folders_can_be_undone(harness: Harness, chat_list: ChatList) -> None:
    first, second = chat_list.new_folder(), chat_list.new_folder()
    assert chat_list.move_folder(second, None, 0)
    assert [folder.id for folder in chat_list.rows.folders()] == [second, first]
    harness.session.undo()
    assert [folder.id for folder in chat_list.rows.folders()] == [first, second]
    assert chat_list.move_folder(second, first)
    assert not chat_list.move_folder(first, second)
    assert "cannot be moved into itself" in harness.notices()[-1]


def test_the_trash_is_emptied_in_steps(harness: Harness, chat_list: ChatList) -> None:
    ids = [chat(harness, f"chat {number}", "text") for number in range(5)]
    assert harness.session.delete_conversations(ids)
    assert len(chat_list.trash()) == 5
    assert chat_list.restore(ids[:2])
    assert len(chat_list.trash()) == 3
    chat_list.delete_for_good([ids[2]])
    chat_list.delete_for_good([ids[3]])  # joins what is under way
    harness.qtbot.waitUntil(lambda: [row.id for row in chat_list.trash()] == [ids[4]])
    chat_list.empty_trash()
    harness.qtbot.waitUntil(lambda: not chat_list.trash())
    assert {row.id for row in harness.store.list()} >= set(ids[:2])
    assert not harness.database.execute(
        "SELECT 1 FROM messages WHERE conversation_id = ?", (ids[2],)
    ).fetchone()


def test_one_undo_restores_several_deleted_chats(harness: Harness, chat_list: ChatList) -> None:
    ids = [chat(harness, f"chat {number}") for number in range(3)]
    assert harness.session.delete_conversations(ids)
    assert harness.said["undo_available"][-1] == (True, "delete 3 chats")
    assert harness.session.undo()
    assert {row.id for row in harness.session.conversations.summaries()} >= set(ids)


def test_the_undo_of_several_deletions_restores_all_chats_or_none(
    harness: Harness, chat_list: ChatList
) -> None:
    ids = [chat(harness, f"chat {number}") for number in range(3)]
    assert harness.session.delete_conversations(ids)
    harness.database.execute("UPDATE conversations SET deleted = 2 WHERE id = ?", (ids[-1],))
    harness.session.undo()
    assert "is being deleted permanently" in harness.notices()[-1]
    assert {row.id for row in chat_list.trash()} == set(ids[:2])
    assert not {row.id for row in harness.session.conversations.summaries()} & set(ids)


def test_emptying_the_trash_does_not_show_it_again_after_each_chat(
    harness: Harness, chat_list: ChatList, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 2,000 chats in the trash, reading and showing the rest took most of the time."""
    monkeypatch.setattr(chat_list_module, "COUNT_S", 60.0)
    assert harness.session.delete_conversations([chat(harness, f"chat {number}") for number in range(8)])
    counts: list[int] = []
    chat_list.trash_changed.connect(counts.append)
    chat_list.empty_trash()
    harness.qtbot.waitUntil(lambda: not chat_list.trash() and bool(counts))
    assert counts == [0]


@pytest.mark.parametrize(("days", "left"), [(30, 1), (0, 2)])
def test_old_trash_is_emptied_after_the_start(
    harness: Harness, chat_list: ChatList, days: int, left: int
) -> None:
    old, new = chat(harness, "old"), chat(harness, "new")
    harness.session.delete_conversations([old, new])
    harness.database.execute(
        "UPDATE conversations SET deleted_at = ? WHERE id = ?", (time.time() - 31 * 86_400, old)
    )
    harness.database.execute("UPDATE search_state SET low = (SELECT coalesce(max(id), 0) + 1 FROM messages)")
    harness.session.set_settings(Behaviour(trash_days=days))
    chat_list.begin_upkeep()
    harness.qtbot.waitUntil(
        lambda: harness.database.execute("SELECT low FROM search_state").fetchone()[0] == 0
    )
    assert len(chat_list.trash()) == left


def test_a_search_gives_first_hits_at_once_and_continues_page_by_page(
    harness: Harness, chat_list: ChatList
) -> None:
    title = chat(harness, "The Nägel of it", "nothing here")
    chat(harness, "many", *(f"number {number} has a nagel inside" for number in range(260)))
    hits: list[SearchHit] = []
    ends: list[bool] = []
    titles: list[int] = []
    finder = chat_list.finder
    finder.titles_found.connect(lambda found: titles.extend(chat.id for chat, _ in found))
    finder.found.connect(hits.extend)
    finder.ended.connect(ends.append)
    finder.find("nagel")
    assert titles == [title]
    assert len(hits) == 50
    harness.qtbot.waitUntil(lambda: bool(ends))
    assert ends == [True]
    while ends[-1]:
        before = len(ends)
        finder.more()
        harness.qtbot.waitUntil(lambda before=before: len(ends) > before)
    assert len({hit.message_id for hit in hits}) == len(hits) == 260
    finder.find("nowhere at all")
    harness.qtbot.waitUntil(lambda: ends[-1] is False and not finder.running)
    assert len(hits) == 260
    finder.find("Inside NAGEL")
    assert finder.words_at("a nägel inside", 2) == "nägel"
    finder.find("nagel inside")
    assert finder.words_at("a nägel inside", 2) == "nägel inside"
    finder.stop()
