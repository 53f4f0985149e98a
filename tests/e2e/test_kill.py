"""kill -9 during a reply loses at most half a second of its text, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.database import FILE_NAME
from desktop.store.database.open import open_conversations
from tests.desktop.hand import Hand
from tests.e2e.typist import QUESTION
from tests.tools.kill import Killing

ROOT = Path(__file__).resolve().parents[2]
PROMISE_SECONDS = 0.5
ENOUGH_CHARACTERS = 300

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")


class Report(NamedTuple):
    """What the typist saw on the screen: the chat, its number of messages, and the length of the last one."""

    moment: float
    chat: int
    messages: int
    length: int


def killed_in_mid_reply(data: Path, model: str) -> tuple[list[Report], float]:
    """What the typist reported about the reply during which it was killed, and when that was."""
    environment = {**os.environ, "INGLENOOK_DATA": str(data), "QT_QPA_PLATFORM": "offscreen"}
    command = [sys.executable, "-m", "tests.e2e.typist", str(data), model]
    reports: list[Report] = []
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as typist:
        assert typist.stdout is not None
        try:
            for line in typist.stdout:
                reports.append(_report(line))
                same = [report for report in reports if report.chat == reports[-1].chat]
                if (
                    reports[-1].length > ENOUGH_CHARACTERS
                    and reports[-1].moment - same[0].moment > 2 * PROMISE_SECONDS
                ):
                    break
        finally:
            typist.kill()
            killed = time.monotonic()
        reports += [_report(line) for line in typist.stdout if line.endswith("\n")]
    assert typist.returncode == -signal.SIGKILL, "the typist ended by itself"
    return [report for report in reports if report.chat == reports[-1].chat], killed


def _report(line: str) -> Report:
    moment, chat, messages, length = line.split()
    return Report(float(moment), int(chat), int(messages), int(length))


def check_what_is_left(data: Path, reports: list[Report], killed: float) -> None:
    database = open_conversations(data / FILE_NAME)
    store = ConversationStore(database)
    path = store.path(store.list()[0].id)
    database.close()
    shown_before = [report.length for report in reports if report.moment <= killed - PROMISE_SECONDS]
    assert len(path) == reports[-1].messages
    assert path[-2].text == QUESTION
    assert path[-1].state == "stopped"
    assert reports[-1].length > ENOUGH_CHARACTERS
    assert len(path[-1].text) >= shown_before[-1]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("attempt", range(2))
def test_a_killed_window_keeps_the_reply(tmp_path, qtbot, qapp, attempt) -> None:
    (tmp_path / "echo.gguf").touch()
    reports, killed = killed_in_mid_reply(tmp_path, "echo")
    check_what_is_left(tmp_path, reports, killed)
    hand = Hand(qtbot, tmp_path)  # the same data opens again at once, with a notice about what happened
    try:
        assert hand.texts()[0] == QUESTION
        assert "ended while this reply was being written" in hand.items()[1].notice
    finally:
        hand.close()


@pytest.mark.slow
@pytest.mark.real_model
@pytest.mark.timeout(400)
def test_a_killed_window_keeps_the_reply_of_the_real_model(tmp_path, starter_path) -> None:
    reports, killed = killed_in_mid_reply(tmp_path, str(starter_path))
    check_what_is_left(tmp_path, reports, killed)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_five_kills_under_load_lose_nothing_but_half_a_second(tmp_path) -> None:
    """A short run of `tests.tools.kill`, which is the full proof."""
    killing = Killing(tmp_path, seed=3)
    for _ in range(5):
        killing.once()
    assert killing.lost == []
    assert killing.counts["ready"] == 5
    assert sum(killing.counts.values()) > 20, "something was done meanwhile"
