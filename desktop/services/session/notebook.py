"""The part of a session that writes notebooks: a document that the user and the model write in turn,
without a template.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import Signal, Slot

from desktop.services.engine.token_cache import STRETCH
from desktop.services.session.settings import told
from desktop.services.session.turns import TurnSession
from desktop.store.conversations.conversations import StoredMessage
from desktop.store.conversations.records import NOTEBOOK
from desktop.store.conversations.token_trace import TokenTrace
from desktop.store.database.database import StoreError
from engine.core import ChatRequest, Message
from engine.settings import SamplerSettings

__all__ = ["SETTLED_CHARACTERS", "Document", "NotebookSession"]

SETTLED_CHARACTERS = 60_000
"""A text up to this length is brought into the search index at every save: in a millisecond or two."""


@dataclass(frozen=True, slots=True)
class Document:
    """An open notebook's document. What a model writes, while `running`, goes in at the character `place`;
    `stretch` is where the last written stretch begins and ends, (0, 0) for none. `footer` and `notice` are
    those of a reply.
    """

    message_id: int
    text: str
    running: bool = False
    place: int = 0
    stretch: tuple[int, int] = (0, 0)
    footer: str = ""
    notice: str = ""


class NotebookSession(TurnSession):
    """Saves what is typed into the open notebook, and has it written on.

    Signals:
        document_shown(): another notebook is open, or its document was changed by something else than its
        page.
    """

    document_shown = Signal()

    @told
    def new_notebook(self) -> bool:
        """Open an empty notebook; the newest conversation, where it is one, is used."""
        newest = self._newest()
        if (
            newest is not None
            and not newest.title
            and newest.kind == NOTEBOOK
            and not self.stores.kept.path(newest.id)[0].text
        ):
            return self._open(newest.id)
        made = self.stores.kept.create(kind=NOTEBOOK)
        self._touched(made.id)
        return self._open(made.id)

    @told
    def new_temporary_notebook(self) -> bool:
        """Open an empty notebook that is never written down."""
        return self._open(self.stores.temporary.create(kind=NOTEBOOK).id)

    def document(self) -> Document | None:
        """The open notebook's document as it is now; None where a chat is open or the store has trouble,
        of which a notice tells.
        """
        try:
            if not self.notebook:
                return None
            return self._document_of(self._stored_document())
        except StoreError as error:
            self.notice.emit(str(error), "error")
            return None

    def _document_of(self, message: StoredMessage) -> Document:
        reply = self._runner.growing
        if reply is not None and reply.message_id == message.id:
            item = self._runner.item(message)
            return Document(
                message.id,
                reply.whole,
                True,
                len(reply.text),
                (reply.begun, len(reply.text)),
                "",
                item.notice,
            )
        item = self._runner.item(message)
        stretch = message.stats.get(STRETCH, (0, 0))
        ended = self._runner.unsaved.find(message.id)
        stretch = ended.stats.get(STRETCH, stretch) if ended is not None else stretch
        start, end = stretch if _is_stretch(stretch, len(item.text)) else (0, 0)
        said = "" if message.state == "running" else item.notice
        # who was writing is not known: it may have been the user
        if message.state == "stopped" and not message.stats:
            said = "Inglenook ended while this was being written; what had been saved is here."
        return Document(message.id, item.text, stretch=(start, end), footer=item.footer, notice=said)

    def _stored_document(self) -> StoredMessage:
        path = self._of_open.path(self._conversation)
        if not path:  # an imported notebook without its document
            return self._of_open.add_message(self._conversation, None, "assistant", "")
        return path[0]

    def save_document(self, message_id: int, text: str, settled: bool = True) -> bool:
        """Save what was typed; False, without a notice, when that is not possible now.

        Not while a reply is written into it.

        Only a text that is `settled`, or short, can be found by a search.
        """
        if self._runner.message_id == message_id:
            return True
        unsaved = self._runner.unsaved
        try:
            # its end would put an older text in the place of this one
            if (ended := unsaved.find(message_id)) is not None:
                unsaved.put(message_id, ended._replace(text=text))
                unsaved.save()
                if unsaved.find(message_id) is not None:
                    return False
            store = self.stores.of(message_id)
            store.set_text(message_id, text, settled or len(text) <= SETTLED_CHARACTERS)
            self._touched(store.message(message_id).conversation_id)
        except StoreError:
            return False
        return True

    @told
    def write_on(
        self,
        head: str,
        tail: str = "",
        ids: Sequence[int] = (),
        other_seed: bool = False,
        trace: TokenTrace | None = None,
    ) -> bool:
        """Have the open notebook's document written on behind `head`, whose exact token ids are `ids` where
        they are known; `tail` stays behind what is written, and is not read. `trace` are the tokens of `head`
        where another one was chosen. False, with a notice, when that cannot begin.
        """
        if not self.notebook or not self._ready():
            return False
        self._look_around()
        self._runner.unsaved.save()
        if self._runner.unsaved.find(self._stored_document().id) is not None:
            self.notice.emit(
                "The last stretch is not saved yet: make room on the disk, then write on.", "error"
            )
            return False
        self._of_open.set_text(self._stored_document().id, head + tail, settled=False)
        source = self._stored_document()
        if trace is not None:
            self._runner.put_tokens(source.id, trace)
        request = self.document_request(head, ids)
        if other_seed and request.sampler.seed is not None:
            request = dataclasses.replace(
                request,
                sampler=dataclasses.replace(request.sampler, seed=random.SystemRandom().getrandbits(31)),
            )
        if self.model is not None:
            self._of_open.set_model_path(self._conversation, self.model.path)
        self._of_open.resume(source.id)
        try:
            self._runner.begin(request, dataclasses.replace(source, text=head), source, tail=tail)
        except StoreError:
            with contextlib.suppress(StoreError):
                self._of_open.finish(source.id, head + tail, "complete", source.stats)
            raise
        self._show_begun()
        return True

    def may_write(self) -> bool:
        """Whether the model can write now; if not, a notice says why."""
        return self._ready()

    def document_request(self, head: str, ids: Sequence[int] = ()) -> ChatRequest:
        """What `write_on` asks for."""
        request = self._request((Message("document", head),), False, tuple(ids))
        return dataclasses.replace(request, plain=True)

    @property
    def seed_is_set(self) -> bool:
        """Whether the settings say which seed is used."""
        return self.settings(SamplerSettings).seed is not None

    @Slot(int, int)
    def _on_ended(self, conversation_id: int, message_id: int) -> None:
        # the end of the reply could not be saved either, and its trouble is told
        with contextlib.suppress(StoreError):
            self.stores.of(message_id).name_after(message_id)
        super()._on_ended(conversation_id, message_id)
        if conversation_id == self._conversation and self.notebook:
            self.document_shown.emit()


def _is_stretch(found: object, length: int) -> bool:
    if (
        not isinstance(found, list | tuple)
        or len(found) != 2
        or not all(isinstance(place, int) for place in found)
    ):
        return False
    start, end = int(found[0]), int(found[1])
    return 0 <= start <= end <= length
