"""ChatTitles: the loaded model names chats after what they are about, while nothing else is written."""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator
from contextlib import closing
from typing import NamedTuple

from PySide6.QtCore import QObject, Signal, Slot

from desktop.services.conversations.title_text import later_title_request, title_of, title_request
from desktop.services.engine.job import Job
from desktop.services.session.chat_session import ChatSession
from desktop.services.session.context import is_temporary
from desktop.settings import Behaviour
from desktop.store.conversations.titles import is_untitled
from desktop.store.database.database import StoreError
from engine.core import ChatRequest, ChatSource, Done, Text, Waiting
from engine.errors import EngineError
from engine.settings import AdapterSettings, SpeculationSettings
from engine.words import _

__all__ = ["ChatTitles", "DueTitle", "ask_title"]

log = logging.getLogger(__name__)

_ELSEWHERE = "remote"
"""The backend of models on other machines: for a title nothing is sent there, and nothing is spent."""


class DueTitle(NamedTuple):
    """A chat whose title is to be written: what is asked of the model at `path`, and what it is about.
    `instead_of` is the title that it has when the user asks for another; None if nobody asked.
    """

    conversation: int
    path: str
    request: ChatRequest
    question: str
    reply: str
    instead_of: str | None = None


class ChatTitles(QObject):
    """After the first reply of a chat that is still named after its first words, asks the model that wrote it
    for a title. That waits while anything else is written, and ends when another model is loaded. A temporary
    chat is never named so, and a model on another machine is never asked. Without a usable answer the first
    words stay. The user can ask for a title at any time: `suggest`.

    Signals:
        suggested(int conversation, str title, str instead_of): what the user asked for; "" if nothing in the
            answer can be a title.
    """

    suggested = Signal(int, str, str)

    def __init__(self, session: ChatSession, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self._requests: dict[int, ChatRequest] = {}
        self._due: list[DueTitle] = []
        self._now: DueTitle | None = None
        self._job: Job | None = None
        session.replies.begun.connect(self._on_begun)
        session.reply_ended.connect(self._on_ended)
        session.became_free.connect(self._go_on)
        session.model_changed.connect(self._forget)
        session.file_replaced.connect(self._forget)
        session.conversations.rowsRemoved.connect(self._look)

    @property
    def waiting(self) -> tuple[int, ...]:
        """The chats whose titles are being written, or are to be."""
        now = (self._now,) if self._now is not None else ()
        return tuple(due.conversation for due in (*now, *self._due))

    def suggest(self, conversation: int) -> str:
        """Ask for a title of a chat as it is now, also if the user has named it; emits `suggested`. Returns
        why that is not possible, or "". Raises `StoreError`.
        """
        session, model = self._session, self._session.model
        if model is None:
            return _("No model is loaded.")
        if is_temporary(conversation):
            return _("Temporary chats have no titles.")
        if model.backend == _ELSEWHERE or session.base_model:
            return _("Titles are written by chat models on this computer. Load one first.")
        settings = session.settings(AdapterSettings), session.settings(SpeculationSettings)
        path = session.stores.kept.path(conversation)
        request, question, reply = later_title_request(path, *settings)
        if not question and not reply:
            return _("This chat has no messages yet.")
        if conversation not in self.waiting:
            title = session.stores.kept.get(conversation).title
            self._due.append(DueTitle(conversation, model.path, request, question, reply, title))
            self._go_on()
        return ""

    def close(self) -> bool:
        """Write no more titles."""
        self._forget()
        return True

    @Slot(int, object)
    def _on_begun(self, message: int, request: ChatRequest) -> None:
        self._requests[message] = request
        now = self._now
        if now is None or self._job is None:
            return
        if (now.request.adapters, now.request.speculation) != (request.adapters, request.speculation):
            self._job.stop()  # the reply would wait for it
            self._due.insert(0, now)
            self._now = None

    @Slot(int, int, bool)
    def _on_ended(self, conversation: int, message: int, stopped: bool) -> None:
        request = self._requests.pop(message, None)
        if request is None or stopped or conversation in self.waiting:
            return
        try:
            due = self._due_for(conversation, message, request)
        except StoreError as error:
            log.info("no title for chat %d: %s", conversation, error)
            return
        if due is not None:
            self._due.append(due)

    def _due_for(self, conversation: int, message: int, request: ChatRequest) -> DueTitle | None:
        session, model = self._session, self._session.model
        may_ask = session.settings(Behaviour).model_titles and not is_temporary(conversation)
        if not may_ask or model is None or session.base_model or request.plain or not request.messages:
            return None
        if model.backend == _ELSEWHERE:
            return None
        if not is_untitled(session.stores.database, conversation):
            return None
        store = session.stores.of(message)
        reply = store.message(message)
        shown = store.path(conversation)  # which is known already, unless another version is shown by now
        ids = [each.id for each in shown]
        above = shown[: ids.index(message)] if message in ids else store.path_to(message)
        users = [each for each in above if each.role == "user"]
        if reply.state != "complete" or not reply.text.strip() or len(users) != 1:
            return None
        asked = title_request(request, reply.text)
        return DueTitle(conversation, model.path, asked, users[0].text, reply.text)

    @Slot()
    def _go_on(self) -> None:
        """Begin the next title."""
        if self._job is not None or not self._due or self._session.state == "loading":
            return
        now = self._now = self._due.pop(0)
        self._job = self._session.replies.engine.ask(
            lambda source, stop: ask_title(source, now, stop),
            lambda _event: None,
            lambda answer, _sentence: self._on_answer(now, answer),
        )

    def _on_answer(self, due: DueTitle, answer: tuple[str, str] | None) -> None:
        self._job = None
        model = self._session.replies.adapted.of(due.request.adapters.adapters)
        if due is self._now:
            self._now = None
            title = ""
            if answer is not None and model is not None:
                title = title_of(*answer, due.question, due.reply, model.thinking)
            if due.instead_of is not None:
                self.suggested.emit(due.conversation, title, due.instead_of)
            elif title:
                self._session.name_after_topic(due.conversation, title)
        self._go_on()

    @Slot()
    def _forget(self) -> None:
        """Ask for no title that is due."""
        self._due.clear()
        self._now = None
        if self._job is not None:
            self._job.stop()

    @Slot()
    def _look(self) -> None:
        """Chats may have been deleted: they need no titles."""
        try:
            gone = {each for each in self.waiting if not self._session.stores.kept.is_listed(each)}
        except StoreError:  # the next read of the list reports it
            return
        self._due = [due for due in self._due if due.conversation not in gone]
        if self._now is not None and self._now.conversation in gone and self._job is not None:
            self._now = None
            self._job.stop()


def ask_title(
    source: ChatSource, due: DueTitle, stop: threading.Event
) -> Generator[Waiting, None, tuple[str, str] | None]:
    """The model's answer and why it ended; None from another model, if stopped, or if it cannot be asked."""
    if source.info.path != due.path:
        return None
    parts, reason = list[str](), ""
    events = source.stream(due.request, stop)
    try:
        with closing(events) if isinstance(events, Generator) else _Open():
            for event in events:
                if isinstance(event, Text):
                    parts.append(event.text)
                elif isinstance(event, Done):
                    reason = event.reason
                yield Waiting()  # it stays on this thread, and the replies go on
    except EngineError as error:  # too long, or refused by the template
        log.info("no title: %s", error)
        return None
    return None if stop.is_set() else ("".join(parts), reason)


class _Open:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *_how: object) -> None:
        return None
