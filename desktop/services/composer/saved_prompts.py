"""PromptService: the saved prompts, and the way back from what was deleted; trouble becomes a sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from desktop.store.database.database import Database, StoreError
from desktop.store.settings.saved_prompts import Prompt, PromptStore, read_prompts, write_prompts

__all__ = ["SavedPromptService"]


class SavedPromptService(QObject):
    """Saved prompts of one library; they are read when first asked for.

    Signals:
        changed(): the list of prompts.
        told(str sentence, str level): what was done, or why not.
    """

    changed = Signal()
    told = Signal(str, str)

    def __init__(self, database: Database, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._store = PromptStore(database)
        self._prompts: tuple[Prompt, ...] | None = None

    def prompts(self) -> tuple[Prompt, ...]:
        """All by name."""
        if self._prompts is None:
            self._tried(self._read)
        return self._prompts or ()

    def put(self, prompt: Prompt) -> int:
        """Keep a prompt; returns its number, 0 when that failed."""
        found: list[int] = []
        self._tried(lambda: found.append(self._store.put(prompt)))
        self._renew()
        return found[0] if found else 0

    def remove(self, number: int) -> Prompt | None:
        """Delete one; `put` with what is returned brings it back."""
        found = next((prompt for prompt in self.prompts() if prompt.id == number), None)
        if found is None or not self._tried(lambda: self._store.remove(number)):
            return None
        self._renew()
        return found

    def write(self, path: Path) -> None:
        """Write all prompts to a file."""
        if self._tried(lambda: write_prompts(path, self.prompts())):
            what = "The prompt was" if len(self.prompts()) == 1 else f"{len(self.prompts())} prompts were"
            self.told.emit(f"{what} written to {path.name}.", "info")

    def read(self, path: Path) -> None:
        """Add the prompts of a file; those that are there already, name and text, are not added again."""
        found: list[Prompt] = []
        if not self._tried(lambda: found.extend(read_prompts(path))):
            return
        known = {(prompt.name, prompt.text) for prompt in self.prompts()}
        new = [prompt for prompt in found if (prompt.name, prompt.text) not in known]
        if self._tried(lambda: self._put_all(new)):
            self._renew()
            self.told.emit(
                f"{len(new)} of {len(found)} prompts in {path.name} were new and are added.", "info"
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
            self.told.emit(str(error), "error")
            return False
        return True
