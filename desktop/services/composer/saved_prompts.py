"""Saved prompts for the views: reading, saving, deleting; errors become notices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from desktop.store.database.database import Database, StoreError
from desktop.store.settings.saved_prompts import Prompt, PromptStore, read_prompts, write_prompts
from engine.words import _, ngettext

__all__ = ["SavedPromptService"]


class SavedPromptService(QObject):
    """The saved prompts of one database, read on first use.

    Signals:
        changed(): the list of prompts.
        notice(str sentence, str level): what was done, or why it failed.
    """

    changed = Signal()
    notice = Signal(str, str)

    def __init__(self, database: Database, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._store = PromptStore(database)
        self._prompts: tuple[Prompt, ...] | None = None

    def prompts(self) -> tuple[Prompt, ...]:
        """All prompts, sorted by name."""
        if self._prompts is None:
            self._tried(self._read)
        return self._prompts or ()

    def put(self, prompt: Prompt) -> int:
        """Save a prompt; returns its id, or 0 after an error."""
        found: list[int] = []
        self._tried(lambda: found.append(self._store.put(prompt)))
        self._renew()
        return found[0] if found else 0

    def remove(self, number: int) -> Prompt | None:
        """Delete one; passing the result to `put` restores it."""
        found = next((prompt for prompt in self.prompts() if prompt.id == number), None)
        if found is None or not self._tried(lambda: self._store.remove(number)):
            return None
        self._renew()
        return found

    def write(self, path: Path) -> None:
        """Write all prompts to a file."""
        if self._tried(lambda: write_prompts(path, self.prompts())):
            count = len(self.prompts())
            words = ngettext(
                "{n} prompt was exported to {file}.",
                "{n} prompts were exported to {file}.",
                count,
                file=path.name,
            )
            self.notice.emit(words, "info")

    def read(self, path: Path) -> None:
        """Add the prompts in a file, except those that exist already with the same name and text."""
        found: list[Prompt] = []
        if not self._tried(lambda: found.extend(read_prompts(path))):
            return
        known = {(prompt.name, prompt.text) for prompt in self.prompts()}
        new = [prompt for prompt in found if (prompt.name, prompt.text) not in known]
        if self._tried(lambda: self._put_all(new)):
            self._renew()
            self.notice.emit(
                _(
                    "{new} of {found} prompts in {path} were new and were added.",
                    new=len(new),
                    found=len(found),
                    path=path.name,
                ),
                "info",
            )

    def _put_all(self, prompts: Iterable[Prompt]) -> None:
        for prompt in prompts:
            self._store.put(prompt)

    def _read(self) -> None:
        self._prompts = self._store.all()

    def _renew(self) -> None:
        if self._tried(self._read):
            self.changed.emit()

    def _tried(self, act: Callable[[], None]) -> bool:
        try:
            act()
        except StoreError as error:
            self.notice.emit(str(error), "error")
            return False
        return True
