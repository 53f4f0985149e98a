"""kill -9 at random moments of a growing reply, and of typing into a notebook: at most half a second of text
is lost.

The writers use the program's own code: a GrowingReply on a Qt event loop with checkpoints into the store, and
keys typed into a notebook's page. They also record each text in a plain file, with which the store is
compared. Time is counted in their timers' ticks, of which a busy machine makes fewer.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.open import open_conversations

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is POSIX's")

ROOT = Path(__file__).resolve().parents[4]
PROMISE_MS = 500
REPLY_MS, KEYS_MS = 5, 10
"""Milliseconds of a tick, at least."""

WRITER = """
import os, sys
from pathlib import Path
from PySide6.QtCore import QCoreApplication, QTimer
from desktop.services.engine.running_reply import RunningReply
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.open import open_conversations

folder, number = sys.argv[1], sys.argv[2]
application = QCoreApplication([])
store = ConversationStore(open_conversations(Path(folder) / "conversations.sqlite3"))
conversation = store.create(f"Talk {number}").id
asked = store.add_message(conversation, None, "user", f"question {number}")
earlier = store.add_message(conversation, asked.id, "assistant", f"an earlier reply {number}")
asked = store.add_message(conversation, earlier.id, "user", "and then?")
message = store.add_message(conversation, asked.id, "assistant", "", "running")
reply = RunningReply(conversation, message.id)
reply.checkpoint_due.connect(lambda: store.checkpoint(message.id, reply.text))
log = os.open(os.path.join(folder, "log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
count = 0

def tick():
    global count
    count += 1
    reply.add(f"w{count} ")
    os.write(log, f"{count}\\n".encode())

timer = QTimer()
timer.timeout.connect(tick)
timer.start(int(sys.argv[3]))
print("running", flush=True)
application.exec()
"""


def killed_after(command: list[str], log: Path, ticks: int, tick_ms: int) -> int:
    """Run a writer until it has logged so many ticks, and kill it. Returns how many words must be safe."""
    log.unlink(missing_ok=True)
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    writer = subprocess.Popen(
        [*command, str(tick_ms)], stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    )
    assert writer.stdout is not None
    with writer.stdout:
        assert writer.stdout.readline() == "running\n"
        end = time.monotonic() + 60
        while (log.read_bytes().count(b"\n") if log.exists() else 0) < ticks and time.monotonic() < end:
            time.sleep(0.005)
        writer.send_signal(signal.SIGKILL)
        writer.wait(10)
    lines = log.read_text().splitlines()[:-1]  # the last line may be half written
    assert len(lines) >= ticks - 1
    return max(0, int(lines[-1]) - PROMISE_MS // tick_ms) if lines else 0


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("number", range(4))
def test_killed_during_a_reply(tmp_path: Path, number: int) -> None:
    draw = random.Random(number * 7919 + 1)
    for round_number in range(2):
        command = [sys.executable, "-c", WRITER, str(tmp_path), str(round_number)]
        safe = killed_after(command, tmp_path / "log", draw.randint(10, 320), REPLY_MS)
        database = open_conversations(tmp_path / "conversations.sqlite3")
        store = ConversationStore(database)
        assert database.notices == ()
        assert [row.title for row in store.list()] == [f"Talk {n}" for n in range(round_number, -1, -1)]
        path = store.path(store.list()[0].id)
        assert [message.state for message in path].count("stopped") == 1
        assert [message.text for message in path[:-1]] == [
            f"question {round_number}",
            f"an earlier reply {round_number}",
            "and then?",
        ]
        words = path[-1].text.split()
        assert path[-1].state == "stopped"
        assert words == [f"w{n}" for n in range(1, len(words) + 1)]
        assert len(words) >= safe, f"{safe - len(words)} words older than {PROMISE_MS} ms were lost"
        assert len(store.search("earlier reply")) == round_number + 1
        database.close()


TYPIST = """
import os, sys
from pathlib import Path
from PySide6.QtCore import QEvent, Qt, QTimer
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QApplication
from desktop.services.composer.document_saver import DocumentSaver
from desktop.services.session.chat_session import ChatSession
from desktop.store.database.open import open_conversations
from desktop.store.settings.preferences import Preferences
from desktop.store.conversations.stores import ConversationStores
from desktop.views.notebook.page import NotebookPage
from tests.desktop.fakes import EchoApi

folder, echo = Path(sys.argv[1]), EchoApi()
application = QApplication([])
stores = ConversationStores(open_conversations(folder / "conversations.sqlite3"))
preferences = Preferences(folder / "preferences.json")
session = ChatSession(stores, preferences, echo.open_chat, echo.describe, echo.draft_problem)
session.new_notebook()
page = NotebookPage(session, DocumentSaver(session))
page.show_document(session.document())
log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
count = 0

def tick():
    global count
    count += 1
    for sign in f"w{count} ":
        press = QKeyEvent(QEvent.Type.KeyPress, 0, Qt.KeyboardModifier.NoModifier, sign)
        application.sendEvent(page.editor, press)
    os.write(log, f"{count}\\n".encode())

timer = QTimer()
timer.timeout.connect(tick)
timer.start(int(sys.argv[2]))
print("running", flush=True)
application.exec()
"""


def test_killed_while_typing_into_a_notebook(tmp_path: Path) -> None:
    """Somebody who never stops long enough for a pause to be noticed."""
    safe = killed_after([sys.executable, "-c", TYPIST, str(tmp_path)], tmp_path / "log", 100, KEYS_MS)
    assert safe >= 49
    database = open_conversations(tmp_path / "conversations.sqlite3")
    store = ConversationStore(database)
    (document,) = store.path(store.list()[0].id)
    words = document.text.split()
    assert words == [f"w{n}" for n in range(1, len(words) + 1)]
    assert len(words) >= safe, f"{safe - len(words)} words older than {PROMISE_MS} ms were lost"
    # what was cut off can be found as well
    assert [hit.message_id for hit in store.search("w1 w2")] == [document.id]
    database.close()
