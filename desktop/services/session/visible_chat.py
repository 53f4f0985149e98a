"""The open chat: what is known of it, its rows in the transcript, and who takes part."""

from __future__ import annotations

import dataclasses

from desktop.items.chats.conversations import ConversationsModel
from desktop.items.chats.messages import MessageItem, MessagesModel
from desktop.services.engine.reply_record import stats_of, unusual_reason
from desktop.services.engine.reply_runner import ReplyRunner
from desktop.services.engine.running_reply import RunningReply
from desktop.services.session.context import ConversationContext, is_temporary, read_context
from desktop.services.session.paths import find_item, show_items
from desktop.services.session.pictures import SentMessages
from desktop.services.session.scene import AuthoredMessage, next_participant
from desktop.services.session.signals import SessionSignals, reports_store_errors
from desktop.services.settings.layered_settings import LayeredSettings, ModelLayer
from desktop.settings import CONVERSATION_SETTINGS
from desktop.store.conversations.participants import Author, Cast
from desktop.store.conversations.records import HIDDEN, StoredMessage
from desktop.store.conversations.stores import ConversationStores
from desktop.store.conversations.token_trace import TokenTrace
from desktop.store.database.database import StoreError
from desktop.store.settings.preferences import Preferences
from engine.core import Message
from engine.words import _

__all__ = ["VisibleChat"]


