"""A process of its own for the kill test: opens the desktop, types a message, and prints how much of the reply is on the screen.

Run as `python -m tests.e2e.typist DATA (MODEL | echo)`; each line of the output is "seconds chat messages characters", seconds of
the monotonic clock that all processes of a machine share. A reply that ends is followed by the same question in a new chat.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from PySide6.QtCore import Qt, QTimer
from PySide6.QtTest import QTest

from desktop.app import Desktop, Doors, make_application
from tests.desktop.desk import no_fetch
from tests.desktop.fakes import EchoChat, EchoDoor

QUESTION = "Tell me a long story about a lighthouse keeper, with many chapters."


def main(data: Path, model: str) -> None:
    """Type a question whenever the model is ready, and report until killed."""
    app = make_application(["inglenook"])
    if model == "echo":
        door = EchoDoor(EchoChat(reply="a few words more " * 20_000, delay_s=0.002))
        desktop = Desktop(app, data, Doors(door.open_chat, door.describe, no_fetch))
    else:
        desktop = Desktop(app, data)
    desktop.start(model=Path(model))
    session, box = desktop.session, desktop.window.chat.composer.box

    chat = 0

    def report() -> None:
        nonlocal chat
        if session.state == "idle" and not session.replying_in:
            chat += 1
            session.new_conversation()
            box.setFocus()
            QTest.keyClicks(box, QUESTION)
            QTest.keyClick(box, Qt.Key.Key_Return)
        items = session.messages.items()
        if items:
            print(f"{time.monotonic():.4f} {chat} {len(items)} {len(items[-1].text)}", flush=True)

    timer = QTimer()
    timer.timeout.connect(report)
    timer.start(20)
    app.exec()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
