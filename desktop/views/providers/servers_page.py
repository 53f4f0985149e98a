"""The library's page of servers: those that the user has added, their models, and what those can do."""

from __future__ import annotations

from html import escape

from PySide6.QtCore import QModelIndex, QSignalBlocker, Qt, Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QMessageBox,
    QPushButton,
    QTreeWidget,
    QTreeWidgetItem,
    QVBoxLayout,
    QWidget,
)

from desktop.services.providers.provider_service import ProviderService
from desktop.services.providers.servers import Server
from desktop.views.dialogs.message_box import question_box
from desktop.views.layout.bidi import isolated
from desktop.views.layout.breakable import breakable
from desktop.views.layout.fill import fill
from desktop.views.providers.provider_dialog import ProviderDialog
from desktop.views.widgets.combo_box import add_clear_button
from desktop.views.widgets.empty_state import EmptyState
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.flows import answer, flow
from desktop.views.widgets.listening import listen
from desktop.views.widgets.scroll_area import DialogBody
from desktop.views.widgets.text_label import set_styled, text_label
from desktop.views.widgets.turning_splitter import TurningSplitter
from engine.printable import one_line
from engine.remote import Provider, model_address
from engine.words import N_, _, translate

__all__ = ["ServersPage"]

_NONE = N_("Add a server that runs models, such as vLLM, llama.cpp, Ollama, LM Studio or an online service.")
_UNTESTED = N_(
    "A few small requests find out what the model supports on this server, when you choose “Test” or "
    "first use it."
)
_KEYS = {
    "": N_("No key is saved."), "keyring": N_("The key is saved in the system's keyring."),
    "this run": N_("The key is kept until you quit Inglenook."),
}  # fmt: skip

_NARROW = 60
"""In fewer average characters than this, the list is above the models."""


