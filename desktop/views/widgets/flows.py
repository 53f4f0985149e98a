"""Handlers that wait for the user or for a service: `async def` methods, run by Qt's event loop.

A dialog is opened with `open()` and awaited, never run by `exec()`: tasks cannot run inside one another.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, ParamSpec

from PySide6.QtWidgets import QAbstractButton, QFileDialog, QMessageBox

__all__ = ["answer", "chosen_path", "flow"]

P = ParamSpec("P")


def flow(handler: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Let signals and commands call an `async def` handler.

    Up to its first wait it runs at once, as any function does, and needs no event loop. After that its errors
    go to `sys.excepthook`, as those of a slot.
    """

    @functools.wraps(handler)
    def begin(*args: P.args, **kwargs: P.kwargs) -> None:
        coroutine = handler(*args, **kwargs)
        try:
            waits_for = coroutine.send(None)
        except StopIteration:
            return
        from desktop.event_loop import carry_on  # asyncio is imported after the first paint

        carry_on(coroutine, waits_for)

    return begin


async def answer(box: QMessageBox) -> QAbstractButton | None:
    """Show a question; returns the pressed button, None if the question was closed without one."""
    from desktop.event_loop import emitted

    box.open()
    await emitted(box.finished)
    box.deleteLater()
    return box.clickedButton()


async def chosen_path(dialog: QFileDialog) -> Path | None:
    """Show a file dialog; returns the chosen file or folder, None if it was cancelled."""
    from desktop.event_loop import emitted

    dialog.open()
    number, values = await emitted(dialog.fileSelected, dialog.rejected)
    dialog.deleteLater()
    return Path(values[0]) if number == 0 else None
