"""What is recorded when something goes wrong: a rotating log, a crash file, and one sentence for the user.

While the program runs there is a marker file beside the log, which a clean exit removes. If the next start
finds it, or a non-empty crash file, the last run ended unexpectedly.
"""

from __future__ import annotations

import faulthandler
import logging
import sys
import threading
import traceback
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType
from typing import IO

from PySide6.QtCore import QMessageLogContext, QObject, QtMsgType, Signal, qInstallMessageHandler

from engine.platform.folders import private_file, private_folder
from engine.printable import printable
from engine.words import _

__all__ = ["CRASH_FILE", "Diagnostics"]

CRASH_FILE = "crash.log"
_OLD_CRASH = "crash-before.log"
_CRASH_BYTES = 32_000
"""Bytes read from the end of a crash file: the stacks of about a hundred threads."""

_LOG_BYTES, _OLD_LOGS = 1_000_000, 3
_LEVELS = {
    QtMsgType.QtDebugMsg: logging.DEBUG,
    QtMsgType.QtInfoMsg: logging.INFO,
    QtMsgType.QtWarningMsg: logging.WARNING,
    QtMsgType.QtCriticalMsg: logging.ERROR,
    QtMsgType.QtFatalMsg: logging.CRITICAL,
}


class _Printable(logging.Formatter):
    """Makes messages printable: the log is shown in a window and in terminals, and contains file names."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


class Diagnostics(QObject):
    """Takes over the program's last-resort hooks until `close()`.

    `trouble(sentence, traceback)` is emitted for an unhandled error, in the thread where it happened; connect
    it to a slot of a QObject on the GUI thread. `last_run` describes how the previous run ended: None if it
    ended cleanly, else the trace of its crash, which is empty if it was killed.
    """

    trouble = Signal(str, str)

    def __init__(self, folder: Path, debug: bool = False, parent: QObject | None = None) -> None:
        super().__init__(parent)
        private_folder(folder)
        self.log_file = folder / "inglenook.log"
        self._mark = folder / "running"
        self.last_run = _last_run(self._mark, folder / CRASH_FILE)
        self._log = logging.getLogger("desktop")
        self._root = logging.getLogger()
        self._level_before = self._root.level
        self._handlers: list[logging.Handler] = [
            _PrivateLog(
                self.log_file, maxBytes=_LOG_BYTES, backupCount=_OLD_LOGS, encoding="utf-8", delay=True
            )
        ]
        if debug and sys.stderr is not None:
            self._handlers.append(logging.StreamHandler())
        for handler in self._handlers:
            handler.setFormatter(
                _Printable("%(asctime)s %(levelname)-7s %(threadName)s %(name)s: %(message)s")
            )
            handler.setLevel(logging.DEBUG if debug else logging.INFO)
            self._root.addHandler(handler)
        self._root.setLevel(logging.DEBUG if debug else logging.INFO)
        for chatty in ("numba", "matplotlib", "asyncio", "qasync", "markdown_it"):
            logging.getLogger(chatty).setLevel(logging.WARNING)
        self._crash_file = _begin_crash_file(folder / CRASH_FILE)
        private_file(self._mark).write_text(_boot(), encoding="utf-8")
        self._faults_before = faulthandler.is_enabled()
        faulthandler.enable(self._crash_file)
        self._hooks_before = (sys.excepthook, threading.excepthook, sys.unraisablehook)
        sys.excepthook = self._on_exception
        threading.excepthook = self._on_thread_exception
        sys.unraisablehook = self._on_unraisable
        qInstallMessageHandler(self._on_qt_message)

    def close(self) -> None:
        """Restore the hooks and close the files."""
        qInstallMessageHandler(None)
        sys.excepthook, threading.excepthook, sys.unraisablehook = self._hooks_before
        faulthandler.disable()
        if self._faults_before and sys.__stderr__ is not None:
            faulthandler.enable(sys.__stderr__)
        self._crash_file.close()
        self.ends_well()
        for handler in self._handlers:
            self._root.removeHandler(handler)
            handler.close()
        self._root.setLevel(self._level_before)

    def ends_well(self) -> None:
        """The program is exiting as requested: the next start has nothing to report."""
        self._mark.unlink(missing_ok=True)

    def _sentence(self, kind: type[BaseException]) -> str:
        return _(
            "Something went wrong in Inglenook ({kind}). Your chats are saved, and the details "
            "are in {log_file}.",
            kind=kind.__name__,
            log_file=self.log_file,
        )

    def _on_exception(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, trace)
            return
        lines = "".join(traceback.format_exception(kind, error, trace))
        self._log.error("unhandled error\n%s", lines)
        self.trouble.emit(self._sentence(kind), lines)

    def _on_thread_exception(self, what: threading.ExceptHookArgs) -> None:
        if what.exc_value is not None:
            self._on_exception(what.exc_type, what.exc_value, what.exc_traceback)

    def _on_unraisable(self, what: sys.UnraisableHookArgs) -> None:
        lines = traceback.format_exception(what.exc_type, what.exc_value, what.exc_traceback)
        self._log.error("error that could not be raised in %r\n%s", what.object, "".join(lines))

    def _on_qt_message(self, kind: QtMsgType, context: QMessageLogContext, message: str) -> None:
        logging.getLogger("qt").log(_LEVELS.get(kind, logging.WARNING), "%s", message)


class _PrivateLog(RotatingFileHandler):
    """A log that, with its rotated files, only this user can read."""

    def _open(self) -> TextIOWrapper:
        private_file(Path(self.baseFilename))
        return super()._open()


def _last_run(mark: Path, crash_file: Path) -> str | None:
    """The trace of a last run that crashed, or "" if it was killed; None if it ended cleanly or the computer
    did.
    """
    try:
        with crash_file.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _CRASH_BYTES))
            trace = file.read().decode("utf-8", "replace").strip()
    except OSError:
        trace = ""
    try:
        boot = mark.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return trace or None
    return trace if trace or boot == _boot() else None


def _begin_crash_file(path: Path) -> IO[str]:
    """An empty crash file for this run; the last non-empty one is kept beside it."""
    if path.exists() and path.stat().st_size:
        path.replace(path.with_name(_OLD_CRASH))
    return private_file(path).open("w", encoding="utf-8")


def _boot() -> str:
    """Identifies the current boot of the computer; empty if the system does not provide that."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
