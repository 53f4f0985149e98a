"""ReplyRunner: the replies that run, from the request to the last write in the store."""

from __future__ import annotations

import dataclasses
from typing import Any

from PySide6.QtCore import QObject, Signal, Slot

from desktop.items.chats.messages import MessageItem, MessagesModel
from desktop.services.engine.adapted_models import AdaptedModels
from desktop.services.engine.engine_controller import EngineController
from desktop.services.engine.model_host import Describe, OpenChat
from desktop.services.engine.reply_record import (
    LABEL,
    avoided_text,
    calling_text,
    message_item,
    record,
    trimmed_text,
)
from desktop.services.engine.running_reply import RunningReply
from desktop.services.engine.token_cache import CUT_SHORT, STRETCH, WRITTEN, TokenCache, model_key
from desktop.services.engine.unsaved_replies import Ended, UnsavedReplies
from desktop.services.session.leading_name import LeadingName
from desktop.services.session.paths import find_item
from desktop.store.conversations.conversations import StoredMessage
from desktop.store.conversations.records import LANGUAGE
from desktop.store.conversations.stores import ConversationStores
from desktop.store.conversations.token_trace import UNKNOWN, TokenTrace
from desktop.store.database.database import StoreError
from engine.core import (
    CallPiece,
    ChatEvent,
    ChatRequest,
    Done,
    Loading,
    Prefill,
    Rendered,
    Running,
    Text,
    Trimmed,
)
from engine.words import dotted

__all__ = ["ReplyRunner"]


