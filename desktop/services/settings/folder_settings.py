"""Name, system prompt and settings of one folder, saved at every change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from PySide6.QtCore import QObject, Signal

from desktop.services.settings.layered_settings import FROM_FOLDER, LayeredSettings, folder_layer
from desktop.settings import CONVERSATION_SETTINGS
from desktop.store.conversations.folders import Folder, FolderStore
from desktop.store.database.database import Database, StoreError
from desktop.store.settings.preferences import Preferences
from engine.settings import Settings

__all__ = ["FolderSettings"]

OWN = "folder"
"""The source of a value that this folder itself sets."""


class FolderSettings(QObject):
    """One folder while it is edited. Raises `StoreError` when it cannot be read.

    `layers` are the settings of a chat in this folder, before model, persona and the chat itself. Changes
    that could not be saved stay here until `save` succeeds.

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
        self._database, self._store = database, FolderStore(database)
        *self._above, self.folder = self._store.above(folder_id)
        above = [folder_layer(each.name, each.settings, CONVERSATION_SETTINGS)[0] for each in self._above]
        self.layers = LayeredSettings(preferences, inherited=above, own_source=OWN)
        self.layers.read_own(self.folder.settings)
        self.unsaved = False

    @property
    def inherited_prompt(self) -> tuple[str, str]:
        """The system prompt of the folders around this one, and its source ("folder NAME"); ("", "") for
        none.
        """
        return next(
            ((f.system_prompt, FROM_FOLDER + f.name) for f in reversed(self._above) if f.system_prompt),
            ("", ""),
        )

    def rename(self, name: str) -> None:
        """Give it another name; a blank one is ignored."""
        if name.strip():
            self._change(replace(self.folder, name=" ".join(name.split())))

    def set_system_prompt(self, text: str) -> None:
        """Replace its system prompt; an empty one inherits that of the folder around it."""
        self._change(replace(self.folder, system_prompt=text))

    def set(self, cls: type[Settings], name: str, value: Any) -> None:
        """Set one value in this folder."""
        self._put(cls, {**self._own(cls), name: list(value) if isinstance(value, tuple) else value})

    def reset(self, cls: type[Settings], name: str) -> None:
        """Remove one value from this folder."""
        self._put(cls, {key: value for key, value in self._own(cls).items() if key != name})

    def save(self) -> bool:
        """Write what is not saved yet; False, with `failed`, when that does not work."""
        return not self.unsaved or self._save()

    def _put(self, cls: type[Settings], values: dict[str, Any]) -> None:
        settings = {
            name: each for name, each in {**self.folder.settings, cls.__name__: values}.items() if each
        }
        self.layers.read_own(settings)
        self._change(replace(self.folder, settings=settings))
        self.settings_changed.emit(cls)

    def _own(self, cls: type[Settings]) -> dict[str, Any]:
        return dict(self.folder.settings.get(cls.__name__, {}))

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
