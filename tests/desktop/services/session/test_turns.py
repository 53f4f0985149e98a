"""Turns from submit to the saved end: streaming, stopping, versions, editing, deleting, errors."""

from __future__ import annotations

import dataclasses
import threading
import time

import pytest

from desktop.items.chats.messages import MessageItem
from desktop.services.engine.reply_record import message_item
from engine.core import Stats
from engine.errors import BadTemplate
from engine.platform import core_yield
from engine.settings import SamplerSettings, StopSettings
from tests.desktop.services.conftest import Harness


def test_a_turn(talking: Harness) -> None:
    grown: list[tuple[int, str]] = []
    talking.session.messages.text_appended.connect(lambda row, text: grown.append((row, text)))
    talking.ask("Hello brave new world")
    assert talking.texts() == ["Hello brave new world"] * 2 == talking.saved()
    assert "".join(text for row, text in grown if row == 1) == "Hello brave new world"
    assert talking.states()[-3:] == ["prefill", "answering", "idle"]
    reply = talking.session.messages.items()[1]
    assert (reply.role, reply.running, reply.notice) == ("assistant", False, "")
    assert reply.footer.startswith("4 tokens · ")
    assert reply.footer.endswith(" tok/s")
    stats, reason = talking.said["stats_changed"][-1]
    assert isinstance(stats, Stats)
    assert (stats.new_tokens, stats.context_tokens, reason) == (4, 8, "")
    assert ("Reading the prompt", 4, 4) in talking.said["progress"]
    assert talking.session.title == "Hello brave new world"
    assert talking.said["title_changed"][-1] == ("Hello brave new world",)
    assert talking.store.path(talking.session.conversation)[1].state == "complete"
    assert talking.store.get(talking.session.conversation).model_path == "/models/echo.gguf"
    talking.ask("And you?")
    assert [message.content for message in talking.chat.requests[-1].messages] == [
        "Hello brave new world"
    ] * 2 + ["And you?"]
    assert threading.get_ident() not in talking.chat.threads


def test_the_message_is_shown_before_the_reply(talking: Harness) -> None:
    talking.chat.hold = threading.Event()
    assert talking.session.submit("  first\nsecond \n\n")
    user, reply = talking.session.messages.items()
    assert (user.role, user.text) == ("user", "  first\nsecond")
    assert reply == MessageItem(reply.id, "assistant", "", running=True, model="echo")
    assert talking.saved() == ["  first\nsecond", ""]
    talking.chat.hold.set()
    talking.until_idle()


def test_text_arrives_at_most_once_a_frame(talking: Harness) -> None:
    talking.chat.reply = " ".join(f"word{n}" for n in range(300))
    talking.chat.delay_s = 0.001
    grown: list[str] = []
    talking.session.messages.text_appended.connect(lambda row, text: grown.append(text))
    started = time.perf_counter()
    talking.ask("go")
    frames = (time.perf_counter() - started) / 0.016
    assert "".join(grown) == talking.chat.reply
    assert len(grown) <= frames + 2


