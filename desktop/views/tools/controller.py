"""Keeps the Tools button of the composer in step, and opens what it offers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Slot
from PySide6.QtWidgets import QDialog, QWidget

from desktop.services.composer.attachments import AttachmentService
from desktop.services.session.chat_session import ChatSession
from desktop.services.tools.events import Part
from desktop.services.tools.resource_files import ResourceFiles
from desktop.services.tools.servers import Offer, ServerState
from desktop.services.tools.tool_service import ToolService
from desktop.settings import ToolSettings
from desktop.views.chat.chat_pane import ChatPane
from desktop.views.widgets.listening import listen
from engine.words import _

if TYPE_CHECKING:
    from desktop.views.tools.tools_window import ToolsWindow

__all__ = ["ToolController"]


class ToolController(QObject):
    """`window` is the window of tool servers once it was opened; `dialog` that of prompts or resources while
    it is open. Resources are attached by `attachments`.
    """

    def __init__(
        self,
        session: ChatSession,
        service: ToolService,
        attachments: AttachmentService,
        chat: ChatPane,
        parent: QWidget,
    ) -> None:
        super().__init__(parent)
        self._session, self._service, self._attachments = session, service, attachments
        self._chat, self._parent = chat, parent
        self._picker = picker = chat.composer.tools
        self._files = ResourceFiles()
        self.window: ToolsWindow | None = None
        self.dialog: QDialog | None = None
        picker.chosen.connect(session.set_tools_off)
        picker.manage_requested.connect(self.show_window)
        picker.prompts_requested.connect(self._choose_prompt)
        picker.resources_requested.connect(self._choose_resource)
        service.changed.connect(self._show)
        session.settings_changed.connect(self._on_settings)
        for signal in (session.conversation_changed, session.model_changed, session.local_only_changed):
            signal.connect(self._show)
        session.cast_changed.connect(self._show)
        listen(self, attachments.reading, self._on_reading)
        self._show()

    def commands(self) -> dict[str, Callable[[], object]]:
        """The command that opens the window."""
        return {"tools": lambda: self.show_window()}

    @Slot(str)
    def show_window(self, server: str = "") -> None:
        """Show the servers of tools, with one of them selected."""
        if self.window is None:
            from desktop.views.tools.tools_window import ToolsWindow  # only when needed

            self.window = ToolsWindow(self._service, self._parent)
        if server:
            self.window.select(server)
        self.window.show()
        self.window.activateWindow()

    def close(self) -> None:
        """Close the window, with the main window."""
        if self.window is not None:
            self.window.close()
        self._files.clear()

    # -- prompts and resources

    @Slot()
    def _choose_prompt(self) -> None:
        self._open([prompt for state in self._ready() for prompt in state.prompts], self._insert)

    @Slot()
    def _choose_resource(self) -> None:
        self._open([each for state in self._ready() for each in state.resources], self._attach)

    def _open(self, offers: Sequence[Offer], take: Callable[[tuple[Part, ...]], None]) -> None:
        from desktop.views.tools.offer_dialog import OfferDialog  # only when needed

        if offers:
            self.dialog = dialog = OfferDialog(offers, self._service, self._parent)
            dialog.arrived.connect(take)
            dialog.finished.connect(self._forget_dialog)
            dialog.open()

    def _forget_dialog(self, _result: int) -> None:
        self.dialog = None

    def _insert(self, parts: tuple[Part, ...]) -> None:
        box = self._chat.composer.box
        box.insertPlainText("".join(part.text for part in parts))
        box.ensureCursorVisible()
        box.setFocus()

    def _attach(self, parts: tuple[Part, ...]) -> None:
        try:
            paths = self._files.save(parts)
        except OSError as error:
            words = _("The resource cannot be written to a file ({problem}).", problem=error.strerror)
            self._chat.show_notice(words, "warning")
            return
        self._attachments.read(paths, self._session.conversation)
        self._chat.composer.setFocus()

    def _on_reading(self, files: int) -> None:
        if not files:
            self._files.clear()

    # -- the button

    @Slot(object)
    def _on_settings(self, cls: object) -> None:
        if cls is ToolSettings:
            self._show()

    def _ready(self) -> Sequence[ServerState]:
        return self._service.ready(self._session.tools_off, self._session.local_only)

    @Slot()
    def _show(self, *_unused: object) -> None:
        session = self._session
        takes_tools = bool(session.conversation) and not session.notebook and not session.cast.participants
        servers = self._service.servers() if takes_tools else ()
        ready = self._ready() if takes_tools else ()
        self._picker.show_tools(
            servers,
            session.tools_off,
            len(session.tools.offered_here()),
            prompts=any(state.prompts for state in ready),
            resources=any(state.resources for state in ready),
        )
