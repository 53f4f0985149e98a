"""Calls of tools in a chat, with a stand-in for what runs them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass, field

import pytest
from PySide6.QtCore import QObject, Signal

from desktop.services.composer.queue import MessageQueue
from desktop.services.session.context_meter import ContextMeter
from desktop.services.session.several import ColumnSettings
from desktop.services.session.tool_turns import MOST_ROUNDS
from desktop.settings import ToolSettings
from desktop.store.conversations.participants import Cast, Participant
from desktop.store.conversations.tool_calls import NOT_ALLOWED, UNFINISHED
from desktop.views.chat.context_meter import lines
from engine.core import ChatRequest, Foreseen, Message, Tool, ToolCall
from tests.desktop.services.conftest import Harness

READ = Tool("files_read", "Reads a file.", '{"type": "object"}')
NOW = Tool("clock_now", "Tells the time.")
CALL = ToolCall("call_1", "files_read", '{"path": "/a"}')
OTHER = ToolCall("call_2", "clock_now", "{}")


@dataclass(frozen=True)
class Place:
    """Where a tool is from."""

    server: str
    tool: str


@dataclass
class Said:
    """What was asked of the stand-in."""

    calls: list[tuple[str, str, str]] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    permissions: dict[tuple[str, str], str] = field(default_factory=dict)


class Source(QObject):
    """Two servers with a tool each; results come when a test says so."""

    changed = Signal()
    ended = Signal(int, str, bool)

    def __init__(self) -> None:
        super().__init__()
        self.said = Said()
        self.runs = True

    def offered(self, off: Collection[str] = (), local_only: bool = False) -> list[tuple[Tool, Place]]:
        """The clock is on another computer."""
        all_of_them = [(READ, Place("files", "read")), (NOW, Place("clock", "now"))]
        return [
            (tool, place)
            for tool, place in all_of_them
            if self.runs and place.server not in off and not (local_only and place.server == "clock")
        ]

    def permission(self, server: str, tool: str) -> str:
        """What `set_permission` was told."""
        return self.said.permissions.get((server, tool), "ask")

    def set_permission(self, server: str, tool: str, value: str) -> None:
        """Note it."""
        self.said.permissions[server, tool] = value

    def call(self, server: str, tool: str, arguments: str) -> int:
        """Numbers count from 1."""
        self.said.calls.append((server, tool, arguments))
        return len(self.said.calls)

    def cancel(self, number: int) -> None:
        """Note it."""
        self.said.cancelled.append(number)


@pytest.fixture
def source(talking: Harness) -> Source:
    found = Source()
    talking.session.tools.use(found)
    return found


def rows(harness: Harness) -> list[tuple[str, str, str]]:
    """Role, text and state of each row; the state of replies is ""."""
    return [(item.role, item.stored_text, item.state) for item in harness.session.messages.items()]


def asked(harness: Harness) -> tuple[Message, ...]:
    """The messages of the last request."""
    return harness.chat.requests[-1].messages


def test_a_call_waits_runs_when_it_is_allowed_and_its_result_is_read(
    talking: Harness, source: Source
) -> None:
    talking.chat.calls = [(CALL,)]
    talking.ask("Read it.")
    assert talking.chat.requests[-1].tools == (READ, NOW)
    assert rows(talking) == [("user", "Read it.", ""), ("assistant", "Read it.", ""), ("tool", "", "waiting")]
    item = talking.session.messages.items()[-1]
    assert item.call is not None
    assert (item.call.name, item.call.server, item.call.tool) == ("files_read", "files", "read")
    assert item.call.arguments == CALL.arguments
    assert not item.running
    assert source.said.calls == []
    assert talking.session.tools.allow(item.id)
    assert source.said.calls == [("files", "read", '{"path": "/a"}')]
    assert rows(talking)[-1] == ("tool", "", "running")
    source.ended.emit(1, "It says no.", False)
    talking.until_idle()
    assert rows(talking)[2:] == [("tool", "It says no.", "complete"), ("assistant", "Read it.", "")]
    assert asked(talking)[-2:] == (
        Message("assistant", "Read it.", tool_calls=(CALL,)),
        Message("tool", "It says no.", tool_call_id="call_1", name="files_read"),
    )
    assert talking.chat.requests[-1].tools == (READ, NOW)
    assert len(talking.chat.requests) == 2
    assert not talking.session.tools.pending_in(talking.session.conversation)


def test_tools_are_offered_before_a_model_is_open(harness: Harness) -> None:
    assert harness.session.state == "no_model"
    harness.session.tools.use(Source())
    assert harness.session.tools.offered_here() == (READ, NOW)


def test_a_tool_that_is_always_allowed_runs_at_once(talking: Harness, source: Source) -> None:
    talking.chat.calls = [(CALL,), (CALL,)]
    talking.ask("Read it.")
    talking.session.tools.allow(talking.ids()[-1], always=True)
    assert source.said.permissions == {("files", "read"): "always"}
    source.ended.emit(1, "First.", False)
    talking.until_idle()
    assert rows(talking)[-1] == ("tool", "", "running")
    assert len(source.said.calls) == 2


def test_the_next_reply_waits_for_all_calls(talking: Harness, source: Source) -> None:
    talking.chat.calls = [(CALL, OTHER)]
    talking.ask("Both.")
    first, second = talking.ids()[-2:]
    assert [state for _, _, state in rows(talking)[-2:]] == ["waiting", "waiting"]
    talking.session.tools.allow(second)
    source.ended.emit(1, "Noon.", False)
    talking.until_idle()
    assert len(talking.chat.requests) == 1
    assert talking.session.tools.refuse(first)
    talking.until_idle()
    assert asked(talking)[-3:] == (
        Message("assistant", "Both.", tool_calls=(CALL, OTHER)),
        Message("tool", NOT_ALLOWED, tool_call_id="call_1", name="files_read"),
        Message("tool", "Noon.", tool_call_id="call_2", name="clock_now"),
    )
    assert [state for _, _, state in rows(talking)[2:4]] == ["stopped", "complete"]
    assert not talking.session.tools.refuse(first)
    assert not talking.session.tools.allow(second)


def test_an_error_of_a_tool_is_read_too(talking: Harness, source: Source) -> None:
    source.said.permissions["files", "read"] = "always"
    talking.chat.calls = [(CALL,)]
    talking.ask("Read it.")
    source.ended.emit(1, "No such file.", True)
    talking.until_idle()
    assert rows(talking)[2] == ("tool", "No such file.", "failed")
    assert asked(talking)[-1].content == "No such file."


def test_a_tool_that_was_not_offered_is_an_error_that_the_model_reads(
    talking: Harness, source: Source
) -> None:
    talking.chat.calls = [(ToolCall("call_1", "fly", "{}"),)]
    talking.ask("Fly.")
    talking.qtbot.waitUntil(lambda: len(talking.chat.requests) == 2)
    talking.until_idle()
    assert rows(talking)[2] == ("tool", 'There is no tool called "fly".', "failed")
    assert source.said.calls == []


def test_a_new_message_ends_what_waits_and_what_runs(talking: Harness, source: Source) -> None:
    talking.chat.calls = [(CALL, OTHER)]
    talking.ask("Both.")
    talking.session.tools.allow(talking.ids()[-2])
    talking.ask("Never mind.")
    assert source.said.cancelled == [1]
    assert [text for role, text, _ in rows(talking) if role == "tool"] == [UNFINISHED, NOT_ALLOWED]
    assert [message.role for message in asked(talking)] == ["user", "assistant", "tool", "tool", "user"]
    source.ended.emit(1, "Too late.", False)
    assert not any("Too late." in text for text in talking.texts())
    assert len(talking.chat.requests) == 2


def test_stop_ends_the_calls_and_nothing_follows(talking: Harness, source: Source) -> None:
    source.said.permissions["files", "read"] = "always"
    talking.chat.calls = [(CALL,)]
    talking.ask("Read it.")
    assert talking.session.tools.running_in(talking.session.conversation)
    talking.session.stop()
    assert source.said.cancelled == [1]
    assert rows(talking)[-1] == ("tool", UNFINISHED, "stopped")
    assert not talking.session.tools.running_in(talking.session.conversation)
    assert len(talking.chat.requests) == 1
    assert talking.session.regenerate(talking.ids()[-1])
    talking.until_idle()
    assert asked(talking)[-1].content == UNFINISHED


def test_nothing_follows_where_another_version_is_shown(talking: Harness, source: Source) -> None:
    source.said.permissions["files", "read"] = "always"
    talking.chat.calls = [(CALL,)]
    talking.ask("Read it.")
    reply = talking.ids()[1]
    talking.session.regenerate(reply)
    talking.until_idle()
    source.ended.emit(1, "Read.", False)
    talking.until_idle()
    assert len(talking.chat.requests) == 2
    assert [role for role, _, _ in rows(talking)] == ["user", "assistant"]
    talking.session.show_variant(talking.ids()[-1], -1)
    assert rows(talking)[-1] == ("tool", "Read.", "complete")


def test_a_result_comes_to_the_chat_that_asked(talking: Harness, source: Source) -> None:
    source.said.permissions["files", "read"] = "always"
    talking.chat.calls = [(CALL,)]
    talking.ask("Read it.")
    chat = talking.session.conversation
    talking.session.new_conversation()
    source.ended.emit(1, "Read.", False)
    talking.qtbot.waitUntil(lambda: len(talking.chat.requests) == 2)
    talking.qtbot.waitUntil(lambda: talking.session.state_in(chat) == "idle")
    assert [message.role for message in talking.store.path(chat)] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert talking.texts() == []


def test_calls_without_end_wait_for_the_user(talking: Harness, source: Source) -> None:
    source.said.permissions["files", "read"] = "always"
    talking.chat.calls = [(CALL,)] * (MOST_ROUNDS + 1)
    talking.ask("Read it.")
    for number in range(1, MOST_ROUNDS + 1):
        talking.qtbot.waitUntil(lambda number=number: len(source.said.calls) == number)
        source.ended.emit(number, "Read.", False)
        talking.until_idle()
    assert rows(talking)[-1] == ("tool", "", "waiting")
    assert len(source.said.calls) == MOST_ROUNDS
    talking.session.tools.allow(talking.ids()[-1])
    source.ended.emit(MOST_ROUNDS + 1, "Read.", False)
    talking.until_idle()
    assert rows(talking)[-1][0] == "assistant"


def test_unknown_tools_without_end_stop(talking: Harness, source: Source) -> None:
    talking.chat.calls = [(ToolCall("call_1", "fly", "{}"),)] * (MOST_ROUNDS + 5)
    talking.ask("Fly.")
    talking.qtbot.waitUntil(lambda: len(talking.chat.requests) == MOST_ROUNDS + 1)
    talking.until_idle()
    talking.qtbot.wait(20)
    assert len(talking.chat.requests) == MOST_ROUNDS + 1


def test_a_reply_that_was_stopped_calls_nothing(talking: Harness, source: Source) -> None:
    talking.chat.delay_s = 0.01
    talking.chat.calls = [(CALL,)]
    assert talking.session.submit("one two three four five six")
    talking.qtbot.waitUntil(lambda: talking.session.state == "answering")
    talking.session.stop()
    talking.until_idle()
    assert [role for role, _, _ in rows(talking)] == ["user", "assistant"]


def test_servers_that_are_off_in_a_chat_offer_nothing_there(talking: Harness, source: Source) -> None:
    talking.ask("One.")
    talking.session.set_tools_off(("files",))
    assert talking.session.tools_off == ("files",)
    talking.ask("Two.")
    assert talking.chat.requests[-1].tools == (NOW,)
    assert talking.session.settings(ToolSettings).off == ("files",)
    talking.session.new_conversation()
    assert talking.session.tools_off == ()


def test_a_chat_that_stays_on_this_computer_has_no_tools_of_others(talking: Harness, source: Source) -> None:
    talking.ask("One.")
    talking.session.set_local_only(True)
    talking.ask("Two.")
    assert talking.chat.requests[-1].tools == (READ,)


def test_notebooks_participants_and_several_replies_have_no_tools(talking: Harness, source: Source) -> None:
    talking.ask("One.")
    parent = talking.ids()[0]
    talking.session.several.write(talking.session.conversation, parent, [ColumnSettings(seed=1)])
    talking.until_idle()
    assert talking.chat.requests[-1].tools == ()
    talking.session.set_cast(Cast((Participant("Ada"), Participant("Bo"))))
    talking.ask("Two.")
    assert talking.chat.requests[-1].tools == ()


def test_a_model_that_calls_no_tools_is_offered_none(
    talking: Harness, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacks = (("tools", "It calls none."),)
    described = dataclasses.replace(talking.chat.info, lacks=lacks)
    monkeypatch.setattr(talking.echo, "describe", lambda path: described)
    talking.load()
    talking.ask("One.")
    assert talking.chat.requests[-1].tools == ()


def test_a_queued_message_waits_for_the_calls(talking: Harness, source: Source) -> None:
    queue = MessageQueue(talking.session)
    talking.chat.calls = [(CALL,)]
    talking.chat.delay_s = 0.01
    assert talking.session.submit("one two three four")
    queue.add("And then?")
    talking.until_idle()
    talking.chat.delay_s = 0
    assert rows(talking)[-1] == ("tool", "", "waiting")
    talking.session.tools.allow(talking.ids()[-1])
    source.ended.emit(1, "Read.", False)
    talking.qtbot.waitUntil(lambda: len(talking.chat.requests) == 3)
    talking.until_idle()
    assert [message.role for message in asked(talking)] == ["user", "assistant", "tool", "assistant", "user"]


def test_a_queue_waits_for_the_user_where_calls_were_stopped(talking: Harness, source: Source) -> None:
    queue = MessageQueue(talking.session)
    source.said.permissions["files", "read"] = "always"
    talking.chat.calls = [(CALL,)]
    talking.chat.delay_s = 0.01
    assert talking.session.submit("one two three four")
    queue.add("And then?")
    talking.until_idle()
    talking.session.stop()
    assert queue.is_held(talking.session.conversation)
    assert len(talking.chat.requests) == 1


def test_calls_of_an_earlier_run_can_still_be_allowed(talking: Harness, source: Source) -> None:
    talking.chat.calls = [(CALL,)]
    talking.ask("Read it.")
    chat = talking.session.conversation
    talking.session.new_conversation()
    talking.session.open_conversation(chat)
    assert rows(talking)[-1] == ("tool", "", "waiting")
    talking.session.tools.allow(talking.ids()[-1])
    source.ended.emit(1, "Read.", False)
    talking.until_idle()
    assert rows(talking)[-1][0] == "assistant"


def test_while_a_call_is_written_the_row_says_so(talking: Harness, source: Source) -> None:
    footers = list[str]()
    talking.session.messages.dataChanged.connect(
        lambda *_: footers.append(talking.session.messages.items()[-1].footer)
    )
    talking.chat.calls = [(CALL,)]
    talking.ask("Read it.")
    assert any("files_read" in footer for footer in footers)


def test_the_preview_of_a_request_has_the_tools(talking: Harness, source: Source) -> None:
    talking.ask("One.")
    assert talking.session.preview_request("Two.").tools == (READ, NOW)


def test_the_context_meter_counts_the_tools(talking: Harness, source: Source) -> None:
    meter = ContextMeter(talking.session)
    seen = list[ChatRequest]()
    foresee = talking.chat.foresee

    def noted(request: ChatRequest) -> Foreseen:
        seen.append(request)
        return foresee(request)

    talking.chat.foresee = noted  # type: ignore[method-assign]
    talking.ask("One.")
    talking.qtbot.waitUntil(lambda: bool(seen))
    assert seen[-1].tools == (READ, NOW)
    talking.qtbot.waitUntil(lambda: meter.measured.tools > 0)
    now = meter.measured
    assert now.tools == len(["Reads", "a", "file.", "Tells", "the", "time."])
    assert now.used == now.tools + now.messages
    assert min(start for _id, start, _end in now.starts) == now.tools
    assert dict(lines(now))["Tools"] == str(now.tools)
    assert meter.close()


def test_a_result_for_a_temporary_chat_that_was_left_is_dropped(talking: Harness, source: Source) -> None:
    source.said.permissions["files", "read"] = "always"
    talking.session.new_temporary()
    talking.chat.calls = [(CALL,)]
    talking.ask("Read it.")
    talking.session.new_conversation()
    notices = len(talking.notices())
    source.ended.emit(1, "Read.", False)
    assert len(talking.notices()) == notices
    assert len(talking.chat.requests) in (1, 2)


@pytest.mark.parametrize("place", [1, 2], ids=["the reply", "the call"])
def test_a_call_that_is_deleted_is_ended(talking: Harness, source: Source, place: int) -> None:
    source.said.permissions["files", "read"] = "always"
    talking.chat.calls = [(CALL, CALL)]
    talking.ask("Read it.")
    session, ids = talking.session, talking.ids()
    assert session.delete_message(ids[place])
    assert source.said.cancelled == [1, 2]
    assert not session.tools.running_in(session.conversation)
    notices = talking.notices()
    source.ended.emit(1, "Read.", False)
    talking.until_idle()
    assert len(talking.chat.requests) == 1
    assert talking.notices() == notices
    session.undo()
    assert rows(talking)[2:] == [("tool", UNFINISHED, "stopped")] * 2


def test_deleting_a_call_leaves_the_one_above_it_running(talking: Harness, source: Source) -> None:
    source.said.permissions["files", "read"] = "always"
    talking.chat.calls = [(CALL, CALL)]
    talking.ask("Read it.")
    assert talking.session.delete_message(talking.ids()[3])
    assert source.said.cancelled == [2]
    source.ended.emit(1, "Read.", False)
    talking.until_idle()
    assert asked(talking)[-1].content == "Read."


def test_a_version_that_is_given_up_ends_its_calls(talking: Harness, source: Source) -> None:
    source.said.permissions["files", "read"] = "always"
    talking.chat.calls = [(CALL,)]
    talking.ask("Read it.")
    first = talking.ids()[1]
    talking.session.regenerate(first)
    talking.until_idle()
    assert talking.session.keep_version(talking.ids()[1], (first,))
    assert source.said.cancelled == [1]


@pytest.mark.parametrize("by_another", [False, True])
def test_a_chat_that_is_deleted_ends_its_calls(talking: Harness, source: Source, by_another: bool) -> None:
    source.said.permissions["files", "read"] = "always"
    talking.chat.calls = [(CALL,)]
    talking.ask("Read it.")
    chat = talking.session.conversation
    if by_another:
        talking.store.delete(chat)
        talking.session.reload_conversations()
    else:
        assert talking.session.delete_conversation(chat)
    assert source.said.cancelled == [1]
    assert not talking.session.tools.running_in(chat)


def test_a_tool_that_is_off_by_now_does_not_run(talking: Harness, source: Source) -> None:
    talking.chat.calls = [(OTHER,)]
    talking.ask("What time is it?")
    talking.session.set_local_only(True)  # the clock is on another computer
    assert not talking.session.tools.allow(talking.ids()[-1], always=True)
    assert talking.notices()[-1] == "clock_now is not offered in this chat now. Look at File > Tools."
    assert source.said == Said()
    assert rows(talking)[2] == ("tool", "", "waiting")
    talking.session.set_local_only(False)
    assert talking.session.tools.allow(talking.ids()[-1])


def test_saving_defaults_leaves_the_servers_of_other_chats_on(talking: Harness, source: Source) -> None:
    talking.ask("One.")
    talking.session.set_tools_off(("files",))
    talking.session.save_as_defaults()
    assert talking.session.tools_off == ("files",)
    talking.session.new_conversation()
    assert talking.session.tools_off == ()


def test_another_offer_is_told_and_measured(talking: Harness, source: Source) -> None:
    talking.ask("One.")
    told, tools = list[int](), talking.session.tools
    tools.offer_changed.connect(lambda: told.append(len(tools.offered_here())))
    source.changed.emit()
    source.changed.emit()  # as for a server's report
    source.runs = False
    source.changed.emit()
    source.runs = True
    source.changed.emit()
    talking.session.set_tools_off(("files",))
    assert told == [2, 0, 2, 1]
    meter = ContextMeter(talking.session)
    seen = list[ChatRequest]()
    foresee = talking.chat.foresee

    def noted(request: ChatRequest) -> Foreseen:
        seen.append(request)
        return foresee(request)

    talking.chat.foresee = noted  # type: ignore[method-assign]
    talking.session.set_tools_off(())
    talking.qtbot.waitUntil(lambda: bool(seen))
    assert seen[-1].tools == (READ, NOW)
    assert meter.close()
