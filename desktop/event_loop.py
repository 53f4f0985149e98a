"""The asyncio loop in which Qt's events run until the window is closed; imported behind the first paint,
which needs no asyncio.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import qasync
from PySide6.QtGui import QGuiApplication

__all__ = ["live"]


def live(app: QGuiApplication, ended: Callable[[], bool]) -> None:
    """Run until the last window is closed or the session's manager ends the program; not at all if it has
    `ended` already.
    """
    loop = qasync.QEventLoop(app)
    asyncio.set_event_loop(loop)
    with loop:
        loop.run_until_complete(_until_closed(app, ended))


async def _until_closed(app: QGuiApplication, ended: Callable[[], bool]) -> None:
    closed = asyncio.Event()
    app.lastWindowClosed.connect(closed.set)
    app.aboutToQuit.connect(closed.set)
    if not ended():
        await closed.wait()