def test_a_core_is_asked_for_while_a_reply_is_shown(
    talking: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(core_yield, "ask", lambda: calls.append("ask"))
    monkeypatch.setattr(core_yield, "give_back", lambda: calls.append("give back"))
    talking.chat.reply, talking.chat.delay_s = "word " * 100, 0.002
    started = time.perf_counter()
    talking.ask("go")
    talking.qtbot.waitUntil(lambda: calls[-1] == "give back")
    frames = (time.perf_counter() - started) / 0.016
    assert calls[:4] == ["ask", "give back"] * 2
    # a frame each, not one for each of the hundred words
    assert calls.count("ask") <= calls.count("give back") <= frames + 2


def test_checkpoints_while_it_runs(talking: Harness) -> None:
    talking.chat.reply = "word " * 2000
    talking.chat.delay_s = 0.002
    talking.session.submit("go")
    reply = talking.ids()[1]
    talking.qtbot.waitUntil(lambda: talking.store.message(reply).text.count("word") > 20)
    assert talking.store.message(reply).state == "running"
    talking.session.stop()
    talking.until_idle()
    assert talking.saved() == talking.texts()


@pytest.mark.parametrize("moment", ["prefill", "answering"])
def test_stop(talking: Harness, moment: str) -> None:
    talking.chat.reply = "word " * 5000
    talking.chat.delay_s = 0.002
    if moment == "prefill":
        # it would not end otherwise
        talking.chat.prefill_steps, talking.chat.prefill_delay_s = 1000, 600.0
    talking.session.submit("go")
    talking.qtbot.waitUntil(lambda: talking.session.state == moment)
    talking.session.stop()
    assert talking.session.state == "stopping"
    talking.until_idle()
    reply = talking.session.messages.items()[1]
    assert not reply.running
    assert reply.footer.endswith("stopped by you")
    assert reply.notice == ""
    saved = talking.store.message(reply.id)
    assert (saved.state, saved.text) == ("stopped", reply.text)
    assert (saved.text == "") == (moment == "prefill")
    talking.chat.prefill_steps, talking.chat.prefill_delay_s, talking.chat.reply = 1, 0.0, None
    talking.ask("still there?")
    assert talking.texts()[-1] == "still there?"


def test_a_thought_that_was_cut_off_is_still_a_thought_after_a_restart(talking: Harness, monkeypatch) -> None:
    describe = talking.echo.describe
    monkeypatch.setattr(
        talking.echo, "describe", lambda path: dataclasses.replace(describe(path), opens_thought="</muse>")
    )
    talking.load("/models/muse.gguf")
    talking.chat.reply, talking.chat.delay_s = "one two three " * 200, 0.002
    talking.session.submit("go")
    talking.qtbot.waitUntil(lambda: talking.store.message(talking.ids()[-1]).text != "")
    # as it is read after a restart
    cut = dataclasses.replace(talking.store.message(talking.ids()[-1]), state="stopped")
    talking.session.stop()
    talking.until_idle()
    item = message_item(cut)
    assert item.opened == "</muse>"
    assert item.notice.startswith("Inglenook ended while")


def test_nothing_is_sent_without_a_model(harness: Harness) -> None:
    assert harness.session.state == "no_model"
    assert not harness.session.submit("hello")
    assert "No model is loaded" in harness.notices()[-1]
    assert harness.texts() == []
    assert not harness.session.submit("   \n ")
    assert len(harness.notices()) == 1
    harness.echo.load_delay_s = 5.0
    harness.session.open_model("/models/slow.gguf")
    assert not harness.session.submit("hello")
    assert "still loading" in harness.notices()[-1]
    harness.session.stop()
    harness.until_idle()
    assert harness.session.state == "no_model"
    assert len(harness.notices()) == 2  # stopping a load is no trouble


def test_one_reply_at_a_time_in_a_chat(talking: Harness) -> None:
    talking.chat.hold = threading.Event()
    talking.session.submit("first")
    first = talking.session.conversation
    assert not talking.session.submit("second")
    assert not talking.session.regenerate(talking.ids()[1])
    assert not talking.session.edit(talking.ids()[0], "other")
    assert not talking.session.edit(talking.ids()[1], "other")
    assert "still being" in talking.notices()[-1]
    talking.chat.hold.set()
    talking.until_idle()
    assert talking.session.conversation == first
    assert [message.text for message in talking.store.path(first)] == ["first", "first"]


def test_a_reply_continues_while_another_chat_is_open(talking: Harness) -> None:
    talking.ask("elsewhere")
    other = talking.session.conversation
    talking.session.new_conversation()
    mine = talking.session.conversation
    talking.chat.reply = "".join(f"w{n} " for n in range(400))
    elsewhere, here, end = (threading.Event() for _ in range(3))
    talking.chat.pauses, talking.chat.said = {20: elsewhere, 200: here, 380: end}, 0
    talking.session.submit("tell me more")
    reply = talking.ids()[1]
    talking.qtbot.waitUntil(lambda: len(talking.texts()[1]) > 50)
    talking.session.open_conversation(other)
    assert talking.texts() == ["elsewhere", "elsewhere"]
    elsewhere.set()
    talking.qtbot.waitUntil(lambda: talking.chat.said == 199)
    assert talking.texts() == ["elsewhere", "elsewhere"]
    talking.session.open_conversation(mine)
    item = talking.session.messages.item(reply)
    assert item.running
    assert len(item.text) > 50
    assert talking.chat.reply.startswith(item.text)
    here.set()
    talking.qtbot.waitUntil(lambda: len(talking.session.messages.item(reply).text) > len(item.text) + 20)
    talking.session.open_conversation(other)
    stats_before = len(talking.said["stats_changed"])
    end.set()
    talking.qtbot.waitUntil(lambda: not talking.session.busy)
    assert len(talking.said["stats_changed"]) == stats_before  # another conversation's end is not this one's
    assert [message.text for message in talking.store.path(mine)] == ["tell me more", talking.chat.reply]
    talking.session.open_conversation(mine)
    assert talking.texts() == ["tell me more", talking.chat.reply]


def test_regenerate_adds_a_version(talking: Harness) -> None:
    talking.ask("one")
    talking.ask("two")
    first = talking.ids()[1]
    talking.chat.reply = "another one"
    assert talking.session.regenerate(first)
    talking.until_idle()
    assert talking.texts() == ["one", "another one"] == talking.saved()
    item = talking.session.messages.items()[1]
    assert (item.variant_index, item.variant_count) == (1, 2)
    assert [message.content for message in talking.chat.requests[-1].messages] == ["one"]
    assert talking.session.show_variant(item.id, -1)
    assert talking.texts() == ["one", "one", "two", "two"]
    assert not talking.session.show_variant(first, -1)
    assert talking.session.show_variant(first, +1)
    assert talking.texts() == ["one", "another one"]
    assert talking.session.regenerate(talking.ids()[0])  # of the user's message: another reply to it
    talking.until_idle()
    assert talking.session.messages.items()[1].variant_count == 3


def test_another_version_can_be_shown_while_a_reply_runs(talking: Harness) -> None:
    talking.ask("one")
    talking.chat.hold = threading.Event()
    talking.chat.reply = "two"
    talking.session.regenerate(talking.ids()[1])
    running = talking.ids()[1]
    assert talking.session.show_variant(running, -1)
    talking.chat.hold.set()
    talking.until_idle()
    assert talking.texts() == ["one", "one"]
    talking.session.show_variant(talking.ids()[1], +1)
    assert talking.texts() == ["one", "two"]


def test_continue(talking: Harness) -> None:
    talking.chat.reply = "one two three four five"
    talking.session.set_settings(StopSettings(max_tokens=2))
    talking.ask("count")
    assert talking.texts()[1] == "one two"
    assert talking.session.messages.items()[1].footer.endswith("stopped at the token limit")
    reply = talking.ids()[1]
    assert talking.session.continue_reply(reply)
    assert talking.session.messages.items()[1].running
    talking.until_idle()
    assert talking.texts() == ["count", "one two three four"] == talking.saved()
    assert talking.chat.requests[-1].continue_last
    assert [message.content for message in talking.chat.requests[-1].messages] == ["count", "one two"]
    assert talking.session.messages.items()[1].variant_count == 1
    talking.ask("more")
    assert not talking.session.continue_reply(reply)
    assert "Only the last reply" in talking.notices()[-1]


def test_continuing_an_empty_reply_begins_it(talking: Harness) -> None:
    talking.chat.hold = threading.Event()
    talking.session.submit("hello there")
    talking.session.stop()
    talking.until_idle()
    assert talking.texts() == ["hello there", ""]
    talking.chat.hold = None
    assert talking.session.continue_reply(talking.ids()[1])
    talking.until_idle()
    assert not talking.chat.requests[-1].continue_last
    assert talking.texts() == ["hello there", "hello there"]


def test_an_edited_question_gets_a_new_reply(talking: Harness) -> None:
    talking.ask("one")
    talking.ask("two")
    assert talking.session.edit(talking.ids()[0], "uno")
    talking.until_idle()
    assert talking.texts() == ["uno", "uno"] == talking.saved()
    assert talking.session.messages.items()[0].variant_count == 2
    talking.session.show_variant(talking.ids()[0], -1)
    assert talking.texts() == ["one", "one", "two", "two"]
    assert not talking.session.edit(talking.ids()[0], "  ")


def test_editing_a_reply_keeps_the_old_version(talking: Harness) -> None:
    talking.ask("one")
    talking.ask("two")
    asked = len(talking.chat.requests)
    assert talking.session.edit(talking.ids()[1], "better")
    assert talking.texts() == ["one", "better"]
    assert "kept with the earlier version" in talking.notices()[-1]
    assert talking.session.edit(talking.ids()[1], "better")  # nothing changed: no new variant
    assert talking.session.messages.items()[1].variant_count == 2
    assert len(talking.chat.requests) == asked
    talking.ask("three")
    assert [message.content for message in talking.chat.requests[-1].messages] == ["one", "better", "three"]


def test_delete_and_undo(talking: Harness) -> None:
    talking.ask("one")
    talking.ask("two")
    assert talking.session.delete_message(talking.ids()[1])
    assert talking.texts() == ["one"] == talking.saved()
    assert talking.said["undo_available"][-1] == (True, "delete message")
    assert talking.session.undo()
    assert talking.texts() == ["one", "one", "two", "two"]
    assert talking.said["undo_available"][-1] == (False, "")
    assert not talking.session.undo()
    talking.session.delete_message(talking.ids()[0])
    talking.session.new_conversation()
    talking.session.undo()  # leads back to where it happened
    assert talking.texts() == ["one", "one", "two", "two"]


@pytest.mark.parametrize("row", [0, 1])
def test_deleting_a_message_stops_its_reply(talking: Harness, row: int) -> None:
    talking.chat.reply = "word " * 3000
    talking.chat.delay_s = 0.002
    talking.session.submit("go")
    talking.qtbot.waitUntil(lambda: "word word" in talking.texts()[1])
    so_far = len(talking.texts()[1])
    assert talking.session.delete_message(talking.ids()[row])
    assert len(talking.texts()) == row
    talking.until_idle()
    assert len(talking.texts()) == row
    talking.session.undo()
    assert len(talking.texts()[1]) >= so_far
    assert talking.session.messages.items()[1].footer.endswith("stopped by you")


def test_deleting_a_chat_stops_its_reply(talking: Harness) -> None:
    talking.chat.hold = threading.Event()
    talking.session.submit("go")
    number = talking.session.conversation
    assert talking.session.delete_conversation(number)
    assert talking.session.conversation != number
    talking.until_idle()
    assert [row.id for row in talking.store.list()] == [talking.session.conversation]
    assert talking.session.conversations.row(number) == -1
    talking.session.undo()
    assert talking.session.conversation == number
    assert talking.texts() == ["go", ""]
    assert talking.session.conversations.row(number) >= 0


def test_an_error_after_text(talking: Harness) -> None:
    talking.chat.error, talking.chat.error_after = (
        BadTemplate("The template of this model refuses the messages: remove one."),
        2,
    )
    talking.ask("one two three")
    reply = talking.session.messages.items()[1]
    assert (reply.text, reply.running) == ("one two", False)
    assert reply.notice == "The template of this model refuses the messages: remove one."
    assert talking.store.message(reply.id).state == "failed"
    assert talking.notices() == []  # it stands on the message
    talking.session.open_conversation(talking.session.conversation)
    assert talking.session.messages.items()[1] == reply
    talking.chat.error = None
    assert talking.session.regenerate(reply.id)
    talking.until_idle()
    assert talking.texts()[1] == "one two three"


def test_a_bug_in_the_engine(talking: Harness) -> None:
    talking.chat.error = IndexError("page 7 of 4")
    talking.ask("hello")
    assert "Something went wrong in Inglenook" in talking.session.messages.items()[1].notice
    assert "page 7 of 4" in talking.session.error_details
    assert "Something went wrong" in talking.notices()[-1]
    talking.chat.error = None
    talking.ask("again")
    assert talking.texts()[-1] == "again"


def test_left_out_messages_are_reported(talking: Harness) -> None:
    talking.chat.trimmed = 4
    talking.chat.hold = threading.Event()
    talking.session.submit("hello")
    expected = "The context was full: the 4 oldest messages were not read for this reply."
    talking.qtbot.waitUntil(lambda: talking.session.messages.items()[1].notice == expected)
    assert talking.session.messages.items()[1].running
    talking.chat.hold.set()
    talking.until_idle()
    assert talking.session.messages.items()[1].notice == expected
    talking.session.open_conversation(talking.session.conversation)
    assert talking.session.messages.items()[1].notice == expected


def test_closing_during_a_reply_saves_everything(talking: Harness) -> None:
    talking.chat.reply = "word " * 5000
    talking.chat.delay_s = 0.001
    talking.session.submit("go")
    number = talking.session.conversation
    talking.qtbot.waitUntil(lambda: len(talking.texts()[1]) > 30)
    before = len(talking.texts()[1])
    said = talking.chat.said
    while talking.chat.said < said + 50:  # the window is busy: no event loop takes the words that come
        time.sleep(0.001)
    assert len(talking.texts()[1]) == before
    assert talking.session.close()
    saved = talking.store.path(number)[1]
    assert saved.state == "stopped"
    assert len(saved.text) >= 5 * (said + 49)
    assert talking.chat.reply.startswith(saved.text)
    assert saved.stats["reason"] == "cancelled"
    assert talking.chat.closed
    assert threading.get_ident() not in talking.chat.threads


def test_on_a_full_disk_the_reply_stays_visible_and_is_saved_later(talking: Harness) -> None:
    talking.chat.hold = threading.Event()
    talking.session.submit("hello world")
    pages = talking.database.execute("PRAGMA page_count").fetchone()[0]
    talking.database.execute(f"PRAGMA max_page_count = {pages}")
    talking.chat.reply = "a very long reply " * 500 + "indeed"
    talking.chat.hold.set()
    talking.until_idle()
    assert talking.texts()[1] == talking.chat.reply
    assert not talking.session.messages.items()[1].running
    assert "full" in talking.notices()[-1]
    reply = talking.ids()[1]
    assert talking.store.message(reply).state == "running"
    talking.database.execute("PRAGMA max_page_count = 1000000")
    talking.close_session()
    assert talking.store.message(reply).text == talking.chat.reply
    assert talking.store.message(reply).state == "complete"


def test_a_killed_reply_after_a_restart(talking: Harness) -> None:
    talking.ask("one")
    number = talking.session.conversation
    message = talking.store.add_message(number, talking.ids()[-1], "assistant", "half a", "running")
    talking.database.execute("UPDATE messages SET state = 'stopped' WHERE id = ?", (message.id,))
    talking.session.open_conversation(number)
    assert "ended while this reply was being written" in talking.session.messages.items()[-1].notice


def test_the_request_has_the_system_prompt_and_the_settings(talking: Harness) -> None:
    talking.session.set_system_prompt("Be brief.")
    talking.session.set_settings(SamplerSettings(temperature=0.25, seed=3))
    talking.ask("hello")
    request = talking.chat.requests[-1]
    assert [(message.role, message.content) for message in request.messages] == [
        ("system", "Be brief."),
        ("user", "hello"),
    ]
    assert request.sampler == SamplerSettings(temperature=0.25, seed=3)
    talking.session.new_conversation()
    talking.ask("hello")
    request = talking.chat.requests[-1]
    assert [message.role for message in request.messages] == ["user"]
    assert request.sampler == SamplerSettings()


def test_unchanged_rows_of_the_transcript_stay(talking: Harness) -> None:
    talking.ask("one")
    resets, changed = [], []
    talking.session.messages.modelReset.connect(lambda: resets.append(1))
    talking.session.messages.dataChanged.connect(lambda top, bottom: changed.append(top.row()))
    talking.ask("two")
    talking.session.regenerate(talking.ids()[-1])
    talking.until_idle()
    talking.session.show_variant(talking.ids()[-1], -1)
    assert resets == []
    assert set(changed) == {3}
