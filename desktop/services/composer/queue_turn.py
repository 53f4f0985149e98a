"""QueueTurn: counts a queued message again before it is sent: its chat may have grown since."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Signal

from desktop.services.composer.fit_to_context import fitted, over_text, size_of
from desktop.services.session.chat_session import ChatSession
from desktop.store.attachments.message_format import join, split
from desktop.store.conversations.queue import Queued
from desktop.store.database.database import StoreError
from engine.core import ChatRequest, ChatSource, PromptSize
from engine.settings import StopSettings
from engine.words import _

__all__ = ["QueueTurn"]

_SURELY_SHORT = 1000
"""Bytes of a message that is not counted."""


class QueueTurn(QObject):
    """Checks one message at a time.

    Signals:
        ready(object waiting, bool cut): the `Queued` to send, with its files cut if they were too long.
        too_long(object waiting, str sentence): it does not fit, even if they are cut.
        too_late(): another reply has begun in its chat meanwhile.
    """

    ready = Signal(object, bool)
    too_long = Signal(object, str)
    too_late = Signal()

    def __init__(self, session: ChatSession, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self._number, self._by_user = 0, False
        self._whole: Queued | None = None

    def begin(self, waiting: Queued, by_user: bool = False) -> None:
        """Find out whether `waiting` fits, instead of any earlier message; a signal answers, at once for a
        short one. A message sent `by_user` may take the space that is reserved for the reply.
        """
        self._number += 1
        self._whole, self._by_user = waiting, by_user
        if self._may_be_long(waiting):
            self._count(waiting)
        else:
            self.ready.emit(waiting, False)

    def _may_be_long(self, waiting: Queued) -> bool:
        session, model = self._session, self._session.model
        if model is None:
            return False
        text = waiting.text + waiting.opening + session.prompt.text
        fills = (
            waiting.conversation_id != session.conversation
            or session.settings(StopSettings).when_full == "stop"
        )
        return fills or len(text.encode()) > min(_SURELY_SHORT, model.context_length // 4)

    def _request(self, waiting: Queued) -> ChatRequest | None:
        try:
            return self._session.preview_request(waiting.text, waiting.opening, waiting.conversation_id)
        except StoreError as error:
            self._session.notice.emit(str(error), "error")
            return None

    def _count(self, waiting: Queued) -> None:
        request = self._request(waiting)
        if request is None:
            self.ready.emit(waiting, waiting is not self._whole)
            return
        self._ask(size_of(request), waiting)

    def _ask(self, question: Callable[[ChatSource], object], waiting: Queued) -> None:
        number = self._number
        self._session.ask(question, lambda answer: self._on_answer(number, waiting, answer))

    def _on_answer(self, number: int, waiting: Queued, answer: object) -> None:
        if number != self._number:
            return
        if self._session.state_in(waiting.conversation_id) != "idle":
            self.too_late.emit()
            return
        files, place = split(waiting.text)
        if isinstance(answer, tuple):
            self._count(waiting._replace(text=join(answer, waiting.text[place:])))
        elif not isinstance(answer, PromptSize) or answer.over <= (answer.reply if self._by_user else 0):
            self.ready.emit(waiting, waiting is not self._whole)
        elif files and waiting is self._whole and (request := self._request(waiting)) is not None:
            held = tuple(attachment for _unused, attachment in files)
            self._ask(fitted(request, held, waiting.text[place:]), waiting)
        else:
            over = _("The queued message is {over} too long for the context.", over=over_text(answer))
            helps = (
                _("Shorten it.") if answer.prompt > answer.context else _("Shorten it, or send it anyway.")
            )
            sentence = f"{over} {helps}"
            self.too_long.emit(self._whole, sentence)