class VisibleChat:
    """Holds the context of the open chat and keeps the item models in step with the store.

    The context is replaced as a whole, after everything has been read: where reading fails, the chat that was
    open stays open.
    """

    def __init__(
        self,
        signals: SessionSignals,
        stores: ConversationStores,
        preferences: Preferences,
        runner: ReplyRunner,
        messages: MessagesModel,
    ) -> None:
        self._signals, self._stores, self._preferences = signals, stores, preferences
        self._runner = runner
        self.messages = messages
        self.listed = ConversationsModel(signals)
        self.model_layer = ModelLayer(preferences)
        self.context = self._nothing()
        self._shown: dict[int, tuple[StoredMessage, MessageItem]] = {}
        self.made = SentMessages()

    def _nothing(self) -> ConversationContext:
        layers = LayeredSettings(self._preferences, self.model_layer)
        return ConversationContext(0, self._stores.kept, layers, self._preferences)

    @property
    def id(self) -> int:
        """The open chat; 0 before there is one."""
        return self.context.id

    @property
    def title(self) -> str:
        """Its title; empty before its first message. Raises `StoreError`."""
        return self.context.store.get(self.id).title if self.id else ""

    # -- which chat is open

    def read(self, conversation_id: int) -> ConversationContext:
        """The context of any chat as it is now; the open one's follows its folders and its persona. Raises
        `StoreError`.
        """
        if conversation_id == self.id:
            self.follow()
            return self.context
        context = read_context(self._stores, self._preferences, self.model_layer, conversation_id)
        self._report_unusable(context)
        return context

    def with_persona(self, context: ConversationContext, persona_id: int) -> ConversationContext:
        """A chat's context as if another persona were chosen in it. Raises `StoreError`."""
        return read_context(
            self._stores, self._preferences, self.model_layer, context.id, context.layers, persona_id
        )

    def open(self, conversation_id: int) -> bool:
        """Show another chat. Raises `StoreError`."""
        before = self.context
        context = read_context(self._stores, self._preferences, self.model_layer, conversation_id)
        self._shown = {}  # their words may be in another language by now
        items = self._items(context)
        self.context = context
        self._emit_place(before, entering=True)
        self._report_unusable(context)
        for cls in CONVERSATION_SETTINGS:
            self._signals.settings_changed.emit(cls)
        self.messages.reset(items)
        self._signals.conversation_changed.emit(conversation_id)
        self._signals.title_changed.emit(self.title)
        self.emit_stats()
        if not is_temporary(conversation_id):
            self._preferences.remember_conversation(conversation_id)
        self.forget_left(before.id)
        return True

    def rename_to(self, conversation_id: int) -> None:
        """The open chat was copied: from now on it is that copy."""
        store = self._stores.of(conversation_id)
        self.context = dataclasses.replace(self.context, id=conversation_id, store=store)

    def leave(self) -> None:
        """No chat is open any more: the file has been replaced."""
        self.context = self._nothing()

    def forget_left(self, conversation_id: int) -> None:
        """Drop a temporary chat that is not open, unless a reply runs in it."""
        if is_temporary(conversation_id) and conversation_id not in (self.id, *self._runner.conversations):
            self._stores.forget(conversation_id)

    def _report_unusable(self, context: ConversationContext) -> None:
        for problem in context.unusable:
            self._signals.notice.emit(
                _("A setting of this chat was reset to its default: {problem}", problem=problem), "warning"
            )

    # -- its place

    def follow(self) -> None:
        """Read again what the open chat has from its folders and its persona. Raises `StoreError`."""
        before = self.context
        self.context = read_context(self._stores, self._preferences, self.model_layer, self.id, before.layers)
        for cls in self.context.layers.inherits_differently(before.layers):
            self._signals.settings_changed.emit(cls)
        self._emit_place(before)

    def _emit_place(self, before: ConversationContext, entering: bool = False) -> None:
        now, signals = self.context, self._signals
        for problem in now.left_out if now.left_out != before.left_out else ():
            signals.notice.emit(_("A setting of a folder was ignored: {problem}", problem=problem), "warning")
        if now.persona != before.persona:
            signals.persona_changed.emit(now.persona)
        if entering or now.prompt != before.prompt:
            signals.prompt_changed.emit(now.prompt)
        if entering or now.local_only != before.local_only:
            signals.local_only_changed.emit(now.local_only)
        if entering or (now.cast, now.participants) != (before.cast, before.participants):
            signals.cast_changed.emit()

    @reports_store_errors
    def follow_place(self) -> bool:
        """Follow folders and persona: one of them changed, or the chat was moved."""
        if self.id:
            self.follow()
        return True

    @reports_store_errors
    def set_system_prompt(self, text: str, inherit: bool = True) -> bool:
        """Replace the open chat's own system prompt; an empty one takes that of persona or folder, if
        `inherit`, else there is none.
        """
        self.context.store.set_system_prompt(self.id, text, inherit)
        self.follow()
        return True

    @reports_store_errors
    def choose_persona(self, persona_id: int | None) -> bool:
        """Let a persona answer in the open chat; None for nobody in particular."""
        self.context.store.set_persona(self.id, persona_id)
        self.follow()
        return True

    @reports_store_errors
    def set_cast(self, cast: Cast) -> bool:
        """Give the open chat other participants; without any it is a plain chat."""
        self.context.store.set_cast(self.id, cast)
        self.follow()
        return True

    @reports_store_errors
    def set_local_only(self, on: bool) -> bool:
        """Keep the open chat on this computer, or let models of servers answer in it too."""
        self.context.store.set_local_only(self.id, on)
        self.follow()
        return True

    def write_as(self, name: str) -> bool:
        """Write the user's next messages as another of his names; False for a name that he does not have."""
        cast = self.context.cast
        found = next((own for own in cast.own if own.casefold() == name.casefold()), None)
        return found is not None and self.set_cast(dataclasses.replace(cast, writing_as=found))

    def next_messages(self, draft: str) -> tuple[tuple[Message, ...], list[int]]:
        """What would be asked if `draft` were sent now, without the beginning of the reply; and for each
        message but the draft its id, 0 for what is not shown.
        """
        context = self.context
        shown = [item for item in self.messages.items() if not item.running and item.role != HIDDEN]
        if context.participants:
            messages = [
                AuthoredMessage(item.role, item.text, Author(item.author, item.persona)) for item in shown
            ]
            messages.append(AuthoredMessage("user", draft, context.user))
            participant = (
                next_participant(context.cast, context.participants, messages) or context.participants[0]
            )
            found = context.scene(participant, self._runner.adapted).messages(messages, begun=False)
        else:
            system = (Message("system", context.prompt.text),) if context.prompt.text.strip() else ()
            turns = [(item.role, item.stored_text, item.call) for item in shown]
            found = (*system, *self.made.of(self.id, [*turns, ("user", draft, None)]))
        return found, [*[0] * (len(found) - len(shown) - 1), *(item.id for item in shown)]

    # -- its messages

    def show_path(self) -> None:
        """Show the messages as they are now. Raises `StoreError`."""
        show_items(self.messages, self._items(self.context))

    def _items(self, context: ConversationContext) -> tuple[MessageItem, ...]:
        if context.is_notebook:  # its document is shown by a page of its own, not by the transcript
            return ()
        return tuple(map(self._item, context.path()))

    def _item(self, message: StoredMessage) -> MessageItem:
        """A message as it is shown; made again only if it has changed in the store or is being written."""
        known = self._shown.get(message.id)
        if known is None or known[0] is not message or message.state == "running":
            known = self._shown[message.id] = message, self._runner.item(message)
        return known[1]

    def touch(self, conversation_id: int) -> None:
        """Update a chat's title and place in the list. Raises `StoreError`."""
        found = self._stores.of(conversation_id).summary(conversation_id)
        if found.deleted_at is None and not is_temporary(conversation_id):
            self.listed.put(found)
        if conversation_id == self.id:
            self._signals.title_changed.emit(found.title)

    def emit_stats(self) -> None:
        """Emit the figures of the last reply; of one that runs here, those so far. Raises `StoreError`."""
        path = self.context.path()
        saved = next((message.stats for message in reversed(path) if message.role == "assistant"), {})
        self._signals.stats_changed.emit(stats_of(saved), unusual_reason(saved))
        running = self.growing()
        if running is not None and running.stats is not None:
            self._signals.running_changed.emit(running.stats)

    def growing(self) -> RunningReply | None:
        """The reply that runs in the open chat, of several the one that is shown; None if none is."""
        replies = self._runner.growing_in(self.id)
        if self.context.is_notebook:
            return next(iter(replies), None)
        return next((each for each in replies if find_item(self.messages, each.message_id) is not None), None)

    @reports_store_errors
    def refresh(self, ended_in: int = 0) -> bool:
        """Show the messages as they are now; for a chat whose reply ended, its title and figures too."""
        if ended_in:
            self.touch(ended_in)
            self.forget_left(ended_in)
        if ended_in in (0, self.id):
            self.show_path()
        if ended_in == self.id:
            self.emit_stats()
        return True

    @reports_store_errors
    def replace_row(self, message_id: int) -> bool:
        """Show one message as it is now."""
        if find_item(self.messages, message_id) is not None:
            message = self._stores.of(message_id).message(message_id)
            self.messages.replace(message_id, self._runner.item(message))
        return True

    def tokens(self, message_id: int) -> TokenTrace | None:
        """The tokens of a reply, those so far if it runs; None if they are not known."""
        try:
            return self._runner.tokens(message_id)
        except StoreError as error:
            self._signals.notice.emit(str(error), "error")
            return None
