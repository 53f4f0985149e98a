"""Later questions about long files: the whole texts of trimmed files are kept with their chat, and passages
for each question go with its message. Earlier messages stay as they are, and so does what is cached of them.
A question that is edited gets other passages.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from PySide6.QtCore import QObject, Signal, Slot

from desktop.services.composer.attachments import AttachmentService
from desktop.services.composer.fitting import FittingService
from desktop.services.composer.passage_search import PassageSearch, Search
from desktop.services.engine.background import Background
from desktop.services.session.chat_session import ChatSession
from desktop.settings import Behaviour
from desktop.store.attachments.message_format import HEAD, Attachment, join, passages_in, split
from desktop.store.attachments.whole_texts import PackedText, WholeTextStore, packed
from desktop.store.database.database import StoreError
from engine.words import _

__all__ = ["FollowUps"]


class _Question(NamedTuple):
    conversation: int
    text: str


class FollowUps(QObject):
    """Holds passages for the next message of the open chat, and finds those of edited ones.

    Signals:
        ready(str text): the passages for this question are held, if there are any.
        edited(int message, str text, bool answer): the edited text of a message has its passages.
        not_kept(str sentence): the whole text of a file is not kept.
        searching(bool): a question waits for its passages, or none does any more.
    """

    ready = Signal(str)
    edited = Signal(int, str, bool)
    not_kept = Signal(str)
    searching = Signal(bool)

    def __init__(
        self,
        session: ChatSession,
        attachments: AttachmentService,
        fitting: FittingService,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._session, self._attachments = session, attachments
        self._background = Background("passages", self)
        self._next = PassageSearch(session, fitting, self._background)
        self._edits = PassageSearch(session, fitting, self._background)
        self._editing: tuple[int, str, bool] | None = None
        self._searching: _Question | None = None
        self._searched: _Question | None = None
        self._held: dict[int, set[int]] = {}
        """The keys of the passages that were added to the next message of each chat."""
        fitting.fitted.connect(self._keep)
        session.conversation_changed.connect(self._stop_all)

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
        items = self._session.messages.items()
        said = tuple(item.text for item in items if item.role != "assistant")
        read = tuple(item.text for item in items)
        search = Search(question.conversation, text, said, read, partial(self._on_found, question))
        if self._began(self._next, search):
            self._searching = question
            self.searching.emit(True)
        return self._searching is not None

    def _began(self, job: PassageSearch, search: Search) -> bool:
        try:
            job.begin(search)
        except StoreError as error:
            self.not_kept.emit(str(error))
            return False
        return True

    def begin_edit(self, message: int, text: str, answer: bool) -> bool:
        """Find passages for a message of the open chat whose own words were edited; True if `edited` comes.
        A file that no earlier message has keeps as many passages as it had, or these if none match.
        """
        asked = message, text, answer
        if asked == self._editing:
            return True
        items = self._session.messages.items()
        place = next((place for place, item in enumerate(items) if item.id == message), None)
        if place is None or items[place].role != "user":
            return False
        files, own = split(text)
        before, words = items[place].text, text[own:]
        if before[split(before)[1] :].strip() == words.strip() or not self._may_search(words):
            return False
        counts = {file.name: passages_in(file.note) for _place, file in files}
        earlier = tuple(item.text for item in items[:place])
        known = {file.name for item in earlier for _place, file in split(item)[0]}
        changing = [file for _place, file in files if counts[file.name]]
        if not changing and not known:
            return False
        staying = join([file for _place, file in files if not counts[file.name]], "")
        said = (*(item.text for item in items[:place] if item.role == "user"), join(changing, ""))
        search = Search(
            self._session.conversation, words, said, (*earlier, staying),
            partial(self._on_edited, asked, known),
            {name: count for name, count in counts.items() if count and name not in known},
        )  # fmt: skip
        self._editing = asked if self._began(self._edits, search) else None
        self.searching.emit(self._editing is not None or self._searching is not None)
        return self._editing is not None

    def leave_edit(self) -> None:
        """The edit was cancelled: nothing waits for its passages any more."""
        self.searching.emit(self._searching is not None)

    @Slot()
    def skip(self) -> None:
        """Let what waits go on without the passages that are still searched for."""
        self._next.skip()
        self._edits.skip()

    def _on_edited(
        self, asked: tuple[int, str, bool], known: set[str], found: tuple[Attachment, ...]
    ) -> None:
        self._editing = None
        self.searching.emit(self._searching is not None)
        message, text, answer = asked
        files, own = split(text)
        new = {file.name: file for file in found}
        chosen = list[Attachment]()
        for _place, file in files:
            if not passages_in(file.note):
                chosen.append(file)
                new.pop(file.name, None)
            elif file.name in new or file.name not in known:
                chosen.append(new.pop(file.name, file))
        self.edited.emit(message, join([*chosen, *new.values()], text[own:]), answer)

    @Slot()
    def stop(self) -> None:
        """Stop searching: the question was changed, or another chat opened."""
        self._next.stop()
        self._searching = None
        self.searching.emit(self._editing is not None)

    @Slot()
    def _stop_all(self) -> None:
        self._edits.stop()
        self._editing = None
        self.stop()

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

    def _on_found(self, question: _Question, found: tuple[Attachment, ...]) -> None:
        self._searching, self._searched = None, question
        self.searching.emit(self._editing is not None)
        taken = {held.attachment.name for held in self._attachments.held(question.conversation)}
        new = [file for file in found if file.name not in taken]
        keys = {self._attachments.hold(file, question.conversation) for file in new}
        self._held[question.conversation] = keys
        self.ready.emit(question.text)
