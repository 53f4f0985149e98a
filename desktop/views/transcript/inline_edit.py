"""The one message of a transcript that is a text box, until its text is saved or given up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt

from desktop.views.transcript.message_list import Conversation
from desktop.views.transcript.row_widgets.editor import EditorRow
from desktop.views.transcript.rows import Row, RowKind

if TYPE_CHECKING:
    from desktop.views.transcript.view import TranscriptView

__all__ = ["Editing"]


class Editing:
    """`begin` and `cancel` turn a message of `view` into a text box and back."""

    def __init__(self, view: TranscriptView, conversation: Conversation) -> None:
        self._view, self._conversation = view, conversation
        self._message: int | None = None

    def begin(self, message_id: int) -> None:
        """Raises KeyError when the message is not here."""
        view, position = self._view, self._conversation.position(message_id)
        if self._message is not None:
            self.cancel(self._message)
        self._message = message_id
        message = self._conversation.messages[position]
        message.editing = True
        self._conversation.sync(position)
        view.scrolling.hold(message.rows[0])
        view.flush()
        editor = view.stage.widget(message.rows[-1])
        if isinstance(editor, EditorRow):
            editor.begin(message.item.text)
            view.flush()
            view.scrolling.show_row(message.rows[-1])

    def cancel(self, message_id: int) -> bool:
        """Show the message again as it was; False when it is not the one that is edited."""
        if message_id != self._message:
            return False
        self._message = None
        if self._conversation.rows_of(message_id):
            position = self._conversation.position(message_id)
            self._conversation.messages[position].editing = False
            self._conversation.sync(position)
            self._view.setFocus(Qt.FocusReason.OtherFocusReason)
        return True

    def forget(self) -> None:
        """The messages are others."""
        self._message = None

    def pinned(self) -> set[Row]:
        """The text box must live on when it is scrolled away.

        An edit ends when its message goes or another variant is shown.
        """
        if self._message is None:
            return set()
        editors = {row for row in self._conversation.rows_of(self._message) if row.kind is RowKind.EDITOR}
        if not editors:
            self._message = None
        return editors
