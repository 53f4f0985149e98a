"""Texts that are expensive to show, in the transcript off screen: no step of the GUI thread may take more
than 50 ms.

    python -m tests.bench.bench_bombs [--size 200000] [--seconds 4] [--only WORDS]

Each text of `tests.desktop.bombs` is shown as a reply and as a user's message, left to settle for some
seconds, scrolled through and scrolled to the beginning. A step is the work between two visits to the event
queue; its time is the CPU time of the thread. The last line is one JSON object; the exit code is 1 if a step
took too long.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from time import perf_counter, thread_time

from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QApplication

from desktop.items.chats.messages import MessageItem, MessagesModel
from desktop.views.transcript import TranscriptView
from desktop.views.transcript.rendering.markdown import prepare
from desktop.views.widgets.theme import Theme
from tests.desktop.bombs import BOMBS, bomb

BAR_MS = 50.0


def steps(app: QApplication, text: str, role: str, seconds: float) -> dict[str, float]:
    """The longest step of each kind, in milliseconds."""
    longest: dict[str, float] = {}

    def timed(kind: str, work: Callable[[], object]) -> None:
        begun = thread_time()
        work()
        longest[kind] = max(longest.get(kind, 0.0), (thread_time() - begun) * 1000)

    model = MessagesModel()
    view = TranscriptView(model)
    view.resize(900, 800)
    view.show()
    app.processEvents()
    bar = view.verticalScrollBar()

    def scroll(pixels: int) -> None:
        bar.setValue(bar.value() + pixels)
        app.processEvents()

    timed("insert", lambda: model.reset([MessageItem(1, role, text)]))
    timed("first frame", view.flush)
    end = perf_counter() + seconds
    while perf_counter() < end and not view.settled():
        timed("settle", app.processEvents)
    for pixels in [-500] * 20 + [-bar.maximum()] + [500] * 10:
        timed("scroll", partial(scroll, pixels))
    view.close()
    view.deleteLater()
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
    gc.collect()
    return {kind: round(took, 1) for kind, took in longest.items()}


def main() -> int:
    """Run everything; 1 if a step took too long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=200_000, help="characters of each text, about")
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="how long a text may settle before it is scrolled"
    )
    parser.add_argument("--only", default="", help="only texts with these words in their names")
    options = parser.parse_args()
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    app = QApplication([])
    gc.disable()
    Theme(app).apply("light", 100)
    prepare()
    steps(app, "words", "assistant", 1.0)  # fonts and icons are read with the first
    found: dict[str, dict[str, float]] = {}
    for role in ("assistant", "user"):
        for name in BOMBS:
            if options.only in name:
                took = found[f"{role}: {name}"] = steps(app, bomb(name, options.size), role, options.seconds)
                print(f"{'! ' if max(took.values()) > BAR_MS else '  '}{role}: {name} {took}", flush=True)
    slow = {name: took for name, took in found.items() if max(took.values()) > BAR_MS}
    print(f"{len(found) - len(slow)} of {len(found)} texts without a step above {BAR_MS:.0f} ms")
    print(
        json.dumps(
            {
                "longest": max((max(took.values()) for took in found.values()), default=0.0),
                "slow": slow,
                "passed": not slow,
            }
        )
    )
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
