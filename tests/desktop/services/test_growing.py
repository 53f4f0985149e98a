"""The text of a running reply is due on the disk soon after it came, and not oftener than that."""

from __future__ import annotations

import time
from itertools import pairwise

from pytestqt.qtbot import QtBot

from desktop.services.growing import CHECKPOINT_MS, GrowingReply

SLACK_S = 0.15
"""A loaded machine may be late by so much."""


def test_text_is_due_within_the_interval_whatever_comes_after(qtbot: QtBot) -> None:
    reply, due = GrowingReply(1, 1), list[tuple[float, str]]()
    reply.checkpoint_due.connect(lambda: due.append((time.monotonic(), reply.text)))
    came: list[tuple[float, str]] = []
    for number in range(60):
        reply.add(f"w{number} ")
        came.append((time.monotonic(), reply.text))
        qtbot.wait(15)
    qtbot.wait(CHECKPOINT_MS + 20)
    for arrived, text in came:
        saved = next(at for at, kept in due if kept.startswith(text))
        assert saved - arrived < CHECKPOINT_MS / 1000 + SLACK_S
    assert all(later - sooner > 0.9 * CHECKPOINT_MS / 1000 for (sooner, _), (later, _) in pairwise(due))


def test_text_that_comes_late_is_due_at_once(qtbot: QtBot) -> None:
    reply, due = GrowingReply(1, 1), list[str]()
    reply.checkpoint_due.connect(lambda: due.append(reply.text))
    reply.add("one ")
    assert due == []
    qtbot.waitUntil(lambda: due == ["one "])
    qtbot.wait(CHECKPOINT_MS + 20)
    reply.add("two ")
    assert due == ["one ", "one two "]
    qtbot.wait(CHECKPOINT_MS + 20)
    assert due == ["one ", "one two "]


def test_nothing_is_due_after_the_end(qtbot: QtBot) -> None:
    reply, due = GrowingReply(1, 1), list[str]()
    reply.checkpoint_due.connect(lambda: due.append(reply.text))
    reply.add("one ")
    reply.end()
    qtbot.wait(CHECKPOINT_MS + 20)
    assert due == []
