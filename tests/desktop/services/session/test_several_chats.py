"""Several chats are answered at the same time: each has its own reply, state, stop and queue."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from desktop.services.composer.queue import MessageQueue
from desktop.services.session.auto_turns import AutomaticTurns
from desktop.store.conversations.participants import Cast, Participant
from desktop.store.database.database import StoreError
from engine.core import Priority
from engine.errors import DeviceLost, EngineError
from tests.desktop.services.conftest import Harness


def begin(harness: Harness, text: str, new: bool = True) -> tuple[int, threading.Event]:
    """Send a message in a new chat; its reply waits for the event."""
    if new:
        assert harness.session.new_conversation()
    gate = harness.chat.hold = threading.Event()
    before = len(harness.chat.requests)
    assert harness.session.submit(text), harness.notices()
    harness.qtbot.waitUntil(lambda: len(harness.chat.requests) > before)
    return harness.session.conversation, gate


def priorities(harness: Harness) -> list[int]:
    """Of all requests so far, as they are now."""
    found = [request.priority for request in harness.chat.requests]
    return [each.value if isinstance(each, Priority) else each for each in found]


def path(harness: Harness, chat: int) -> list[tuple[str, str]]:
    """The texts of a chat's messages, and their states."""
    return [(message.text, message.state) for message in harness.stores.of(chat).path(chat)]


def wait(harness: Harness, condition: Callable[[], object]) -> None:
    harness.qtbot.waitUntil(lambda: bool(condition()))


def test_each_chat_has_its_own_reply_and_state(talking: Harness) -> None:
    session = talking.session
    first, one = begin(talking, "first words here")
    second, two = begin(talking, "second words here")
    third, three = begin(talking, "third")
    assert session.replying_in == (first, second, third)
    assert {session.state_in(chat) for chat in (first, second, third)} == {"prefill"}
    assert session.new_conversation()
    assert session.state == session.state_in(session.conversation) == "idle"
    assert session.busy
    two.set()
    wait(talking, lambda: session.state_in(second) == "idle")
    assert path(talking, second)[1] == ("second words here", "complete")
    assert session.replying_in == (first, third)
    assert session.open_conversation(first)
    assert session.state == "prefill"
    assert talking.texts() == ["first words here", ""]
    one.set()
    wait(talking, lambda: session.state == "idle")
    assert talking.texts() == ["first words here"] * 2
    three.set()
    wait(talking, lambda: not session.busy)
    assert path(talking, third)[1] == ("third", "complete")
    assert len(talking.chat.threads) == 1


def test_the_reply_of_the_open_chat_goes_before_that_of_a_queue_elsewhere(talking: Harness) -> None:
    queue = MessageQueue(talking.session, talking.session)
    first, gate = begin(talking, "one")
    assert queue.add("waits")
    assert talking.session.new_conversation()
    talking.chat.hold = None
    gate.set()
    wait(talking, lambda: len(path(talking, first)) == 4 and not talking.session.busy)
    second, last = begin(talking, "two", new=False)
    assert priorities(talking) == [0, 0, 1]
    last.set()
    wait(talking, lambda: not talking.session.busy)
    assert path(talking, second)[1] == ("two", "complete")


def test_replies_that_run_follow_the_chat_that_is_opened(talking: Harness) -> None:
    session = talking.session
    first, one = begin(talking, "one")
    assert priorities(talking) == [1]
    _, two = begin(talking, "two")
    assert priorities(talking) == [0, 1]
    assert session.open_conversation(first)
    assert priorities(talking) == [1, 0]
    assert session.new_conversation()
    assert priorities(talking) == [0, 0]
    one.set()
    two.set()
    wait(talking, lambda: not session.busy)


def test_a_reply_that_waits_for_its_turn_says_so(talking: Harness) -> None:
    session = talking.session
    talking.chat.queue = queue = threading.Event()
    chat, gate = begin(talking, "one")
    wait(talking, lambda: session.state == "waiting")
    assert session.state_in(chat) == "waiting"
    assert not session.submit("two")
    assert talking.notices()[-1].startswith("A reply is still waiting for its turn")
    queue.set()
    wait(talking, lambda: session.state == "prefill")
    gate.set()
    wait(talking, lambda: session.state == "idle")
    assert talking.states()[-5:] == ["prefill", "waiting", "prefill", "answering", "idle"]


def test_a_reply_can_be_stopped_while_it_waits(talking: Harness) -> None:
    talking.chat.queue = threading.Event()
    chat, _ = begin(talking, "one")
    wait(talking, lambda: talking.session.state == "waiting")
    talking.session.stop()
    assert talking.session.state == "stopping"
    wait(talking, lambda: talking.session.state == "idle")
    assert path(talking, chat)[1] == ("", "stopped")