class ServersPage(QWidget):
    """Shows the servers of `service`; `use_requested(path)` for a model of one. Nothing is contacted before a
    button is pressed.
    """

    use_requested = Signal(str)

    def __init__(self, service: ProviderService, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._service = service
        self.dialog: ProviderDialog | None = None
        self.servers, self.models = _list(_("Servers")), _list(_("Models of the server"))
        self.servers.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        EmptyState(self.servers, translate(_NONE))
        self._no_models = EmptyState(self.models, "")
        self.add, self.change, self.remove = (
            QPushButton(_("Add…")), QPushButton(_("Edit…")), QPushButton(_("Remove")),
        )  # fmt: skip
        for button, name in ((self.add, _("Add a server")), (self.change, _("Edit server")),
                             (self.remove, _("Remove server"))):  # fmt: skip
            button.setAccessibleName(name)
        self.about = text_label(wraps=True, plain=True)
        self.query = QLineEdit()
        self.query.setProperty("tone", "search")
        add_clear_button(self.query)
        self.query.setPlaceholderText(_("Filter the models, or type a model's name"))
        self.query.setAccessibleName(_("Filter the models, or type a model's name"))
        self.refresh, self.test, self.use = (
            QPushButton(_("List models")), QPushButton(_("Test")), QPushButton(_("Use")),
        )  # fmt: skip
        self.use.setProperty("tone", "primary")
        self.test.setToolTip(_("Send a few small requests to find out what the model supports"))
        self.state = text_label(wraps=True, plain=True)
        self.findings = _table()
        self._arrange()
        self._connect()
        self.show_servers()

    def _arrange(self) -> None:
        left, right = QWidget(), QWidget()
        buttons = FlowLayout(gap=6)  # one below the other in a narrow window
        for button in (self.add, self.change, self.remove):
            buttons.addWidget(button)
        fill(QVBoxLayout(left), (self.servers, 1), buttons, margins=(0, 0, 0, 0))
        line = fill(FlowLayout(), (self.query, 1), self.refresh)
        below = fill(FlowLayout(), self.use, self.test, 1)
        column = QVBoxLayout(right)
        fill(
            column, self.about, line, (self.models, 3), below, self.state, (self.findings, 4),
            margins=(0, 0, 0, 0),
        )  # fmt: skip
        split = TurningSplitter((left, right), (32, 68), _NARROW)
        fill(QVBoxLayout(self), (DialogBody(split), 1), margins=(12, 12, 12, 8))

    def _connect(self) -> None:
        self.servers.currentItemChanged.connect(lambda *_unused: self._show_server())
        self.servers.itemActivated.connect(lambda _item: self._change())
        self.models.currentItemChanged.connect(lambda *_unused: self._show_model())
        self.models.activated.connect(self._use_row)
        self.query.textChanged.connect(lambda _text: self._show_models())
        self.query.returnPressed.connect(self._use)
        self.add.clicked.connect(self._add)
        self.change.clicked.connect(self._change)
        self.remove.clicked.connect(self._remove)
        self.refresh.clicked.connect(self._list_models)
        self.test.clicked.connect(self._test)
        self.use.clicked.connect(self._use)
        listen(self, self._service.changed, lambda _provider: self.show_servers())

    # -- what is shown

    def show_servers(self) -> None:
        """Show the servers; the selected one stays."""
        chosen, listed = self._id(), self._service.servers
        shown = [self.servers.item(row).data(Qt.ItemDataRole.UserRole) for row in range(self.servers.count())]
        with QSignalBlocker(self.servers):
            if shown != [server.provider.id for server in listed]:
                self.servers.clear()
                for server in listed:
                    item = QListWidgetItem(self.servers)
                    item.setData(Qt.ItemDataRole.UserRole, server.provider.id)
            for row, server in enumerate(listed):
                item, provider = self.servers.item(row), server.provider
                item.setText(f"{isolated(provider.name)}  ·  {provider.host}")
                item.setToolTip(provider.base_url)
            ids = [server.provider.id for server in listed]
            self.servers.setCurrentRow(ids.index(chosen) if chosen in ids else min(0, len(ids) - 1))
        self._show_server()

    def select(self, provider: str) -> None:
        """Select a server."""
        for row in range(self.servers.count()):
            if self.servers.item(row).data(Qt.ItemDataRole.UserRole) == provider:
                self.servers.setCurrentRow(row)

    def _id(self) -> str:
        item = self.servers.currentItem()
        return str(item.data(Qt.ItemDataRole.UserRole)) if item is not None else ""

    def _server(self) -> Server | None:
        return self._service.server(self._id())

    def _show_server(self) -> None:
        server = self._server()
        for widget in (self.change, self.remove, self.query, self.refresh):
            widget.setEnabled(server is not None)
        words = ""
        if server is not None:
            provider = server.provider
            place = self._service.key_place(provider.id)
            words = f"{_way(provider)} {translate(_KEYS.get(place, '')) if place is not None else ''}".strip()
            if place is None and self.isVisible():
                self._service.look_for_key(provider.id)
        self.about.setText(breakable(words))
        self.about.setAccessibleName(words)
        self._show_models()

    def _show_models(self) -> None:
        server = self._server()
        text = self.query.text().strip().casefold()
        own = [server.provider.model] if server is not None and server.provider.model else []
        listed = [*own, *(each.name for each in server.models)] if server is not None else []
        names = [name for name in dict.fromkeys(listed) if text in name.casefold()]
        chosen = self._row_name()
        with QSignalBlocker(self.models):
            self.models.clear()
            for name in names:
                self.models.addItem(isolated(one_line(name)))
                item = self.models.item(self.models.count() - 1)
                item.setData(Qt.ItemDataRole.UserRole, name)
                item.setToolTip(f"<p>{escape(one_line(name))}</p>")
            exact = self.query.text().strip()
            kept = chosen if chosen in names else exact if exact in names else ""
            self.models.setCurrentRow(names.index(kept) if kept else 0 if names else -1)
        if server is None:
            self._no_models.say("")
        elif not listed:
            self._no_models.say(_("Choose “List models” to get the list from the server."))
        else:
            self._no_models.say(_("No listed model has this name. Choose “Use” to try it anyway."))
        self._show_model()

    def _row_name(self) -> str:
        item = self.models.currentItem()
        return str(item.data(Qt.ItemDataRole.UserRole)) if item is not None else ""

    def model(self) -> str:
        """The chosen model: the selected one, else what was typed."""
        return self._row_name() or self.query.text().strip()

    def _show_model(self) -> None:
        server, name = self._server(), self.model()
        id = self._id()
        activity, trouble = self._service.activity(id), self._service.trouble(id)
        for button in (self.test, self.use):
            button.setEnabled(server is not None and bool(name))
        self.test.setText(_("Stop") if activity else _("Test"))
        if activity:
            self.test.setEnabled(True)
        self.test.setAccessibleName(_("Stop asking the server") if activity else _("Test the model"))
        self.refresh.setEnabled(server is not None and not activity)
        found = server.capabilities.get(name) if server is not None else None
        rows = found.rows() if found is not None else ()
        self.findings.clear()
        for title, words in rows:
            item = QTreeWidgetItem(self.findings, [title, words])
            item.setToolTip(1, f"<p>{escape(words)}</p>")
        self.findings.setVisible(bool(rows))
        untested = translate(_UNTESTED) if server is not None and not rows else ""
        notes = one_line(" ".join(found.notes)) if found is not None else ""
        self.state.setText(f"{activity}…" if activity else trouble or notes or untested)
        set_styled(self.state, "tone", "" if activity else "danger" if trouble else "muted")
        self.state.setVisible(bool(self.state.text()))

    def showEvent(self, event: QShowEvent) -> None:
        """Look for the key now: the keyring may ask for its password."""
        super().showEvent(event)
        self._show_server()

    # -- what the user does

    def _add(self) -> None:
        self._open(None)

    def _change(self) -> None:
        if (server := self._server()) is not None:
            self._open(server.provider)

    def _open(self, provider: Provider | None) -> None:
        place = self._service.key_place(provider.id) if provider is not None else ""
        self.dialog = ProviderDialog(provider, place or "", self)
        self.dialog.saved.connect(self._save)
        self.dialog.finished.connect(self._forget_dialog)
        self.dialog.open()

    def _forget_dialog(self, _result: int) -> None:
        self.dialog = None

    def _save(self, provider: Provider, key: str | None, in_keyring: bool) -> None:
        service = self._service
        is_new = service.server(provider.id) is None
        if is_new:
            provider = _with_id(provider, service.new_id(provider.name))
        service.save(provider)
        if key is not None and (key or not is_new):
            service.set_key(provider.id, key, in_keyring)
        self.select(provider.id)
        if is_new:  # the user has just named the server to be used
            service.list_models(provider.id)

    @flow
    async def _remove(self) -> None:
        server = self._server()
        if server is None:
            return
        question = _("Remove {provider}?", provider=server.provider.name)
        more = _("Its key is deleted too. Your chats are not changed.")
        box = question_box(self.window(), question, more, "removeServer")
        button = box.addButton(_("Remove server"), QMessageBox.ButtonRole.DestructiveRole)
        box.setDefaultButton(box.addButton(_("Keep server"), QMessageBox.ButtonRole.RejectRole))
        if await answer(box) is button:
            self._service.remove(server.provider.id)

    def _list_models(self) -> None:
        self._service.list_models(self._id())

    def _test(self) -> None:
        if self._service.activity(self._id()):
            self._service.stop(self._id())
        else:
            self._service.test(self._id(), self.model())

    def _use_row(self, _index: QModelIndex) -> None:
        self._use()

    def _use(self) -> None:
        if self._server() is not None and (name := self.model()):
            self.use_requested.emit(model_address(self._id(), name))


def _way(provider: Provider) -> str:
    """Where messages go, in a sentence."""
    if provider.on_this_computer:
        return _("Messages go to {host}, on this computer.", host=provider.host)
    if provider.encrypted:
        return _("Messages go to {host}, encrypted.", host=provider.host)
    return _("Messages go to {host}, not encrypted.", host=provider.host)


def _with_id(provider: Provider, id: str) -> Provider:
    return Provider(**{**provider.__dict__, "id": id})


def _list(name: str) -> QListWidget:
    view = QListWidget()
    view.setObjectName("hubList")
    view.setAccessibleName(name)
    view.setUniformItemSizes(True)
    view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    view.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
    return view


def _table() -> QTreeWidget:
    table = QTreeWidget()
    table.setObjectName("serverFindings")
    table.setAccessibleName(_("What the model supports on this server"))
    table.setHeaderLabels([_("Feature"), _("Result")])
    table.setRootIsDecorated(False)
    table.setIndentation(0)
    table.setUniformRowHeights(True)
    table.setTextElideMode(Qt.TextElideMode.ElideRight)
    table.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    table.header().setStretchLastSection(True)
    table.header().setSectionResizeMode(0, QHeaderView.ResizeMode.ResizeToContents)
    return table
