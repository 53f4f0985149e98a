"""Notebooks: a document that the user and the model write in turn, without a template."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Sequence
from typing import NamedTuple

from desktop.services.engine.reply_runner import ReplyRunner
from desktop.services.engine.token_cache import STRETCH
from desktop.services.session.context import ConversationContext
from desktop.services.session.signals import SessionSignals, reports_store_errors
from desktop.services.session.turns import Turns
from desktop.services.session.visible_chat import VisibleChat
from desktop.store.conversations.conversations import StoredMessage
from desktop.store.conversations.stores import ConversationStores
from desktop.store.conversations.token_trace import TokenTrace
from desktop.store.database.database import StoreError
from engine.core import ChatRequest, Message
from engine.words import _

__all__ = ["SETTLED_CHARACTERS", "Document", "Notebook"]

SETTLED_CHARACTERS = 60_000
"""A text up to this length is brought into the search index at every save: in a millisecond or two."""


class Document(NamedTuple):
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


class Notebook:
    """Saves what is typed into the open notebook, and has it continued by the model."""

    def __init__(
        self,
        signals: SessionSignals,
        stores: ConversationStores,
        runner: ReplyRunner,
        visible: VisibleChat,
        turns: Turns,
    ) -> None:
        self._signals, self._stores = signals, stores
        self._runner, self._visible, self._turns = runner, visible, turns

    def document(self) -> Document | None:
        """The open notebook's document as it is now; None if a chat is open or, with a notice, the store
        fails.
        """
        context = self._visible.context
        try:
            return self._document_of(self._stored(context)) if context.is_notebook else None
        except StoreError as error:
            self._signals.notice.emit(str(error), "error")
            return None

    def _document_of(self, message: StoredMessage) -> Document:
        reply = self._runner.growing(message.id)
        if reply is not None:
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
            said = _("Inglenook ended while this was being written. The text written so far was saved.")
        return Document(message.id, item.text, stretch=(start, end), footer=item.footer, notice=said)

    def _stored(self, context: ConversationContext) -> StoredMessage:
        path = context.path()
        if not path:  # an imported notebook without its document
            return context.store.add_message(context.id, None, "assistant", "")
        return path[0]

    def may_write(self) -> bool:
        """Whether the model can write now; if not, a notice says why."""
        return self._turns.may_begin(self._visible.context, "plain")

    def save_document(self, message_id: int, text: str, settled: bool = True) -> bool:
        """Save what was typed, unless a reply is written into it; False, without a notice, if that is not
        possible now. Only a `settled` or short text can be found by a search.
        """
        if self._runner.growing(message_id) is not None:
            return True
        unsaved = self._runner.unsaved
        try:
            # its end would put an older text in the place of this one
            if (ended := unsaved.find(message_id)) is not None:
                unsaved.put(message_id, ended._replace(text=text))
                unsaved.save()
                if unsaved.find(message_id) is not None:
                    return False
            store = self._stores.of(message_id)
            store.set_text(message_id, text, settled or len(text) <= SETTLED_CHARACTERS)
            self._visible.touch(store.message(message_id).conversation_id)
        except StoreError:
            return False
        return True

    @reports_store_errors
    def write_on(
        self,
        head: str,
        tail: str = "",
        ids: Sequence[int] = (),
        other_seed: bool = False,
        trace: TokenTrace | None = None,
    ) -> bool:
        """Continue the open notebook's document after `head`, whose exact token ids are `ids` if known;
        `tail` stays after what is written, and is not read. `trace` are the tokens of `head` if another one
        was chosen. False, with a notice, if that cannot begin.
        """
        if not self._visible.context.is_notebook or not self.may_write():
            return False
        self._visible.follow()
        context, model = self._visible.context, self._runner.engine.model
        self._runner.unsaved.save()
        if self._runner.unsaved.find(self._stored(context).id) is not None:
            self._signals.notice.emit(
                _("The last generated text is not saved yet. Free some disk space, then continue."), "error"
            )
            return False
        context.store.set_text(self._stored(context).id, head + tail, settled=False)
        source = self._stored(context)
        if trace is not None:
            self._runner.put_tokens(source.id, trace)
        request = self.document_request(head, ids)
        if other_seed and request.sampler.seed is not None:
            seed = random.SystemRandom().getrandbits(31)
            request = dataclasses.replace(request, sampler=dataclasses.replace(request.sampler, seed=seed))
        if model is not None:
            context.store.set_model_path(context.id, model.path)
        context.store.resume(source.id)
        begun = dataclasses.replace(source, text=head)
        self._turns.start(context, request, begun, source, tail=tail)
        self._turns.show(context)
        return True

    def document_request(self, head: str, ids: Sequence[int] = ()) -> ChatRequest:
        """What `write_on` asks for."""
        request = self._visible.context.request((Message("document", head),), ids=tuple(ids))
        return dataclasses.replace(request, plain=True)

    def name_document(self, message_id: int) -> None:
        """Name the notebook after its text, which a reply has changed."""
        # if the end of the reply could not be saved either, that is reported already
        with contextlib.suppress(StoreError):
            self._stores.of(message_id).name_after(message_id)


def _is_stretch(found: object, length: int) -> bool:
    if (
        not isinstance(found, list | tuple)
        or len(found) != 2
        or not all(isinstance(place, int) for place in found)
    ):
        return False
    start, end = int(found[0]), int(found[1])
    return 0 <= start <= end <= length
