"""Acts on the window of the installed program as a user would; says in a sentence what does not happen."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from PySide6.QtCore import Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from desktop import app as program
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.data_folder import data_folder
from desktop.store.database.database import FILE_NAME, Database
from desktop.views.main_window import MainWindow

WAIT_S = 400


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"not within {WAIT_S} seconds: {what}")
        QApplication.processEvents()
        time.sleep(0.01)  # QTest.qWait would keep the interpreter from the engine's thread


def act() -> None:
    (window,) = (widget for widget in QApplication.topLevelWidgets() if isinstance(widget, MainWindow))
    session, box = window.session, window.chat.composer.box
    until(lambda: session.state == "idle", "the starter model is loaded")
    QTest.keyClicks(box, "What is the capital of France? Answer in one sentence.")
    QTest.keyClick(box, Qt.Key.Key_Return)
    until(
        lambda: len(session.messages.items()) == 2 and session.state == "idle" and not session.replying_in,
        "a reply",
    )
    window.close()


def main() -> None:
    QTimer.singleShot(0, act)
    if program.run(starter=True):
        sys.exit("the program ended with an error")
    database = Database(data_folder() / FILE_NAME)
    store = ConversationStore(database)
    question, reply = store.path(store.list()[0].id)
    database.close()
    print(f"{question.text}\n{reply.text}")
    if "Paris" not in reply.text or reply.state != "complete":
        sys.exit(f"this is no complete and right answer: {reply}")


if __name__ == "__main__":
    main()
