"""A user in a hurry for two hours: chat, switch, search, import, stop, restart the window; memory must not
grow.

    python -m tests.tools.soak [--minutes 120] [--model FILE | --fake] [--one-window]

One process over the starter model (or FILE, or a fast fake model). About every minute the window is closed
and opened again over the same data (with --one-window it stays open, with an empty chat), and a sample is
taken while nothing runs: the private memory of the process (without mapped files such as the model), Qt
objects, widgets, Python objects, threads, open files. In one window with a real model, memory grows at first:
the cache of the chats fills up to the memory that it may have.
Older chats are deleted permanently, so that the store keeps its size. After a warm-up of a quarter of the
time the slope of each figure must stay below its bar. The last line is one JSON object; the exit code is 1 if
a bar is missed.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

from PySide6.QtCore import QCoreApplication, QEvent, QEventLoop, QTimer
from PySide6.QtWidgets import QApplication

from desktop.app import Desktop, make_application
from desktop.services.system.garbage_collection import GarbageCollector
from desktop.store.conversations.trash import empty_trash
from desktop.store.database.database import FILE_NAME, Database
from tests.tools.busy_user import BusyUser, open_desktop
from tests.tools.starter import starter_model

BARS = {"memory_mb": 0.1, "widgets": 0.1, "objects": 150.0, "threads": 0.01, "files": 0.01}
"""The most that each may grow in a minute: 0.1 MB are 144 MB in a day."""
KEPT_CHATS = 60


def sample() -> dict[str, float]:
    """What the process holds now."""
    gc.collect()
    statm = Path("/proc/self/statm").read_text().split()
    return {
        "memory_mb": (int(statm[1]) - int(statm[2])) * os.sysconf("SC_PAGE_SIZE") / 1e6,
        "widgets": len(QApplication.allWidgets()), "objects": len(gc.get_objects()),
        "threads": threading.active_count(), "files": len(os.listdir("/proc/self/fd")),
    }  # fmt: skip


def spin(milliseconds: int) -> None:
    """Run the event loop for this long."""
    loop = QEventLoop()
    QTimer.singleShot(milliseconds, loop.quit)
    loop.exec()


def act_for(desktop: Desktop, folder: Path, seed: int, seconds: float) -> int:
    """Let the user act, and delete older chats for good; returns the number of acts."""
    user = BusyUser(desktop, seed, lambda *_, **__: None)
    spin(round(seconds * 1000))
    user.close()
    user.deleteLater()
    session = desktop.session
    if session.state != "loading":
        session.stop()
    desktop.window.navigation.new_chat()
    spin(500)
    for row in session.stores.kept.list()[KEPT_CHATS:]:
        session.delete_conversation(row.id)
    database = Database(folder / FILE_NAME)
    for _ in empty_trash(database):
        pass
    database.close()
    return user.acts


def close_window(desktop: Desktop) -> None:
    """Close it, and let everything of it be deleted."""
    desktop.window.close()
    desktop.window.deleteLater()
    desktop.deleteLater()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
    spin(100)


def slope(moments: list[float], values: list[float]) -> float:
    """The growth per minute, by least squares."""
    middle, mean = sum(moments) / len(moments), sum(values) / len(values)
    spread = sum((moment - middle) ** 2 for moment in moments)
    return (
        sum((moment - middle) * (value - mean) for moment, value in zip(moments, values, strict=True))
        / spread
        if spread
        else 0.0
    )


def main() -> int:
    """Run everything; 1 if something grows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument(
        "--model", type=Path, help="a model file; without it the starter model, fetched when it is not there"
    )
    parser.add_argument("--fake", action="store_true", help="a fake model that says the same words fast")
    parser.add_argument("--one-window", action="store_true", help="one window, open all the time")
    options = parser.parse_args()
    model = None if options.fake else options.model or starter_model()
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    moments: list[float] = []
    samples: list[dict[str, float]] = []
    acts = 0
    with tempfile.TemporaryDirectory() as name:
        os.environ["INGLENOOK_DATA"] = name
        app = make_application(["inglenook"])
        collector = GarbageCollector(lambda: False, lambda: False)
        began = time.monotonic()
        each = max(5.0, min(60.0, options.minutes * 60 / 20))
        desktop: Desktop | None = None
        while time.monotonic() - began < options.minutes * 60:
            desktop = desktop or open_desktop(app, Path(name), model=model)
            acts += act_for(desktop, Path(name), len(samples) + 1, each)
            if not options.one_window:
                close_window(desktop)
                desktop = None
            moments.append((time.monotonic() - began) / 60)
            samples.append(sample())
            print(
                f"{moments[-1]:5.1f} min  "
                + "  ".join(f"{key} {value:.0f}" for key, value in samples[-1].items()),
                flush=True,
            )
        if desktop is not None:
            close_window(desktop)
        collector.close()
    start = next(place for place, moment in enumerate(moments) if moment >= moments[-1] / 4)
    slopes = {key: slope(moments[start:], [taken[key] for taken in samples[start:]]) for key in BARS}
    missed = [
        f"{key} grows by {slopes[key]:.2f} a minute, the bar is {bar}"
        for key, bar in BARS.items()
        if slopes[key] > bar
    ]
    print("missed: " + "; ".join(missed) if missed else "nothing grows beyond its bar")
    found = {key: round(value, 3) for key, value in slopes.items()}
    print(
        json.dumps(
            {
                "minutes": options.minutes,
                "acts": acts,
                "samples": len(samples),
                "a_minute": found,
                "passed": not missed,
            }
        )
    )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
