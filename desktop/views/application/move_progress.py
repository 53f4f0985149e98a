"""Moves the data between two runs of the window, and shows how far it is."""

from __future__ import annotations

import threading
from collections.abc import Generator
from pathlib import Path

from PySide6.QtCore import QEventLoop, Qt
from PySide6.QtWidgets import QApplication, QProgressDialog

from desktop.services.engine.background import Background
from desktop.services.system.relaunch import relaunch
from desktop.services.system.single_instance import take_lock
from desktop.store.database.database import StoreError
from desktop.store.relocation import STOPPED, Progress, move_data
from desktop.views.dialogs.message_box import warn_and_wait
from engine.units import size_text
from engine.words import _, translate

__all__ = ["move_and_restart", "move_with_progress"]

_STEPS = 1000


def move_and_restart(app: QApplication, source: Path, target: Path) -> int:
    """Move the data, which nothing uses now, and start the program again; returns the exit code."""
    sentence = move_with_progress(app, source, target)
    if sentence:
        warn_and_wait(app, sentence)
    if not relaunch():
        warn_and_wait(app, _("Inglenook could not be restarted. Please start it yourself."))
    return 1 if sentence else 0


def _outcome(source: Path, target: Path, stop: threading.Event) -> Generator[Progress, None, str]:
    try:
        yield from move_data(source, target, stop)
    except StoreError as error:
        return str(error)
    return ""


def move_with_progress(app: QApplication, source: Path, target: Path) -> str:
    """Move the data, which nothing uses now; returns "", or a sentence about why it is still in `source`."""
    try:
        lock = take_lock(source)
    except StoreError as error:
        return str(error)
    dialog = QProgressDialog(_("Copying your data"), _("Stop"), 0, _STEPS)
    dialog.setObjectName("moveProgress")
    dialog.setWindowTitle(_("Move data – Inglenook"))
    dialog.setWindowModality(Qt.WindowModality.ApplicationModal)
    dialog.setMinimumDuration(0)
    dialog.setAutoClose(False)
    dialog.setAutoReset(False)
    dialog.setMinimumWidth(420)
    outcome: list[str] = []

    def show(progress: Progress) -> None:
        half = progress.total // 2
        done = progress.done - half if progress.done > half else progress.done
        dialog.setLabelText(
            _(
                "{stage}: {size} of {size_2}",
                stage=progress.stage,
                size=size_text(done),
                size_2=size_text(half),
            )
        )
        dialog.setValue(min(_STEPS - 1, progress.done * _STEPS // max(1, progress.total)))

    background = Background("move", dialog)
    job = background.start(
        lambda stop: _outcome(source, target, stop),
        lambda result: outcome.append(translate(STOPPED) if result is None else result),
        lambda sentence, _details: outcome.append(sentence),
        show,
    )
    dialog.canceled.connect(job.stop)
    dialog.show()
    while not outcome:
        app.processEvents(QEventLoop.ProcessEventsFlag.WaitForMoreEvents)
    background.close()
    dialog.close()
    dialog.deleteLater()
    lock.unlock()
    return outcome[0]
