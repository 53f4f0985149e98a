"""ReplyRunner: the one reply that runs, from the request to its last write in the store."""

from __future__ import annotations

import dataclasses

from PySide6.QtCore import QObject, Signal, Slot

from desktop.items.chats.messages import MessageItem, MessagesModel
from desktop.services.engine.engine_controller import EngineController
from desktop.services.engine.model_host import Describe, OpenChat
from desktop.services.engine.reply_record import avoided_text, message_item, record, trimmed_text
from desktop.services.engine.running_reply import RunningReply
from desktop.services.engine.token_cache import CUT_SHORT, STRETCH, WRITTEN, TokenCache, model_key
from desktop.services.engine.unsaved_replies import Ended, UnsavedReplies
from desktop.services.session.leading_name import LeadingName
from desktop.services.session.paths import find_item
from desktop.store.conversations.conversations import StoredMessage
from desktop.store.conversations.stores import ConversationStores
from desktop.store.conversations.token_trace import UNKNOWN, TokenTrace
from desktop.store.database.database import StoreError
from engine.core import (
    ChatEvent,
    ChatRequest,
    Done,
    Loading,
    Prefill,
    Rendered,
    Running,
    Stats,
    Text,
    Trimmed,
)

__all__ = ["ReplyRunner"]


class ReplyRunner(QObject):
    """Runs one reply at a time, appends its text to `messages` if it is shown there, and saves it into its
    own message: five times a second while it grows, and at its end. Closes `engine` with itself.

    Signals:
        begun(int message, object request, int known): a reply begins; `known` tokens of its trace exist
            already.
        rendered(int message, object prompt): the exact prompt (`Rendered`) that is about to be read.
        document_grown(int message, str text): text has arrived in a notebook's document.
        changed(int message): the running reply has another notice or footer.
        ran(int conversation, object stats): the `Stats` of the running reply so far, a few times a second.
        avoided(int conversation, int count, str text): a banned text was taken back, the reply's `count`-th.
        draft_failed(int conversation, str sentence): the reply failed because its draft model could not be
            loaded.
        ended(int conversation, int message): it is over and saved.
        trouble(str sentence, str details): saving failed.
        saved_again(): what could not be saved is saved now.
        engine_failed(str sentence, str details): memory, the device or a bug ended the reply.
    """

    begun = Signal(int, object, int)
    rendered = Signal(int, object)
    document_grown = Signal(int, str)
    changed = Signal(int)
    ran = Signal(int, object)
    avoided = Signal(int, int, str)
    draft_failed = Signal(int, str)
    ended = Signal(int, int)
    trouble = Signal(str, str)
    saved_again = Signal()
    engine_failed = Signal(str, str)

    def __init__(
        self,
        stores: ConversationStores,
        messages: MessagesModel,
        open_chat: OpenChat,
        describe: Describe,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self.engine = EngineController(open_chat, describe, self)
        self.engine.yielded.connect(self._take)
        self._stores, self._messages = stores, messages
        self._reply: RunningReply | None = None
        self._model_name = ""
        self.unsaved = UnsavedReplies(stores, self)
        self.unsaved.trouble.connect(self._on_unsaved)
        self.unsaved.saved_again.connect(self.saved_again)
        self._traces = TokenCache(stores)

    @property
    def message_id(self) -> int:
        """The message that grows; 0 for none."""
        return self._reply.message_id if self._reply is not None else 0

    @property
    def conversation_id(self) -> int:
        """Its conversation; 0 for none."""
        return self._reply.conversation_id if self._reply is not None else 0

    @property
    def text(self) -> str:
        """Its text so far; "" for none."""
        return self._reply.whole if self._reply is not None else ""

    @property
    def stats(self) -> Stats | None:
        """The latest figures of the running reply, if any."""
        return self._reply.stats if self._reply is not None else None

    @property
    def avoided_count(self) -> int:
        """How often a banned text was taken back in the running reply."""
        return self._reply.avoided if self._reply is not None else 0

    def begin(
        self, request: ChatRequest, message: StoredMessage, source: StoredMessage | None = None,
        leading: LeadingName | None = None, tail: str = "",
    ) -> ChatRequest:  # fmt: skip
        """Make ready for a reply into `message` (state "running" in the store), after the text it has;
        returns the request for the engine, whose `ended` is `end`. Only while the engine is
        idle. Raises `StoreError` if the tokens of that text cannot be read: no reply runs then.

        `source` is the reply that the text comes from: the message as it was, or another one that it was
        branched off. `leading` removes the author's name from the beginning. `tail` is the rest of a
        document, after the place where it is continued.
        """
        # First what can fail.
        rest = TokenTrace()
        if tail and source is not None:
            rest = self._traces.rest_of(source, message.text, tail)
        tokens = self._traces.begin(message, source, request.continue_ids, model_key(self.engine.model))
        self._reply = RunningReply(message.conversation_id, message.id, message.text, self)
        if tail and source is not None:
            self._reply.tail, self._reply.tail_tokens = tail, rest
        self._reply.tokens = tokens
        self._reply.opened = (
            "" if request.plain else leading.opened if leading is not None else self._opened(message, source)
        )
        self._reply.leading = leading
        self._reply.is_document = request.plain
        self._note_opened()
        self._reply.checkpoint_due.connect(self._checkpoint)
        self._model_name = self.engine.model.name if self.engine.model is not None else ""
        request = dataclasses.replace(request, report_prompt=True)
        self._reply.known = len(self._reply.tokens)
        self.begun.emit(message.id, request, len(self._reply.tokens))
        return request

    def item(self, message: StoredMessage) -> MessageItem:
        """A stored message as the transcript shows it; with the text that is not in the store yet."""
        if (ended := self.unsaved.find(message.id)) is not None:
            message = dataclasses.replace(message, text=ended.text, state=ended.state, stats=ended.stats)
        item = message_item(message)
        if self._reply is None or message.id != self._reply.message_id:
            return item
        notice = trimmed_text(self._reply.trimmed, self._reply.cut_tokens)
        return dataclasses.replace(
            item,
            text=self._reply.whole,
            running=True,
            footer=avoided_text(self._reply.avoided),
            notice=notice,
            opened=self._reply.opened,
        )

    def _opened(self, message: StoredMessage, source: StoredMessage | None) -> str:
        """What closes the thought in which the reply begins; of a continued one, as when it was written."""
        if message.text.strip() and source is not None:
            return str(source.stats.get("opened", ""))
        return self.engine.model.opens_thought if self.engine.model is not None else ""

    def _note_opened(self) -> None:
        if self._reply is None or not self._reply.opened:
            return
        try:
            self._stores.of(self._reply.message_id).note_opened(self._reply.message_id, self._reply.opened)
        except StoreError as error:
            self.unsaved.report(error)  # the end of the reply is saved with it

    def tokens(self, message_id: int) -> TokenTrace | None:
        """The tokens of a reply, those so far if it runs; None if not known. Raises `StoreError`."""
        if self._reply is not None and message_id == self._reply.message_id:
            return self._reply.tokens
        if (ended := self.unsaved.find(message_id)) is not None:
            return ended.tokens
        return self._traces.trace(self._stores.of(message_id).message(message_id))

    def save_replies(self) -> dict[int, str]:
        """Save what could not be saved before; returns the whole texts of what still cannot, by message id.

        A running reply is among them if its last save failed.
        """
        self.unsaved.save()
        found = self.unsaved.waiting
        if self._reply is not None and self.unsaved.in_trouble:
            found[self._reply.message_id] = self._reply.whole
        return found

    def put_tokens(self, message_id: int, trace: TokenTrace) -> None:
        """Set the tokens of a document, whose text was changed to theirs."""
        self._traces.put(message_id, trace)

    def close(self) -> bool:
        """Save what is there, stop the reply, end the engine's thread; False if that did not end in time."""
        self._checkpoint()
        in_time = self.engine.close()
        self.end("", "")
        self.unsaved.close()
        return in_time

    @Slot(str)
    def _on_unsaved(self, sentence: str) -> None:
        self.trouble.emit(sentence, "")

    @Slot()
    def _checkpoint(self) -> None:
        if self._reply is None:
            return
        try:
            self._stores.of(self._reply.message_id).checkpoint(self._reply.message_id, self._reply.whole)
        except StoreError as error:
            self.unsaved.report(error)  # the next checkpoint tries again
        else:
            self.unsaved.went_well()

    @Slot(int, object)
    def _take(self, job: int, event: ChatEvent) -> None:
        """Handle an event of the running reply."""
        if self._reply is None or job != self.engine.reply:
            return
        if isinstance(event, Text):
            if text := self._reply.take(event):
                self._show(self._reply, text)
            if event.suppressed:
                self._reply.avoided += 1
                self.avoided.emit(self._reply.conversation_id, self._reply.avoided, event.suppressed)
                self.changed.emit(self._reply.message_id)
        elif isinstance(event, Loading | Prefill):
            self._reply.loads_draft = isinstance(event, Loading) and event.of_draft
        elif isinstance(event, Rendered):
            self.rendered.emit(self._reply.message_id, event)
        elif isinstance(event, Trimmed):
            self._reply.trimmed, self._reply.cut_tokens = event.dropped_messages, event.dropped_tokens
            self.changed.emit(self._reply.message_id)
        elif isinstance(event, Running):
            self._reply.stats = event.stats
            self.ran.emit(self._reply.conversation_id, event.stats)
        elif isinstance(event, Done):
            self._reply.done = event

    def _show(self, reply: RunningReply, text: str) -> None:
        if reply.is_document:
            self.document_grown.emit(reply.message_id, text)
        elif find_item(self._messages, reply.message_id) is not None:
            self._messages.append_text(reply.message_id, text)

    @property
    def growing(self) -> RunningReply | None:
        """The reply that runs."""
        return self._reply

    def _whole_document(self, reply: RunningReply) -> None:
        """Join the tokens of the tail; only a part of a token that was cut short is in the document."""
        cut_short = reply.done is not None and reply.done.reason in CUT_SHORT
        if len(reply.tokens) and (cut_short or reply.tokens.text.endswith("\ufffd")):
            reply.tokens.ids[-1] = UNKNOWN
        reply.tokens.join(reply.tail_tokens)
        self._traces.put(reply.message_id, reply.tokens)

    def end(self, sentence: str, details: str) -> None:
        """The reply is over, with the sentence and the details of an error if there was one.

        Without `Done` and without an error, it was stopped before it began, or the window closes.
        """
        reply = self._reply
        if reply is None:
            return
        if rest := reply.end():
            self._show(reply, rest)
        self._reply = None
        cancelled = reply.done is None or reply.done.reason == "cancelled"
        state = "failed" if sentence else "stopped" if cancelled else "complete"
        saved = record(reply.done, reply.trimmed, sentence, self._model_name, reply.avoided)
        if cancelled and not sentence and self.engine.stopped_by not in ("", "user"):
            saved["stopped_by"] = self.engine.stopped_by
        if reply.opened:
            saved["opened"] = reply.opened
        if reply.cut_tokens:
            saved["trimmed_tokens"] = reply.cut_tokens
        if reply.is_document:
            saved[STRETCH] = [reply.begun, len(reply.text)]
            saved[WRITTEN] = len(reply.tokens) - reply.known
            self._whole_document(reply)
        self.unsaved.put(reply.message_id, Ended(reply.whole, state, saved, reply.tokens))
        self.unsaved.save()
        if sentence and reply.loads_draft and not details:
            self.draft_failed.emit(reply.conversation_id, sentence)
        elif sentence and (details or self.engine.needs_reload):
            self.engine_failed.emit(sentence, details)
        self.ended.emit(reply.conversation_id, reply.message_id)
