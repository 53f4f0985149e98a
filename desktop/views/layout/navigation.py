"""Going from place to place in the window: to another chat, to a message, into the message box."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject

from desktop.services.session.chat_session import ChatSession
from desktop.views.chat.chat_pane import ChatPane
from desktop.views.composer.autosave import DraftAutosave
from desktop.views.layout.panes import Panes
from desktop.views.notebook.controller import NotebookController
from desktop.views.settings.settings_pane import Inspector

__all__ = ["NavigationController"]


class NavigationController(QObject):
    """Opens chats and messages; what is still being typed in a setting or a message is saved first."""

    def __init__(
        self,
        session: ChatSession,
        panes: Panes,
        chat: ChatPane,
        inspector: Inspector,
        autosave: DraftAutosave,
        notebooks: NotebookController,
    ) -> None:
        super().__init__(panes)
        self._session, self._panes, self._chat = session, panes, chat
        self._inspector, self._autosave, self._notebooks = inspector, autosave, notebooks

    def commands(self) -> dict[str, Callable[[], object]]:
        """The commands that go to another chat or into the message box."""
        return {"new_chat": self.new_chat, "new_temporary": self.new_temporary, "write": self.write}

    def new_chat(self, folder: int = 0) -> None:
        """Open an empty chat in a folder, or (0) in none, ready for typing."""
        self._inspector.finish()
        self._autosave.save()
        self._session.new_conversation(folder)
        self.write()

    def new_temporary(self) -> None:
        """Open an empty temporary chat, ready for typing."""
        self._inspector.finish()
        self._session.new_temporary()
        self.write()

    def open_chat(self, conversation: int) -> None:
        """Show a chat."""
        self.leave_side()
        self._session.open_conversation(conversation)

    def open_message(self, message: int) -> None:
        """Show a message in its chat."""
        self.leave_side()
        self._chat.message_commands.open_message(message)

    def leave_side(self) -> None:
        """Commit the setting that is being typed; in a narrow window, go back to the conversation."""
        self._inspector.finish()
        self._panes.leave_side()

    def write(self) -> None:
        """Move the focus to the message box, or to the text of the open notebook."""
        self._panes.leave_side()
        page = self._notebooks.open_page
        (page.editor if page is not None else self._chat.composer).setFocus()
