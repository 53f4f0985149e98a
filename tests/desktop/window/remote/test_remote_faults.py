"""Servers that refuse, break off, send nonsense or hang: what came is kept, a sentence says what happened,
and the next attempt works.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from PySide6.QtCore import Qt

from tests.conftest import WAIT_MS
from tests.desktop.remote_server import RemoteHand, remote_hand
from tests.engine.remote.fake_server import Asked, Gone, Reply, events, json_reply

pytestmark = [pytest.mark.gui, pytest.mark.loopback]


@pytest.fixture
def hand(qtbot, qapp, tmp_path) -> Iterator[RemoteHand]:
    with remote_hand(qtbot, tmp_path) as found:
        yield found


def chunk(text: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}}]}


def state_of(hand: RemoteHand) -> str:
    number = hand.items()[-1].id
    return str(hand.session.stores.of(number).message(number).state)


def gone(asked: Asked) -> Reply:
    raise Gone


FAULTS: dict[str, tuple[Callable[[Asked], Reply], str, str]] = {
    "wrong key": (lambda asked: json_reply({"error": {"message": "bad key"}}, 401), "", "key"),
    "forbidden": (lambda asked: json_reply({"detail": "not you"}, 403), "", "not you"),
    "no model": (lambda asked: json_reply({"error": {"message": "gone away"}}, 404), "", "gone away"),
    "too many": (lambda asked: json_reply({"error": {"message": "slow down"}}, 429), "", "slow down"),
    "broken server": (lambda asked: json_reply({"error": "out of memory"}, 500), "", "out of memory"),
    "not json": (lambda asked: Reply(200, {"content-type": "text/html"}, (b"<html>",)), "", "Lab"),
    "reset at once": (gone, "", "Lab"),
    "cut in the middle": (
        lambda asked: events(chunk("One "), chunk("two"), complete=False), "One two",
        "the text received so far",
    ),
    "ended without an end": (lambda asked: events(chunk("One "), "[DONE]"), "One ", ""),
    "nonsense in the middle": (lambda asked: events(chunk("One "), "{nonsense", chunk("x")), "One ", "Lab"),
    "error in the middle": (
        lambda asked: events(chunk("One "), {"error": {"message": "worker died"}}), "One ", "worker died",
    ),
}  # fmt: skip


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("fault", FAULTS)
def test_what_came_is_kept_and_the_next_attempt_works(hand, fault):
    script, kept, sentence = FAULTS[fault]
    hand.use()
    hand.echo_server.script = script
    hand.say("hello again")
    hand.qtbot.waitUntil(lambda: not hand.session.replying_in, timeout=WAIT_MS)
    question, reply = hand.items()
    assert (question.text, reply.text) == ("hello again", kept)
    assert state_of(hand) == "failed"
    assert "127.0.0.1" in reply.notice or "Lab" in reply.notice
    assert sentence.casefold() in reply.notice.casefold()
    hand.echo_server.script = None
    assert hand.session.regenerate(reply.id)
    hand.qtbot.waitUntil(lambda: hand.texts()[-1] == "hello again", timeout=WAIT_MS)
    hand.wait_for("idle")
    assert (state_of(hand), hand.items()[-1].notice, hand.items()[-1].variant_count) == ("complete", "", 2)


def test_a_cut_reply_can_be_continued_where_the_server_can(hand):
    hand.echo_server.can.add("continue")
    hand.use()
    hand.echo_server.script = lambda asked: events(chunk("One, "), complete=False)
    hand.say("count")
    hand.echo_server.script = lambda asked: events(
        chunk("two"), {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}, "[DONE]"
    )
    assert hand.session.continue_reply(hand.items()[-1].id)
    hand.qtbot.waitUntil(lambda: hand.texts()[-1] == "One, two", timeout=WAIT_MS)
    hand.wait_for("idle")
    assert hand.items()[-1].notice == ""
    assert hand.echo_server.replies[-1]["messages"][-1] == {"role": "assistant", "content": "One, "}


@pytest.mark.slow
def test_a_server_that_asks_to_wait_is_asked_again(hand):
    hand.use()
    answers = iter([json_reply({"error": {"message": "busy"}}, 429, retry_after="1")])
    hand.echo_server.script = lambda asked: next(answers, None) or hand.echo_server.stream("in the end")
    hand.send("patience")
    hand.qtbot.waitUntil(lambda: "asks you to wait" in hand.window.chat.status.state.text(), timeout=WAIT_MS)
    hand.qtbot.waitUntil(lambda: hand.texts()[-1] == "in the end", timeout=WAIT_MS)
    hand.wait_for("idle")
    assert hand.items()[-1].notice == ""


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("script", ["hangs", "hangs in the middle", "asks you to wait"])
def test_stop_ends_what_hangs_at_once(hand, script):
    hand.use()
    hangs = threading.Event()
    hand.echo_server.script = {
        "hangs": lambda asked: events(hangs),
        "hangs in the middle": lambda asked: events(chunk("One "), hangs),
        "asks you to wait": lambda asked: json_reply({"error": {"message": "busy"}}, 429, retry_after="50"),
    }[script]
    hand.send("go on")
    words = {
        "hangs": "Waiting for Lab",
        "hangs in the middle": "Answering",
        "asks you to wait": "asks you to wait",
    }
    hand.qtbot.waitUntil(lambda: words[script] in hand.window.chat.status.state.text(), timeout=WAIT_MS)
    # the status line speaks of the server before it is asked
    hand.qtbot.waitUntil(lambda: bool(hand.echo_server.replies), timeout=WAIT_MS)
    hand.press(Qt.Key.Key_Escape)
    hand.wait_for("idle", timeout=10_000)
    assert hand.texts() == ["go on", "One " if script == "hangs in the middle" else ""]
    assert state_of(hand) == "stopped"
    if script != "asks you to wait":
        assert hand.echo_server.server.closed.acquire(timeout=10)
    hand.echo_server.script = None
    hand.say("and now")
    assert hand.texts()[-1] == "and now"


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("restarts", [False, True])
def test_another_model_is_never_asked_instead(hand, restarts):
    """Neither the local model before, nor the last one after a restart, answers in place of a server."""
    hand.load()
    hand.use()
    hand.echo_server.server.close()
    if restarts:
        hand.restart()
        hand.wait_for("idle")
    hand.say("anybody there")
    hand.qtbot.waitUntil(lambda: not hand.session.replying_in, timeout=WAIT_MS)
    assert hand.texts() == ["anybody there", ""]
    assert "127.0.0.1" in hand.items()[-1].notice
    assert hand.session.model.host


def test_two_chats_are_answered_by_the_server_at_the_same_time(hand):
    hand.use()
    first_waits = threading.Event()
    hand.echo_server.script = lambda asked: (
        events(chunk("slow"), first_waits, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        if asked.body["messages"][-1]["content"] == "first"
        else hand.echo_server.stream("quick")
    )
    hand.send("first")
    hand.wait_for("answering")
    one = hand.session.conversation
    hand.session.new_conversation()
    hand.send("second")
    hand.qtbot.waitUntil(lambda: hand.texts() == ["second", "quick"], timeout=WAIT_MS)
    assert hand.texts() == ["second", "quick"]
    first_waits.set()
    hand.qtbot.waitUntil(lambda: not hand.session.replying_in, timeout=WAIT_MS)
    hand.session.open_conversation(one)
    assert hand.texts() == ["first", "slow"]
