"""A document that the user and the model write in turn: what is asked for, shown and saved."""

from __future__ import annotations

import threading

import pytest

from desktop.items.chats.conversations import ID_ROLE
from desktop.services.session.notebook import Document
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.conversations.token_trace import TokenTrace
from desktop.store.database.database import StoreError
from engine.settings import SamplerSettings
from tests.desktop.services.conftest import Harness
from tests.desktop.store.conversations.test_tokens import traced, word


@pytest.fixture
def writing(talking: Harness) -> Harness:
    """An empty notebook is open; the model writes two words."""
    assert talking.session.new_notebook()
    talking.chat.reply = "and rye"
    return talking


def page(harness: Harness) -> Document:
    found = harness.session.document()
    assert found is not None
    return found


def write(harness: Harness, head: str, tail: str = "", **more: object) -> None:
    assert harness.session.write_on(head, tail, **more), harness.notices()  # type: ignore[arg-type]
    harness.until_idle()


@pytest.fixture
def full_disk(writing: Harness, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """What the model wrote could not be saved; undoing the patch makes room."""

    def refuse(*_unused: object) -> None:
        raise StoreError("The disk is full.")

    monkeypatch.setattr(ConversationStore, "finish", refuse)
    write(writing, "Wheat ", ".")
    return monkeypatch


def test_the_model_writes_between_two_texts_and_reads_the_first_alone(writing: Harness) -> None:
    writing.chat.hold = threading.Event()
    assert writing.session.write_on("Wheat ", ".", ids=(4, 5))
    writing.qtbot.waitUntil(lambda: bool(writing.chat.requests))
    (request,) = writing.chat.requests
    assert [(each.role, each.content) for each in request.messages] == [("document", "Wheat ")]
    assert (request.plain, request.continue_ids) == (True, (4, 5))
    assert page(writing)[1:5] == ("Wheat .", True, 6, (6, 6))
    assert writing.saved() == ["Wheat ."]
    assert writing.session.save_document(page(writing).message_id, "in its way")
    writing.chat.hold.set()
    writing.until_idle()
    found = page(writing)
    assert found[1:5] == ("Wheat and rye.", False, 0, (6, 13))
    assert writing.saved() == ["Wheat and rye."]
    assert writing.store.get(writing.session.conversation).model_path == "/models/echo.gguf"


def test_what_the_user_stopped_is_not_said_to_be_cut_off(writing: Harness) -> None:
    writing.chat.delay_s, writing.chat.reply = 0.01, "and rye " * 500
    assert writing.session.write_on("")
    writing.qtbot.waitUntil(lambda: page(writing).text != "")
    writing.session.stop()
    writing.until_idle()
    found = page(writing)
    assert writing.store.message(found.message_id).state == "stopped"
    assert (found.notice, found.stretch) == ("", (0, len(found.text)))


@pytest.mark.parametrize(("seed", "again", "same"), [(7, False, True), (7, True, False), (None, True, True)])
def test_a_fixed_seed_is_changed_to_write_something_else(
    writing: Harness, seed: int | None, again: bool, same: bool
) -> None:
    writing.session.set_settings(SamplerSettings(seed=seed))
    write(writing, "Wheat ", other_seed=again)
    assert (writing.chat.requests[-1].sampler.seed == seed) is same


def test_the_tokens_of_a_text_with_another_one_chosen_are_kept(writing: Harness) -> None:
    writing.chat.hold = threading.Event()
    assert writing.session.write_on("one", trace=traced(word(1, "one")))
    kept = writing.session.replies.tokens(page(writing).message_id)
    assert isinstance(kept, TokenTrace)
    assert kept.text == "one"
    writing.chat.hold.set()
    writing.until_idle()


def test_writing_goes_on_as_soon_as_there_is_room_on_the_disk(
    writing: Harness, full_disk: pytest.MonkeyPatch
) -> None:
    assert page(writing).text == "Wheat and rye."
    assert not writing.session.write_on("Wheat and rye. Oats ")
    assert writing.said["notice"][-1][0].startswith("The last generated text is not saved yet.")
    assert len(writing.chat.requests) == 1
    full_disk.undo()
    write(writing, "Wheat and rye. Oats ")
    assert writing.saved() == ["Wheat and rye. Oats and rye"]


def test_typing_after_an_end_that_is_not_saved_replaces_it(
    writing: Harness, full_disk: pytest.MonkeyPatch
) -> None:
    number = page(writing).message_id
    assert not writing.session.save_document(number, "typed")
    assert page(writing).text == "typed"
    full_disk.undo()
    assert writing.session.save_document(number, "typed later")
    writing.session.replies.unsaved.save()
    assert writing.saved() == ["typed later"]


def test_a_notebook_that_was_typed_into_is_the_newest_chat(writing: Harness) -> None:
    first = writing.session.conversation
    number = page(writing).message_id
    assert writing.session.save_document(number, "typed")
    assert writing.session.new_notebook()
    second = writing.session.conversation
    assert writing.session.save_document(page(writing).message_id, "typed, too")
    assert writing.session.save_document(number, "typed again")
    order = [writing.session.conversations.index(row).data(ID_ROLE) for row in range(2)]
    assert order == [first, second]


def test_only_a_notebook_is_written_on(talking: Harness) -> None:
    assert talking.session.document() is None
    assert not talking.session.write_on("Wheat ")
    assert talking.chat.requests == []
