"""Opens the Preferences window, and applies what the user changes in it at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, QSettings
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QWidget

from desktop.services.services import Services
from desktop.settings import PREFERENCES, LocalServerSettings
from desktop.views.commands.actions import COMMANDS
from desktop.views.models.controller import ModelController
from desktop.views.preferences.model_folders import WORDS, ModelFolders
from desktop.views.preferences.passage_model import WORDS as PASSAGE_WORDS
from desktop.views.preferences.passage_model import PassageModel
from desktop.views.widgets.listening import listen
from engine.settings import Settings
from engine.words import _, translate

if TYPE_CHECKING:
    from desktop.views.preferences.window import PreferencesWindow

__all__ = ["PreferencesController"]

_PLACE, _PAGE = "preferences", "preferences_page"


class PreferencesController(QObject):
    """Serves `window`. `actions` are the menus' actions by command; `places` keeps their place and page
    from one start to the next. `preferences` is None until they are first opened.
    """

    def __init__(
        self,
        services: Services,
        models: ModelController,
        actions: Mapping[str, QAction],
        places: QSettings,
        window: QWidget,
    ) -> None:
        super().__init__(window)
        self._services, self._models, self._actions = services, models, actions
        self._places, self._window = places, window
        self.preferences: PreferencesWindow | None = None
        self.folders: ModelFolders | None = None
        self.passages: PassageModel | None = None
        services.session.settings_changed.connect(self.show_settings)
        listen(self, services.local_server.changed, lambda: self.show_settings(LocalServerSettings))
        listen(self, services.local_models.changed, lambda _entries: self._show_found())
        listen(self, services.hub.offline_changed, lambda _on: self._show_folders())

    def commands(self) -> dict[str, Callable[[], object]]:
        """The command that opens the window."""
        return {"preferences": self.open}

    def open(self) -> None:
        """Show the window with the page of last time."""
        window = self._made()
        new = not window.isVisible()
        window.show()
        window.activateWindow()
        if new:
            window.reveal(window.page, "")

    def show_preference(self, page: int, name: str) -> None:
        """Show a page, and go to the field `name` of it unless that is ""."""
        window = self._made()
        window.show()
        window.activateWindow()
        window.reveal(page, name)

    def _made(self) -> PreferencesWindow:
        if self.preferences is None:
            from desktop.views.preferences.window import PreferencesWindow  # only when needed

            labels = {command.name: translate(command.text) for command in COMMANDS if command.text}
            self.preferences = window = PreferencesWindow(labels, self._window)
            window.changed.connect(self._set)
            window.reset_requested.connect(self._reset)
            window.command_requested.connect(lambda name: self._actions[name].trigger())
            self._add_folders(window)
            self._add_passages(window)
            for cls in {page.cls for page in PREFERENCES if page.cls is not None}:
                self.show_settings(cls)
            place = self._places.value(_PLACE)
            if place is not None:
                window.restoreGeometry(place)
            titles = [page.title for page in PREFERENCES]
            last = str(self._places.value(_PAGE, ""))
            window.show_page(titles.index(last) if last in titles else 0)
        return self.preferences

    def _add_folders(self, window: PreferencesWindow) -> None:
        self.folders = folders = ModelFolders()
        section = next(each for each in window.sections if "library" in each.page.commands)
        section.add(folders, WORDS)
        folders.add_requested.connect(
            lambda: self._models.ask_for_model(
                _("Look for models in a folder"), self._add_folder, folder=True
            )
        )
        folders.remove_requested.connect(self._remove_folder)
        folders.offline_changed.connect(self._services.hub.set_offline)
        self._show_folders()

    def _add_passages(self, window: PreferencesWindow) -> None:
        self.passages = passages = PassageModel()
        section = next(each for each in window.sections if "spelling" in each.page.names)
        section.add(passages, PASSAGE_WORDS)
        passages.chosen.connect(self._choose_passage_model)
        self._show_passages()

    # -- what is shown

    def show_settings(self, cls: type[Settings]) -> None:
        """Show the values of a settings class, if the window is made and has it."""
        window, preferences = self.preferences, self._services.session.preferences
        if window is None or not (forms := window.forms(cls)):
            return
        saved = preferences.saved_names(cls)
        sources = {name: "saved default" if name in saved else "default" for name in cls().to_json()}
        window.show_values(preferences.settings(cls), sources)
        if cls is LocalServerSettings:
            forms[0].show_note("port", self._services.local_server.trouble)

    def _show_found(self) -> None:
        self._show_folders()
        self._show_passages()

    def _show_folders(self) -> None:
        if self.folders is not None:
            self.folders.show_folders(self._services.session.preferences.model_folders)
            self.folders.show_offline(self._services.hub.offline)

    def _show_passages(self) -> None:
        meaning = self._services.composer.fitting.meaning
        if self.passages is not None and meaning is not None:
            self.passages.show_models(meaning.choices(), meaning.choice)

    # -- what the user does

    def _choose_passage_model(self, choice: str) -> None:
        self._services.session.preferences.set_passage_model(choice)

    def _set(self, cls: type[Settings], name: str, value: Any) -> None:
        now = self._services.session.preferences.settings(cls)
        settings = dataclasses.replace(now, **{name: value})  # type: ignore[type-var]
        if isinstance(settings, LocalServerSettings):
            self._services.local_server.change(settings)
        else:
            self._services.session.set_settings(settings)

    def _reset(self, cls: type[Settings], name: str) -> None:
        self._set(cls, name, getattr(cls(), name))

    def _add_folder(self, folder: Path) -> None:
        self._services.session.preferences.add_model_folder(str(folder))
        self._look()

    def _remove_folder(self, folder: str) -> None:
        self._services.session.preferences.remove_model_folder(folder)
        self._look()

    def _look(self) -> None:
        self._show_folders()
        self._models.look_for_models()

    def close(self) -> None:
        """Close the window at the end of the program, and remember its place and page."""
        if self.preferences is not None:
            self.preferences.close()
            self._places.setValue(_PLACE, self.preferences.saveGeometry())
            self._places.setValue(_PAGE, self.preferences.sections[self.preferences.page].page.title)
