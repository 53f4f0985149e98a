"""The window of tool servers: which there are, how they are, and what their tools may do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from html import escape
from pathlib import Path

from PySide6.QtCore import QSignalBlocker, Qt, QUrl
from PySide6.QtGui import QDesktopServices, QDragEnterEvent, QDropEvent, QShowEvent, QTextCursor
from PySide6.QtWidgets import (
    QAbstractItemView,
    QDialog,
    QHeaderView,
    QListWidget,
    QListWidgetItem,
    QMenu,
    QMessageBox,
    QPlainTextEdit,
    QPushButton,
    QTreeWidget,
    QTreeWidgetItem,
    QVBoxLayout,
    QWidget,
)

from desktop.services.tools.servers import PERMISSIONS, OfferedTool, ServerState
from desktop.services.tools.tool_service import ToolService
from desktop.services.tools.usual_files import usual_files
from desktop.store.database.database import StoreError
from desktop.views.dialogs.message_box import question_box
from desktop.views.layout.bidi import isolated
from desktop.views.layout.breakable import breakable
from desktop.views.layout.fill import fill
from desktop.views.layout.spacing import dialog_margins
from desktop.views.tools.tool_server_dialog import JsonDialog, ToolServerDialog
from desktop.views.widgets.banner import announce
from desktop.views.widgets.combo_box import ComboBox
from desktop.views.widgets.empty_state import EmptyState
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.flows import answer, flow
from desktop.views.widgets.listening import listen
from desktop.views.widgets.scroll_area import DialogBody
from desktop.views.widgets.text_label import set_styled, text_label
from desktop.views.widgets.turning_splitter import TurningSplitter
from desktop.views.widgets.wrapping_text import WrappingCheckBox
from engine.errors import BadSetting
from engine.printable import one_line
from engine.words import N_, _, ngettext, translate

__all__ = ["ToolsWindow"]

_NONE = N_(
    "Tools let a model read files, search the web and more. Servers of the Model Context Protocol (MCP) "
    "offer them: add one with the JSON from its page, or drop its .json file here."
)
_STATES = {"off": N_("off"), "starting": N_("starting…"), "failed": N_("failed")}
_PERMISSIONS = {"ask": N_("Ask each time"), "always": N_("Always allow"), "never": N_("Never offer")}
_NARROW = 60
"""In fewer average characters than this, the list is above the rest."""
_LONGEST_FILE = 1 << 20
_ID = Qt.ItemDataRole.UserRole


class ToolsWindow(QDialog):
    """Shows and changes the servers of a `ToolService`."""

    def __init__(self, service: ToolService, parent: QWidget) -> None:
        super().__init__(parent)
        self._service = service
        self.dialog: QDialog | None = None
        self._shown: list[tuple[OfferedTool, str]] = []
        self.setWindowTitle(_("Tools"))
        self.setSizeGripEnabled(True)
        self.setAcceptDrops(True)
        self.servers = QListWidget()
        self.servers.setObjectName("hubList")
        self.servers.setAccessibleName(_("Tool servers"))
        self.servers.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        EmptyState(self.servers, translate(_NONE))
        self.paste, self.add, self.change, self.remove = (
            QPushButton(_("Add from JSON…")), QPushButton(_("Add…")), QPushButton(_("Edit…")),
            QPushButton(_("Remove")),
        )  # fmt: skip
        self.add.setAccessibleName(_("Add a tool server"))
        self.bring = QPushButton(_("Import"))
        self.bring.setAccessibleName(_("Import the tool servers of another program"))
        self.bring.setMenu(QMenu(self.bring))
        self.change.setAccessibleName(_("Edit the tool server"))
        self.remove.setAccessibleName(_("Remove the tool server"))
        self.on = WrappingCheckBox(_("Run this server and offer its tools"))
        self.state = text_label(wraps=True, plain=True)
        self.sign_in, self.sign_out = QPushButton(_("Sign in…")), QPushButton(_("Sign out"))
        self.sign_in.setAccessibleName(_("Sign in to the tool server"))
        self.sign_out.setAccessibleName(_("Sign out of the tool server"))
        self.restart = QPushButton(_("Restart"))
        self.restart.setAccessibleName(_("Restart the tool server"))
        self.tools = _table()
        self.permission = ComboBox()
        self.permission.setAccessibleName(_("When the selected tool may run"))
        for value in PERMISSIONS:
            self.permission.addItem(translate(_PERMISSIONS[value]), value)
        self.show_log = WrappingCheckBox(_("Show what the server reports"))
        self.log = QPlainTextEdit()
        self.log.setReadOnly(True)
        self.log.setProperty("tone", "field")
        self.log.setAccessibleName(_("Messages of the tool server"))
        self.log.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
        self.trouble = text_label(tone="danger", wraps=True, plain=True)
        self.trouble.hide()
        self.shut = QPushButton(_("Close"))
        self._arrange()
        self._connect()
        self.show_servers()
        self.resize(min(760, max(360, parent.width() - 60)), min(560, max(360, parent.height() - 80)))

    def _arrange(self) -> None:
        left, right = QWidget(), QWidget()
        buttons = FlowLayout(gap=6)
        for button in (self.paste, self.add, self.bring, self.change, self.remove, self.restart, self.shut):
            button.setAutoDefault(False)
        for button in (self.paste, self.add, self.bring):
            buttons.addWidget(button)
        fill(QVBoxLayout(left), (self.servers, 1), buttons, margins=(0, 0, 0, 0))
        for button in (self.sign_in, self.sign_out):
            button.setAutoDefault(False)
        signing = fill(FlowLayout(gap=6), self.sign_in, self.sign_out)
        allowed = fill(FlowLayout(), text_label(_("May run")), self.permission, 1)
        fill(
            QVBoxLayout(right), self.on, self.state, signing, (self.tools, 3), allowed, self.show_log,
            (self.log, 2), margins=(0, 0, 0, 0),
        )  # fmt: skip
        split = TurningSplitter((left, right), (36, 64), _NARROW)
        below = fill(FlowLayout(), self.change, self.restart, self.remove, 1, self.shut)
        dialog_margins(fill(QVBoxLayout(self), (DialogBody(split), 1), self.trouble, below))

    def _connect(self) -> None:
        self.servers.currentItemChanged.connect(lambda *_unused: self._show_server())
        self.servers.itemActivated.connect(lambda _item: self._change())
        self.tools.currentItemChanged.connect(lambda *_unused: self._show_permission())
        self.paste.clicked.connect(self._paste)
        self.add.clicked.connect(self._add)
        self.change.clicked.connect(self._change)
        self.remove.clicked.connect(self._remove)
        self.restart.clicked.connect(lambda: self._service.restart(self._name()))
        self.sign_in.clicked.connect(lambda: self._try(lambda: self._service.sign_in(self._name())))
        self.sign_out.clicked.connect(lambda: self._try(lambda: self._service.sign_out(self._name())))
        listen(self, self._service.page_offered, self._offer_page)
        self.on.clicked.connect(lambda on: self._try(lambda: self._service.set_enabled(self._name(), on)))
        self.permission.activated.connect(self._allow)
        self.show_log.toggled.connect(self._show_server)
        self.shut.clicked.connect(self.close)
        listen(self, self._service.changed, self.show_servers)

    # -- what is shown

    def show_servers(self) -> None:
        """Show the servers as they are now; the selected one stays."""
        chosen, states = self._name(), self._service.servers()
        names = [state.config.name for state in states]
        with QSignalBlocker(self.servers):
            if [self.servers.item(row).data(_ID) for row in range(self.servers.count())] != names:
                self.servers.clear()
                for name in names:
                    QListWidgetItem(self.servers).setData(_ID, name)
            for row, state in enumerate(states):
                self.servers.item(row).setText(f"{isolated(one_line(names[row]))}  ·  {_state_words(state)}")
            self.servers.setCurrentRow(names.index(chosen) if chosen in names else min(0, len(names) - 1))
        self._show_server()

    def select(self, name: str) -> None:
        """Select a server."""
        for row in range(self.servers.count()):
            if self.servers.item(row).data(_ID) == name:
                self.servers.setCurrentRow(row)

    def showEvent(self, event: QShowEvent) -> None:
        """Offer the files of other programs that are there now."""
        found = usual_files()
        self.bring.setVisible(bool(found))
        self.bring.menu().clear()
        for program, path in found:
            words = _("From {program}…", program=program)
            self.bring.menu().addAction(words, partial(self._open_file, path))
        super().showEvent(event)

    def _name(self) -> str:
        item = self.servers.currentItem()
        return str(item.data(_ID)) if item is not None else ""

    def _server(self) -> ServerState | None:
        return next((each for each in self._service.servers() if each.config.name == self._name()), None)

    def _show_server(self) -> None:
        state = self._server()
        for widget in (self.change, self.remove, self.on, self.tools, self.show_log):
            widget.setEnabled(state is not None)
        self.restart.setEnabled(state is not None and state.config.enabled)
        self.on.setChecked(state is not None and state.config.enabled)
        words = one_line(state.sentence) if state is not None else ""
        self.state.setText(breakable(words))
        self.state.setAccessibleName(words)
        self.state.setVisible(bool(words))
        self.sign_in.setVisible(state is not None and state.wants_sign_in)
        self.sign_out.setVisible(state is not None and state.config.signs_in and state.status == "ready")
        set_styled(
            self.state, "tone", "danger" if state is not None and state.status == "failed" else "muted"
        )
        self.log.setVisible(self.show_log.isChecked())
        log = state.log if state is not None else ""
        if self.log.toPlainText() != log:
            self.log.setPlainText(log)
            self.log.moveCursor(QTextCursor.MoveOperation.End)  # what it reported last
        self._show_tools(state.tools if state is not None else ())

    def _show_tools(self, tools: tuple[OfferedTool, ...]) -> None:
        shown = [(tool, self._service.permission(tool.server, tool.tool)) for tool in tools]
        if shown != self._shown:  # else only what the server reports has changed
            self._shown = shown
            self._fill()
        self._show_permission()

    def _fill(self) -> None:
        chosen = self._tool()
        with QSignalBlocker(self.tools):
            self.tools.clear()
            for tool, allowed in self._shown:
                about = one_line(tool.description)
                item = QTreeWidgetItem(
                    self.tools, [isolated(one_line(tool.title)), translate(_PERMISSIONS[allowed]), about]
                )
                item.setData(0, _ID, tool.tool)
                for column in range(3):
                    item.setToolTip(column, f"<p><b>{escape(one_line(tool.tool))}</b> {escape(about)}</p>")
                if tool.tool == chosen or self.tools.currentItem() is None:
                    self.tools.setCurrentItem(item)

    def _tool(self) -> str:
        item = self.tools.currentItem()
        return str(item.data(0, _ID)) if item is not None else ""

    def _show_permission(self) -> None:
        tool = self._tool()
        self.permission.setEnabled(bool(tool))
        value = self._service.permission(self._name(), tool) if tool else "ask"
        self.permission.setCurrentIndex(PERMISSIONS.index(value))

    # -- what the user does

    def _try(self, act: Callable[[], object]) -> None:
        """Do something that may fail, and say why it did."""
        try:
            act()
        except (BadSetting, StoreError) as error:
            self._say(str(error))
        else:
            self._say("")

    def _say(self, trouble: str) -> None:
        self.trouble.setText(breakable(trouble))
        self.trouble.setAccessibleName(trouble)
        self.trouble.setVisible(bool(trouble))
        if trouble:
            announce(self, trouble)
        self.show_servers()

    def _allow(self) -> None:
        server, tool, value = self._name(), self._tool(), str(self.permission.currentData())
        self._try(lambda: self._service.set_permission(server, tool, value))

    def _add(self) -> None:
        self._open(ToolServerDialog(None, self._service.add, self))

    def _change(self) -> None:
        if (state := self._server()) is not None:
            change = partial(self._service.change, state.config.name)
            self._open(ToolServerDialog(state.config, change, self))

    def _paste(self) -> None:
        self._open_json("")

    def _open_json(self, text: str) -> None:
        self._open(JsonDialog(self._service.read_json, self._service.add, self, text))

    def _open_file(self, path: Path) -> None:
        """Show what a file says, to be added after a look: programs in it would run at once."""
        self._try(lambda: self._open_json(_text_of(path)))

    def _open(self, dialog: ToolServerDialog | JsonDialog) -> None:
        self.dialog = dialog
        dialog.saved.connect(self.select)
        dialog.finished.connect(self._forget_dialog)
        dialog.open()

    def _forget_dialog(self, _result: int) -> None:
        self.dialog = None

    @flow
    async def _offer_page(self, name: str, page: str) -> None:
        """Open the page where the user signs in, if the user agrees."""
        host = QUrl(page).host()
        question = _("Open {host} in your browser to sign in to {name}?", host=host, name=one_line(name))
        more = _("Enter your password there only if you know this site.")
        box = question_box(self, question, more, "signIn")
        button = box.addButton(_("Open browser"), QMessageBox.ButtonRole.AcceptRole)
        box.setDefaultButton(button)
        box.addButton(_("Don't sign in"), QMessageBox.ButtonRole.RejectRole)
        if await answer(box) is not button:
            self._service.restart(name)
        elif not QDesktopServices.openUrl(QUrl(page)):
            self._say(_("No browser could be opened."))
            self._service.restart(name)

    @flow
    async def _remove(self) -> None:
        name = self._name()
        if not name:
            return
        question = _("Remove {name}?", name=one_line(name))
        more = _("Its address or program, keys and permissions are deleted.")
        box = question_box(self, question, more, "removeToolServer")
        button = box.addButton(_("Remove server"), QMessageBox.ButtonRole.DestructiveRole)
        box.setDefaultButton(box.addButton(_("Keep server"), QMessageBox.ButtonRole.RejectRole))
        if await answer(box) is button:
            self._try(lambda: self._service.remove(name))

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        """Take a .json file."""
        if _file(event) is not None:
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        """Show what the file says."""
        if (path := _file(event)) is not None:
            event.acceptProposedAction()
            self._open_file(path)


def _file(event: QDropEvent) -> Path | None:
    """The .json file that is dropped, if it is one alone."""
    paths = [Path(url.toLocalFile()) for url in event.mimeData().urls() if url.isLocalFile()]
    return paths[0] if len(paths) == 1 and paths[0].suffix.lower() == ".json" else None


def _text_of(path: Path) -> str:
    """Raises `BadSetting`."""
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(_LONGEST_FILE)
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(_("{name} cannot be read ({problem}).", name=path.name, problem=error)) from error


def _state_words(state: ServerState) -> str:
    if state.status == "ready":
        return ngettext("{n} tool", "{n} tools", len(state.tools))
    return translate(_STATES[state.status])


def _table() -> QTreeWidget:
    table = QTreeWidget()
    table.setObjectName("serverFindings")
    table.setAccessibleName(_("Tools of the server"))
    table.setHeaderLabels([_("Tool"), _("May run"), _("About")])
    table.setRootIsDecorated(False)
    table.setIndentation(0)
    table.setUniformRowHeights(True)
    table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
    table.setTextElideMode(Qt.TextElideMode.ElideRight)
    table.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    table.header().setStretchLastSection(True)
    for column in (0, 1):
        table.header().setSectionResizeMode(column, QHeaderView.ResizeMode.ResizeToContents)
    return table
