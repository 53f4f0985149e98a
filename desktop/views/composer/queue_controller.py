"""The messages that wait in the queue of the open chat: shown above the message box, edited, removed and
sent.
"""

from __future__ import annotations

from PySide6.QtCore import QObject

from desktop.items.commands.slash import escaped, unescaped
from desktop.services.composer.composer_services import ComposerServices
from desktop.services.session.chat_session import ChatSession
from desktop.store.attachments.message_format import split
from desktop.views.chat.chat_pane import ChatPane
from desktop.views.composer.queue_list import QueueList
from desktop.views.widgets.listening import listen
from engine.words import N_, _, translate

__all__ = ["QueueController"]

_UNTIL = {"loading": N_("Sent when the model is loaded"), "no_model": N_("Sent when a model is loaded")}
"""When a queued message is sent in these states."""


class QueueController(QObject):
    """Keeps `rows` in step with the queue."""

    def __init__(
        self, writing: ComposerServices, session: ChatSession, chat: ChatPane, parent: QObject
    ) -> None:
        super().__init__(parent)
        self._writing, self._session, self._chat = writing, session, chat
        self.rows = QueueList()
        writing.queue.changed.connect(self._show_queue)
        listen(self, session.conversation_changed, lambda _conversation: self._show_queue())
        listen(self, session.state_changed, lambda _state: self._show_queue() if self.rows.rows else None)
        self.rows.edited.connect(self._edit_waiting)
        self.rows.removed.connect(self._remove_waiting)
        self.rows.sent.connect(writing.queue.send)
        self.rows.left.connect(chat.composer.setFocus)
        self._show_queue()

    def _show_queue(self) -> None:
        conversation = self._session.conversation
        until = translate(_UNTIL.get(self._session.state, N_("Sent when the reply is complete")))
        self.rows.show_waiting(
            self._writing.queue.waiting(conversation), self._writing.queue.is_held(conversation), until
        )

    def _remove_waiting(self, number: int) -> None:
        found = self._writing.queue.remove(number)
        if found is not None:
            self._session.push_undo(
                _("removing a queued message"),
                lambda: self._put_back(found.conversation_id, found.text, found.opening),
            )
            self._chat.banner.show_notice(_("The queued message was removed."), "info", undo=True)

    def _put_back(self, conversation: int, text: str, opening: str) -> None:
        if conversation != self._session.conversation:
            self._session.open_conversation(conversation)
        self._writing.queue.add(text, opening)

    def _edit_waiting(self, number: int) -> None:
        """Move a queued message back into the composer, before the text there."""
        found = self._writing.queue.remove(number)
        if found is None:
            return
        composer = self._chat.composer
        files, place = split(found.text)
        held = [each.attachment for each in self._writing.attachments.held(self._session.conversation)]
        self._writing.attachments.put(
            [*(attachment for _unused, attachment in files), *held], self._session.conversation
        )
        parts = (found.text[place:], unescaped(composer.text()))
        composer.set_text(escaped("\n\n".join(part for part in parts if part.strip())))
        if found.opening:
            composer.set_opening(found.opening)
        composer.setFocus()
