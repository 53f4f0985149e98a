"""What a test may not leave behind: threads, Qt timers, Qt threads, top-level widgets, connections, changed
environment variables.

Each guard records where a thing was started, so that a failing test names the line. PySide6 is considered
only if a test has imported it: the engine's tests run without Qt.
"""

from __future__ import annotations

import functools
import gc
import os
import socket
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

GRACE_SECONDS = 3.0
"""A thread that was asked to stop may take this long to be gone."""

_Origins = weakref.WeakKeyDictionary[Any, list[traceback.FrameSummary]]
_threads_started_at: _Origins = weakref.WeakKeyDictionary()
_qt_started_at: _Origins = weakref.WeakKeyDictionary()
"""Timers and threads of Qt; those that Qt has deleted are removed as they are found."""
_SKIPPED = (__file__, f"{os.sep}_pytest{os.sep}", f"{os.sep}pluggy{os.sep}", f"{os.sep}pytestqt{os.sep}")


def _origin(depth: int = 6) -> list[traceback.FrameSummary]:
    """The innermost lines of this call, without those of the guards and of pytest; their text is read when it
    is shown.
    """
    found: list[traceback.FrameSummary] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(found) < depth:
        code = frame.f_code
        if not any(part in code.co_filename for part in _SKIPPED):
            summary = traceback.FrameSummary(
                code.co_filename, frame.f_lineno, code.co_name, lookup_line=False
            )
            found.append(summary)
        frame = frame.f_back
    return found[::-1]


def _remembering(start: Callable[..., Any], origins: _Origins) -> Callable[..., Any]:
    """`start` of a thread or timer, with its caller recorded in `origins`."""

    @functools.wraps(start)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        origins[self] = _origin()
        return start(self, *args, **kwargs)

    return wrapper


def search_garbage_here() -> None:
    """Run Python's garbage collection that is due on this thread. It is off in tests as in the program (see
    `garbage_collection`): it would run on any thread that creates an object, and would delete Qt objects
    there, even while Qt deletes them. It runs a fifth as often as Python's own would, and searches everything
    a third as often as that: of the long lived objects in a run of tests hardly any become garbage.
    """
    young, middle, old = gc.get_count()
    first, second, third = gc.get_threshold()
    if young > 5 * first:
        gc.collect(2 if old > 3 * third else 1 if middle > second else 0)


def watch_threads() -> None:
    """Record the origin of every Python thread from now on."""
    threading.Thread.start = _remembering(threading.Thread.start, _threads_started_at)  # type: ignore[method-assign]


@functools.cache
def watch_qt() -> None:
    """Record the origin of every QTimer and QThread that Python starts from now on."""
    from PySide6.QtCore import QThread, QTimer

    for kind in (QTimer, QThread):
        kind.start = _remembering(kind.start, _qt_started_at)  # type: ignore[method-assign]


def _report(kind: str, things: list[Any]) -> list[str]:
    return [
        f"{kind} {thing!r} is left over; it was started at\n{_place(thing) or '(unknown place)'}"
        for thing in things
    ]


def _place(thing: Any) -> str:
    origins = _threads_started_at if isinstance(thing, threading.Thread) else _qt_started_at
    return "".join(traceback.format_list(origins.get(thing, [])))


def _left_threads(before: set[threading.Thread]) -> list[str]:
    end = time.monotonic() + GRACE_SECONDS
    left = [t for t in threading.enumerate() if t not in before]
    while left and time.monotonic() < end:
        left[0].join(0.02)
        left = [t for t in threading.enumerate() if t not in before]
    return _report("thread", left)


def _running_qt() -> tuple[list[Any], list[Any]]:
    """All active QTimers and QThreads that Python started."""
    import shiboken6
    from PySide6.QtCore import QThread, QTimer

    timers, threads = [], []
    for thing in list(_qt_started_at):
        if not shiboken6.isValid(thing):
            del _qt_started_at[thing]
        elif isinstance(thing, QTimer) and thing.isActive():
            timers.append(thing)
        elif isinstance(thing, QThread) and thing.isRunning():
            threads.append(thing)
    return timers, threads


def _widgets() -> list[Any]:
    if "PySide6.QtWidgets" not in sys.modules:
        return []
    from PySide6.QtWidgets import QApplication

    return QApplication.topLevelWidgets() if QApplication.instance() is not None else []


def _delete_later() -> None:
    """Execute all `deleteLater` now, as returning to the event loop would."""
    from PySide6.QtCore import QCoreApplication, QEvent

    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)


