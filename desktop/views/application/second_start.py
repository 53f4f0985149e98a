"""What a start does while another program has the data folder: it hands over its request, or waits for the
folder and says so.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from PySide6.QtCore import QLockFile
from PySide6.QtWidgets import QApplication, QMessageBox

from desktop.services.system.single_instance import AlreadyOpen, Request, hand_over, take_lock
from engine.words import _

__all__ = ["first_lock"]

SAY_AFTER_S = 1.5
"""A program that is open answers sooner, and most that are ending are gone by then."""


class _Waiting:
    """A notice from `SAY_AFTER_S` on that the start waits; `given_up` once its button or Esc is pressed."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._box: QMessageBox | None = None
        self.given_up = False

    def show(self) -> None:
        """Show the notice if it is time, and let it be painted and closed."""
        if self._box is None and time.monotonic() - self._begun >= SAY_AFTER_S:
            self._box = QMessageBox(
                QMessageBox.Icon.Information,
                "Inglenook",
                _("Inglenook is still closing. It opens again as soon as that is done."),
                QMessageBox.StandardButton.Cancel,
            )
            self._box.setObjectName("stillClosing")
            self._box.finished.connect(self._give_up)
            self._box.show()
        if self._box is not None:
            QApplication.processEvents()

    def close(self) -> None:
        if self._box is not None:
            self._box.finished.disconnect(self._give_up)
            self._box.close()
            self._box.deleteLater()

    def _give_up(self) -> None:
        self.given_up = True


def first_lock(folder: Path, request: Request) -> QLockFile | None:
    """The folder's lock; None if the program that holds it took the request, or the user no longer waits.

    Raises `StoreError` if that program does not answer.
    """
    taken: list[QLockFile] = []
    waiting = _Waiting()

    def free() -> bool:
        with contextlib.suppress(AlreadyOpen):
            taken.append(take_lock(folder))
        waiting.show()
        return bool(taken) or waiting.given_up

    try:
        return take_lock(folder)
    except AlreadyOpen as found:
        return None if hand_over(found, request, free=free) or not taken else taken[0]
    finally:
        waiting.close()
