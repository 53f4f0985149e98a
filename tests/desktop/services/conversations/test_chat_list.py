"""Pins, folders, the trash and the search in steps, over a real session and store."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from desktop.services.conversations.chat_list import Shelf
from desktop.settings import Behaviour
from desktop.store.conversations.records import SearchHit
from tests.desktop.services.conftest import Desk


@pytest.fixture
def shelf(desk: Desk) -> Iterator[Shelf]:
    found = Shelf(desk.session)
    found.load()
    yield found
    assert found.close()


def chat(desk: Desk, title: str, *texts: str) -> int:
    made = desk.store.create(title)
    parent = None
    for text in texts:
        parent = desk.store.add_message(made.id, parent, "user", text).id
    desk.session.reload_conversations()
    return made.id


def shown(shelf: Shelf) -> list[str]:
    return ["  " * row.depth + str(shelf.rows.index(place).data()) for place, row in enumerate(shelf.rows.shown())]


def test_pins_and_folders_are_kept(desk: Desk, shelf: Shelf) -> None:
    one, two = chat(desk, "one"), chat(desk, "two")
    outer = shelf.new_folder()
    inner = shelf.new_folder(outer)
    shelf.rename_folder(outer, "Work")
    shelf.rename_folder(inner, "  ")
    assert shelf.move([one, two], inner)
    shelf.rows.set_open_folders({outer, inner})
    assert shown(shelf)[:5] == ["Folders", "Work", "  New folder", "    two", "    one"]
    assert shelf.pin([one], True)
    assert shown(shelf)[:2] == ["Pinned", "one"]
    assert shelf.chats_in(outer) == 2
    again = Shelf(desk.session)
    again.load()
    again.rows.set_open_folders({outer, inner})
    assert shown(again) == shown(shelf)
    assert shelf.move([one], None, unpin=True)
    assert "Pinned" not in shown(shelf)
    assert not shelf.move([one], 999)
    assert "no folder number 999" in desk.notices()[-1]


def test_a_removed_folder_comes_back_with_its_chats(desk: Desk, shelf: Shelf) -> None:
    one = chat(desk, "one")
    number = shelf.new_folder()
    shelf.move([one], number)
    desk.session.open_conversation(one)
    counts: list[int] = []
    shelf.trash_changed.connect(counts.append)
    assert shelf.remove_folder(number, throw_away=True)
    assert "one" not in shown(shelf)
    assert desk.session.conversation != one
    assert counts[-1] == 1
    assert desk.session.undo()
    shelf.rows.set_open_folders({number})
    assert shown(shelf)[:3] == ["Folders", "New folder", "  one"]
    assert shelf.remove_folder(number)
    assert "one" in shown(shelf)
    assert counts[-1] == 0


def test_moving_folders_is_undone(desk: Desk, shelf: Shelf) -> None:
    first, second = shelf.new_folder(), shelf.new_folder()
    assert shelf.move_folder(second, None, 0)
    assert [folder.id for folder in shelf.rows.folders()] == [second, first]
    desk.session.undo()
    assert [folder.id for folder in shelf.rows.folders()] == [first, second]
    assert shelf.move_folder(second, first)
    assert not shelf.move_folder(first, second)
    assert "cannot be put into itself" in desk.notices()[-1]


def test_the_trash_is_emptied_in_steps(desk: Desk, shelf: Shelf) -> None:
    ids = [chat(desk, f"chat {number}", "text") for number in range(5)]
    assert desk.session.delete_conversations(ids)
    assert len(shelf.trash()) == 5
    assert shelf.restore(ids[:2])
    assert len(shelf.trash()) == 3
    shelf.delete_for_good([ids[2]])
    shelf.empty_trash()
    desk.qtbot.waitUntil(lambda: not shelf.trash())
    assert {row.id for row in desk.store.list()} >= set(ids[:2])
    assert not desk.database.execute("SELECT 1 FROM messages WHERE conversation_id = ?", (ids[2],)).fetchone()


def test_several_deleted_chats_come_back_with_one_undo(desk: Desk, shelf: Shelf) -> None:
    ids = [chat(desk, f"chat {number}") for number in range(3)]
    assert desk.session.delete_conversations(ids)
    assert desk.said["undo_available"][-1] == (True, "delete 3 conversations")
    assert desk.session.undo()
    assert {row.id for row in desk.session.conversations.summaries()} >= set(ids)


@pytest.mark.parametrize(("days", "left"), [(30, 1), (0, 2)])
def test_old_trash_goes_after_the_start(desk: Desk, shelf: Shelf, days: int, left: int) -> None:
    old, new = chat(desk, "old"), chat(desk, "new")
    desk.session.delete_conversations([old, new])
    desk.database.execute("UPDATE conversations SET deleted_at = ? WHERE id = ?", (time.time() - 31 * 86_400, old))
    desk.database.execute("UPDATE search_state SET low = (SELECT coalesce(max(id), 0) + 1 FROM messages)")
    desk.session.set_settings(Behaviour(trash_days=days))
    shelf.begin_upkeep()
    desk.qtbot.waitUntil(lambda: desk.database.execute("SELECT low FROM search_state").fetchone()[0] == 0)
    assert len(shelf.trash()) == left


def test_a_search_tells_first_hits_at_once_and_goes_on_a_page_at_a_time(desk: Desk, shelf: Shelf) -> None:
    title = chat(desk, "The Nägel of it", "nothing here")
    chat(desk, "many", *(f"number {number} has a nagel inside" for number in range(260)))
    hits: list[SearchHit] = []
    ends: list[bool] = []
    titles: list[int] = []
    finder = shelf.finder
    finder.titles_found.connect(lambda found: titles.extend(chat.id for chat, _ in found))
    finder.found.connect(hits.extend)
    finder.ended.connect(ends.append)
    finder.find("nagel")
    assert titles == [title]
    assert len(hits) == 50
    desk.qtbot.waitUntil(lambda: bool(ends))
    assert ends == [True]
    while ends[-1]:
        before = len(ends)
        finder.more()
        desk.qtbot.waitUntil(lambda before=before: len(ends) > before)
    assert len({hit.message_id for hit in hits}) == len(hits) == 260
    finder.find("nowhere at all")
    desk.qtbot.waitUntil(lambda: ends[-1] is False and not finder.running)
    assert len(hits) == 260
    finder.find("Inside NAGEL")
    assert finder.words_at("a nägel inside", 2) == "nägel"
    finder.find("nagel inside")
    assert finder.words_at("a nägel inside", 2) == "nägel inside"
    finder.stop()
