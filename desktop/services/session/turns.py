"""Turns of a chat: a message and its reply, another reply, a continued one, an edited text."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

from desktop.services.engine.reply_runner import ReplyRunner
from desktop.services.session.context import ConversationContext
from desktop.services.session.draft_check import DraftCheck
from desktop.services.session.leading_name import LeadingName
from desktop.services.session.paths import request_messages
from desktop.services.session.pictures import not_sent, sent, with_data
from desktop.services.session.scene import (
    AuthoredMessage,
    authored,
    next_in_order,
    next_participant,
    replies_since_user,
)
from desktop.services.session.signals import SessionSignals, reports_store_errors
from desktop.services.session.tool_turns import ToolTurns
from desktop.services.session.visible_chat import VisibleChat
from desktop.store.attachments.pictures import PictureStore
from desktop.store.conversations.conversations import StoredMessage
from desktop.store.conversations.participants import Author
from desktop.store.conversations.stores import ConversationStores
from desktop.store.database.database import StoreError
from engine.core import ChatRequest, Message
from engine.settings import StopSettings
from engine.words import N_, _, translate

__all__ = ["Asked", "Turns"]

_REFUSALS = {
    "no_model": N_("No model is loaded. Open one, then try again. Your text is kept."),
    "loading": N_("The model is still loading. Try again when it is ready. Your text is kept."),
    "stopping": N_("The last task is still stopping. Try again in a moment. Your text is kept."),
    "waiting": (
        N_("A reply is still waiting for its turn. Wait for it, or press Esc to stop it. Your text is kept.")
    ),
    "prefill": N_(
        "A reply is still being prepared. Wait for it, or press Esc to stop it. Your text is kept."
    ),
    "answering": (
        N_("A reply is still being written. Wait for it, or press Esc to stop it. Your text is kept.")
    ),
}


class _Beginning(NamedTuple):
    """The message that a reply begins with. `ids` are its exact token ids, if known; its text comes from
    `source`, if it was branched off another reply.
    """

    message: StoredMessage
    ids: tuple[int, ...] = ()
    source: StoredMessage | None = None


class Asked(NamedTuple):
    """A reply that can be begun: who writes it, the request, and what removes its author's name."""

    author: Author
    request: ChatRequest
    leading: LeadingName | None = None


