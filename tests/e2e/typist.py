"""A process for faults from outside: opens the desktop, types a message, and prints how much of the reply is
shown.

Run as `python -m tests.e2e.typist DATA (MODEL | echo) [--signals] [--no-more-memory-at N]`. Each line of the
output is "seconds chat messages characters", in seconds of the monotonic clock that all processes of a
machine share. After a reply the same question is asked in a new chat. With `--signals` the process answers
signals like the program. With `--no-more-memory-at`, memory runs out once a reply has N characters and the
first text has been shown for a second; three seconds later the process is killed.
"""

from __future__ import annotations

import argparse
import signal
import time
from pathlib import Path

from PySide6.QtCore import Qt, QTimer
from PySide6.QtTest import QTest

from desktop.app import Desktop, EngineApi, make_application
from desktop.signal_handler import SignalHandler
from tests.desktop.fakes import EchoApi, EchoChat
from tests.desktop.hand import no_fetch

QUESTION = "Tell me a long story about a lighthouse keeper, with many chapters."


def take_all_memory() -> None:
    """From now on the process gets no more address space."""
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize(), resource.RLIM_INFINITY))


def main(data: Path, model: str, signals: bool = False, memory_ends_at: int = 0) -> None:
    """Type a question whenever the model is ready, and report until killed."""
    app = make_application(["inglenook"])
    if model == "echo":
        echo = EchoApi(EchoChat(reply="a few words more " * 20_000, delay_s=0.002))
        desktop = Desktop(app, data, EngineApi(echo.open_chat, echo.describe, no_fetch))
    else:
        desktop = Desktop(app, data)
    desktop.start(model=Path(model))
    signal_handler = SignalHandler(desktop.end_requested.emit, lambda: None) if signals else None
    session, box = desktop.session, desktop.window.chat.composer.box

    chat = 0
    full = False
    begun = 0.0  # when the first text was shown

    def report() -> None:
        nonlocal chat, full, begun
        if session.state == "idle" and not session.replying_in:
            chat += 1
            session.new_conversation()
            box.setFocus()
            QTest.keyClicks(box, QUESTION)
            QTest.keyClick(box, Qt.Key.Key_Return)
        items = session.messages.items()
        if items:
            print(f"{time.monotonic():.4f} {chat} {len(items)} {len(items[-1].text)}", flush=True)
            if not begun and len(items) == 2 and items[-1].text:
                begun = time.monotonic()
            long_shown = begun and time.monotonic() - begun >= 1.0
            if memory_ends_at and not full and long_shown and len(items[-1].text) >= memory_ends_at:
                full = True
                signal.alarm(3)  # the kernel's timer: it also ends a process that hangs
                take_all_memory()

    timer = QTimer()
    timer.timeout.connect(report)
    timer.start(20)
    app.exec()
    if signal_handler is not None:
        signal_handler.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("model")
    parser.add_argument("--signals", action="store_true")
    parser.add_argument("--no-more-memory-at", type=int, default=0)
    given = parser.parse_args()
    main(given.data, given.model, given.signals, given.no_more_memory_at)
