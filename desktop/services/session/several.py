"""Several replies to one message, written at the same time: each is a version of the reply."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence

from desktop.services.engine.reply_runner import ReplyRunner
from desktop.services.session.context import ConversationContext
from desktop.services.session.signals import SessionSignals
from desktop.services.session.turns import Asked, Turns
from desktop.services.session.visible_chat import VisibleChat
from desktop.store.conversations.participants import UNNAMED, Author
from desktop.store.database.database import StoreError
from desktop.store.settings.preferences import Preferences
from desktop.store.settings.presets import find_preset
from engine.lazy_dataclass import dataclass
from engine.settings import SamplerSettings

__all__ = ["ColumnSettings", "SeveralReplies"]


@dataclass(frozen=True, slots=True)
class ColumnSettings:
    """How one of several replies is to be written. What is not set is that of the chat.

    `preset` is the name of a sampler preset, `persona` a number, and `model` a path; "" is the loaded one.
    `label` says in a few words how the reply differs from the others.
    """

    preset: str = ""
    temperature: float | None = None
    seed: int | None = None
    persona: int = 0
    model: str = ""
    label: str = ""

    def sampler(self, present: SamplerSettings, preferences: Preferences) -> SamplerSettings:
        """The sampling of this reply, where that of the chat is `present`. Raises `BadSetting`."""
        preset = find_preset(preferences, self.preset) if self.preset else None
        found = preset.over(present) if preset is not None else present
        if self.temperature is not None:
            found = dataclasses.replace(found, temperature=self.temperature)
        return found if self.seed is None else dataclasses.replace(found, seed=self.seed)


class SeveralReplies:
    """Begins several replies in the open chat, each in a message of its own."""

    def __init__(
        self,
        signals: SessionSignals,
        preferences: Preferences,
        runner: ReplyRunner,
        visible: VisibleChat,
        turns: Turns,
    ) -> None:
        self._signals, self._preferences = signals, preferences
        self._runner, self._visible, self._turns = runner, visible, turns

    def add_message(self, text: str) -> int:
        """Add the user's message to the open chat, for several replies; 0, with a notice, if none can be
        written now or it cannot be saved.
        """
        context = self._visible.context
        if not text.strip() or not self._turns.may_begin(context):
            return 0
        try:
            path = context.path()
            above = path[-1].id if path else None
            own = text.strip("\n").rstrip()
            return context.store.add_message(context.id, above, "user", own, author=context.user).id
        except StoreError as error:
            self._signals.notice.emit(str(error), "error")
            return 0

    def write(
        self,
        chat: int,
        parent_id: int,
        columns: Sequence[ColumnSettings],
        who: Author = UNNAMED,
        beside: bool = False,
    ) -> tuple[int, ...]:
        """Begin a reply to a message of a chat for each of `columns`, with the loaded model; returns their
        messages, the first of which is shown. () with a notice if they cannot be begun.

        Where several take part, `who` answers, unnamed for whose turn it is. `beside`: they join others,
        which may still run, and what is shown stays.
        """
        context = self._visible.context
        if not beside and not self._turns.may_begin(context):
            return ()
        try:
            context = self._visible.read(chat)
            if not beside and parent_id not in [message.id for message in context.path()]:
                context.store.show_variant(parent_id)
            asked = [self._asked(context, parent_id, column, who) for column in columns]
            model = self._runner.engine.model
            if model is not None:
                context.store.set_model_path(context.id, model.path)
            authors = [each.author for each in asked]
            messages = context.store.add_replies(context.id, parent_id, authors, shown=not beside)
        except StoreError as error:
            self._signals.notice.emit(str(error), "error")
            with contextlib.suppress(StoreError):  # the message is saved: it is shown, to be answered later
                self._turns.show(context)
            return ()
        for message, each, column in zip(messages, asked, columns, strict=True):
            try:
                self._turns.start(context, each.request, message, leading=each.leading)
            except StoreError as error:
                self._signals.notice.emit(str(error), "error")
            running = self._runner.growing(message.id)
            if running is not None:
                running.label = column.label
        self._turns.show(context)
        return tuple(message.id for message in messages)

    def _asked(
        self, context: ConversationContext, parent_id: int, column: ColumnSettings, who: Author
    ) -> Asked:
        if column.persona and not context.participants:
            context = self._visible.with_persona(context, column.persona)
        speaks = who if context.participants and who.name else None
        asked = self._turns.asked(context, parent_id, who=speaks)
        sampler = column.sampler(asked.request.sampler, self._preferences)
        # what one of them calls would come between the others
        return asked._replace(request=dataclasses.replace(asked.request, sampler=sampler, tools=()))