def _new_widgets(before: list[Any]) -> list[Any]:
    """New top-level widgets, except those that belong to a control, which a window may create late."""
    return [w for w in _widgets() if w not in before and not (_is_part(w) and w.parent().window() in before)]


def _is_part(widget: Any) -> bool:
    """Whether it is the list of a combo box or the menu of a button, which disappear with it."""
    control = widget.parent()
    return widget.metaObject().className() == "QComboBoxPrivateContainer" or (
        hasattr(control, "menu") and control.menu() is widget
    )


def _left_qt(timers_before: list[Any], threads_before: list[Any], widgets_before: list[Any]) -> list[str]:
    _delete_later()
    timers, threads = _running_qt()
    found = _report("QTimer", [timer for timer in timers if timer not in timers_before])
    found += _report("QThread", [thread for thread in threads if thread not in threads_before])
    left = _new_widgets(widgets_before)
    if left:
        # a widget in a reference cycle dies with it; only a widget that something still holds is a leak
        gc.collect()
        _delete_later()
        left = _new_widgets(widgets_before)
    return found + [
        f"top-level widget {w!r} (visible: {w.isVisible()}, title {w.windowTitle()!r}) is left over"
        for w in left
    ]


@contextmanager
def nothing_left_over() -> Iterator[None]:
    """Fail if the block leaves a thread, a Qt timer, a QThread or a top-level widget behind."""
    uses_qt = "PySide6.QtCore" in sys.modules
    before = set(threading.enumerate())
    qt_before: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
    if uses_qt:
        watch_qt()
        qt_before = (*_running_qt(), _widgets())
    yield
    found = _left_threads(before)
    if "PySide6.QtCore" in sys.modules:
        found = _left_qt(*qt_before) + found
    if found:
        pytest.fail("\n".join(found), pytrace=False)


_OTHERS = {"PYTEST_CURRENT_TEST", "TORCHINDUCTOR_CACHE_DIR"}
"""Variables that pytest and PyTorch set."""


def _encoded_environ() -> dict[Any, Any]:
    """The variables as the system has them: to decode all of them takes longer than many a test."""
    return dict(os.environ._data)  # type: ignore[attr-defined]


@contextmanager
def environ_kept() -> Iterator[None]:
    """Fail if the block changes an environment variable: a later test would start with it."""
    before = _encoded_environ()
    yield
    if before == _encoded_environ():
        return
    changed = {os.fsdecode(name) for name, _ in before.items() ^ _encoded_environ().items()} - _OTHERS
    if changed:
        pytest.fail(f"environment variables were changed: {', '.join(sorted(changed))}", pytrace=False)


class Network:
    """Refuses every connection that is not allowed; `mode` is "none", "loopback" or "all". The refusal is a
    failure of pytest, which no `except Exception` catches. Failures on other threads would be lost, so they
    are also recorded in `refused` and fail the test at its end.
    """

    def __init__(self) -> None:
        self.mode = "none"
        self.refused: list[str] = []

    def install(self) -> None:
        """Replace the functions of `socket` for this whole run."""
        real_getaddrinfo = socket.getaddrinfo

        def getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
            self._check(host, f"look up {host!r}")
            return real_getaddrinfo(host, *args, **kwargs)

        socket.getaddrinfo = getaddrinfo
        for name in ("connect", "connect_ex", "sendto"):
            setattr(socket.socket, name, self._guarded(getattr(socket.socket, name)))

    def _guarded(self, real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def wrapper(sock: socket.socket, *args: Any) -> Any:
            address = args[-1]
            if sock.family in (socket.AF_INET, socket.AF_INET6) and isinstance(address, tuple):
                self._check(address[0], f"connect to {address!r}")
            return real(sock, *args)

        return wrapper

    def _check(self, host: Any, what: str) -> None:
        local = host in (None, "", "localhost", "127.0.0.1", "::1")
        if self.mode == "all" or (local and self.mode == "loopback"):
            return
        message = (
            f"this test tried to {what}; allow it with the fixture `allow_network`, or the marker "
            "`loopback` for this machine"
        )
        self.refused.append(f"{message}\n{_origin(12)}")
        pytest.fail(message)

    @contextmanager
    def allowing(self, mode: str) -> Iterator[None]:
        """Allow more inside the block."""
        before, self.mode = self.mode, mode
        try:
            yield
        finally:
            self.mode = before
