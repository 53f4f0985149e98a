"""The part of a session that asks the model: a message and its reply, another reply, a reply that goes on,
a text changed.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence

from PySide6.QtCore import QObject, Signal, Slot

from desktop.items.chats.messages import MessagesModel
from desktop.items.models.local_models import model_name
from desktop.services.engine.model_host import Describe, OpenChat
from desktop.services.models.draft_models import DraftModelService, DraftProblem
from desktop.services.session.participants import RoleSession, said_of
from desktop.services.session.paths import request_messages
from desktop.services.session.settings import told
from desktop.services.session.voices import LeadingName, Said, Voice, in_turn, next_voice, replies_since_user
from desktop.store.conversations.conversations import StoredMessage
from desktop.store.conversations.forking import fork
from desktop.store.conversations.participants import Author
from desktop.store.conversations.stores import ConversationStores
from desktop.store.database.database import StoreError
from desktop.store.settings.preferences import Preferences
from engine.core import ChatRequest, Message
from engine.settings import (
    AdapterSettings,
    ConstraintSettings,
    GuidanceSettings,
    OutputSettings,
    SamplerSettings,
    SpeculationSettings,
    StopSettings,
)

__all__ = ["TurnSession"]

_REFUSALS = {
    "no_model": "No model is loaded: open one first, then {verb} again. Your text is kept.",
    "loading": "The model is still loading: {verb} again when it is ready. Your text is kept.",
    "stopping": "The last task is still being stopped: {verb} again in a moment. Your text is kept.",
    "prefill": "A reply is still being prepared{where}: stop it with Esc or wait. Your text is kept.",
    "answering": "A reply is still being written{where}: stop it with Esc or wait. Your text is kept.",
}


class TurnSession(RoleSession):
    """Starts replies in the open conversation, one at a time.

    `refused` is the state in which the last one was refused, and how.

    Signals:
        state_changed(str): one of `engine_controller.STATES`.
        draft_refused(str sentence): the chosen draft model cannot draft for the loaded one.
        reply_ended(int conversation, int message): a reply is over and saved; the state is not yet "idle".
    """

    state_changed = Signal(str)
    draft_refused = Signal(str)
    reply_ended = Signal(int, int)

    def __init__(
        self, stores: ConversationStores, preferences: Preferences, open_chat: OpenChat, describe: Describe,
        draft_problem: DraftProblem, parent: QObject | None = None,
    ) -> None:  # fmt: skip
        super().__init__(stores, preferences, open_chat, describe, parent)
        self._engine = self._runner.engine
        self.drafts = DraftModelService(draft_problem, self)
        self.drafts.answered.connect(self._on_draft_answer)
        self._draft_told = ("", "", "")
        self.refused = ("", "")
        self._runner.ended.connect(self._check_draft)
        self._runner.draft_failed.connect(self._on_draft_failed)
        self._runner.ended.connect(self.reply_ended)

    @property
    def state(self) -> str:
        """One of `engine_controller.STATES`."""
        return self._engine.state

    @told
    def submit(self, text: str, opening: str = "", answers: str = "") -> bool:
        """Send a message and start the reply, which begins with `opening` and goes on from there.

        Where several take part, the one called `answers` replies, else whose turn it is; nobody where the
        user chooses. False (the text stays with the caller) when there is nothing to send or no way to
        answer.
        """
        if not text.strip() or not self._ready():
            return False
        # what is shown may be older, where it could not be read
        path = self._of_open.path(self._conversation)
        above = path[-1].id if path else None
        said = text.strip("\n").rstrip()
        message = self._of_open.add_message(self._conversation, above, "user", said, author=self._signature())
        try:
            chosen = self.voice(answers)
            who = chosen.spoken if chosen is not None else self._next(self._of_open.path(self._conversation))
            if who is None:
                self._touched(self._conversation)
                self._show_path()
                return True
            begun = None
            if opening.strip():
                begun = self._of_open.add_message(
                    self._conversation, message.id, "assistant", opening, "running", who
                )
            return self._begin(message.id, begun, who=who)
        # the message is saved and not the reply: it is shown, to be answered later
        except StoreError as error:
            self._say(self.notice, str(error), "error")
            with contextlib.suppress(StoreError):
                self._show_path()
            return True

    def save_replies(self) -> dict[int, str]:
        """Write now what could not be saved; what still cannot is returned: the whole texts by their
        messages' ids.

        A reply that runs counts where its last save failed.
        """
        self._runner.unsaved.save()
        found = self._runner.unsaved.waiting
        if self._runner.message_id and self._runner.unsaved.in_trouble:
            found[self._runner.message_id] = self._runner.text
        return found

    @property
    def save_trouble(self) -> str:
        """Why a reply could not be saved the last time that happened."""
        return self._runner.unsaved.reason

    def submit_in(self, conversation_id: int, text: str, opening: str = "") -> bool:
        """As `submit`, in a conversation that need not be the open one; what is shown stays, but for the
        state.
        """
        return self._inside(conversation_id, lambda: self.submit(text, opening))

    @told
    def speak(self, name: str) -> bool:
        """Let a participant say something now, behind what is shown."""
        voice = self.voice(name)
        if voice is None or not self._ready():
            return False
        items = self.messages.items()
        return self._begin(items[-1].id if items else None, who=voice.spoken)

    def go_on_in(self, conversation_id: int) -> bool:
        """Where participants speak to each other, start the next reply, in a conversation that need not be
        the open one; False where it is the user's turn.
        """
        return self._inside(conversation_id, self._go_on)

    @told
    def _go_on(self) -> bool:
        path = self._of_open.path(self._conversation)
        due = bool(self._voices) and 0 < replies_since_user(said_of(path)) <= self._roles.automatic
        who = self._next(path) if due else None
        return who is not None and self._ready() and self._begin(path[-1].id, who=who)

    def _inside(self, conversation_id: int, act: Callable[[], bool], acts: bool = True) -> bool:
        """Do something as if that conversation were open; the state is told anew unless nothing `acts`
        there.
        """
        shown = self._conversation
        if conversation_id == shown:
            return act()
        rows, standing, held = self.messages, self._standing(), self._hold()
        # the open conversation's settings and messages are shown all the while
        blocked = self.blockSignals(True)
        self.messages = MessagesModel()
        try:
            self._kind_of = 0
            self._enter(conversation_id)
            self.messages.reset(self._items())
            sent = act()
        except StoreError as error:
            sent = False
            self._say(self.notice, str(error), "error")
        finally:
            self.messages, self._held = rows, None
            self._stand(standing)
            self.blockSignals(blocked)
            for signal, values in held:
                signal.emit(*values)
        if acts:
            self.state_changed.emit(self.state)
        return sent

    def preview_request(self, text: str, opening: str = "") -> ChatRequest:
        """What `submit` would ask for that cannot be left out: where old turns are dropped, the system prompt
        and this message alone.

        Raises `StoreError`.
        """
        self.follow_place()
        path = (
            self._of_open.path(self._conversation) if self.settings(StopSettings).when_full == "stop" else ()
        )
        if self._voices:
            said = [*said_of(path), Said("user", text, self._signature())]
            voice = next_voice(self._roles, self._voices, said) or self._voices[0]
            said += [Said("assistant", opening, voice.spoken)] if opening.strip() else []
            return self._staged(said, voice, bool(opening.strip()), ())[0]
        new = (Message("user", text), *([Message("assistant", opening)] if opening.strip() else []))
        return self._request(
            (*request_messages(self.prompt.text, path, path[-1].id if path else None), *new),
            bool(opening.strip()),
            (),
        )

    def preview_in(self, conversation_id: int, text: str, opening: str = "") -> ChatRequest | None:
        """As `preview_request`, in a conversation that need not be the open one; None, with a notice, when
        it cannot be read.
        """
        found: list[ChatRequest] = []

        def preview() -> bool:
            found.append(self.preview_request(text, opening))
            return True

        return found[0] if self._inside(conversation_id, preview, acts=False) else None

    @told
    def fork(self, message_id: int) -> bool:
        """A new conversation that begins with what is shown up to a message; it is opened, and undo takes
        it away.
        """
        source = self.stores.of(message_id).message(message_id).conversation_id
        made = fork(self.stores, message_id)
        self._touched(made)
        self._undo.push("fork", lambda: self._unfork(made, source))
        return self._open(made)

    def _unfork(self, made: int, source: int) -> None:
        if self.replying_in == made:
            self.stop()
        self.stores.of(made).delete(made)
        self.conversations.remove(made)
        if self._conversation == made:
            self._open(source)

    @told
    def regenerate(self, message_id: int) -> bool:
        """Another reply beside this one; for a user's message, another reply to it."""
        if not self._ready():
            return False
        message = self._of_open.message(message_id)
        if message.role == "assistant":
            return self._begin(
                message.parent_id, who=message.author if self._voices and message.author.name else None
            )
        return self._begin(message.id)

    @told
    def continue_reply(self, message_id: int) -> bool:
        """Write on from the end of the last reply."""
        items = self.messages.items()
        if not items or items[-1].id != message_id or items[-1].role != "assistant":
            self.notice.emit(
                "Only the last reply can be continued: regenerate this one, or delete what follows it.",
                "warning",
            )
            return False
        return self._ready() and self._begin(
            self._of_open.message(message_id).parent_id, self._of_open.message(message_id)
        )

    @told
    def branch(self, message_id: int, text: str, ids: Sequence[int]) -> bool:
        """A new reply beside this one that begins with `text`, whose exact token ids are `ids`; the model
        writes on from there.
        """
        if message_id not in [item.id for item in self.messages.items() if item.role == "assistant"]:
            self.notice.emit("Only a reply that is shown can be continued from its middle.", "warning")
            return False
        if not self._ready():
            return False
        source = self._of_open.message(message_id)
        begun = self._of_open.add_message(
            self._conversation, source.parent_id, "assistant", text, "running", source.author
        )
        return self._begin(source.parent_id, begun, tuple(ids), source)

    @told
    def edit(self, message_id: int, text: str, answer: bool = True) -> bool:
        """Put another text beside the message's own; a user's message is answered anew if `answer`."""
        message = self._of_open.message(message_id)
        if self._runner.message_id == message_id:
            self.notice.emit("This reply is still being written: stop it before editing.", "warning")
            return False
        answer = answer and message.role == "user"
        if not answer and text == message.text:
            return True
        if message.role == "user" and (not text.strip() or (answer and not self._ready())):
            return False
        is_last = [item.id for item in self.messages.items()][-1:] == [message_id]
        edited = self._of_open.edit_message(message_id, text)
        if answer:
            return self._begin(edited.id)
        self._show_path()
        if not is_last:
            what = "reply" if message.role == "assistant" else "message"
            self.notice.emit(
                f"What followed is kept with the earlier version of the {what}: the arrows below it lead "
                "there.",
                "info",
            )
        return True

    # -- parts
    # --------------------------------------------------------------------------------------------------------

    def _ready(self) -> bool:
        """Whether a reply can start; if not, says why."""
        if self.state == "idle" and self._conversation:
            trouble = self._draft_trouble()
            if trouble:
                self._say(self.draft_refused, f"{trouble} Your text is kept.")
            return not trouble
        elsewhere = self.replying_in not in (0, self._conversation)
        where = f" in “{self.stores.of(self.replying_in).get(self.replying_in).title}”" if elsewhere else ""
        sentence = _REFUSALS.get(self.state, _REFUSALS["stopping"])
        self.refused = (self.state, sentence.format(where=where, verb="try" if self.notebook else "send"))
        self._say(self.notice, self.refused[1], "warning")
        return False

    def _draft_trouble(self) -> str:
        """Why the chosen draft model cannot draft for the loaded one; "" when it can, nothing is known
        yet, or none is wanted.
        """
        drafting = self.settings(SpeculationSettings)
        if drafting.method != "model":
            return ""
        if not drafting.draft_model:
            return (
                "Drafting with a draft model is on, but no draft model is chosen: choose one, or switch "
                "drafting off."
            )
        problem = self.drafts.answer(drafting.draft_model)
        return (
            f"The draft model “{model_name(drafting.draft_model)}” cannot be used: {problem}"
            if problem
            else ""
        )

    @Slot()
    def _check_draft(self) -> None:
        """Have it found out, off this thread, whether the chosen draft model fits."""
        drafting = self.settings(SpeculationSettings)
        if drafting.method == "model" and drafting.draft_model:
            self.drafts.check(drafting.draft_model)

    @Slot(str, str, str)
    def _on_draft_answer(self, target: str, draft: str, problem: str) -> None:
        """Tell of a draft model that does not fit as soon as it is known; once, for each message that is
        sent tells again.
        """
        if (
            draft == self.settings(SpeculationSettings).draft_model
            and (target, draft, problem) != self._draft_told
        ):
            self._draft_told = (target, draft, problem)
            if trouble := self._draft_trouble():
                self.draft_refused.emit(trouble)

    @Slot(int, str)
    def _on_draft_failed(self, conversation_id: int, sentence: str) -> None:
        if conversation_id == self._conversation:
            self.draft_refused.emit(sentence)

    def _begin(
        self,
        parent_id: int | None,
        continued: StoredMessage | None = None,
        ids: tuple[int, ...] = (),
        source: StoredMessage | None = None,
        who: Author | None = None,
    ) -> bool:
        """Start a reply of `who` (None: whose turn it is) under `parent_id`, or at the end of `continued`,
        whose exact token ids are `ids` where they are known.

        The text of `continued` comes from the reply `source`, which is itself unless it was branched off.
        Raises `StoreError` where nothing was begun; what cannot be read after that is told.
        """
        self._look_around()
        path = self._of_open.path(self._conversation)
        last = continued.id if continued is not None and (ids or continued.text.strip()) else parent_id
        end = [message.id for message in path].index(last) + 1 if last is not None else 0
        above = path[: end - (last != parent_id)]
        if continued is not None:
            who = continued.author
        elif who is None:
            who = self._next(above) or in_turn(self._voices, said_of(above)).spoken
        voice, leading = self._voice_for(who), None
        if voice is None:
            request = self._request(request_messages(self.prompt.text, path, last), last != parent_id, ids)
        else:
            who = voice.spoken if continued is None else who
            request, leading = self._staged(said_of(path[:end]), voice, last != parent_id, ids)
        if self.model is not None:
            self._of_open.set_model_path(self._conversation, self.model.path)
        if continued is None:
            message = self._of_open.add_message(
                self._conversation, parent_id, "assistant", "", "running", who
            )
        else:
            self._of_open.resume(continued.id)
            message = continued
        try:
            self._runner.begin(request, message, source or continued, leading)
        except StoreError:
            with contextlib.suppress(StoreError):  # else the next start ends it
                self._of_open.finish(message.id, message.text, "stopped", message.stats)
            raise
        self._show_begun()
        return True

    @told
    def _show_begun(self) -> bool:
        self._touched(self._conversation)
        self._show_path()
        return True

    def _staged(
        self, said: list[Said], voice: Voice, goes_on: bool, ids: tuple[int, ...]
    ) -> tuple[ChatRequest, LeadingName | None]:
        """The request for a reply of one of several; and what takes names off it, unless it goes on from a
        text it has.
        """
        scene = self._scene(voice)
        assert scene is not None
        if goes_on:  # the last one is the speaker's, whoever was to speak when it was begun
            said = [*said[:-1], said[-1]._replace(speaker=voice.spoken)]
        messages, begun = scene.messages(said, goes_on), scene.opens(said, goes_on)
        signed = bool(messages) and messages[-1].content.startswith(f"{voice.name}: ")
        with self._speaking(voice):
            # ids know nothing of the name before them
            request = self._request(messages, goes_on or begun, () if signed else ids)
        stops = dataclasses.replace(
            request.stops, stop_strings=(*request.stops.stop_strings, *scene.stops(said)), keep_stop=False
        )  # fmt: skip
        # The name's last token is drawn anew: after "Ada: " no model expects a word without its blank.
        constraint = dataclasses.replace(request.constraint, heal=request.constraint.heal or begun)
        request = dataclasses.replace(request, stops=stops, constraint=constraint)
        tags = self.model.thinking if self.model is not None else ()
        opened = self.model.opens_thought if self.model is not None and not begun else ""
        return request, None if goes_on else scene.leading(said, opened, tags)

    def _request(self, messages: tuple[Message, ...], goes_on: bool, ids: tuple[int, ...]) -> ChatRequest:
        """The request with all settings of the open conversation.

        Exact ids stay as they are: their last token is not healed.
        """
        constraint = self.settings(ConstraintSettings)
        return ChatRequest(
            messages,
            sampler=self.settings(SamplerSettings),
            stops=self.settings(StopSettings),
            continue_last=goes_on,
            speculation=self.settings(SpeculationSettings),
            constraint=dataclasses.replace(constraint, heal=False) if ids else constraint,
            guidance=self.settings(GuidanceSettings),
            output=self.settings(OutputSettings),
            adapters=self.settings(AdapterSettings),
            continue_ids=ids,
        )
