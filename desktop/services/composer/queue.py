"""MessageQueue: messages that wait for the reply in their chat; each is sent when that is complete."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QObject, Signal, Slot

from desktop.services.composer.queue_turn import QueueTurn
from desktop.services.session.chat_session import ChatSession
from desktop.store.conversations.queue import Queued, QueueStore
from desktop.store.database.database import StoreError
from engine.words import _

__all__ = ["MessageQueue"]


class MessageQueue(QObject):
    """Each chat has its own queue. After a reply that was stopped or failed, the queue of its chat is held
    until the user sends a message from it; at the start, all queues are held.

    Signals:
        changed(): a queue has changed, or whether it is held.
    """

    changed = Signal()

    def __init__(self, session: ChatSession, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session, self._store = session, QueueStore(session.stores)
        self._all: list[Queued] = []
        self._held: set[int] = set()
        self._not_stopped: set[int] = set()
        self._ended: dict[int, int] = {}  # by chat, the message of the reply
        self._sending = 0
        self._sent: set[int] = set()
        self._turn = QueueTurn(session, self)
        self._turn.ready.connect(self._on_ready)
        self._turn.too_long.connect(self._on_too_long)
        self._turn.too_late.connect(self._go_on)
        self._read()
        self._held = {waiting.conversation_id for waiting in self._all}
        session.reply_ended.connect(self._on_ended)
        session.became_free.connect(self._on_free)
        session.tools.changed.connect(self._on_calls)
        session.conversation_changed.connect(self.changed)

    def waiting(self, conversation: int) -> Sequence[Queued]:
        """The queue of a chat, in the order of sending."""
        return [waiting for waiting in self._all if waiting.conversation_id == conversation]

    def is_held(self, conversation: int) -> bool:
        """Whether a chat's queue waits for the user."""
        return conversation in self._held

    def add(self, text: str, opening: str = "") -> bool:
        """Append a message to the open chat's queue; False, with a notice, if it cannot be saved."""
        conversation = self._session.conversation
        try:
            self._store.add(conversation, text.strip("\n").rstrip(), opening)
        except StoreError as error:
            self._session.notice.emit(str(error), "error")
            return False
        if self._session.state == "stopping":
            self._not_stopped.add(conversation)  # written after the stop, so the user wants it sent
        self._read()
        return True

    def remove(self, number: int) -> Queued | None:
        """Remove a message from its queue; returns it."""
        found = self._found(number)
        if found is not None:
            try:
                self._store.remove(number)
            except StoreError as error:
                self._session.notice.emit(str(error), "error")
                return None
            self._read()
        return found

    def move(self, before: int, now: int) -> None:
        """Move the queue of one chat to another one."""
        try:
            self._store.move(before, now)
        except StoreError as error:
            self._session.notice.emit(str(error), "error")
        for states in (self._held, self._not_stopped):
            if before in states:
                states.discard(before)
                states.add(now)
        self._read()

    def send(self, number: int) -> None:
        """Send a message now if it fits; the rest of its queue follows after its reply."""
        found = self._found(number)
        if found is not None and self._is_free(found):
            self._turn.begin(found, by_user=True)
        elif found is not None:
            self._send(found)  # which reports why it cannot be sent

    def _send(self, waiting: Queued) -> None:
        """Send a message and remove it from its queue; never twice, even if the store cannot remove it."""
        self._sending = waiting.id
        try:
            if self._session.submit(waiting.text, waiting.opening, chat=waiting.conversation_id):
                self._held.discard(waiting.conversation_id)
                self._sent.add(waiting.id)
        finally:
            self._sending = 0
        self._forget_sent()
        self._read()

    def _forget_sent(self) -> None:
        for number in tuple(self._sent):
            try:
                self._store.remove(number)
            except StoreError as error:
                self._session.notice.emit(str(error), "error")
            else:
                self._sent.discard(number)

    def _found(self, number: int) -> Queued | None:
        return next((waiting for waiting in self._all if waiting.id == number), None)

    def _read(self) -> None:
        try:
            self._all = [
                waiting for waiting in self._store.all() if waiting.id not in (*self._sent, self._sending)
            ]
        except StoreError as error:
            self._all = [waiting for waiting in self._all if waiting.id not in self._sent]
            self._session.notice.emit(str(error), "error")
        self.changed.emit()

    @Slot(int, int)
    def _on_ended(self, conversation: int, message: int) -> None:
        self._ended[conversation] = message

    @Slot()
    def _on_free(self) -> None:
        ended, self._ended = self._ended, {}
        if self._sending or not (self._all or self._sent):
            return
        self._forget_sent()
        self._read()  # a chat may have been deleted
        for conversation, message in ended.items():
            complete = self._is_complete(message)
            if not complete and conversation not in self._not_stopped:
                self._held.add(conversation)
            elif complete:
                self._held.discard(conversation)
            self._not_stopped.discard(conversation)
        self._go_on()
        self.changed.emit()

    def _is_complete(self, message: int) -> bool:
        try:
            return self._session.stores.of(message).message(message).state == "complete"
        except StoreError as error:
            self._session.notice.emit(str(error), "error")
            return False

    @Slot(int)
    def _on_calls(self, conversation: int) -> None:
        """Calls were stopped, and no reply follows them: the queue waits for the user."""
        if self._session.state_in(conversation) == "idle" and not self._calls_in(conversation):
            self._held.add(conversation)
            self.changed.emit()

    def _calls_in(self, conversation: int) -> bool:
        try:
            return self._session.tools.pending_in(conversation)
        except StoreError as error:
            self._session.notice.emit(str(error), "error")
            return True

    def _is_free(self, waiting: Queued) -> bool:
        chat = waiting.conversation_id
        return self._session.state_in(chat) == "idle" and not self._calls_in(chat)

    @Slot()
    def _go_on(self) -> None:
        """Send the first message that need not wait any longer; the next chat's follows it."""
        ready = (waiting for waiting in self._all if waiting.conversation_id not in self._held)
        free = next(filter(self._is_free, ready), None)
        if free is not None:
            self._turn.begin(free)

    @Slot(object, bool)
    def _on_ready(self, waiting: Queued, cut: bool) -> None:
        if self._found(waiting.id) is None:  # it was removed meanwhile
            self._go_on()
            return
        self._held.add(waiting.conversation_id)  # if it is refused, it waits for the user
        if cut:
            self._session.notice.emit(
                _("The files of the queued message were trimmed so that it fits."), "info"
            )
        self._send(waiting)
        self._go_on()
        self.changed.emit()

    @Slot(object, str)
    def _on_too_long(self, waiting: Queued, sentence: str) -> None:
        if self._found(waiting.id) is not None:
            self._held.add(waiting.conversation_id)
            self._session.notice.emit(sentence, "warning")
        self._go_on()
        self.changed.emit()
