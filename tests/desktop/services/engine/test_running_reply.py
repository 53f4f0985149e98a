"""The text of a running reply is due on the disk soon after it arrives, at limited intervals."""

from __future__ import annotations

import time
from itertools import pairwise

from PySide6.QtCore import QObject, Qt, QTimer
from pytestqt.qtbot import QtBot

from desktop.services.engine.running_reply import CHECKPOINT_MS, RunningReply
from engine.core import Text, TokenInfo


class Lateness:
    """The longest delay of a timer of this thread: how late a loaded machine is."""

    def __init__(self, parent: QObject) -> None:
        self.longest_s, self._last = 0.0, time.monotonic()
        self.timer = QTimer(parent)
        self.timer.setTimerType(Qt.TimerType.PreciseTimer)
        self.timer.timeout.connect(self._look)
        self.timer.start(1)

    def _look(self) -> None:
        now = time.monotonic()
        self.longest_s, self._last = max(self.longest_s, now - self._last), now


def test_text_is_due_within_the_interval_whatever_comes_after(qtbot: QtBot) -> None:
    reply, due = RunningReply(1, 1), list[tuple[float, str]]()
    reply.checkpoint_due.connect(lambda: due.append((time.monotonic(), reply.text)))
    late = Lateness(reply)
    came: list[tuple[float, str]] = []
    for number in range(60):
        reply.add(f"w{number} ")
        came.append((time.monotonic(), reply.text))
        qtbot.wait(15)
    qtbot.wait(CHECKPOINT_MS + 20)
    late.timer.stop()
    for arrived, text in came:
        saved = next(at for at, kept in due if kept.startswith(text))
        assert saved - arrived < CHECKPOINT_MS / 1000 + 0.05 + 2 * late.longest_s
    assert all(later - sooner > 0.9 * CHECKPOINT_MS / 1000 for (sooner, _), (later, _) in pairwise(due))


def test_text_after_a_pause_is_due_at_once(qtbot: QtBot) -> None:
    reply, due = RunningReply(1, 1), list[str]()
    reply.checkpoint_due.connect(lambda: due.append(reply.text))
    reply.add("one ")
    assert due == []
    qtbot.waitUntil(lambda: due == ["one "])
    qtbot.wait(CHECKPOINT_MS + 20)
    reply.add("two ")
    assert due == ["one ", "one two "]
    qtbot.wait(CHECKPOINT_MS + 20)
    assert due == ["one ", "one two "]


def test_tokens_without_text_show_nothing(qtbot: QtBot) -> None:
    """As those of a character that is not complete yet."""
    reply = RunningReply(1, 1)
    assert reply.take(Text("", (TokenInfo(5, "", 0.5, 0.5),))) == ""
    assert reply.take(Text("é", (TokenInfo(6, "é", 0.5, 0.5),))) == "é"
    assert (reply.text, list(reply.tokens.ids)) == ("é", [5, 6])
    reply.end()


def test_nothing_is_due_after_the_end(qtbot: QtBot) -> None:
    reply, due = RunningReply(1, 1), list[str]()
    reply.checkpoint_due.connect(lambda: due.append(reply.text))
    reply.add("one ")
    reply.end()
    qtbot.wait(CHECKPOINT_MS + 20)
    assert due == []