def test_stop_ends_the_reply_of_the_open_chat_only(talking: Harness) -> None:
    session = talking.session
    first, one = begin(talking, "first")
    second, _ = begin(talking, "second")
    session.stop()
    assert session.state == "stopping"
    assert session.state_in(first) == "prefill"
    wait(talking, lambda: session.state == "idle")
    assert path(talking, second)[1] == ("", "stopped")
    assert session.messages.items()[1].footer.endswith("stopped by you")
    assert session.new_conversation()
    session.stop()  # nothing runs here
    one.set()
    wait(talking, lambda: not session.busy)
    assert path(talking, first)[1] == ("first", "complete")


def test_stop_all_ends_every_reply(talking: Harness) -> None:
    first, _ = begin(talking, "first")
    second, _ = begin(talking, "second")
    talking.session.stop_all()
    wait(talking, lambda: not talking.session.busy)
    assert path(talking, first)[1] == path(talking, second)[1] == ("", "stopped")


def test_loading_another_model_ends_all_replies_first(talking: Harness) -> None:
    session = talking.session
    first, _ = begin(talking, "first")
    second, _ = begin(talking, "second")
    assert session.new_conversation()
    session.open_model("/models/other.gguf")
    assert session.state == "loading"
    assert session.state_in(first) == "stopping"
    talking.until_idle()
    assert session.model is not None
    assert session.model.name == "other"
    for chat in (first, second):
        assert path(talking, chat)[1] == ("", "stopped")
        (reply,) = (message for message in talking.store.path(chat) if message.role == "assistant")
        assert reply.stats["stopped_by"] == "load"


def test_what_ends_one_with_an_error_leaves_the_others(talking: Harness) -> None:
    talking.chat.error, talking.chat.error_after = EngineError("This template refuses that."), 0
    bad, gate = begin(talking, "bad")
    good, other = begin(talking, "good")
    gate.set()
    wait(talking, lambda: talking.session.state_in(bad) == "idle")
    assert path(talking, bad)[1][1] == "failed"
    assert talking.session.state_in(good) == "prefill"
    talking.chat.error = None
    other.set()
    wait(talking, lambda: not talking.session.busy)
    assert path(talking, good)[1] == ("good", "complete")


def test_a_lost_device_ends_all_of_them_and_says_so(talking: Harness) -> None:
    talking.chat.error, talking.chat.error_after = DeviceLost("The GPU has gone: load the model again."), 0
    first, one = begin(talking, "first")
    second, _ = begin(talking, "second")
    one.set()
    wait(talking, lambda: not talking.session.busy)
    for chat in (first, second):
        assert path(talking, chat)[1][1] == "failed"
    assert talking.session.model is None
    assert talking.session.reload_offered
    assert {sentence for sentence in talking.notices() if "GPU" in sentence} == {str(talking.chat.error)}
    talking.chat.error = talking.chat.hold = None
    talking.load()
    talking.ask("again")
    assert talking.texts()[-1] == "again"


def test_deleting_a_chat_stops_its_own_reply(talking: Harness) -> None:
    session = talking.session
    first, one = begin(talking, "first")
    second, _ = begin(talking, "second")
    third, _ = begin(talking, "third")
    assert session.delete_conversations((second, third))
    wait(talking, lambda: session.replying_in == (first,))
    one.set()
    wait(talking, lambda: not session.busy)
    assert path(talking, first)[1] == ("first", "complete")


def test_deleting_a_message_stops_the_reply_below_it_only(talking: Harness) -> None:
    session = talking.session
    first, one = begin(talking, "first")
    begin(talking, "second")
    assert session.delete_message(talking.ids()[0])
    wait(talking, lambda: session.replying_in == (first,))
    assert talking.texts() == []
    one.set()
    wait(talking, lambda: not session.busy)
    assert path(talking, first)[1] == ("first", "complete")


def test_regenerating_continuing_and_editing_while_another_chat_is_answered(talking: Harness) -> None:
    session = talking.session
    talking.ask("mine")
    mine = session.conversation
    other, gate = begin(talking, "other")
    assert session.open_conversation(mine)
    talking.chat.hold = None
    assert session.regenerate(talking.ids()[1])
    talking.until_idle()
    assert session.messages.items()[1].variant_count == 2
    assert session.edit(talking.ids()[0], "mine, edited")
    talking.until_idle()
    assert talking.texts() == ["mine, edited"] * 2
    talking.chat.reply = "mine, edited and more"
    assert session.continue_reply(talking.ids()[1])
    talking.until_idle()
    assert talking.texts()[1] == "mine, edited and more"
    assert session.replying_in == (other,)
    gate.set()
    wait(talking, lambda: not session.busy)
    assert path(talking, other)[1][1] == "complete"


def test_temporary_chats_are_forgotten_each_at_its_own_end(talking: Harness) -> None:
    session = talking.session
    assert session.new_temporary()
    first, one = begin(talking, "secret", new=False)
    assert session.new_temporary()
    second, two = begin(talking, "other secret", new=False)
    assert session.new_conversation()
    assert path(talking, first)[0][0] == "secret"
    one.set()
    wait(talking, lambda: session.replying_in == (second,))
    assert path(talking, first) == []
    assert path(talking, second)[0][0] == "other secret"
    two.set()
    wait(talking, lambda: not session.busy)
    assert path(talking, second) == []


