"""Small parts of a session: footers and notices, the shown path, undo."""

from __future__ import annotations

import functools
import random
from typing import Any

import pytest
from PySide6.QtTest import QAbstractItemModelTester
from pytestqt.qtbot import QtBot

from desktop.items.chats.messages import MessageItem, MessagesModel
from desktop.services.engine.reply_record import footer, message_item, notice, reason_text, record, stats_of
from desktop.services.session.paths import find_item, request_messages, show_items
from desktop.services.session.pictures import SentMessages
from desktop.services.session.undo import UndoStack
from desktop.store.conversations.path_cache import MOST
from desktop.store.conversations.records import StoredMessage
from engine.core import STOP_REASONS, Done, Message, Stats


def stored(
    number: int = 1, role: str = "assistant", text: str = "x", state: str = "complete", **stats: object
) -> StoredMessage:
    return StoredMessage(number, 1, None, role, text, state, 0.0, stats)


@pytest.mark.parametrize(
    ("done", "text"),
    [
        (
            Done("stop_token", "<|im_end|>", Stats(new_tokens=42, decode_seconds=1.0761)),
            "42 tokens · 38.1 tok/s",
        ),
        (Done("stop_string", "END", Stats(new_tokens=1)), "1 token · stopped at “END”"),
        (
            Done("max_tokens", "", Stats(new_tokens=2048, decode_seconds=1)),
            "2,048 tokens · 2,047 tok/s · stopped at the token limit",
        ),
        (Done("context_full", "", Stats()), "stopped because the context is full"),
        (Done("cancelled", "", Stats()), "stopped by you"),
        (Done("stop_token", "", Stats()), ""),
        (
            Done("stop_regex", "sum = 12\n", Stats()),
            "stopped at “sum = 12”, which the stop expression matches",
        ),
        (Done("end_filter", "", Stats()), "constraint satisfied"),
        (Done("time_limit", "", Stats()), "stopped at the time limit"),
        (
            Done("loop", "again and " * 9, Stats()),
            "stopped because it repeated “again and again and again and again and…”",
        ),
        (
            Done("max_tokens", "", Stats(new_tokens=25, passes=10, drafted_tokens=40, accepted_tokens=14)),
            "25 tokens · stopped at the token limit · 2.4 tokens per pass, 35 % of drafts accepted",
        ),
    ],
)
def test_footers(done: Done, text: str) -> None:
    saved = record(done, 0, "", "Echo")
    assert footer(saved) == text
    assert stats_of(saved) == done.stats


def test_every_stop_reason_has_a_text() -> None:
    assert all(reason_text(record(Done(reason, "", Stats()), 0, "", "")) for reason in STOP_REASONS)
    for mark in ("<|im_end|>", "</s>", "<end_of_turn>"):
        assert reason_text({"reason": "stop_token", "trigger": mark}) == "ended by the model"
    assert reason_text({"reason": "stop_token", "trigger": "END"}) == "stopped at END"


def test_avoided_phrases_are_counted_in_the_footer() -> None:
    done = Done("stop_token", "", Stats(new_tokens=2))
    assert footer(record(done, 0, "", "Echo", avoided=1)) == "2 tokens · 1 banned phrase avoided"
    assert footer(record(done, 0, "", "Echo", avoided=1200)) == "2 tokens · 1,200 banned phrases avoided"
    assert footer({"avoided": "many"}) == ""


def test_notices() -> None:
    assert (
        notice(stored(**record(None, 0, "The template refuses this.", "Echo")))
        == "The template refuses this."
    )
    assert (
        notice(stored(**record(None, 1, "", "Echo")))
        == "The context was full: the oldest message was not read for this reply."
    )
    assert notice(stored(**record(None, 3, "Then it broke.", "Echo"))).endswith(
        "not read for this reply. Then it broke."
    )
    assert "ended while" in notice(stored(state="stopped"))
    known_at_start = {"opened": "</think>", "language": "json"}
    assert "ended while" in notice(stored(state="stopped", **known_at_start))
    assert notice(stored()) == ""


def test_saved_figures_of_another_version_are_read() -> None:
    saved: dict[str, Any] = {"stats": {"new_tokens": 3, "joules": 5}, "reason": "boredom", "trimmed": "many"}
    assert stats_of(saved) == Stats(new_tokens=3)
    assert footer(saved) == "3 tokens"
    assert notice(stored(**saved)) == ""
    assert message_item(stored(7, "user", "hi")) == MessageItem(7, "user", "hi")


def test_a_reply_has_the_name_of_its_model_on_one_line_and_not_too_long() -> None:
    assert message_item(stored(model="Qwen3\n8B")).model == "Qwen3 8B"
    assert len(message_item(stored(model="m" * 500)).model) == 200
    assert message_item(stored(model=8)).model == ""
    assert message_item(stored(1, "user", "hi", model="Qwen3")).model == ""


def test_request_messages() -> None:
    path, made = [stored(1, "user", "a"), stored(2, "assistant", "b"), stored(3, "user", "c")], SentMessages()
    first = request_messages("", path, 2, made)
    assert [m.content for m in first] == ["a", "b"]
    whole = request_messages("Be brief.", path, 3, made)
    assert whole[0] == Message("system", "Be brief.")
    assert all(now is before for now, before in zip(whole[1:3], first, strict=True))
    assert request_messages("  \n", path, None, made) == ()


def test_messages_to_a_model_are_kept_until_others_are_asked_for() -> None:
    made = SentMessages()
    (own,) = made.of(1, [("user", "words", None)])
    assert made.of(1, [("assistant", "words", None), ("user", "words", None), ("user", "words", None)])[
        1:
    ] == [own, own]
    assert made.of(1, [("user", "words", None)])[0] is own
    made.of(1, [("user", "other words", None)])
    assert made.of(1, [("user", "words", None)])[0] is not own


def test_messages_of_a_few_chats_are_kept() -> None:
    """Two chats in turns made all of their messages anew."""
    made = SentMessages()
    found = [made.of(chat, [("user", "words", None)])[0] for chat in range(MOST)]
    assert all(made.of(chat, [("user", "words", None)])[0] is found[chat] for chat in range(MOST))
    made.of(MOST, [("user", "words", None)])
    assert made.of(1, [("user", "words", None)])[0] is found[1]
    assert made.of(0, [("user", "words", None)])[0] is not found[0]


@pytest.mark.parametrize("seed", range(20))
def test_show_items_reaches_any_path(qtbot: QtBot, seed: int) -> None:
    draw = random.Random(seed)
    model = MessagesModel()
    tester = QAbstractItemModelTester(model)
    for _ in range(30):
        kept = list(model.items())[: draw.randint(0, 5)]
        fresh = [
            MessageItem(draw.randint(1, 12), draw.choice(("user", "tool")), draw.choice("abc"))
            for _ in range(draw.randint(0, 4))
        ]
        expected: list[MessageItem] = []
        for item in kept + fresh:
            if item.id not in {other.id for other in expected}:
                expected.append(item)
        show_items(model, expected)
        assert model.items() == tuple(expected)
    assert find_item(model, 999) is None
    del tester


def test_undo_stack(qtbot: QtBot) -> None:
    stack = UndoStack()
    done: list[int] = []
    reported: list[tuple[bool, str]] = []
    stack.available_changed.connect(lambda available, what: reported.append((available, what)))
    for number in range(60):
        stack.push(f"step {number}", functools.partial(done.append, number))
    assert stack.what == "step 59"
    while stack.undo():
        pass
    assert done == list(range(59, 9, -1))  # the oldest ten are forgotten
    assert reported[-1] == (False, "")
    assert not stack.undo()
