"""Which chat is open after forks, notebooks and versions are made, and what undo brings back."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from pytestqt.qtbot import QtBot

from desktop.services.engine.token_cache import STRETCH
from desktop.services.engine.unsaved_replies import Ended
from desktop.services.session.several import ColumnSettings
from desktop.services.session.undo import UndoStack
from desktop.store.conversations.participants import Cast
from desktop.store.conversations.token_trace import TokenTrace
from desktop.store.settings.preferences import Preferences
from engine.settings import SamplerSettings
from tests.desktop.services.conftest import Harness


def test_a_fork_opens_and_undo_removes_it(talking: Harness) -> None:
    session = talking.session
    talking.ask("Hello")
    source, (first, _) = session.conversation, talking.ids()
    assert session.fork(first)
    assert session.conversation != source
    assert talking.texts() == ["Hello"]
    assert talking.said["undo_available"][-1] == (True, "fork chat")
    made = session.conversation
    assert session.undo()
    assert (session.conversation, talking.texts()) == (source, ["Hello", "Hello"])
    assert [row.id for row in talking.store.list()] == [source]
    assert talking.store.get(made).deleted
    assert talking.said["undo_available"][-1] == (False, "")


def test_undoing_a_fork_leaves_another_chat_open(talking: Harness) -> None:
    session = talking.session
    talking.ask("Hello")
    assert session.fork(talking.ids()[0])
    assert session.new_conversation()
    other = session.conversation
    assert session.undo()
    assert session.conversation == other


def titles(harness: Harness) -> list[str]:
    """What the list of chats shows, from its top."""
    listed = harness.session.conversations
    return [listed.index(row).data() for row in range(listed.rowCount())]


def test_a_notebook_where_there_is_no_chat(harness: Harness) -> None:
    session = harness.session
    assert session.new_temporary()
    assert session.delete_conversations([row.id for row in harness.store.list()])
    assert session.new_notebook()
    assert session.notebook


def test_cancelling_a_load_stops_no_reply(talking: Harness) -> None:
    talking.chat.hold = threading.Event()
    assert talking.session.submit("Hello")
    talking.session.stop_loading()
    assert talking.session.state != "stopping"
    talking.chat.hold.set()
    talking.until_idle()
    assert talking.texts() == ["Hello", "Hello"]


def test_another_file_gets_no_reply_of_the_one_before(talking: Harness) -> None:
    session, unsaved = talking.session, talking.session.replies.unsaved
    talking.ask("Hello")
    reply = talking.ids()[1]
    unsaved.put(reply, Ended("of another file", "complete", {}, TokenTrace()))
    assert session.start_again()
    assert unsaved.find(reply) is None
    unsaved.save()
    assert talking.store.message(reply).text == "Hello"


@pytest.mark.parametrize(
    ("stored", "shown"),
    [((1, 4), (1, 4)), ([0, 0], (0, 0)), ((0, 5), (0, 0)), ((3, 2), (0, 0)), ((-1, 2), (0, 0)),
     ((1,), (0, 0)), ((1, 2, 3), (0, 0)), (("a", 2), (0, 0)), ("ab", (0, 0)), (None, (0, 0))],
)  # fmt: skip
def test_a_stretch_that_is_none_is_not_shown(harness: Harness, stored: Any, shown: tuple[int, int]) -> None:
    """What a model wrote last is marked in a notebook, unless its file says what cannot be."""
    session, unsaved = harness.session, harness.session.replies.unsaved
    assert session.new_notebook()
    page = session.document()
    assert page is not None
    assert session.save_document(page.message_id, "Once", True)
    unsaved.put(page.message_id, Ended("Once", "complete", {STRETCH: stored}, TokenTrace()))
    found = session.document()
    assert found is not None
    assert (found.text, found.stretch) == ("Once", shown)
    unsaved.forget()


@pytest.mark.parametrize(("opened", "listed"), [(0, 3), (2, 1)], ids=["oldest", "newest"])
def test_a_start_that_lists_few_chats_lists_the_one_of_last_time(
    harness: Harness, qtbot: QtBot, tmp_path: Path, opened: int, listed: int
) -> None:
    chats = [harness.store.create(title).id for title in ("Wheat", "Rye", "Oats")]
    harness.store.delete(harness.session.conversation)
    assert harness.session.open_conversation(chats[opened])
    harness.close()
    again = Harness(qtbot, tmp_path)
    assert again.session.restore(first=1)
    assert again.session.conversation == chats[opened]
    assert titles(again) == ["Oats", "Rye", "Wheat"][:listed]
    assert again.session.list_all()
    assert titles(again) == ["Oats", "Rye", "Wheat"]
    again.close()


def test_what_an_import_adds_to_the_open_chat_is_shown(talking: Harness) -> None:
    session = talking.session
    talking.ask("Hello")
    talking.store.add_message(session.conversation, talking.ids()[-1], "user", "imported")
    assert session.catch_up({session.conversation: False})
    assert talking.texts() == ["Hello", "Hello", "imported"]


def test_another_file_shows_its_chats(harness: Harness) -> None:
    harness.store.create("Wheat")
    harness.database.execute("DELETE FROM conversations WHERE title = ''")
    assert harness.session.start_again()
    assert titles(harness) == ["Wheat"]


def test_the_newest_notebook_is_used_again_while_it_is_empty(harness: Harness) -> None:
    session = harness.session
    assert session.new_notebook()
    assert session.notebook
    empty, page = session.conversation, session.document()
    assert page is not None
    assert session.new_notebook()
    assert session.conversation == empty
    assert session.save_document(page.message_id, "Once", True)
    assert session.new_notebook()
    written = session.conversation
    assert written != empty
    assert session.open_conversation(empty)
    shown = session.document()
    assert shown is not None
    assert (shown.text, shown.message_id) == ("Once", page.message_id)
    assert session.new_temporary_notebook()
    assert (session.temporary, session.notebook) == (True, True)


def test_one_version_is_kept_and_undo_brings_the_others_back(talking: Harness) -> None:
    session = talking.session
    talking.ask("Hello")
    first = talking.ids()[1]
    assert session.regenerate(first)
    talking.until_idle()
    second = talking.ids()[1]
    assert talking.store.variants(first) == (first, second)
    assert session.keep_version(first, (second,))
    assert talking.ids()[1] == first
    assert talking.store.variants(first) == (first,)
    assert talking.said["undo_available"][-1] == (True, "delete version")
    assert session.undo()
    assert talking.store.variants(first) == (first, second)
    assert session.keep_version(first)
    assert talking.said["undo_available"][-1] == (False, ""), "nothing was deleted"


def test_titles_by_a_model_are_shown_unless_the_user_named_the_chat(talking: Harness) -> None:
    session = talking.session
    talking.ask("Hello")
    assert session.name_after_topic(session.conversation, "Greeting")
    assert session.title == "Greeting"
    assert session.rename_conversation(session.conversation, "Mine")
    assert not session.name_after_topic(session.conversation, "Other")
    assert session.title == "Mine"


def test_the_user_writes_under_own_names_only(talking: Harness) -> None:
    session = talking.session
    talking.ask("Hello")
    assert session.set_cast(Cast(own=("Me", "Anna")))
    assert session.cast.user == "Me"
    assert session.write_as("anna")
    assert session.cast.user == "Anna"
    assert not session.write_as("Bob")
    assert session.cast.user == "Anna"
    assert session.set_local_only(True)
    assert session.local_only
    assert talking.store.get(session.conversation).local_only


def test_sampling_of_one_of_several_replies(harness: Harness) -> None:
    present, preferences = SamplerSettings(temperature=0.5, top_k=9, seed=1), harness.session.preferences
    assert isinstance(preferences, Preferences)
    assert ColumnSettings().sampler(present, preferences) == present
    found = ColumnSettings(temperature=0.0, seed=0).sampler(present, preferences)
    assert (found.temperature, found.seed, found.top_k) == (0.0, 0, 9)


def test_actions_are_undone_the_latest_first() -> None:
    stack, done, said = UndoStack(), list[str](), list[tuple[bool, str]]()
    stack.available_changed.connect(lambda there, what: said.append((there, what)))
    assert (stack.undo(), stack.what) == (False, "")
    for number in range(51):
        stack.push(f"a{number}", lambda number=number: done.append(f"a{number}"))  # type: ignore[misc]
    assert stack.what == "a50"
    assert stack.undo()
    assert (done, stack.what, said[-1]) == (["a50"], "a49", (True, "a49"))
    while stack.undo():
        pass
    assert (done[-1], len(done), said[-1]) == ("a1", 50, (False, ""))  # the first one was too long ago
    stack.push("b", lambda: None)
    stack.clear()
    assert (stack.undo(), said[-1]) == (False, (False, ""))
