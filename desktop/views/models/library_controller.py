"""Connects the window of the model library with the services."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Slot
from PySide6.QtWidgets import QWidget

from desktop.services.models.fit_estimates import LibraryService
from desktop.services.models.hub import HubService
from desktop.services.models.local_models import LocalModelsService
from desktop.services.session.chat_session import ChatSession
from desktop.services.system.reveal_file import FileShower
from desktop.views.models.controller import ModelController

if TYPE_CHECKING:
    from desktop.views.models.library_window import LibraryWindow

__all__ = ["LibraryController"]


class LibraryController(QObject):
    """Makes the window when it is first opened; `window` is None until then."""

    def __init__(
        self,
        session: ChatSession,
        models: ModelController,
        local_models: LocalModelsService,
        library: LibraryService,
        hub: HubService,
        parent: QWidget,
    ) -> None:
        super().__init__(parent)
        self._session, self._models, self._local_models, self._parent = session, models, local_models, parent
        self._library, self._hub = library, hub
        self._shower = FileShower(self._show_sentence, self)
        self.window: LibraryWindow | None = None

    def commands(self) -> dict[str, Callable[[], object]]:
        """The command that opens the library."""
        return {"library": self.open}

    def open(self) -> None:
        """Show the library, and look for models."""
        if self.window is None:
            from desktop.views.models.library_window import LibraryWindow  # Only when needed.

            self.window = LibraryWindow(self._session, self._library, self._hub, self._parent)
            self._connect(self.window)
        self.window.show()
        self.window.activateWindow()
        self.refresh()

    def close_window(self) -> None:
        """Close the window at the end of the program."""
        if self.window is not None:
            self.window.local.details.kept.show_entry(None)
            self.window.close()

    def refresh(self) -> None:
        """Look for models again."""
        if self.window is not None:
            self.window.show_notice("")
            self._models.look_for_models()
            self.window.local.show_searching(True)
            self._show_entries()

    def _connect(self, window: LibraryWindow) -> None:
        local, session = window.local, self._session
        local.load_requested.connect(self._load)
        local.unload_requested.connect(self._models.unload)
        local.stop_requested.connect(session.stop_loading)
        local.show_requested.connect(self._show_file)
        local.remove_requested.connect(self._remove)
        local.folder_add_requested.connect(
            lambda: self._models.ask_for_model("Look for models in a folder", self._add_folder, folder=True)
        )
        local.folder_remove_requested.connect(self._remove_folder)
        local.file_requested.connect(
            lambda: self._models.ask_for_model("Open a model file", self._models.open)
        )
        local.refresh_requested.connect(self.refresh)
        local.restore_requested.connect(self._restore)
        local.details.kept.trouble.connect(window.show_notice)
        window.hub.load_requested.connect(self._load)
        self._hub.finished.connect(lambda _path: self.refresh())
        self._local_models.changed.connect(self._show_entries)
        self._local_models.finished.connect(self._searched)
        self._library.estimated.connect(self._show_fits)
        session.model_changed.connect(self._show_loaded)
        session.notice.connect(self._show_notice)
        self._show_loaded(session.model)

    @Slot()
    def _show_entries(self) -> None:
        if self.window is not None:
            self.window.models.show_entries(self._local_models.entries)
            self.window.local.refresh()

    @Slot()
    def _searched(self) -> None:
        if self.window is not None:
            self.window.local.show_searching(False)

    @Slot(object)
    def _show_fits(self, fits: object) -> None:
        if self.window is not None and isinstance(fits, dict):
            self.window.models.show_fits(fits)
            self.window.local.refresh()

    @Slot(object)
    def _show_loaded(self, info: object) -> None:
        if self.window is not None:
            self.window.models.show_loaded(str(getattr(info, "path", "")))

    @Slot(str, str)
    def _show_notice(self, sentence: str, level: str) -> None:
        if self.window is not None and self.window.isVisible() and level == "error":
            self.window.show_notice(sentence)

    def _show_sentence(self, sentence: str) -> None:
        if self.window is not None:
            self.window.show_notice(sentence)

    # -- what the user does

    def _load(self, path: str) -> None:
        if self.window is not None:
            self.window.show_notice("")
        self._models.load(path)

    def _show_file(self, path: str) -> None:
        self._shower.show(Path(path))

    def _remove(self, path: str) -> None:
        self._session.preferences.hide_model(path)
        if self.window is not None:
            self.window.local.refresh()

    def _restore(self) -> None:
        self._session.preferences.show_hidden_models()
        if self.window is not None:
            self.window.local.refresh()

    def _add_folder(self, folder: Path) -> None:
        self._session.preferences.add_model_folder(str(folder))
        self.refresh()

    def _remove_folder(self, folder: str) -> None:
        self._session.preferences.remove_model_folder(folder)
        self.refresh()
