"""Keeps the Tools button of the composer in step, and opens the window of tool servers."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Slot
from PySide6.QtWidgets import QWidget

from desktop.services.session.chat_session import ChatSession
from desktop.services.tools.tool_service import ToolService
from desktop.settings import ToolSettings
from desktop.views.composer.tool_picker import ToolPicker

__all__ = ["ToolController"]


class ToolController(QObject):
    """`window` is the window of tool servers once it was opened."""

    def __init__(
        self, session: ChatSession, service: ToolService, picker: ToolPicker, parent: QWidget
    ) -> None:
        super().__init__(parent)
        self._session, self._service, self._picker, self._parent = session, service, picker, parent
        self.window: QWidget | None = None
        picker.chosen.connect(session.set_tools_off)
        picker.manage_requested.connect(self.show_window)
        service.changed.connect(self._show)
        session.settings_changed.connect(self._on_settings)
        for signal in (session.conversation_changed, session.model_changed, session.local_only_changed):
            signal.connect(self._show)
        session.cast_changed.connect(self._show)
        self._show()

    def commands(self) -> dict[str, Callable[[], object]]:
        """The command that opens the window."""
        return {"tools": self.show_window}

    def show_window(self) -> None:
        """Show the servers of tools."""
        if self.window is None:
            from desktop.views.tools.tools_window import ToolsWindow  # only when needed

            self.window = ToolsWindow(self._service, self._parent)
        self.window.show()
        self.window.activateWindow()

    def close(self) -> None:
        """Close the window, with the main window."""
        if self.window is not None:
            self.window.close()

    @Slot(object)
    def _on_settings(self, cls: object) -> None:
        if cls is ToolSettings:
            self._show()

    @Slot()
    def _show(self, *_unused: object) -> None:
        session = self._session
        takes_tools = bool(session.conversation) and not session.notebook and not session.cast.participants
        servers = self._service.servers() if takes_tools else ()
        self._picker.show_tools(servers, session.tools_off, len(session.tools.offered_here()))
