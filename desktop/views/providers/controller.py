"""ServersController: models of servers in the menu of models, and where the words go."""

from __future__ import annotations

import contextlib
import dataclasses

from PySide6.QtCore import QObject, Slot
from PySide6.QtWidgets import QWidget

from desktop.services.providers.provider_service import ProviderService
from desktop.services.session.chat_session import ChatSession
from desktop.store.database.database import StoreError
from desktop.views.chat.status_bar import StatusBar
from desktop.views.models.controller import ModelController
from desktop.views.models.model_picker import ModelPicker
from desktop.views.providers.server_menus import ServerMenus
from desktop.views.settings.settings_pane import Inspector
from desktop.views.widgets.listening import listen
from engine.core import ModelInfo
from engine.remote import split_address
from engine.settings import ThinkingSettings
from engine.words import _

__all__ = ["ServersController"]


class ServersController(QObject):
    """Puts the servers into the menu of `picker`, says in `status` where messages go, disables the settings
    in `inspector` that a server does not take, and loads a model again whose server was changed.
    """

    def __init__(
        self,
        session: ChatSession,
        providers: ProviderService,
        models: ModelController,
        picker: ModelPicker,
        status: StatusBar,
        inspector: Inspector,
        window: QWidget,
    ) -> None:
        super().__init__(window)
        self._session, self._providers, self._models, self._status = session, providers, models, status
        self._inspector = inspector
        self.menus = ServerMenus(picker, self)
        self.menus.chosen.connect(models.load)
        self.menus.page_requested.connect(models.open_servers)
        picker.entries_requested.connect(self._show_servers)
        providers.moved.connect(self._on_moved)
        listen(self, providers.changed, lambda _provider: self._show_reasons())
        listen(self, session.model_changed, lambda _model: self._show_destination())
        listen(self, session.adapted_changed, self._show_reasons)
        session.model_changed.connect(self._announce)
        listen(self, session.local_only_changed, lambda _pinned: self._show_destination())
        self._show_destination()

    @Slot()
    def _show_servers(self) -> None:
        model = self._session.model
        self.menus.show_servers(self._providers.servers, model.path if model is not None else "")

    def _show_destination(self) -> None:
        model = self._session.model
        leaves = model is not None and model.host and not self._session.local_only
        self._status.show_destination(_("to {host}", host=model.host) if model is not None and leaves else "")

    @Slot(object)
    def _announce(self, model: ModelInfo | None) -> None:
        """Say that a chat which had other models so far is sent to a server from now on."""
        session = self._session
        leaves = model is not None and model.host and session.messages.rowCount() and not session.local_only
        if model is None or not leaves:
            return
        with contextlib.suppress(StoreError):
            before = split_address(
                session.stores.of(session.conversation).get(session.conversation).model_path
            )
            if before is None or before[0] != (split_address(model.path) or ("",))[0]:
                session.notice.emit(
                    _("From your next message on, this chat is sent to {host}.", host=model.host), "info"
                )

    def _show_reasons(self) -> None:
        """Disable the settings that do nothing with the loaded model."""
        model, providers = self._session.adapted, self._providers
        for cls, form in self._inspector.forms.items():
            names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
            reasons = {name: providers.reason_against(model, cls, name) for name in names}
            if cls is ThinkingSettings and model is not None and not model.host:
                reasons = dict.fromkeys(names, model.why_not_thinking)
            form.show_reasons(reasons, providers.reason_against_all(model, reasons.values()))

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