def test_closing_keeps_what_every_reply_has(talking: Harness) -> None:
    talking.chat.reply = "".join(f"w{number} " for number in range(4000))
    talking.chat.delay_s = 0.005
    chats = []
    for text in ("first", "second"):
        chat, gate = begin(talking, text)
        gate.set()
        chats.append(chat)
    wait(talking, lambda: all(len(path(talking, chat)[-1][0]) > 20 for chat in chats))
    before = [path(talking, chat)[-1][0] for chat in chats]
    talking.close_session()
    for chat, begun in zip(chats, before, strict=True):
        (_, (text, state)) = path(talking, chat)
        assert text.startswith(begun)
        assert talking.chat.reply.startswith(text)
        assert state == "stopped"
        assert talking.store.path(chat)[1].stats["stopped_by"] == "close"


def test_replies_that_cannot_be_saved_are_all_kept(talking: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    chats = [begin(talking, text) for text in ("first", "second")]

    def fail(*_what: object) -> None:
        raise StoreError("The disk is full.")

    with monkeypatch.context() as broken:
        broken.setattr(type(talking.store), "finish", fail)
        for _, gate in chats:
            gate.set()
        wait(talking, lambda: not talking.session.busy)
        assert sorted(talking.session.save_replies().values()) == ["first", "second"]
        assert talking.notices().count("The disk is full.") == 1
    assert talking.session.save_replies() == {}
    for (chat, _), text in zip(chats, ("first", "second"), strict=True):
        assert path(talking, chat)[1] == (text, "complete")


def test_each_chat_has_its_own_queue(talking: Harness) -> None:
    session = talking.session
    queue = MessageQueue(session, session)
    first, one = begin(talking, "a")
    assert queue.add("a2")
    second, two = begin(talking, "b")
    assert queue.add("b2")
    talking.chat.hold = None
    two.set()
    wait(talking, lambda: len(path(talking, second)) == 4 and session.state_in(second) == "idle")
    assert [text for text, _ in path(talking, second)] == ["b", "b", "b2", "b2"]
    assert [text for text, _ in path(talking, first)] == ["a", ""]
    assert [waiting.text for waiting in queue.waiting(first)] == ["a2"]
    one.set()
    wait(talking, lambda: len(path(talking, first)) == 4 and not session.busy)
    assert [text for text, _ in path(talking, first)] == ["a", "a", "a2", "a2"]


def test_a_stop_holds_the_queue_of_its_own_chat(talking: Harness) -> None:
    session = talking.session
    queue = MessageQueue(session, session)
    first, one = begin(talking, "a")
    assert queue.add("a2")
    second, _ = begin(talking, "b")
    assert queue.add("b2")
    session.stop()
    wait(talking, lambda: session.state == "idle")
    assert queue.is_held(second)
    assert not queue.is_held(first)
    talking.chat.hold = None
    one.set()
    wait(talking, lambda: len(path(talking, first)) == 4 and not session.busy)
    assert [waiting.text for waiting in queue.waiting(second)] == ["b2"]


def test_participants_go_on_by_themselves_while_another_chat_is_answered(talking: Harness) -> None:
    session = talking.session
    turns = AutomaticTurns(session, MessageQueue(session, session), session)
    assert session.new_conversation()
    session.set_cast(Cast((Participant("Ada"), Participant("Bea")), automatic=2))
    scene = session.conversation
    talking.chat.hold = gate = threading.Event()
    assert session.submit("Hello")
    wait(talking, lambda: talking.chat.requests)  # a reply takes the gate that is there when it begins
    other, held = begin(talking, "other")
    gate.set()
    talking.chat.hold = None
    wait(talking, lambda: len(path(talking, scene)) == 4 and session.state_in(scene) == "idle")
    assert [state for _, state in path(talking, scene)[1:]] == ["complete"] * 3
    assert session.replying_in == (other,)
    held.set()
    wait(talking, lambda: not session.busy)
    assert turns.parent() is session


def test_the_model_answers_small_questions_between_the_words_of_a_reply(talking: Harness) -> None:
    _, gate = begin(talking, "first")
    answers: list[object] = []
    talking.session.ask(lambda source: source.count("three words here"), answers.append)
    wait(talking, lambda: answers == [3])
    gate.set()
    wait(talking, lambda: not talking.session.busy)


def test_progress_is_that_of_the_open_chat(talking: Harness) -> None:
    session = talking.session
    first, gate = begin(talking, "first")
    assert session.new_conversation()
    talking.said["progress"].clear()
    running = talking.store.path(first)[1].id
    session.replies.engine.progress.emit(running, "Reading the prompt", 1, 2)
    assert talking.said["progress"] == []
    assert session.open_conversation(first)
    session.replies.engine.progress.emit(running, "Reading the prompt", 1, 2)
    assert talking.said["progress"] == [("Reading the prompt", 1, 2)]
    gate.set()
    wait(talking, lambda: not session.busy)
