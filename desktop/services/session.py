"""ChatSession: what the window talks to. The state of a conversation's turn, and the only caller of engine room and store.

One turn: `submit` saves the user's message and shows it, adds an empty running reply, and asks the engine; what
arrives (`reply_runner.py`) reaches the item model once a frame and the store twice a second; the end is saved with its
statistics. A reply belongs to its own conversation: the user may look at another one meanwhile.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QObject, Signal, Slot

from desktop.items.catalogue import model_name
from desktop.services.drafts import DraftProblem, DraftService, draft_problem
from desktop.services.model_slot import Describe, OpenChat, describe, open_chat
from desktop.services.paths import request_messages
from desktop.services.session_conversations import ConversationSession
from desktop.services.session_settings import told
from desktop.services.worker import MakeGenerator
from desktop.settings import MODEL_SETTINGS
from desktop.store.conversations import StoredMessage
from desktop.store.database import StoreError
from desktop.store.preferences import Preferences
from desktop.store.temporary import Library
from engine.core import ChatRequest, Message, ModelInfo
from engine.settings import (
    AdapterSettings,
    CacheSettings,
    ConstraintSettings,
    GuidanceSettings,
    LoadSettings,
    OutputSettings,
    SamplerSettings,
    Settings,
    SpeculationSettings,
    StopSettings,
)

__all__ = ["ChatSession"]

_REFUSALS = {
    "no_model": "No model is loaded: open one first, then send again. Your text is kept.",
    "loading": "The model is still loading: send again when it is ready. Your text is kept.",
    "stopping": "The last task is still being stopped: send again in a moment. Your text is kept.",
    "prefill": "A reply is still being prepared{where}: stop it with Esc or wait. Your text is kept.",
    "answering": "A reply is still being written{where}: stop it with Esc or wait. Your text is kept.",
}


class ChatSession(ConversationSession):
    """The open conversation and the running reply. Lives on the GUI thread; methods that return False said why in `notice`.

    Signals, with those of `ConversationSession` and `SettingsSession`:
        state_changed(str): one of `engine_room.STATES`.
        progress(str stage, int done, int total): of loading and of reading the prompt; total 0 is unknown.
        model_changed(object): the `ModelInfo` of the loaded model, or None.
        draft_refused(str sentence): the chosen draft model cannot draft for the loaded one.
        reply_ended(int conversation, int message): a reply is over and saved.
        measured(object): what a task given to `measure` came to; None when it failed.
    """

    state_changed = Signal(str)
    progress = Signal(str, int, int)
    model_changed = Signal(object)
    draft_refused = Signal(str)
    measured = Signal(object)
    reply_ended = Signal(int, int)

    def __init__(
        self,
        library: Library,
        preferences: Preferences,
        open_chat: OpenChat = open_chat,
        describe: Describe = describe,
        draft_problem: DraftProblem = draft_problem,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(library, preferences, open_chat, describe, parent)
        self._outdated_told, self._asked_path = False, ""
        self.reload_offered = False  # with the next notice of an error, which takes it back
        self.drafts = DraftService(draft_problem, self)
        self.drafts.answered.connect(self._on_draft_answer)
        self._draft_told = ("", "", "")
        self._runner.ended.connect(self._check_draft)
        self._runner.ended.connect(self.reply_ended)
        self._runner.engine_failed.connect(self._on_engine_failed)
        self._runner.draft_failed.connect(self._on_draft_failed)
        self._engine = self._runner.engine
        self._engine.state_changed.connect(self._on_state)
        self._engine.progress.connect(self.progress)
        self._engine.model_changed.connect(self._on_model)
        self._engine.load_failed.connect(self._on_load_failed)
        self._engine.aside_ended.connect(self.measured)

    @property
    def state(self) -> str:
        """One of `engine_room.STATES`."""
        return self._engine.state

    @property
    def model(self) -> ModelInfo | None:
        """The loaded model."""
        return self._engine.model

    def close(self) -> bool:
        """Save what runs, release the model and end the engine's thread; False when that did not end in time."""
        self._save_preferences()
        ended = [self._runner.close(), self.drafts.close()]
        self._save_preferences()  # what came with the last events
        return all(ended)

    # -- model --------------------------------------------------------------------------------------------------------

    def open_model(self, path: str | Path) -> None:
        """Load a model in place of the present one, with what is kept for it and the settings of the Model and Context panes."""
        self._outdated_told, self._asked_path = False, str(path)
        self._use_model(str(path))
        self._loaded_with = (self.settings(LoadSettings), self.settings(CacheSettings))
        self._engine.open_model(Path(path), *self._loaded_with)

    @property
    def loaded_with(self) -> tuple[LoadSettings, CacheSettings]:
        """The settings with which a model was asked for last."""
        return self._loaded_with

    def reload_model(self) -> None:
        """Load the present model again, so that changed settings take effect, or the one that was asked for and is not there."""
        path = self.model.path if self.model is not None else self._asked_path
        if path:
            self.open_model(path)

    def reload_with(self, settings: LoadSettings) -> None:
        """Put settings in force and load the present model with them, or the one whose device failed; while it answers, that is left
        to the user.
        """
        path = self.model.path if self.model is not None else self._asked_path
        free = self.state in ("idle", "no_model") and bool(path)
        self._outdated_told = self._outdated_told or free
        self.set_settings(settings)
        if free:
            self.open_model(path)

    def unload_model(self) -> None:
        """Release the model's memory."""
        self._asked_path = ""
        self._engine.unload_model()

    def stop_loading(self) -> None:
        """End a load that runs; the model that was there before is gone unless only headers had been read."""
        if self.state == "loading":
            self._engine.stop()

    def measure(self, make_generator: MakeGenerator) -> None:
        """Run a short task on the engine's thread when it is free; its result comes with `measured`."""
        self._engine.run_aside(make_generator)

    def switch_drafting_off(self) -> bool:
        """Write without a drafter in the open conversation."""
        return self.set_settings(dataclasses.replace(self.settings(SpeculationSettings), method="none"))

    # -- turns --------------------------------------------------------------------------------------------------------

    @told
    def submit(self, text: str) -> bool:
        """Send a message and start the reply. False (the text stays with the caller) when there is nothing to send or no way to answer."""
        if not text.strip() or not self._ready():
            return False
        items = self.messages.items()
        message = self._of_open.add_message(self._conversation, items[-1].id if items else None, "user", text.strip("\n").rstrip())
        try:
            return self._begin(message.id)
        except StoreError as error:  # the message is saved and not the reply: it is shown, to be answered later
            self._show_path()
            self.notice.emit(str(error), "error")
            return True

    @told
    def regenerate(self, message_id: int) -> bool:
        """Another reply beside this one; for a user's message, another reply to it."""
        if not self._ready():
            return False
        message = self._of_open.message(message_id)
        return self._begin(message.parent_id if message.role == "assistant" else message.id)

    @told
    def continue_reply(self, message_id: int) -> bool:
        """Write on from the end of the last reply."""
        items = self.messages.items()
        if not items or items[-1].id != message_id or items[-1].role != "assistant":
            self.notice.emit("Only the last reply can be continued: regenerate this one, or delete what follows it.", "warning")
            return False
        return self._ready() and self._begin(self._of_open.message(message_id).parent_id, self._of_open.message(message_id))

    @told
    def branch(self, message_id: int, text: str, ids: Sequence[int]) -> bool:
        """A new reply beside this one that begins with `text`, whose exact token ids are `ids`; the model writes on from there."""
        if message_id not in [item.id for item in self.messages.items() if item.role == "assistant"]:
            self.notice.emit("Only a reply that is shown can be continued from its middle.", "warning")
            return False
        if not self._ready():
            return False
        source = self._of_open.message(message_id)
        begun = self._of_open.add_message(self._conversation, source.parent_id, "assistant", text, "running")
        return self._begin(source.parent_id, begun, tuple(ids), source)

    @told
    def edit(self, message_id: int, text: str) -> bool:
        """Put another text beside the message's own; a user's message is answered anew."""
        message = self._of_open.message(message_id)
        if self._runner.message_id == message_id:
            self.notice.emit("This reply is still being written: stop it before editing.", "warning")
            return False
        if message.role == "assistant" and text == message.text:
            return True
        if message.role == "user" and (not text.strip() or not self._ready()):
            return False
        is_last = [item.id for item in self.messages.items()][-1:] == [message_id]
        edited = self._of_open.edit_message(message_id, text)
        if message.role == "user":
            return self._begin(edited.id)
        self._show_path()
        if not is_last:
            self.notice.emit("What followed is kept with the earlier version of the reply: the arrows below it lead there.", "info")
        return True

    # -- parts --------------------------------------------------------------------------------------------------------

    def _ready(self) -> bool:
        """Whether a reply can start; if not, says why."""
        if self.state == "idle" and self._conversation:
            trouble = self._draft_trouble()
            if trouble:
                self.draft_refused.emit(f"{trouble} Your text is kept.")
            return not trouble
        elsewhere = self.replying_in not in (0, self._conversation)
        where = f" in “{self.library.of(self.replying_in).get(self.replying_in).title}”" if elsewhere else ""
        self.notice.emit(_REFUSALS.get(self.state, _REFUSALS["stopping"]).format(where=where), "warning")
        return False

    def _draft_trouble(self) -> str:
        """Why the chosen draft model cannot draft for the loaded one; "" when it can, nothing is known yet, or none is wanted."""
        drafting = self.settings(SpeculationSettings)
        if drafting.method != "model":
            return ""
        if not drafting.draft_model:
            return "Drafting with a draft model is on, but no draft model is chosen: choose one, or switch drafting off."
        problem = self.drafts.answer(drafting.draft_model)
        return f"The draft model “{model_name(drafting.draft_model)}” cannot be used: {problem}" if problem else ""

    @Slot()
    def _check_draft(self) -> None:
        """Have it found out, off this thread, whether the chosen draft model fits."""
        drafting = self.settings(SpeculationSettings)
        if drafting.method == "model" and drafting.draft_model:
            self.drafts.check(drafting.draft_model)

    @Slot(str, str, str)
    def _on_draft_answer(self, target: str, draft: str, problem: str) -> None:
        """Tell of a draft model that does not fit as soon as it is known; once, for each message that is sent tells again."""
        if draft == self.settings(SpeculationSettings).draft_model and (target, draft, problem) != self._draft_told:
            self._draft_told = (target, draft, problem)
            if trouble := self._draft_trouble():
                self.draft_refused.emit(trouble)

    @Slot(int, str)
    def _on_draft_failed(self, conversation_id: int, sentence: str) -> None:
        if conversation_id == self._conversation:
            self.draft_refused.emit(sentence)

    def _begin(
        self, parent_id: int | None, continued: StoredMessage | None = None, ids: tuple[int, ...] = (), source: StoredMessage | None = None
    ) -> bool:
        """Start a reply under `parent_id`, or at the end of `continued`, whose exact token ids are `ids` where they are known.

        The text of `continued` comes from the reply `source`, which is itself unless it was branched off.
        """
        self.follow_place()
        prompt = self.prompt.text
        path = self._of_open.path(self._conversation)
        last = continued.id if continued is not None and (ids or continued.text.strip()) else parent_id
        request = self._request(request_messages(prompt, path, last), last != parent_id, ids)
        if self.model is not None:
            self._of_open.set_model_path(self._conversation, self.model.path)
        if continued is None:
            message = self._of_open.add_message(self._conversation, parent_id, "assistant", "", "running")
        else:
            self._of_open.resume(continued.id)
            message = continued
        self._runner.begin(request, message, source or continued)
        self._touched(self._conversation)
        self._show_path()
        return True

    def _request(self, messages: tuple[Message, ...], goes_on: bool, ids: tuple[int, ...]) -> ChatRequest:
        """The request with all settings of the open conversation. Exact ids stay as they are: their last token is not healed."""
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

    def _settings_put(self, cls: type[Settings]) -> None:
        super()._settings_put(cls)
        if cls in MODEL_SETTINGS and self.model is not None and not self._outdated_told:
            self._outdated_told = True
            self.notice.emit("This takes effect when the model is loaded again.", "info")
        if cls is SpeculationSettings:
            self._draft_told = ("", "", "")
            self._check_draft()

    def _enter(self, conversation_id: int) -> None:
        super()._enter(conversation_id)
        self._check_draft()

    @Slot(str)
    def _on_state(self, state: str) -> None:
        if state in ("idle", "no_model"):  # a model that was asked for and did not come leaves its settings behind
            self._take_model(self.model)
        self.state_changed.emit(state)

    @Slot(object)
    def _on_model(self, info: ModelInfo | None) -> None:
        if info is not None:
            self._remember_model(info.path)
        self._take_model(info)
        self._draft_told = ("", "", "")
        self.drafts.set_target(info.path if info is not None else "")
        self._check_draft()
        self.model_changed.emit(info)

    def _take_model(self, info: ModelInfo | None) -> None:
        """The settings of the loaded model, or of none."""
        self._use_model(info.path if info is not None else "", dict(info.defaults) if info is not None else {})

    @told
    def _remember_model(self, path: str) -> bool:
        self.preferences.remember_model(path)
        return True

    @Slot(str, str, str)
    def _on_load_failed(self, path: str, sentence: str, details: str) -> None:
        self.reload_offered = self._engine.shaken
        self._on_trouble(sentence, details)

    @Slot(str, str)
    def _on_engine_failed(self, sentence: str, details: str) -> None:
        self.reload_offered = True
        self._on_trouble(sentence, details)
