"""Faults from outside while the whole program runs: suspended and resumed, interrupted, ended during
compilation, out of memory.

`README.md` beside this file lists all faults, what the program promises in each case, and the test for it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from desktop.store.conversations.conversations import ConversationStore
from desktop.store.conversations.records import StoredMessage
from desktop.store.database.database import FILE_NAME
from desktop.store.database.open import open_conversations
from tests.e2e.typist import QUESTION

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("README.md")
PROMISE_SECONDS = 0.5

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and limits of POSIX systems")


def test_the_table_names_tests_that_exist() -> None:
    rows = re.findall(r"^\| .* \| `(tests/[\w/]+\.py)::(\w+)` \|$", TABLE.read_text("utf-8"), re.MULTILINE)
    assert len(rows) > 15
    missing = [
        f"{file}::{name}" for file, name in rows if f"def {name}(" not in (ROOT / file).read_text("utf-8")
    ]
    assert missing == []


@contextmanager
def typing(data: Path, model: str, *limits: str) -> Iterator[subprocess.Popen[str]]:
    """A window in another process in which questions are asked; killed at the end."""
    environment = {**os.environ, "INGLENOOK_DATA": str(data), "QT_QPA_PLATFORM": "offscreen"}
    command = [sys.executable, "-m", "tests.e2e.typist", str(data), model, *limits]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True) as typist:
        try:
            yield typist
        finally:
            typist.kill()


def length_on_the_screen(typist: subprocess.Popen[str], enough: int) -> int:
    """Reads the typist's reports until the reply has this many characters; returns its length then."""
    assert typist.stdout is not None
    for line in typist.stdout:
        length = int(line.split()[3])
        if length >= enough:
            return length
    raise AssertionError(f"the typist ended by itself: {typist.stderr.read() if typist.stderr else ''}")


def reply_in(data: Path) -> StoredMessage:
    """The reply of the newest chat, as the next start finds it."""
    database = open_conversations(data / FILE_NAME)
    try:
        assert not database.notices
        store = ConversationStore(database)
        question, reply = store.path(store.list()[0].id)[:2]
        assert question.text == QUESTION
        return reply
    finally:
        database.close()


@pytest.mark.slow
def test_a_suspended_process_continues_where_it_was(tmp_path: Path) -> None:
    """SIGSTOP, like a closed lid or a debugger; after SIGCONT the reply continues and is saved."""
    (tmp_path / "echo.gguf").touch()
    with typing(tmp_path, "echo") as typist:
        before = length_on_the_screen(typist, 200)
        typist.send_signal(signal.SIGSTOP)
        time.sleep(1.0)
        typist.send_signal(signal.SIGCONT)
        length_on_the_screen(typist, before + 2000)
    assert len(reply_in(tmp_path).text) > before


def test_ctrl_c_keeps_what_was_written(tmp_path: Path) -> None:
    with typing(tmp_path, "echo", "--signals") as typist:
        assert typist.stdout is not None
        first = length_on_the_screen(typist, 200)
        began = time.monotonic()
        while time.monotonic() < began + 2 * PROMISE_SECONDS:
            length_on_the_screen(typist, 1)
        typist.send_signal(signal.SIGINT)
        assert typist.wait(30) == 128 + signal.SIGINT
        assert typist.stderr is not None
        assert [line for line in typist.stderr if "propagateSizeHints" not in line] == []
    reply = reply_in(tmp_path)
    assert reply.state == "stopped"
    assert len(reply.text) >= first


@pytest.mark.slow
@pytest.mark.real_model
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 128 + signal.SIGINT)])
def test_ending_while_kernels_are_compiled(
    tmp_path: Path, starter_path: Path, number: signal.Signals, code: int
) -> None:
    """The program ends silently, and the next one completes the compilation and answers."""
    data, kernels = tmp_path / "data", tmp_path / "kernels"
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "INGLENOOK_CACHE": str(kernels)}
    command = [sys.executable, "-m", "desktop", "--data", str(data), "--model", str(starter_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True) as program:
        try:
            end = time.monotonic() + 120
            while not any(path.is_file() for path in kernels.rglob("*")):
                assert program.poll() is None
                assert time.monotonic() < end, "nothing was compiled"
                time.sleep(0.05)
            program.send_signal(number)
            out, err = program.communicate(timeout=90)
        finally:
            program.kill()
    assert (
        program.returncode,
        out,
        err.replace("This plugin does not support propagateSizeHints()\n", ""),
    ) == (code, "", "")
    os.environ["INGLENOOK_CACHE"], before = str(kernels), os.environ.get("INGLENOOK_CACHE", "")
    try:
        with typing(data, str(starter_path)) as typist:
            length_on_the_screen(typist, 50)
    finally:
        os.environ["INGLENOOK_CACHE"] = before


@pytest.mark.slow
@pytest.mark.real_model
@pytest.mark.timeout(600)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the address space is limited on Linux only")
def test_running_out_of_memory_during_a_reply_loses_nothing(tmp_path: Path, starter_path: Path) -> None:
    """From then on every allocation fails. Whether the program continues, reports it or dies, the text that
    was on the screen half a second before is there at the next start.
    """
    with typing(tmp_path, str(starter_path), "--no-more-memory-at", "400") as typist:
        assert typist.stdout is not None
        reports = [line.split() for line in typist.stdout if line.endswith("\n")]
        last = float(reports[-1][0])
        shown = [
            int(length)
            for moment, chat, _, length in reports
            if chat == "1" and float(moment) < last - PROMISE_SECONDS
        ]
        assert max(shown) > 0
    database = open_conversations(tmp_path / FILE_NAME)
    store = ConversationStore(database)
    first = min(store.list(), key=lambda row: row.id)
    texts = [message.text for message in store.path(first.id)]
    database.close()
    assert texts[0] == QUESTION
    assert len(texts[1]) >= max(shown)