class Turns:
    """Starts replies, a chat's next one when its last ones have ended. Methods that name a chat act in any
    chat, open or not, and leave the open one as it is.

    `tools` runs the calls of replies; `refused` is the state in which the last reply was refused, and how.
    """

    def __init__(
        self,
        signals: SessionSignals,
        stores: ConversationStores,
        runner: ReplyRunner,
        visible: VisibleChat,
        drafts: DraftCheck,
    ) -> None:
        self._signals, self._stores = signals, stores
        self._runner, self._engine = runner, runner.engine
        self._visible, self._drafts = visible, drafts
        self.tools = ToolTurns(signals, stores, runner, visible, self._read_results)
        self.refused = ("", "")

    def submit(self, text: str, opening: str = "", answers: str = "", chat: int = 0) -> bool:
        """Send a message in the open chat, or in `chat`, and start the reply, which begins with `opening`.

        Where several take part, the one called `answers` replies, else whose turn it is; nobody where the
        user chooses. False (the text stays with the caller) if there is nothing to send or no way to answer.
        """
        if not text.strip():
            return False
        sent = False
        try:
            context = self._context(chat)
            if not self.may_begin(context, "continue" if opening.strip() else ""):
                return False
            self.tools.settle(context)
            path = context.path()  # what is shown may be older, where it could not be read
            own = text.strip("\n").rstrip()
            above = path[-1].id if path else None
            message = context.store.add_message(context.id, above, "user", own, author=context.user)
            sent = True
            chosen = context.participant(answers)
            who = chosen.author if chosen is not None else context.next_author(context.path())
            if who is None:
                return self.show(context) or sent
            beginning = None
            if opening.strip():
                begun = context.store.add_message(
                    context.id, message.id, "assistant", opening, "running", who
                )
                beginning = _Beginning(begun)
            return self._begin(context, message.id, beginning, who)
        except StoreError as error:
            self.refused = (self._engine.state_in(chat or self._visible.id), str(error))
            self._signals.notice.emit(str(error), "error")
            if sent:  # the message is saved and not the reply: it is shown, to be answered later
                with contextlib.suppress(StoreError):
                    self.show(context)
            return sent

    @reports_store_errors
    def speak(self, name: str) -> bool:
        """Let a participant of the open chat say something now."""
        context = self._visible.context
        participant = context.participant(name)
        if participant is None or not self.may_begin(context):
            return False
        items = self._visible.messages.items()
        return self._begin(context, items[-1].id if items else None, who=participant.author)

    @reports_store_errors
    def take_automatic_turn(self, chat: int) -> bool:
        """Where participants speak to each other, start the next reply; False if it is the user's turn."""
        context = self._context(chat)
        path = context.path()
        if not (context.participants and 0 < replies_since_user(authored(path)) <= context.cast.automatic):
            return False
        who = context.next_author(path)
        return who is not None and self.may_begin(context) and self._begin(context, path[-1].id, who=who)

    def preview_request(self, text: str, opening: str = "", chat: int = 0) -> ChatRequest:
        """What `submit` would ask for that cannot be left out: where old turns are dropped, the system prompt
        and this message alone. Raises `StoreError`.
        """
        context = self._visible.read(chat or self._visible.id)
        whole = context.path()
        path = whole if context.layers.settings(StopSettings).when_full == "stop" else ()
        goes_on = bool(opening.strip())
        if context.participants:
            question = AuthoredMessage("user", text, context.user)
            participant = (
                next_participant(context.cast, context.participants, [*authored(whole), question])
                or context.participants[0]
            )
            written = [*authored(path), question]
            written += [AuthoredMessage("assistant", opening, participant.author)] if goes_on else []
            return context.scene_request(written, participant, self._runner.adapted, goes_on)[0]
        new = (sent("user", text), *([Message("assistant", opening)] if goes_on else []))
        above = request_messages(context.prompt.text, path, path[-1].id if path else None, self._visible.made)
        return self._with_tools(context, context.request((*above, *new), goes_on))

    @reports_store_errors
    def regenerate(self, message_id: int) -> bool:
        """Another reply beside this one; for a user's message, another reply to it."""
        context = self._visible.context
        if not self.may_begin(context):
            return False
        message = context.store.message(message_id)
        self._tell_pictures(context)
        if message.role != "assistant":
            return self._begin(context, message.id)
        named = context.participants and message.author.name
        return self._begin(context, message.parent_id, who=message.author if named else None)

    @reports_store_errors
    def continue_reply(self, message_id: int) -> bool:
        """Continue the last reply from its end."""
        items = self._visible.messages.items()
        if not items or items[-1].id != message_id or items[-1].role != "assistant":
            self._signals.notice.emit(
                _(
                    "Only the last reply can be continued. Regenerate this one, or delete the "
                    "messages after it."
                ),
                "warning",
            )
            return False
        context = self._visible.context
        if not self.may_begin(context, "continue"):
            return False
        message = context.store.message(message_id)
        self._tell_pictures(context)
        return self._begin(context, message.parent_id, _Beginning(message))

    @reports_store_errors
    def branch(self, message_id: int, text: str, ids: Sequence[int]) -> bool:
        """A new reply beside this one that begins with `text`, whose exact token ids are `ids`."""
        if message_id not in [item.id for item in self._visible.messages.items() if item.role == "assistant"]:
            self._signals.notice.emit(
                _("Only a reply that is shown can be continued from the middle."), "warning"
            )
            return False
        context = self._visible.context
        if not self.may_begin(context, "continue"):
            return False
        source = context.store.message(message_id)
        begun = context.store.add_message(
            context.id, source.parent_id, "assistant", text, "running", source.author
        )
        return self._begin(context, source.parent_id, _Beginning(begun, tuple(ids), source))

    @reports_store_errors
    def edit(self, message_id: int, text: str, answer: bool = True) -> bool:
        """Add another version of a message; a user's message gets a new reply if `answer`."""
        context = self._visible.context
        message = context.store.message(message_id)
        if self._runner.growing(message_id) is not None:
            self._signals.notice.emit(
                _("This reply is still being written. Stop it before editing."), "warning"
            )
            return False
        answer = answer and message.role == "user"
        if not answer and text == message.text:
            return True
        if message.role == "user" and (not text.strip() or (answer and not self.may_begin(context))):
            return False
        is_last = [item.id for item in self._visible.messages.items()][-1:] == [message_id]
        edited = context.store.edit_message(message_id, text)
        if answer:
            return self._begin(context, edited.id)
        self._visible.show_path()
        if not is_last:
            self._signals.notice.emit(
                _(
                    "The messages after it are kept with the earlier version of the reply. Use the arrows "
                    "below it to go there."
                )
                if message.role == "assistant"
                else _(
                    "The messages after it are kept with the earlier version of the message. Use the "
                    "arrows below it to go there."
                ),
                "info",
            )
        return True

    def may_begin(self, context: ConversationContext, needs: str = "") -> bool:
        """Whether a reply can start in a chat, with a model that can do what it `needs`; if not, says why."""
        state, loaded = self._engine.state_in(context.id), self._engine.model
        lacks = loaded.why_not(needs) if loaded is not None else ""
        if state == "idle" and lacks:
            self._signals.notice.emit(_("{lacks} Your text is kept.", lacks=lacks), "warning")
            return False
        if state == "idle" and loaded is not None and not context.may_use(loaded):
            self._signals.model_refused.emit(
                _(
                    "This chat stays on this computer, so nothing was sent to {host}. Choose a "
                    "model on this computer. Your text is kept.",
                    host=loaded.host,
                )
            )
            return False
        if state == "idle" and context.id:
            trouble = self._drafts.problem_in(context)
            if trouble:
                self._signals.draft_refused.emit(_("{trouble} Your text is kept.", trouble=trouble))
            return not trouble
        sentence = translate(_REFUSALS.get(state, _REFUSALS["stopping"]))
        self.refused = (state, sentence)
        self._signals.notice.emit(self.refused[1], "warning")
        return False

    def start(
        self,
        context: ConversationContext,
        request: ChatRequest,
        message: StoredMessage,
        source: StoredMessage | None = None,
        leading: LeadingName | None = None,
        tail: str = "",
    ) -> None:
        """Run a reply into `message`, as `ReplyRunner.begin`.

        Raises `StoreError`: the message is over then.
        """
        try:
            model = self._engine.model
            if model is not None and not model.why_no_pictures:
                request = with_data(request, PictureStore(self._stores.database_of(context.id)).get)
            request = self._runner.begin(request, message, source, leading, tail)
        except StoreError:
            with contextlib.suppress(StoreError):  # else the next start ends it
                state = "complete" if request.plain else "stopped"
                context.store.finish(message.id, message.text + tail, state, message.stats)
            raise
        self._engine.answer(context.id, message.id, request, functools.partial(self._runner.end, message.id))

    @reports_store_errors
    def show(self, context: ConversationContext) -> bool:
        """Show what was written into a chat, as far as it can be seen."""
        self._visible.touch(context.id)
        if context.id == self._visible.id:
            self._visible.show_path()
        return True

    # -- parts

    def _with_tools(self, context: ConversationContext, request: ChatRequest) -> ChatRequest:
        offered = self.tools.offered(context)
        return dataclasses.replace(request, tools=offered) if offered else request

    def _read_results(self, chat: int, last: StoredMessage) -> bool:
        """Begin the reply that reads the results of tools, of which `last` is the last message."""
        context = self._context(chat)
        above = next((each for each in reversed(context.path()) if each.role == "assistant"), None)
        who = above.author if above is not None else None
        return self.may_begin(context) and self._begin(context, last.id, who=who)

    def _tell_pictures(self, context: ConversationContext) -> None:
        """Say which pictures the model will not get, where nobody was asked before."""
        words = not_sent((message.text for message in context.path()), self._engine.model)
        if words:
            self._signals.notice.emit(words, "info")

    def _context(self, chat: int) -> ConversationContext:
        return self._visible.context if chat in (0, self._visible.id) else self._visible.read(chat)

    def _begin(
        self,
        context: ConversationContext,
        parent_id: int | None,
        beginning: _Beginning | None = None,
        who: Author | None = None,
    ) -> bool:
        """Start a reply of `who` (None: whose turn it is) under `parent_id`, or at the end of `beginning`.

        Raises `StoreError` if nothing was begun; what cannot be read after that is reported.
        """
        if context.id == self._visible.id:
            self._visible.follow()
            context = self._visible.context
        asked = self.asked(context, parent_id, beginning, who)
        continued = beginning.message if beginning is not None else None
        if self._engine.model is not None:
            context.store.set_model_path(context.id, self._engine.model.path)
        if continued is None:
            message = context.store.add_message(
                context.id, parent_id, "assistant", "", "running", asked.author
            )
        else:
            context.store.resume(continued.id)
            message = continued
        source = (beginning.source or beginning.message) if beginning is not None else None
        self.start(context, asked.request, message, source, asked.leading)
        return self.show(context) or True

    def asked(
        self,
        context: ConversationContext,
        parent_id: int | None,
        beginning: _Beginning | None = None,
        who: Author | None = None,
    ) -> Asked:
        """What is asked for a reply of `who` under `parent_id`, or at the end of `beginning`. Raises
        `StoreError`.
        """
        path = context.path()
        if parent_id is not None and parent_id not in [message.id for message in path]:
            path = context.store.path_to(parent_id)
        continued, ids = (beginning.message, beginning.ids) if beginning is not None else (None, ())
        last = continued.id if continued is not None and (ids or continued.text.strip()) else parent_id
        goes_on = last != parent_id
        end = [message.id for message in path].index(last) + 1 if last is not None else 0
        if continued is not None:
            who = continued.author
        elif who is None:
            above = path[:end]
            who = context.next_author(above) or next_in_order(context.participants, authored(above)).author
        participant = context.participant_for(who)
        if participant is None:
            messages = request_messages(context.prompt.text, path, last, self._visible.made)
            return Asked(who, self._with_tools(context, context.request(messages, goes_on, ids)))
        who = participant.author if continued is None else who
        return Asked(
            who, *context.scene_request(authored(path[:end]), participant, self._runner.adapted, goes_on, ids)
        )
