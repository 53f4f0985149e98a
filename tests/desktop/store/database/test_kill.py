"""kill -9 at random moments of a growing reply, and of typing into a notebook: at most half a second of text
is lost.

The writers use the program's own code: a GrowingReply on a Qt event loop with checkpoints into the store, and
keys typed into a notebook's page. They also record each text with its time in a plain file, with which the
store is compared.
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

PROMISE_S = 0.5

WRITER = """
import os, sys, time
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
    os.write(log, f"{time.time()} {count}\\n".encode())

timer = QTimer()
timer.timeout.connect(tick)
timer.start(5)
print("running", flush=True)
application.exec()
"""


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("number", range(4))
def test_killed_during_a_reply(tmp_path: Path, number: int) -> None:
    draw = random.Random(number * 7919 + 1)
    for round_number in range(2):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(round_number)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert writer.stdout is not None
        with writer.stdout:
            assert writer.stdout.readline() == "running\n"
            time.sleep(draw.uniform(0.05, 1.6))
            writer.send_signal(signal.SIGKILL)
            killed = time.time()
            writer.wait(10)
        lines = (tmp_path / "log").read_text().splitlines()[:-1]  # the last line may be half written
        safe = [int(line.split()[1]) for line in lines if float(line.split()[0]) < killed - PROMISE_S]
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
        assert len(words) >= max(safe, default=0), (
            f"{max(safe) - len(words)} words older than {PROMISE_S} s were lost"
        )
        assert len(store.search("earlier reply")) == round_number + 1
        database.close()


TYPIST = """
import os, sys, time
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
    os.write(log, f"{time.time()} {count}\\n".encode())

timer = QTimer()
timer.timeout.connect(tick)
timer.start(10)
print("running", flush=True)
application.exec()
"""


def test_killed_while_typing_into_a_notebook(tmp_path: Path) -> None:
    """Somebody who never stops long enough for a pause to be noticed."""
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    command = [sys.executable, "-c", TYPIST, str(tmp_path)]
    typist = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, cwd=Path(__file__).resolve().parents[4]
    )
    assert typist.stdout is not None
    with typist.stdout:
        assert typist.stdout.readline() == "running\n"
        time.sleep(random.Random(3).uniform(0.9, 1.3))
        typist.send_signal(signal.SIGKILL)
        killed = time.time()
        typist.wait(10)
    lines = (tmp_path / "log").read_text().splitlines()[:-1]
    safe = [int(line.split()[1]) for line in lines if float(line.split()[0]) < killed - PROMISE_S]
    assert len(safe) > 5
    database = open_conversations(tmp_path / "conversations.sqlite3")
    store = ConversationStore(database)
    (document,) = store.path(store.list()[0].id)
    words = document.text.split()
    assert words == [f"w{n}" for n in range(1, len(words) + 1)]
    assert len(words) >= max(safe), f"{max(safe) - len(words)} words older than {PROMISE_S} s were lost"
    # what was cut off can be found as well
    assert [hit.message_id for hit in store.search("w1 w2")] == [document.id]
    database.close()
