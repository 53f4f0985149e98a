"""Backups on a schedule, integrity checks of the file, and restoring a copy: all off the GUI thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from desktop.services.engine.background import Background
from desktop.services.session.chat_session import ChatSession
from desktop.settings import Behaviour
from desktop.store.backups import Backup, Backups, count_conversations, prepare_restore, put_in_place
from desktop.store.database.connecting import check_file
from desktop.store.database.database import StoreError
from desktop.store.database.integrity_marker import remove_copy
from engine.words import _

__all__ = ["BackupRow", "BackupService"]

FIRST_MS = 60_000
"""Delay after the start: by then the window is up and usually a model is loaded."""
EVERY_MS = 600_000
DAY_S = 86_400.0


class BackupRow(NamedTuple):
    """A copy and the number of conversations in it; -1 if it cannot be read."""

    backup: Backup
    chats: int


class _Answer(NamedTuple):
    """The result of a job: `kind` is "made", "list", "ready" or "checked"."""

    kind: str
    value: Any = None
    trouble: str = ""


class BackupService(QObject):
    """Makes a copy when one is due and enabled; otherwise checks a file that has not been checked for a day.

    Signals:
        made(object): the `Backup` just made; None if `make_now` failed.
        listed(object): a tuple of `BackupRow`, latest first.
        trouble(str): a sentence about a copy that failed, or about damage.
        restored(str): another copy is now in use; the new name of the previous file.
        refused(str): why a copy was not restored; nothing has changed.
    """

    made = Signal(object)
    listed = Signal(object)
    trouble = Signal(str)
    restored = Signal(str)
    refused = Signal(str)

    def __init__(self, session: ChatSession, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self.copies = Backups(session.stores.database.path)
        self._background = Background("backups", self)
        self._reported = ""
        self._part: Path | None = None
        self._closed = False
        self.timer = QTimer(self)
        self.timer.setInterval(FIRST_MS)
        self.timer.timeout.connect(self._on_time)
        self.timer.start()

    def make_now(self) -> None:
        """Make a copy whether one is due or not."""
        self._start(lambda stop: _made(self.copies, stop, forced=True))

    def look(self) -> None:
        """List the copies; emits `listed`."""
        self._start(lambda _stop: _listed(self.copies))

    def restore(self, backup: Path) -> None:
        """Restore this copy. It is prepared in the background, then a running reply is stopped."""
        self._start(lambda _stop: _prepared(backup, self.copies.path))

    def close(self) -> bool:
        """Stop the timer and what runs; False if the thread did not end in time."""
        self._closed = True
        self.timer.stop()
        if self._part is not None:
            remove_copy(self._part)
        return self._background.close()

    def _start(self, work: Callable[[threading.Event], _Answer]) -> None:
        self._background.call(work, self._on_answer, lambda sentence, _details: self.trouble.emit(sentence))

    @Slot()
    def _on_time(self) -> None:
        self.timer.setInterval(EVERY_MS)
        if self._session.settings(Behaviour).backups:
            self._start(lambda stop: _made(self.copies, stop))
        else:
            self._start(lambda stop: _checked(self.copies, stop))

    def _on_answer(self, answer: _Answer | None) -> None:
        if answer is None:
            return
        if answer.kind == "ready" and answer.trouble:
            self.refused.emit(answer.trouble)
        elif answer.kind == "ready":
            self._part = answer.value
            if self._session.replying_in:
                self._session.stop_all()
            self._put_in_place()
        elif answer.kind == "list":
            self.listed.emit(answer.value)
        else:
            if answer.trouble and answer.trouble != self._reported:
                self._reported = answer.trouble  # report the same problem only once
                self.trouble.emit(answer.trouble)
            if answer.kind == "made":
                self.made.emit(answer.value)

    @Slot()
    def _put_in_place(self) -> None:
        """As soon as no reply runs: close the file, put the copy in place, reopen it and show it."""
        if self._part is None or self._closed:
            return
        if self._session.replying_in:
            QTimer.singleShot(50, self, self._put_in_place)
            return
        part, self._part = self._part, None
        database = self._session.stores.database

        moved: Path | None = None
        trouble = ""
        database.close()
        try:
            moved = put_in_place(part, database.path)
        except StoreError as error:
            trouble = str(error)
        try:
            database.reopen()
        except StoreError as error:
            trouble = trouble or str(error)
        self._session.start_again()
        if trouble:
            self.refused.emit(trouble)
        else:
            self.restored.emit(moved.name if moved is not None else "")


def _made(copies: Backups, stop: threading.Event, forced: bool = False) -> _Answer:
    try:
        if forced or copies.due():
            return _Answer("made", copies.make(None if not forced else time.time(), stop.is_set))
    except StoreError as error:
        return _Answer("made", None, str(error))
    return _checked(copies, stop)


def _checked(copies: Backups, stop: threading.Event) -> _Answer:
    """Check for damage, unless a copy from the last day exists, which was checked when it was made."""
    now = time.time()
    latest = copies.latest(now)
    try:
        if latest is not None and now - latest.made_at < DAY_S:
            return _Answer("checked")
        damage = check_file(copies.path, stop.is_set)
    except (OSError, StoreError) as error:
        return _Answer("checked", None, str(error))
    words = _(
        "The file with your chats is damaged ({}). Restart Inglenook to recover everything that can be read."
    )
    return _Answer("checked", None, words.format(damage) if damage else "")


def _listed(copies: Backups) -> _Answer:
    rows = (BackupRow(backup, count_conversations(backup.path)) for backup in copies.list())
    return _Answer("list", tuple(rows))


def _prepared(backup: Path, path: Path) -> _Answer:
    try:
        return _Answer("ready", prepare_restore(backup, path))
    except StoreError as error:
        return _Answer("ready", None, str(error))
