"""The asyncio loop in which Qt's events run until the window is closed; imported after the first paint."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import qasync
from PySide6.QtCore import QObject, SignalInstance
from PySide6.QtGui import QGuiApplication

__all__ = ["carry_on", "close_loop", "emitted", "live"]

_loop: qasync.QEventLoop | None = None
_flows: set[asyncio.Task[None]] = set()
"""asyncio itself holds its tasks weakly."""


def _the_loop() -> qasync.QEventLoop:
    global _loop
    if _loop is None:
        _loop = qasync.QEventLoop(QGuiApplication.instance())
        asyncio.set_event_loop(_loop)
    return _loop


def close_loop() -> None:
    """Cancel the flows that still wait, and close the loop."""
    global _loop
    if _loop is not None:
        for flow in _flows:
            flow.cancel()
        if _flows:
            _loop.run_until_complete(asyncio.gather(*_flows, return_exceptions=True))
        asyncio.set_event_loop(None)
        _loop.close()
        _loop = None


def live(app: QGuiApplication, ended: Callable[[], bool]) -> None:
    """Run until the last window is closed or the session manager ends the program; not if `ended()`."""
    try:
        _the_loop().run_until_complete(_until_closed(app, ended))
    finally:
        close_loop()


async def _until_closed(app: QGuiApplication, ended: Callable[[], bool]) -> None:
    closed = asyncio.Event()
    app.lastWindowClosed.connect(closed.set)
    app.aboutToQuit.connect(closed.set)
    if not ended():
        await closed.wait()


async def emitted(*signals: SignalInstance) -> tuple[int, tuple[Any, ...]]:
    """Wait for the first of some signals; returns its number and its values."""
    future = _the_loop().create_future()

    def receiver(number: int) -> Callable[..., None]:
        return lambda *values: None if future.done() else future.set_result((number, values))

    links = [signal.connect(receiver(number)) for number, signal in enumerate(signals)]
    try:
        found: tuple[int, tuple[Any, ...]] = await future
    finally:
        for link in links:
            QObject.disconnect(link)
    return found


def carry_on(flow: Coroutine[Any, Any, object], waits_for: object) -> None:
    """Run the rest of a coroutine that was begun without the loop and waits now."""
    task = _the_loop().create_task(_rest(flow, waits_for))
    _flows.add(task)
    task.add_done_callback(_ended)


def _ended(task: asyncio.Task[None]) -> None:
    _flows.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        sys.excepthook(type(error), error, error.__traceback__)


async def _rest(flow: Coroutine[Any, Any, object], waits_for: object) -> None:
    await _steps(flow, waits_for)


@types.coroutine
def _steps(flow: Coroutine[Any, Any, object], waits_for: object) -> Generator[object, None, None]:
    """What `yield from flow` does, for a coroutine that has been begun already."""
    with contextlib.closing(flow):
        while True:
            cancelled = None
            try:
                yield waits_for
            except asyncio.CancelledError as error:
                cancelled = error
            try:
                waits_for = flow.send(None) if cancelled is None else flow.throw(cancelled)
            except StopIteration:
                return
