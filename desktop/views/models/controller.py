"""Loads models: file dialogs, the menu of known models, the library, the download of the starter."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QApplication, QMessageBox, QWidget

from desktop.items.models.local_models import model_name
from desktop.services.services import Services
from desktop.views.chat.welcome_page import WelcomePage
from desktop.views.dialogs.file_dialogs import ask_folder, ask_open
from desktop.views.dialogs.message_box import question_box
from desktop.views.models.model_picker import ModelPicker
from desktop.views.widgets.flows import answer, flow
from desktop.views.widgets.listening import listen
from engine.remote import split_address
from engine.units import size_text
from engine.words import _, ngettext

if TYPE_CHECKING:
    from desktop.views.models.library_window import LibraryWindow

__all__ = ["ModelController", "meant_model"]


def meant_model(path: Path) -> Path:
    """The model that a chosen path means: a folder with one GGUF file and no config.json means that file."""
    if os.path.isdir(path) and not os.path.exists(path / "config.json"):
        found = sorted(path.glob("*.gguf"))
        return found[0] if len(found) == 1 else path
    return path


_EMBEDDING = "nomic-embed-text"
"""Finds embedding models of about 100 MB, which run on any processor."""


class ModelController(QObject):
    """Serves the model picker and the welcome page; `library` is None until its window is first opened.

    The welcome page may be hidden by a conversation, so a download is also reported by `fetching(sentence,
    done, total)` in bytes, `fetch_ended()`, and `notice(sentence, level)` if it failed.
    """

    notice = Signal(str, str)
    fetching = Signal(str, object, object)
    fetch_ended = Signal()

    def __init__(
        self, services: Services, picker: ModelPicker, welcome: WelcomePage, window: QWidget
    ) -> None:
        super().__init__(window)
        self._services, self._session, self._window = services, services.session, window
        self._local_models, self._download = services.local_models, services.download
        self._welcome = welcome
        self.library: LibraryWindow | None = None
        for view in (picker, welcome):
            view.open_file_requested.connect(self.ask_for_file)
            view.open_folder_requested.connect(self.ask_for_folder)
        picker.library_requested.connect(self.open_library)
        welcome.get_requested.connect(self.open_hub)
        picker.servers_requested.connect(self.open_servers)
        picker.entries_requested.connect(self.look_for_models)
        picker.chosen.connect(self.load)
        welcome.model_chosen.connect(self.load)
        picker.starter_requested.connect(self.get_starter)
        picker.unload_requested.connect(self.unload)
        welcome.download_requested.connect(self.get_starter)
        welcome.cancel_requested.connect(self._download.cancel)
        if (meaning := services.composer.fitting.meaning) is not None:
            meaning.look = self.look_for_models
        self._local_models.changed.connect(picker.show_entries)
        self._local_models.changed.connect(welcome.show_models)
        listen(self, self._local_models.changed, self._session.drafts.set_entries)
        self._download.progress.connect(self._show_progress)

    def commands(self) -> dict[str, Callable[[], object]]:
        """The commands that open, load, unload and fetch a model, and open the library."""
        return {
            "library": self.open_library,
            "get_models": self.open_hub,
            "servers": self.open_servers,
            "open_file": self.ask_for_file,
            "open_folder": self.ask_for_folder,
            "starter": self.get_starter,
            "unload": self.unload,
            "reload": self.reload,
        }

    def open_library(self) -> None:
        """Show the library, with the models on this computer."""
        self._made_library().open_local()

    def open_hub(self) -> None:
        """Show the library's page of models to download."""
        self._made_library().open_hub()

    def open_embedding_models(self) -> None:
        """Show the library's page of models to download, with small embedding models."""
        self._made_library().find_on_hub(_EMBEDDING)

    def open_servers(self, provider: str = "") -> None:
        """Show the library's page of servers, with one of them selected."""
        self._made_library().open_servers(provider)

    def _made_library(self) -> LibraryWindow:
        if self.library is None:
            from desktop.views.models.library_window import LibraryWindow  # Only when needed.

            services = self._services
            self.library = LibraryWindow(
                self._session,
                self,
                self._local_models,
                services.library,
                services.hub,
                services.providers,
                self._window,
            )
        return self.library

    def close(self) -> None:
        """Close the library at the end of the program."""
        if self.library is not None:
            self.library.end()

    def look_for_models(self) -> None:
        """Update the menu's entries in the background."""
        preferences, downloaded = self._session.preferences, self._services.models
        # Made by the first download.
        own = [("Inglenook", str(downloaded))] if os.path.isdir(downloaded) else []
        folders = [*own, *((_("Your folders"), folder) for folder in preferences.model_folders)]
        self._local_models.refresh(preferences.recent_models, folders)

    def open(self, path: Path) -> None:
        """Load the model that `path` means (`meant_model`)."""
        self.load(meant_model(path))

    def open_last(self) -> bool:
        """Load the model that was loaded last; False without one, and if its file is gone, which is said.
        That of a server is loaded only if this asks the server nothing.
        """
        last = self._session.preferences.last_model
        remote = bool(last) and split_address(last) is not None
        if last and (
            self._services.providers.capabilities(last) is not None if remote else os.path.exists(last)
        ):
            self.open(Path(last))
            return True
        if last and not remote:
            self._session.model_refused.emit(
                _(
                    "{name} was not loaded: it is no longer in {folder}. Choose another model, or open "
                    "this one where it is now.",
                    name=Path(last).name,
                    folder=Path(last).parent,
                )
            )
        return False

    @flow
    async def load(self, path: str | Path) -> None:
        """Load the model at exactly this path; ask first if that ends a reply."""
        if await self._may_end_reply(
            _("Load {model_name}?", model_name=model_name(path)), _("Stop and load")
        ):
            self._session.open_model(path)

    @flow
    async def unload(self) -> None:
        """Release the model; ask first if that ends a reply."""
        if await self._may_end_reply(_("Unload the model?"), _("Stop and unload")):
            self._session.unload_model()

    @flow
    async def reload(self) -> None:
        """Load the present model again; ask first if that ends a reply."""
        if await self._may_end_reply(_("Reload the model?"), _("Stop and reload")):
            self._session.reload_model()

    async def _may_end_reply(self, question: str, stop: str) -> bool:
        session = self._session
        count = session.writing
        if not count:
            return True
        more = ngettext(
            "A reply is being written. It will be stopped, and the text written so far is kept.",
            "{n} replies are being written. They will be stopped, and the text written so far is kept.",
            count,
        )
        box = question_box(QApplication.activeWindow(), question, more, "endsReply")
        button = box.addButton(stop, QMessageBox.ButtonRole.DestructiveRole)
        box.setDefaultButton(box.addButton(_("Cancel"), QMessageBox.ButtonRole.RejectRole))
        return await answer(box) is button

    @flow
    async def get_starter(self) -> None:
        """Download the starter model, unless it is there, and load it; during the download, cancel it."""
        from desktop.event_loop import emitted

        download = self._download
        if download.running:
            download.cancel()
            return
        self._show_progress(_("Looking for the starter model"), 0, 0)
        download.start()
        ended, values = await emitted(download.finished, download.failed, download.cancelled)
        trouble, details = values if ended == 1 else ("", "")
        self._welcome.end_download(trouble)
        self.fetch_ended.emit()
        if ended == 0:
            self.load(values[0])
        elif trouble and (self._session.messages.rowCount() or self._session.model is not None):
            self._session.error_details = details  # The welcome page is hidden.
            self.notice.emit(trouble, "error")

    def ask_for_file(self) -> None:
        """Let the user choose a GGUF file."""
        self.ask_for_model(_("Open a model file"), self.open)

    def ask_for_folder(self) -> None:
        """Let the user choose a folder with safetensors."""
        self.ask_for_model(_("Open a model folder"), self.open, folder=True)

    def ask_for_model(self, title: str, then: Callable[[Path], None], folder: bool = False) -> None:
        """Open a dialog that leaves the window running; `then` gets the chosen file or folder."""
        parent, start = QApplication.activeWindow(), self._start_folder()
        if folder:
            ask_folder(parent, title, lambda chosen: then(chosen[0]), start)
        else:
            ask_open(
                parent,
                title,
                lambda chosen: then(chosen[0]),
                _("Models (*.gguf);;All files (*)"),
                start=start,
            )

    def _start_folder(self) -> Path:
        last = self._session.preferences.last_model
        folder = Path(last).parent if last and split_address(last) is None else Path.home()
        return folder if os.path.isdir(folder) else Path.home()

    # -- the download

    def _show_progress(self, stage: str, done: int, total: int) -> None:
        sentence = (
            _("{stage}: {size} of {size_2}", stage=stage, size=size_text(done), size_2=size_text(total))
            if total
            else stage
        )
        self._welcome.show_download(sentence, done, total)
        self.fetching.emit(sentence, done, total)
