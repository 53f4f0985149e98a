"""Name, system prompt and settings of one folder, saved at every change; what could not be saved waits
here and is tried again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from PySide6.QtCore import QObject, Signal

from desktop.services.settings.levels import FROM_FOLDER, Level, below, levels_with, merged
from desktop.store.conversations.folders import Folder, FolderStore
from desktop.store.database.database import Database, StoreError
from desktop.store.settings.preferences import Preferences, checked_values
from engine.settings import Settings

__all__ = ["FolderSettings"]

OWN = "folder"
"""The source of a value that this folder itself sets."""
S = TypeVar("S", bound=Settings)


class FolderSettings(QObject):
    """One folder while it is edited. Raises `StoreError` when it cannot be read.

    Signals:
        saved(object): the `Folder` as it is now.
        failed(str sentence): saving did not work; `unsaved` is true then.
        settings_changed(object): a settings class whose values changed.
    """

    saved = Signal(object)
    failed = Signal(str)
    settings_changed = Signal(object)

    def __init__(
        self, database: Database, preferences: Preferences, folder_id: int, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._database, self._store, self._preferences = database, FolderStore(database), preferences
        *self._above, self.folder = self._store.above(folder_id)
        self.unsaved = False

    @property
    def inherited_prompt(self) -> tuple[str, str]:
        """The system prompt of the folders around this one, and its source ("folder NAME"); empty for
        none.
        """
        return next(
            ((f.system_prompt, FROM_FOLDER + f.name) for f in reversed(self._above) if f.system_prompt),
            ("", ""),
        )

    def settings(self, cls: type[S]) -> S:
        """What a chat in this folder has, as far as model, persona and the chat itself do not say
        otherwise.
        """
        return cls(**merged(self._levels(cls)))

    def below(self, cls: type[S]) -> S:
        """What each value would be after `reset`."""
        levels = self._levels(cls)
        return cls(**{name: below(levels, name) for name in cls().to_json()})

    def origins(self, cls: type[Settings]) -> dict[str, tuple[tuple[str, Any], ...]]:
        """For each value, every source that says something about it, with what it says, lowest first:
        "default", "saved default", "folder NAME" for one around this, or "folder".
        """
        levels = self._levels(cls)
        return {name: levels_with(levels, name) for name in levels[0].values}

    def rename(self, name: str) -> None:
        """Give it another name; one of nothing but blanks is not taken."""
        if name.strip():
            self._change(replace(self.folder, name=" ".join(name.split())))

    def set_system_prompt(self, text: str) -> None:
        """Replace its system prompt; empty takes that of the folder around it."""
        self._change(replace(self.folder, system_prompt=text))

    def set(self, cls: type[Settings], name: str, value: Any) -> None:
        """Let the folder set one value."""
        self._put(cls, {**self._own(cls), name: list(value) if isinstance(value, tuple) else value})

    def reset(self, cls: type[Settings], name: str) -> None:
        """Let the folder say nothing about one value; one that comes from a folder around it stays."""
        self._put(cls, {key: value for key, value in self._own(cls).items() if key != name})

    def save(self) -> bool:
        """Write what is not saved yet; False, with `failed`, when that does not work."""
        return not self.unsaved or self._save()

    def _put(self, cls: type[Settings], values: dict[str, Any]) -> None:
        settings = {
            name: each for name, each in {**self.folder.settings, cls.__name__: values}.items() if each
        }
        self._change(replace(self.folder, settings=settings))
        self.settings_changed.emit(cls)

    def _own(self, cls: type[Settings]) -> dict[str, Any]:
        return dict(self.folder.settings.get(cls.__name__, {}))

    def _levels(self, cls: type[Settings]) -> list[Level]:
        saved = self._preferences.settings(cls).to_json()
        return [
            Level("default", cls().to_json(), fixed=True),
            Level(
                "saved default",
                {name: saved[name] for name in self._preferences.saved_names(cls)},
                fixed=True,
            ),
            *(Level(FROM_FOLDER + folder.name, _usable(folder, cls), fixed=True) for folder in self._above),
            Level(OWN, _usable(self.folder, cls)),
        ]

    def _change(self, folder: Folder) -> None:
        if folder != self.folder:
            self.folder, self.unsaved = folder, True
            self._save()

    def _save(self) -> bool:
        folder = self.folder
        steps: tuple[Callable[[], None], ...] = (
            lambda: self._store.rename(folder.id, folder.name),
            lambda: self._store.set_system_prompt(folder.id, folder.system_prompt),
            lambda: self._store.set_settings(folder.id, folder.settings),
        )
        try:
            with self._database.transaction():
                for step in steps:
                    step()
        except StoreError as error:
            self.failed.emit(str(error))
            return False
        self.unsaved = False
        self.saved.emit(folder)
        return True


def _usable(folder: Folder, cls: type[Settings]) -> dict[str, Any]:
    return checked_values(cls, folder.settings.get(cls.__name__))[0]