class ReplyRunner(QObject):
    """Runs replies, each known by its message: appends its text where it is shown, and saves it into that
    message, five times a second while it grows, and at its end. Closes `engine` with itself.

    `models` are the item models that can show a reply that runs.

    Signals:
        begun(int message, object request, int known): a reply begins; `known` tokens of its trace exist
            already.
        rendered(int message, object prompt): the exact prompt (`Rendered`) that is about to be read.
        document_grown(int message, str text): text has arrived in a notebook's document.
        changed(int message): a running reply has another notice or footer.
        ran(int message, object stats): the `Stats` of a running reply so far, a few times a second.
        avoided(int message, int count, str text): a banned text was taken back, the reply's `count`-th.
        draft_failed(int conversation, str sentence): the reply failed because its draft model could not be
            loaded.
        called(int conversation, int message, object calls): a reply that is over and saved calls tools, a
            tuple of `ToolCall`; just before `ended`.
        ended(int conversation, int message, bool stopped): it is over and saved. `stopped`: it was asked to
            end, even if it was complete by then.
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
    called = Signal(int, int, object)
    ended = Signal(int, int, bool)
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
        self.adapted = AdaptedModels(self.engine)
        self.adapted.found.connect(self._open_again)
        self._stores, self.models = stores, [messages]
        self._replies: dict[int, RunningReply] = {}
        self.unsaved = UnsavedReplies(stores, self)
        self.unsaved.trouble.connect(self._on_unsaved)
        self.unsaved.saved_again.connect(self.saved_again)
        self._traces = TokenCache(stores)

    @property
    def conversations(self) -> tuple[int, ...]:
        """The chats in which replies run, in the order in which they began."""
        return tuple(dict.fromkeys(reply.conversation_id for reply in self._replies.values()))

    def growing(self, message_id: int) -> RunningReply | None:
        """The reply that runs in this message."""
        return self._replies.get(message_id)

    def growing_in(self, conversation_id: int) -> tuple[RunningReply, ...]:
        """The replies that run in this chat, in the order in which they began."""
        return tuple(each for each in self._replies.values() if each.conversation_id == conversation_id)

    def begin(
        self, request: ChatRequest, message: StoredMessage, source: StoredMessage | None = None,
        leading: LeadingName | None = None, tail: str = "",
    ) -> ChatRequest:  # fmt: skip
        """Make ready for a reply into `message` (state "running" in the store), after the text it has;
        returns the request for the engine, whose `ended` is `end` for this message. Raises `StoreError` if
        the tokens of that text cannot be read: no reply runs then.

        `source` is the reply that the text comes from: the message as it was, or another one that it was
        branched off. `leading` removes the author's name from the beginning. `tail` is the rest of a
        document, after the place where it is continued.
        """
        # First what can fail.
        rest = TokenTrace()
        if tail and source is not None:
            rest = self._traces.rest_of(source, message.text, tail)
        tokens = self._traces.begin(message, source, request.continue_ids, model_key(self.engine.model))
        reply = RunningReply(message.conversation_id, message.id, message.text, self)
        if tail and source is not None:
            reply.tail, reply.tail_tokens = tail, rest
        reply.tokens, reply.known = tokens, len(tokens)
        reply.opened = (
            ""
            if request.plain
            else leading.opened
            if leading is not None
            else self._opened(request, message, source)
        )
        reply.leading, reply.is_document = leading, request.plain
        reply.request = request
        reply.model_name = self.engine.model.name if self.engine.model is not None else ""
        self._replies[message.id] = reply
        self._note_start(reply)
        reply.checkpoint_due.connect(self._checkpoint)
        request = dataclasses.replace(request, report_prompt=True)
        self.begun.emit(message.id, request, reply.known)
        return request

    def item(self, message: StoredMessage) -> MessageItem:
        """A stored message as the transcript shows it; with the text that is not in the store yet."""
        if (ended := self.unsaved.find(message.id)) is not None:
            message = dataclasses.replace(message, text=ended.text, state=ended.state, stats=ended.stats)
        item = message_item(message)
        reply = self._replies.get(message.id)
        if reply is None:
            return item
        return dataclasses.replace(
            item,
            text=reply.whole,
            running=True,
            footer=dotted(avoided_text(reply.avoided), calling_text(reply.calls)),
            notice=trimmed_text(reply.trimmed, reply.cut_tokens),
            opened=reply.opened,
            language=reply.language,
            model=reply.model_name,
        )

    def _opened(self, request: ChatRequest, message: StoredMessage, source: StoredMessage | None) -> str:
        """What closes the thought in which the reply begins; of a continued one, as when it was written."""
        if message.text.strip() and source is not None:
            return str(source.stats.get("opened", ""))
        model = self.adapted.of(request.adapters.adapters)
        return model.opened_thought(request.thinking.thinking) if model is not None else ""

    @Slot()
    def _open_again(self) -> None:
        """A reply may have begun before it was known what its adapters change."""
        for reply in self._replies.values():
            request = reply.request
            if request is None or reply.begun or reply.is_document or reply.leading is not None:
                continue
            model = self.adapted.of(request.adapters.adapters)
            opened = model.opened_thought(request.thinking.thinking) if model is not None else ""
            if opened != reply.opened:
                reply.opened = opened
                self._note_start(reply)
                self.changed.emit(reply.message_id)

    def _note_start(self, reply: RunningReply) -> None:
        known = _known_at_start(reply)
        if not known:
            return
        try:
            self._stores.of(reply.message_id).note_start(reply.message_id, known)
        except StoreError as error:
            self.unsaved.report(error)  # the end of the reply is saved with it

    def tokens(self, message_id: int) -> TokenTrace | None:
        """The tokens of a reply, those so far if it runs; None if not known. Raises `StoreError`."""
        if (reply := self._replies.get(message_id)) is not None:
            return reply.tokens
        if (ended := self.unsaved.find(message_id)) is not None:
            return ended.tokens
        return self._traces.trace(self._stores.of(message_id).message(message_id))

    def save_replies(self) -> dict[int, str]:
        """Save what could not be saved before; returns the whole texts of what still cannot, by message id.

        Running replies are among them if the last save failed.
        """
        self.unsaved.save()
        found = self.unsaved.waiting
        if self.unsaved.in_trouble:
            found.update((id, reply.whole) for id, reply in self._replies.items())
        return found

    def put_tokens(self, message_id: int, trace: TokenTrace) -> None:
        """Set the tokens of a document, whose text was changed to theirs."""
        self._traces.put(message_id, trace)

    def close(self) -> bool:
        """Save what is there, stop all replies, end the engine's thread; False if that did not end in
        time.
        """
        for message_id in self._replies:
            self._checkpoint(message_id)
        in_time = self.engine.close()
        for message_id in tuple(self._replies):
            self.end(message_id, "", "", "close")
        self.unsaved.close()
        return in_time

    @Slot(str)
    def _on_unsaved(self, sentence: str) -> None:
        self.trouble.emit(sentence, "")

    @Slot(int)
    def _checkpoint(self, message_id: int) -> None:
        if (reply := self._replies.get(message_id)) is None:
            return
        try:
            self._stores.of(message_id).checkpoint(message_id, reply.whole)
        except StoreError as error:
            self.unsaved.report(error)  # the next checkpoint tries again
        else:
            self.unsaved.went_well()

    @Slot(int, object)
    def _take(self, job: int, event: ChatEvent) -> None:
        """Handle an event of a running reply."""
        reply = self._replies.get(self.engine.message_of(job))
        if reply is None:
            return
        if isinstance(event, Text):
            if text := reply.take(event):
                self._show(reply, text)
            if event.suppressed:
                reply.avoided += 1
                self.avoided.emit(reply.message_id, reply.avoided, event.suppressed)
                self.changed.emit(reply.message_id)
        elif isinstance(event, Loading | Prefill):
            reply.loads_draft = isinstance(event, Loading) and event.of_draft
        elif isinstance(event, Rendered):
            self.rendered.emit(reply.message_id, event)
        elif isinstance(event, Trimmed):
            reply.trimmed, reply.cut_tokens = event.dropped_messages, event.dropped_tokens
            self.changed.emit(reply.message_id)
        elif isinstance(event, CallPiece):
            if reply.take_call(event):
                self.changed.emit(reply.message_id)
        elif isinstance(event, Running):
            reply.stats = event.stats
            self.ran.emit(reply.message_id, event.stats)
        elif isinstance(event, Done):
            reply.done = event

    def _show(self, reply: RunningReply, text: str) -> None:
        if reply.is_document:
            self.document_grown.emit(reply.message_id, text)
            return
        for model in self.models:
            if find_item(model, reply.message_id) is not None:
                model.append_text(reply.message_id, text)

    def _whole_document(self, reply: RunningReply) -> None:
        """Join the tokens of the tail; only a part of a token that was cut short is in the document."""
        cut_short = reply.done is not None and reply.done.reason in CUT_SHORT
        if len(reply.tokens) and (cut_short or reply.tokens.text.endswith("\ufffd")):
            reply.tokens.ids[-1] = UNKNOWN
        reply.tokens.join(reply.tail_tokens)
        self._traces.put(reply.message_id, reply.tokens)

    def end(self, message_id: int, sentence: str, details: str, stopped_by: str) -> None:
        """A reply is over, with the sentence and the details of an error if there was one.

        Without `Done` and without an error, it was stopped before it began, or the window closes, or another
        reply has lost the device.
        """
        reply = self._replies.get(message_id)
        if reply is None:
            return
        if reply.done is None and not sentence and not stopped_by:
            sentence, details = self.engine.lost
        if rest := reply.end():
            self._show(reply, rest)
        del self._replies[reply.message_id]
        cancelled = reply.done is None or reply.done.reason == "cancelled"
        state = "failed" if sentence else "stopped" if cancelled else "complete"
        saved = record(reply.done, reply.trimmed, sentence, reply.model_name, reply.avoided)
        if cancelled and not sentence and stopped_by not in ("", "user"):
            saved["stopped_by"] = stopped_by
        saved |= _known_at_start(reply)
        if reply.label:
            saved[LABEL] = reply.label
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
        if reply.calls and state == "complete":
            self.called.emit(reply.conversation_id, reply.message_id, reply.calls)
        self.ended.emit(reply.conversation_id, reply.message_id, bool(stopped_by))


def _known_at_start(reply: RunningReply) -> dict[str, Any]:
    """What of a reply's statistics is known when it begins, and needed to show it."""
    known = {"opened": reply.opened, LANGUAGE: reply.language}
    return {name: value for name, value in known.items() if value}
