"""The window of the model library: the models on this computer, those of the hub, and those of servers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from PySide6.QtCore import Qt
from PySide6.QtGui import QHideEvent, QKeyEvent, QShowEvent
from PySide6.QtWidgets import QDialog, QPushButton, QTabWidget, QVBoxLayout, QWidget

from desktop.items.models.library import LibraryModel
from desktop.services.models.fit_estimates import LibraryService
from desktop.services.models.hub import HubService
from desktop.services.models.local_models import LocalModelsService
from desktop.services.providers.provider_service import ProviderService
from desktop.services.session.chat_session import ChatSession
from desktop.services.system.reveal_file import FileShower
from desktop.views.layout.fill import fill
from desktop.views.layout.on_screen import first_size
from desktop.views.models.hub_page import HubPage
from desktop.views.models.library_page import LibraryPage
from desktop.views.providers.servers_page import ServersPage
from desktop.views.widgets.listening import listen
from desktop.views.widgets.text_label import text_label
from engine.core import ModelInfo
from engine.words import _

if TYPE_CHECKING:
    from engine.models.memory.fit import Fit

__all__ = ["LibraryWindow"]


class Models(Protocol):
    """The methods of `ModelController` that the library needs."""

    def load(self, path: str | Path) -> object: ...
    def open(self, path: Path) -> None: ...
    def unload(self) -> object: ...
    def look_for_models(self) -> None: ...
    def ask_for_model(self, title: str, then: Callable[[Path], None], folder: bool = False) -> None: ...


class LibraryWindow(QDialog):
    """Three pages, and a line for errors; it leaves the chat usable."""

    def __init__(
        self,
        session: ChatSession,
        models: Models,
        local_models: LocalModelsService,
        library: LibraryService,
        hub: HubService,
        providers: ProviderService,
        parent: QWidget,
    ) -> None:
        super().__init__(parent)
        self._session, self._models, self._local_models = session, models, local_models
        self._library = library
        self._shower = FileShower(self.show_notice, self)
        self.setWindowTitle(_("Model library"))
        self.setWindowFlag(Qt.WindowType.WindowMaximizeButtonHint)
        self.models = LibraryModel(self)
        self.local, self.hub = LibraryPage(session, self.models), HubPage(hub)
        self.trouble = text_label(tone="danger", wraps=True, plain=True)
        self.trouble.setContentsMargins(14, 0, 14, 8)
        self.trouble.hide()
        self.tabs = QTabWidget()
        self.tabs.setDocumentMode(True)
        self.tabs.addTab(self.local, _("On this computer"))
        self.tabs.addTab(self.hub, _("Get models"))
        self.servers = ServersPage(providers)
        self.tabs.addTab(self.servers, _("On servers"))
        fill(QVBoxLayout(self), self.tabs, self.trouble, margins=(0, 6, 0, 4))
        high = min(760, max(420, parent.height() - 60))
        self.resize(first_size(self, min(1180, max(560, parent.width() - 60)), high))
        self._connect_page()
        self.hub.load_requested.connect(self._load)
        self.hub.picks_shown.connect(library.offer)
        self.servers.use_requested.connect(self._load)
        listen(self, hub.finished, lambda _path: self.refresh())
        local_models.changed.connect(self._show_entries)
        listen(self, local_models.finished, lambda: self.local.show_searching(False))
        library.estimated.connect(self._show_fits)
        session.model_changed.connect(self._show_loaded)
        session.notice.connect(self._on_notice)
        self._show_loaded(session.model)

    def _connect_page(self) -> None:
        local, models = self.local, self._models
        local.load_requested.connect(self._load)
        local.unload_requested.connect(models.unload)
        local.stop_requested.connect(self._session.stop_loading)
        local.show_requested.connect(lambda path: self._shower.show(Path(path)))
        local.remove_requested.connect(self._hide_model)
        local.folder_add_requested.connect(
            lambda: models.ask_for_model(_("Look for models in a folder"), self._add_folder, folder=True)
        )
        local.folder_remove_requested.connect(self._remove_folder)
        local.file_requested.connect(lambda: models.ask_for_model(_("Open a model file"), models.open))
        local.refresh_requested.connect(self.refresh)
        local.restore_requested.connect(self._show_hidden)
        local.get_requested.connect(self.open_hub)
        local.details.kept.trouble.connect(self.show_notice)

    def open_page(self) -> None:
        """Show the window, and look for models."""
        self.show()
        self.activateWindow()
        self.refresh()

    def open_local(self) -> None:
        """Show the page of the models on this computer."""
        self.tabs.setCurrentWidget(self.local)
        self.open_page()

    def open_hub(self) -> None:
        """Show the page of models to download, with the recommended ones."""
        self.tabs.setCurrentWidget(self.hub)
        self.hub.show_picks()
        self.open_page()

    def find_on_hub(self, words: str) -> None:
        """Show the page of models to download, and what the hub has for these words."""
        self.open_hub()
        self.hub.query.setText(words)
        self.hub.search()

    def open_servers(self, provider: str) -> None:
        """Show the page of servers, with one of them selected."""
        self.tabs.setCurrentWidget(self.servers)
        self.servers.select(provider)
        self.open_page()

    def end(self) -> None:
        """Save what was typed and close, at the end of the program."""
        self.local.details.kept.show_entry(None)
        self.close()

    def refresh(self) -> None:
        """Look for models again."""
        self.show_notice("")
        self._models.look_for_models()
        self.local.show_searching(True)
        self._show_entries()

    def show_notice(self, sentence: str) -> None:
        """Show an error; "" hides it."""
        self.trouble.setText(sentence)
        self.trouble.setVisible(bool(sentence))

    def _on_notice(self, sentence: str, level: str) -> None:
        if self.isVisible() and level == "error":
            self.show_notice(sentence)

    def _show_entries(self) -> None:
        self.models.show_entries(self._local_models.entries)
        self.hub.show_here([entry.path for entry in self._local_models.entries])
        self.local.refresh()

    def _show_fits(self, fits: dict[str, Fit]) -> None:
        self.models.show_fits(fits)
        self.hub.show_fits(fits)
        self.local.refresh()

    def _show_loaded(self, info: ModelInfo | None) -> None:
        self.models.show_loaded(info.path if info is not None else "")

    # -- what the user does

    def _load(self, path: str) -> None:
        self.show_notice("")
        self._models.load(path)

    def _hide_model(self, path: str) -> None:
        self._session.preferences.hide_model(path)
        self.local.refresh()

    def _show_hidden(self) -> None:
        self._session.preferences.show_hidden_models()
        self.local.refresh()

    def _add_folder(self, folder: Path) -> None:
        self._session.preferences.add_model_folder(str(folder))
        self.refresh()

    def _remove_folder(self, folder: str) -> None:
        self._session.preferences.remove_model_folder(folder)
        self.refresh()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Enter presses the button that has the focus; in a field, it does not press the first button."""
        if event.key() not in (Qt.Key.Key_Return, Qt.Key.Key_Enter) or isinstance(
            self.focusWidget(), QPushButton
        ):
            super().keyPressEvent(event)

    def showEvent(self, event: QShowEvent) -> None:
        """Estimate how the models fit while they are visible."""
        super().showEvent(event)
        self._library.set_active(True)
        self.local.search()

    def hideEvent(self, event: QHideEvent) -> None:
        """Stop the estimates."""
        super().hideEvent(event)
        self._library.set_active(False)
