"""The cost of a step of the text size and of a change of theme, with a chat of some hundred messages open.

    python -m tests.bench.bench_text_size [--messages 300] [--rounds 5]

Each step is `View > Larger text` or `Smaller text` in the whole window off screen, from the command until
everything is laid out and painted. The figures are medians in milliseconds: CPU time of the GUI thread, the
part of it before the command returns, and wall time; with the settings hidden, shown, and with all groups
expanded. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, thread_time

from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QApplication

from desktop.app import make_application
from desktop.settings import Appearance
from desktop.views.layout.panes import RIGHT
from desktop.views.widgets.collapsible import Group
from tests.tools.pictures.stage import TALK, Stage

__all__ = ["main"]


def fill(stage: Stage, messages: int) -> None:
    """Open a chat of this many messages."""
    store = stage.session.stores.kept
    chat, parent = store.create("A long talk"), None
    for number in range(messages):
        question, answer = TALK[number // 2 % len(TALK)]
        parent = store.add_message(
            chat.id, parent, "assistant" if number % 2 else "user", answer if number % 2 else question
        ).id
    stage.session.open_conversation(chat.id)
    stage.spin(1.0)


def settle(app: QApplication) -> None:
    """Wait until nothing is left to lay out or paint."""
    for _ in range(4):
        app.processEvents()
        app.sendPostedEvents(None, QEvent.Type.LayoutRequest.value)


def timed(stage: Stage, act: Callable[[], object]) -> tuple[float, float, float]:
    """CPU milliseconds of the thread until painted and until `act` returned, and wall time until painted."""
    stage.spin(0.3)
    cpu, wall = thread_time(), perf_counter()
    act()
    returned = thread_time()
    settle(stage.app)
    return (thread_time() - cpu) * 1000, (returned - cpu) * 1000, (perf_counter() - wall) * 1000


def measure(stage: Stage, rounds: int) -> dict[str, list[float]]:
    """The median cost of a step of the text size and of a change of theme."""
    window, session = stage.window, stage.session

    def theme(name: str) -> None:
        session.set_settings(dataclasses.replace(session.settings(Appearance), theme=name))

    ways: dict[str, tuple[Callable[[], object], ...]] = {
        "step": tuple(
            window.actions_by_name[name].trigger for name in ("larger", "larger", "smaller", "smaller")
        ),
        "theme": (lambda: theme("dark"), lambda: theme("light")),
    }
    found = {}
    for name, acts in ways.items():
        times = [timed(stage, act) for _ in range(rounds) for act in acts]
        found[name] = [round(median(column), 1) for column in zip(*times, strict=True)]
    return found


def main() -> int:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    app, result = make_application(["bench"]), {}
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(app, Path(folder), (1180, 760), "light", 100)
        stage.load()
        fill(stage, options.messages)
        stage.window.panes.set_requested(RIGHT, False)
        result["settings hidden"] = measure(stage, options.rounds)
        stage.window.panes.set_requested(RIGHT, True)
        result["settings shown"] = measure(stage, options.rounds)
        for group in stage.window.inspector.findChildren(Group):
            group.open()
        result["all groups open"] = measure(stage, options.rounds)
        result["widgets"] = {"all": [len(app.allWidgets())]}
        for name, costs in result.items():
            print(f"{name}: {costs}")
        stage.shut()
        stage.window.close()
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
