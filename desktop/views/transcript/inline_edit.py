"""The message of a transcript that is shown as a text box, until its text is saved or discarded."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt

from desktop.views.transcript.parts import TranscriptParts
from desktop.views.transcript.row_widgets.editor import EditorRow
from desktop.views.transcript.rows import Row, RowKind
from desktop.views.transcript.scrolling import Scrolling

__all__ = ["InlineEdit"]


class InlineEdit:
    """`begin` and `cancel` turn a message into a text box and back; `edited` takes a text that is saved."""

    def __init__(
        self, parts: TranscriptParts, scrolling: Scrolling, edited: Callable[[int, str, bool], object]
    ) -> None:
        self._parts, self._scrolling, self._edited = parts, scrolling, edited
        self._message: int | None = None
        self._waiting = ""
        """The text that waits to be saved."""
        self.waits: Callable[[int, str, bool], bool] = lambda message, text, answer: False
        """Whether an edited text is not saved yet, since `end` will be called, with it or a better one."""
        self.left: Callable[[], object] = lambda: None
        """Called when a text that waits is not to be saved any more."""

    def begin(self, message_id: int) -> None:
        """Raises KeyError when the message is not here."""
        parts, message = self._parts, self._parts.messages.message(message_id)
        if self._message is not None:
            self.cancel(self._message)
        self._message, self._waiting = message_id, ""
        message.editing = True
        parts.messages.sync_message(message_id)
        self._scrolling.hold(message.rows[0])
        parts.view.flush()
        editor = parts.pool.widget(message.rows[-1])
        if isinstance(editor, EditorRow):
            editor.begin(message.item.text)
            parts.view.flush()
            self._scrolling.show_row(message.rows[-1])

    def cancel(self, message_id: int) -> None:
        """Show the message as it was before `begin`; does nothing for another message than the edited one."""
        if message_id != self._message:
            return
        self._message = None
        if self._waiting:
            self._waiting = ""
            self.left()
        if self._parts.messages.rows_of(message_id):
            self._parts.messages.message(message_id).editing = False
            self._parts.messages.sync_message(message_id)
            self._parts.area.setFocus(Qt.FocusReason.OtherFocusReason)
        self._parts.view.schedule()

    def save(self, message_id: int, text: str, answer: bool) -> None:
        """Save the text, now or when it need not wait any more."""
        if self.waits(message_id, text, answer):
            self._waiting = text
        elif message_id == self._message:
            self._save(message_id, text, answer)

    def end(self, message_id: int, text: str, answer: bool) -> None:
        """Save a text that waited; does nothing if the edit was cancelled or went on in the meantime."""
        if message_id == self._message:
            editor = self._parts.pool.widget(self._parts.messages.message(message_id).rows[-1])
            if isinstance(editor, EditorRow) and editor.text == self._waiting:
                self._save(message_id, text, answer)

    def _save(self, message_id: int, text: str, answer: bool) -> None:
        self._waiting = ""
        self.cancel(message_id)
        self._edited(message_id, text, answer)

    def forget(self) -> None:
        """The messages were exchanged for others."""
        self._message = None

    def pinned(self) -> set[Row]:
        """The row of the text box, which must live on when it is scrolled away.

        An edit ends when its message goes or another version of it is shown.
        """
        if self._message is None:
            return set()
        editors = {row for row in self._parts.messages.rows_of(self._message) if row.kind is RowKind.EDITOR}
        if not editors:
            self._message = None
        return editors
