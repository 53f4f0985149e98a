"""Later questions about long files: the whole texts of trimmed files are kept with their chat, and passages
for each question go with its message. Earlier messages stay as they are, and so does what is cached of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from PySide6.QtCore import QObject, Signal, Slot

from desktop.services.composer.attachments import AttachmentService
from desktop.services.engine.background import Background
from desktop.services.engine.stream_thread import Job
from desktop.services.session.chat_session import ChatSession
from desktop.services.session.context import is_temporary
from desktop.settings import Behaviour
from desktop.store.attachments.message_format import HEAD, Attachment, split
from desktop.store.attachments.passages import further
from desktop.store.attachments.whole_texts import PackedText, WholeTextStore, packed
from desktop.store.database.database import StoreError
from engine.settings import StopSettings
from engine.words import _

__all__ = ["FollowUps", "files_of", "read_anyway"]

MOST_PASSAGES = 5
"""That go with a later question: about 1,250 tokens."""
_TOKENS_FOR_EACH = 1000
"""Of the context for each passage: in a small one, fewer go with a question."""
_CHARACTERS_PER_TOKEN = 3
"""Fewer than in most texts: what surely fits into the context."""


class _Question(NamedTuple):
    conversation: int
    text: str


class FollowUps(QObject):
    """Holds passages for the next message of the open chat.

    Signals:
        ready(str text): the passages for this question are held, if there are any.
        not_kept(str sentence): the whole text of a file is not kept.
    """

    ready = Signal(str)
    not_kept = Signal(str)

    def __init__(
        self, session: ChatSession, attachments: AttachmentService, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._session, self._attachments = session, attachments
        self._background = Background("passages", self)
        self._searching: _Question | None = None
        self._searched: _Question | None = None
        self._job: Job | None = None
        self._held: dict[int, set[int]] = {}
        """The keys of the passages that were added to the next message of each chat."""
        attachments.fitted.connect(self._keep)
        session.conversation_changed.connect(self.stop)

    def close(self) -> bool:
        """End the thread."""
        return self._background.close()

    # -- whole texts

    @Slot(int, object)
    def _keep(self, conversation: int, files: Sequence[Attachment]) -> None:
        """Keep the whole texts of files that were trimmed."""
        held = {(each.attachment.name, each.attachment.text) for each in self._attachments.held(conversation)}
        whole = [file for file in files if file.text and (file.name, file.text) not in held]
        if whole:
            self._background.call(
                lambda _stop: [packed(file.name, file.text) for file in whole],
                partial(self._save, conversation),
            )

    def _save(self, conversation: int, texts: list[PackedText] | None) -> None:
        try:
            left_out = WholeTextStore(self._session.stores.database_of(conversation)).put(
                conversation, texts or ()
            )
        except StoreError as error:
            self.not_kept.emit(
                _("Later questions get no new passages of the trimmed files: {error}", error=error)
            )
            return
        if left_out:
            names = ", ".join(f"“{name}”" for name in left_out)
            self.not_kept.emit(
                _(
                    "The trimmed files of your chats take 1 GB, so later questions get no new passages of "
                    "{names}. Delete chats with long files, then empty the trash.",
                    names=names,
                )
            )

    # -- passages

    def begin(self, text: str) -> bool:
        """Find passages for the question `text`, unless there are no files in the chat or they were found
        before; True if `ready` comes.
        """
        question = _Question(self._session.conversation, text)
        if question == self._searching:
            return True
        if question == self._searched or not self._may_search(text):
            return False
        self.stop()
        self.withdraw()
        said = tuple(item.text for item in self._session.messages.items() if item.role != "assistant")
        try:
            kept = WholeTextStore(self._session.stores.database_of(question.conversation)).of(
                question.conversation
            )
        except StoreError as error:
            self.not_kept.emit(str(error))
            return False
        self._searching = question
        self._job = self._background.call(
            lambda _stop: files_of(said, kept), partial(self._on_files, question)
        )
        return True

    @Slot()
    def stop(self) -> None:
        """Stop searching: the question was changed, or another chat opened."""
        self._background.drop(self._job)
        self._job = self._searching = None

    def forget(self) -> None:
        """The question was sent: the same one may be asked again."""
        self._searched = None
        self._held.pop(self._session.conversation, None)

    def withdraw(self) -> bool:
        """Remove the passages that were added to the next message; whether there were any."""
        conversation = self._session.conversation
        added = self._held.pop(conversation, set())
        present = added & {held.key for held in self._attachments.held(conversation)}
        for key in present:
            self._attachments.remove(key, conversation)
        return bool(present)

    def _may_search(self, text: str) -> bool:
        session = self._session
        return (
            session.model is not None
            and bool(text.strip())
            and session.settings(Behaviour).follow_ups
            and any(HEAD in item.text for item in session.messages.items() if item.role == "user")
        )

    def _on_files(self, question: _Question, files: tuple[Attachment, ...] | None) -> None:
        meaning = self._attachments.meaning
        model = meaning.model() if meaning is not None and files and not meaning.running else None
        if meaning is None or model is None or not files:
            self._choose(question, files or (), ())
            return

        def ranked(orders: tuple[tuple[int, ...], ...], _sentence: str) -> None:
            if self._searching == question:
                self._choose(question, files, orders)

        keep = not is_temporary(question.conversation)
        meaning.rank(model, files, question.text, keep, lambda _percent: None, ranked, only_known=True)

    def _choose(
        self, question: _Question, files: tuple[Attachment, ...], orders: tuple[tuple[int, ...], ...]
    ) -> None:
        model = self._session.model
        context = model.context_length if model is not None else 0
        drops = self._session.settings(StopSettings).when_full == "drop_oldest"
        texts = [item.text for item in self._session.messages.items()]
        known = read_anyway(texts, context * _CHARACTERS_PER_TOKEN if drops else 0)
        most = min(MOST_PASSAGES, max(1, context // _TOKENS_FOR_EACH)) if context else MOST_PASSAGES
        self._job = self._background.call(
            lambda _stop: further(files, question.text, known, most, orders),
            partial(self._on_found, question),
        )

    def _on_found(self, question: _Question, found: tuple[Attachment, ...] | None) -> None:
        self._job, self._searching, self._searched = None, None, question
        taken = {held.attachment.name for held in self._attachments.held(question.conversation)}
        new = [file for file in found or () if file.name not in taken]
        keys = {self._attachments.hold(file, question.conversation) for file in new}
        self._held[question.conversation] = keys
        self.ready.emit(question.text)


def files_of(texts: Sequence[str], kept: Sequence[PackedText]) -> tuple[Attachment, ...]:
    """The whole files of a chat's messages, each once: those that messages have, and for those of which they
    have a part, the longest of the texts that were `kept`.
    """
    found: dict[str, Attachment] = {}
    parts = set[str]()
    for text in texts:
        for _place, file in split(text)[0] if HEAD in text else ():
            if file.note:
                parts.add(file.name)
            elif file.picture is None and file.text.strip():
                found[file.name] = file
    for each in kept:
        whole = each.text if each.name in parts else ""
        if len(whole) > len(found[each.name].text if each.name in found else ""):
            found[each.name] = Attachment(each.name, whole)
    return tuple(found.values())


def read_anyway(texts: Sequence[str], room: int) -> str:
    """The last of a chat's texts, as many as have `room` characters together; all of them if that is 0."""
    lengths = accumulate(len(text) for text in reversed(texts))
    count = sum(length <= room for length in lengths) if room else len(texts)
    return "\n".join(texts[len(texts) - count :])
