"""ServersController: models of servers in the menu of models, and where the words go."""

from __future__ import annotations

from PySide6.QtCore import QObject, Slot
from PySide6.QtWidgets import QWidget

from desktop.services.providers.provider_service import ProviderService
from desktop.services.session.chat_session import ChatSession
from desktop.views.chat.status_bar import StatusBar
from desktop.views.models.controller import ModelController
from desktop.views.models.model_picker import ModelPicker
from desktop.views.providers.server_menus import ServerMenus
from engine.remote import split_address

__all__ = ["ServersController"]


class ServersController(QObject):
    """Puts the servers into the menu of `picker`, says in `status` where messages go, and loads a model again
    whose server was changed.
    """

    def __init__(
        self,
        session: ChatSession,
        providers: ProviderService,
        models: ModelController,
        picker: ModelPicker,
        status: StatusBar,
        window: QWidget,
    ) -> None:
        super().__init__(window)
        self._session, self._providers, self._models, self._status = session, providers, models, status
        self.menus = ServerMenus(picker, self)
        self.menus.chosen.connect(models.load)
        self.menus.page_requested.connect(models.open_servers)
        picker.entries_requested.connect(self._show_servers)
        providers.moved.connect(self._on_moved)
        session.model_changed.connect(lambda _model: self._show_destination())
        session.local_only_changed.connect(lambda _pinned: self._show_destination())
        self._show_destination()

    @Slot()
    def _show_servers(self) -> None:
        model = self._session.model
        self.menus.show_servers(self._providers.servers, model.path if model is not None else "")

    def _show_destination(self) -> None:
        model = self._session.model
        leaves = model is not None and model.host and not self._session.local_only
        self._status.show_destination(f"to {model.host}" if model is not None and leaves else "")

    @Slot(str)
    def _on_moved(self, provider: str) -> None:
        """The loaded model is asked at the new address, or not at all if its server was removed."""
        model = self._session.model
        used = split_address(model.path) if model is not None else None
        if used is None or used[0] != provider:
            return
        if self._providers.server(provider) is None:
            self._session.unload_model()
        else:
            self._models.reload()
