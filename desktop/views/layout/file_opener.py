"""Files that come from outside, dropped onto the window or handed over by a second start: each goes to
whom it is for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QObject, Signal

__all__ = ["FileOpener"]


class FileOpener(QObject):
    """Shares files out among those who asked for their kind with `add`, the first who wants a file first.

    `refused(str)`: a sentence about a file that nobody wants.
    """

    refused = Signal(str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._takers: list[tuple[Callable[[Path], bool], Callable[[list[Path]], object], str]] = []

    def add(self, wants: Callable[[Path], bool], take: Callable[[list[Path]], object], words: str) -> None:
        """From now on `take` gets the files that `wants` says yes to; `words` is what a drop of them does:
        "Drop to …".
        """
        self._takers.append((wants, take, words))

    def words(self, paths: Sequence[Path]) -> str:
        """What a drop of these files does; empty where nobody wants any of them."""
        return next((words for path in paths for wants, _, words in self._takers if wants(path)), "")

    def take(self, paths: Sequence[Path]) -> None:
        """Give each file to the first who wants it; all files of one taker go to it together."""
        shares: dict[int, list[Path]] = {}
        for path in paths:
            place = next((place for place, (wants, _, _) in enumerate(self._takers) if wants(path)), None)
            if place is None:
                self.refused.emit(f"“{path.name}” is neither a model nor a file that can be read here.")
            else:
                shares.setdefault(place, []).append(path)
        for place, share in sorted(shares.items()):
            self._takers[place][1](share)
