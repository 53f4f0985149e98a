"""Files that come from outside: dropped onto the window, or handed over by a second start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from PySide6.QtCore import QObject, Signal

from engine.words import _

__all__ = ["FileHandler", "FileOpener"]


class FileHandler(NamedTuple):
    """`open` gets all the files that `accepts` says yes to; `hint` is shown while they are dragged."""

    accepts: Callable[[Path], bool]
    open: Callable[[list[Path]], object]
    hint: str


class FileOpener(QObject):
    """Gives each file to the first of `handlers` that accepts it.

    `refused(str)`: a sentence about a file that none accepts.
    """

    refused = Signal(str)

    def __init__(self, handlers: Sequence[FileHandler], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._handlers = handlers

    def _handler(self, path: Path) -> FileHandler | None:
        return next((handler for handler in self._handlers if handler.accepts(path)), None)

    def hint(self, paths: Sequence[Path]) -> str:
        """What a drop of these files does; "" if no handler accepts any of them."""
        return next((handler.hint for path in paths if (handler := self._handler(path))), "")

    def open(self, paths: Sequence[Path]) -> None:
        """Give each handler all its files together."""
        shares: dict[FileHandler, list[Path]] = {}
        for path in paths:
            handler = self._handler(path)
            if handler is None:
                self.refused.emit(_refusal(path))
            else:
                shares.setdefault(handler, []).append(path)
        for handler in self._handlers:
            if handler in shares:
                handler.open(shares[handler])


def _refusal(path: Path) -> str:
    """Why nothing opens this file."""
    try:
        path.stat()
    except OSError as error:
        return _("“{path}” cannot be read: {strerror}.", path=path.name, strerror=error.strerror or error)
    except ValueError:  # a null character in the name
        pass
    return _("“{path}” is not a model or a file that Inglenook can open.", path=path.name)
