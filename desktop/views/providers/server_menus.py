"""The part of the menu of models that holds those of servers: a submenu for each server."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from html import escape

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QMenu

from desktop.items.models.local_models import model_name
from desktop.services.providers.servers import Server
from desktop.views.layout.bidi import isolated
from desktop.views.models.model_picker import ModelPicker
from engine.printable import one_line
from engine.remote import model_address
from engine.words import _

__all__ = ["ServerMenus"]

_MOST_ENTRIES = 24


class ServerMenus(QObject):
    """`chosen(path)` for a model; `page_requested(provider)` for the page of servers, "" to add one."""

    chosen = Signal(str)
    page_requested = Signal(str)

    def __init__(self, picker: ModelPicker, parent: QObject) -> None:
        super().__init__(parent)
        self._picker = picker
        self._menus: list[QMenu] = []
        self._shown: tuple[object, ...] | None = None

    @property
    def menus(self) -> tuple[QMenu, ...]:
        """The submenus, one for each server."""
        return tuple(self._menus)

    def show_servers(self, servers: Sequence[Server], loaded: str) -> None:
        """Show these servers; `loaded` is the path of the loaded model."""
        shown = (tuple(servers), loaded)
        if shown == self._shown:
            return
        self._shown = shown
        for menu in self._menus:
            self._picker.remove_menu(menu)
        self._menus = [self._menu(server, loaded) for server in servers]

    def _menu(self, server: Server, loaded: str) -> QMenu:
        provider = server.provider
        menu = self._picker.add_menu(isolated(provider.name).replace("&", "&&"))
        menu.menuAction().setToolTip(_("Messages go to {host}", host=provider.host))
        for name in _first(server, loaded):
            path = model_address(provider.id, name)
            action = menu.addAction(isolated(model_name(path)).replace("&", "&&"))
            action.setCheckable(True)
            action.setChecked(path == loaded)
            action.setToolTip(
                f"<p>{escape(one_line(name))}<br>{_('to {host}', host=escape(provider.host))}</p>"
            )
            action.triggered.connect(partial(self.chosen.emit, path))
        menu.addSeparator()
        words = _("All models…") if len(server.models) > _MOST_ENTRIES else _("Models and settings…")
        menu.addAction(words, partial(self.page_requested.emit, provider.id))
        return menu


def _first(server: Server, loaded: str) -> list[str]:
    """The first of its models, and the loaded one."""
    first = list(server.names[:_MOST_ENTRIES])
    now = [name for name in server.names if model_address(server.provider.id, name) == loaded]
    return first if not now or now[0] in first else [*now, *first]
