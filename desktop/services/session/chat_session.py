"""ChatSession: what the window talks to; the open chat, its settings, its turns and the loaded model.

One turn: `submit` saves the user's message and shows it, adds an empty running reply, and asks the engine.
What arrives goes to the item model, and a few times a second to the store (`reply_runner.py`); the end is
saved with its statistics. A reply belongs to its own chat: another one may be open meanwhile, with a reply of
its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from PySide6.QtCore import QObject, Slot

from desktop.blocks import THINKING_TAGS
from desktop.items.chats.messages import MessagesModel
from desktop.services.engine.model_host import Describe, OpenChat, describe, open_chat
from desktop.services.engine.reply_runner import ReplyRunner
from desktop.services.models.draft_models import DraftProblem, draft_problem
from desktop.services.session.chat_settings import ChatSettings, S
from desktop.services.session.context import Prompt, is_temporary
from desktop.services.session.conversations import Conversations
from desktop.services.session.draft_check import DraftCheck
from desktop.services.session.model_loading import ModelLoading
from desktop.services.session.notebook import Notebook
from desktop.services.session.saving_trouble import SavingTrouble
from desktop.services.session.scene import SceneParticipant
from desktop.services.session.several import SeveralReplies
from desktop.services.session.signals import SessionSignals
from desktop.services.session.turns import Turns
from desktop.services.session.visible_chat import VisibleChat
from desktop.services.settings.layered_settings import LayeredSettings
from desktop.settings import ToolSettings
from desktop.store.conversations.participants import Cast
from desktop.store.conversations.personas import Persona
from desktop.store.conversations.stores import ConversationStores
from desktop.store.settings.preferences import Preferences
from engine.core import ModelInfo, Stats
from engine.settings import AdapterSettings, CacheSettings, LoadSettings, Settings, SpeculationSettings

__all__ = ["ChatSession"]


class ChatSession(SessionSignals):
    """The facade of the parts in this folder: its actions are their methods. Lives on the GUI thread; actions
    that return False have said why in `notice`.

    `messages` and `conversations` are the item models of the transcript and the sidebar; `replies` runs the
    replies, `tools` what they call; `drafts` checks draft models; `several` begins several replies to one
    message.
    """

    def __init__(
        self,
        stores: ConversationStores,
        preferences: Preferences,
        open_chat: OpenChat = open_chat,
        describe: Describe = describe,
        draft_problem: DraftProblem = draft_problem,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self.stores, self.preferences = stores, preferences
        self.messages = MessagesModel(self)
        self.replies = runner = ReplyRunner(stores, self.messages, open_chat, describe, self)
        self.saving = SavingTrouble(self.notice.emit)
        self._state = self._emitted_state = "no_model"
        self._emitting_state = False
        self._visible = visible = VisibleChat(self, stores, preferences, runner, self.messages)
        self.conversations = visible.listed
        self.messages.trace = visible.tokens
        self._settings = ChatSettings(self, stores, preferences, visible)
        self._drafting = DraftCheck(self, visible, draft_problem)
        self.drafts = self._drafting.models
        self._turns = Turns(self, stores, runner, visible, self._drafting)
        self.tools = self._turns.tools
        self.several = SeveralReplies(self, preferences, runner, visible, self._turns)
        self._notebook = Notebook(self, stores, runner, visible, self._turns)
        self._model = ModelLoading(self, preferences, runner.engine, visible, self._settings, self._drafting)
        self._chats = Conversations(self, stores, preferences, runner, visible, self.tools)
        self._offer_actions()
        self._settings.was_set.connect(self._on_set)
        self.conversation_changed.connect(runner.engine.bring_forward)
        self.conversation_changed.connect(self._look_at_state)
        self.conversation_changed.connect(self._drafting.check)
        runner.engine.changed.connect(self._look_at_state)
        runner.engine.changed.connect(self.engine_changed)
        runner.engine.became_free.connect(self.became_free)
        runner.engine.progress.connect(self._on_progress)
        runner.adapted.found.connect(self.adapted_changed)
        self.model_changed.connect(self.adapted_changed)
        self.settings_changed.connect(self._on_changed)
        runner.ran.connect(self._on_ran)
        runner.avoided.connect(self._on_avoided)
        runner.changed.connect(visible.replace_row)
        runner.draft_failed.connect(self._on_draft_failed)
        runner.ended.connect(self._on_ended)
        runner.trouble.connect(self.report_error)
        runner.trouble.connect(lambda _sentence, _details: self.saving.began("replies"))
        runner.saved_again.connect(lambda: self.saving.ended("replies"))
        self.file_replaced.connect(self.saving.clear)
        runner.engine_failed.connect(self._on_engine_failed)

    def _offer_actions(self) -> None:
        """Bind the parts' methods, so that a call goes straight to the part."""
        chats, visible, turns = self._chats, self._visible, self._turns
        notebook, model, settings, runner = self._notebook, self._model, self._settings, self.replies
        self.restore, self.list_all, self.search = chats.restore, chats.list_all, chats.search
        self.new_conversation, self.new_temporary = chats.new_conversation, chats.new_temporary
        self.new_notebook, self.new_temporary_notebook = chats.new_notebook, chats.new_temporary_notebook
        self.open_conversation, self.open_message = chats.open_conversation, chats.open_message
        self.keep_temporary, self.fork = chats.keep_temporary, chats.fork
        self.rename_conversation, self.show_variant = chats.rename_conversation, chats.show_variant
        self.keep_version, self.name_after_topic = chats.keep_version, chats.name_after_topic
        self.delete_conversation, self.delete_conversations = (
            chats.delete_conversation, chats.delete_conversations,
        )  # fmt: skip
        self.delete_message, self.undo, self.push_undo = (
            chats.delete_message, chats.undo, chats.undo_stack.push,
        )  # fmt: skip
        self.reload_conversations, self.catch_up, self.start_again = (
            chats.reload_conversations, chats.catch_up, chats.start_again,
        )  # fmt: skip
        self.follow_place, self.set_system_prompt = visible.follow_place, visible.set_system_prompt
        self.choose_persona, self.set_cast = visible.choose_persona, visible.set_cast
        self.set_local_only = visible.set_local_only
        self.write_as, self.next_messages, self.tokens = (
            visible.write_as,
            visible.next_messages,
            visible.tokens,
        )
        self.submit, self.speak, self.edit = turns.submit, turns.speak, turns.edit
        self.regenerate, self.continue_reply, self.branch = (
            turns.regenerate, turns.continue_reply, turns.branch,
        )  # fmt: skip
        self.take_automatic_turn, self.preview_request = turns.take_automatic_turn, turns.preview_request
        self.document, self.document_request = notebook.document, notebook.document_request
        self.save_document, self.write_on = notebook.save_document, notebook.write_on
        self.may_write = notebook.may_write
        self.open_model, self.unload_model = model.open_model, model.unload_model
        self.reload_model, self.reload_with = model.reload_model, model.reload_with
        self.stop_loading, self.ask = model.stop_loading, model.ask
        self.set_settings, self.reset_setting = settings.set_settings, settings.reset_setting
        self.save_as_defaults, self.keep_for_model = settings.save_as_defaults, settings.keep_for_model
        self.choose_preset, self.presets_edited = settings.choose_preset, settings.presets_edited
        self.stop_all, self.measure = runner.engine.stop, runner.engine.run_in_background
        self.state_in, self.make_room, self.save_replies = (
            runner.engine.state_in, runner.engine.make_room, runner.save_replies,
        )  # fmt: skip

    def close(self) -> bool:
        """Save what runs, release the model, end the engine's thread; False if that did not end in time."""
        self._settings.save_preferences()
        ended = [self.replies.close(), self.drafts.close()]
        self._settings.save_preferences()  # what came with the last events
        return all(ended)

    # -- the open chat

    def show_again(self) -> None:
        """Tell a new window what an earlier one was told: the model, the open chat and what runs in it."""
        self.model_changed.emit(self.model)
        if self.conversation:
            self.open_conversation(self.conversation)
        self.state_changed.emit(self.state)

    @property
    def conversation(self) -> int:
        """The open chat's id; 0 before there is one."""
        return self._visible.id

    @property
    def title(self) -> str:
        """Its title; empty before its first message."""
        return self._visible.title

    @property
    def temporary(self) -> bool:
        """Whether it is in memory only."""
        return is_temporary(self._visible.id)

    @property
    def local_only(self) -> bool:
        """Whether nothing of it is sent to a server."""
        return self._visible.context.local_only

    @property
    def tools_off(self) -> tuple[str, ...]:
        """The servers whose tools are not offered in it."""
        return self.settings(ToolSettings).off

    def set_tools_off(self, names: Iterable[str]) -> bool:
        """Offer no tools of these servers in it."""
        return self.set_settings(ToolSettings(tuple(names)))

    @property
    def notebook(self) -> bool:
        """Whether it is a notebook."""
        return self._visible.context.is_notebook

    @property
    def prompt(self) -> Prompt:
        """Its system prompt."""
        return self._visible.context.prompt

    @property
    def persona(self) -> Persona | None:
        """Who answers in it; None for nobody in particular."""
        return self._visible.context.persona

    @property
    def cast(self) -> Cast:
        """Its participants as they are stored."""
        return self._visible.context.cast

    @property
    def participants(self) -> tuple[SceneParticipant, ...]:
        """Its participants, personas under their present names; none in a plain chat."""
        return self._visible.context.participants

    def participant(self, name: str) -> SceneParticipant | None:
        """The participant of this name."""
        return self._visible.context.participant(name)

    # -- its settings

    def settings(self, cls: type[S]) -> S:
        """The effective values in the open chat."""
        return self._visible.context.layers.settings(cls)

    def settings_for(self, path: str, cls: type[S]) -> S:
        """The saved defaults with what is kept for the model at `path`."""
        return self._settings.settings_for(path, cls)

    @property
    def layers(self) -> LayeredSettings:
        """Where the values come from."""
        return self._visible.context.layers

    def source_of(self, cls: type[Settings], name: str) -> str:
        """Where a value comes from: a source of `LayeredSettings`."""
        return self._visible.context.layers.source_of(cls, name)

    @property
    def preset(self) -> str:
        """The sampler preset that was chosen last in the open chat; empty for none."""
        return self._visible.context.layers.preset

    def switch_drafting_off(self) -> bool:
        """Write without a drafter in the open chat."""
        return self.set_settings(dataclasses.replace(self.settings(SpeculationSettings), method="none"))

    # -- model and replies

    @property
    def state(self) -> str:
        """One of `engine_controller.STATES`, as it is for the open chat."""
        return self._state

    @property
    def busy(self) -> bool:
        """Whether the engine does something that takes long, in whichever chat."""
        return self.replies.engine.state not in ("idle", "no_model")

    def stop(self) -> None:
        """Stop the replies of the open chat, or the loading of a model."""
        self.tools.stop(self.conversation)
        if self.conversation in self.replying_in:
            self.replies.engine.stop_in(self.conversation)
        elif self.state == "loading":
            self.stop_all()
        self.stopped.emit(self.conversation)

    @property
    def model(self) -> ModelInfo | None:
        """The loaded model."""
        return self.replies.engine.model

    @property
    def adapted(self) -> ModelInfo | None:
        """The loaded model as the adapters of the open chat make it, as far as that is known."""
        return self.replies.adapted.of(self.settings(AdapterSettings).adapters)

    @Slot(object)
    def _on_changed(self, cls: type[Settings]) -> None:
        if cls is AdapterSettings:
            self.adapted_changed.emit()

    @property
    def thought_tags(self) -> tuple[tuple[str, str], ...]:
        """The (opening, closing) tags in which its thoughts may be."""
        return (self.adapted.thinking if self.adapted is not None else ()) or THINKING_TAGS

    @property
    def opening(self) -> str:
        """The path of the model that is being loaded; "" for none."""
        return self.replies.engine.opening

    @property
    def base_model(self) -> bool:
        """Whether the loaded model continues texts, without a chat template."""
        return self._model.is_base_model

    @property
    def loaded_with(self) -> tuple[LoadSettings, CacheSettings]:
        """The settings of the last load."""
        return self._model.loaded_with

    @property
    def replying_in(self) -> tuple[int, ...]:
        """The chats in which replies run."""
        return self.replies.conversations

    @property
    def writing(self) -> int:
        """How many replies run, in all chats, that nobody has stopped."""
        return self.replies.engine.writing

    @property
    def avoided_count(self) -> int:
        """How often a banned text was taken back in the reply that runs in the open chat."""
        running = self._visible.growing()
        return running.avoided if running is not None else 0

    @property
    def refused(self) -> tuple[str, str]:
        """The state in which a reply was refused last, and the sentence that said so."""
        return self._turns.refused

    @property
    def save_trouble(self) -> str:
        """Why a reply could not be saved the last time that happened."""
        return self.replies.unsaved.reason

    # -- what the runner tells

    @Slot(object)
    def _on_set(self, cls: type[Settings]) -> None:
        if cls is SpeculationSettings:
            self._drafting.check_again()

    @Slot(int, object)
    def _on_ran(self, message_id: int, stats: Stats) -> None:
        if self._runs_here(message_id):
            self.running_changed.emit(stats)

    @Slot(int, int, str)
    def _on_avoided(self, message_id: int, count: int, text: str) -> None:
        if self._runs_here(message_id):
            self.avoided.emit(count, text)

    @Slot(int, str)
    def _on_draft_failed(self, conversation_id: int, sentence: str) -> None:
        if conversation_id == self.conversation:
            self.draft_refused.emit(sentence)

    @Slot()
    def _look_at_state(self) -> None:
        """Emit the state of the open chat if it has changed.

        A listener may cause the next one: that is emitted after all listeners have heard of the first, or the
        last of them would hear them in reverse.
        """
        self._state = self.replies.engine.state_in(self.conversation)
        if self._emitting_state:
            return
        self._emitting_state = True
        try:
            while self._state != self._emitted_state:
                self._emitted_state = self._state
                self.state_changed.emit(self._emitted_state)
        finally:
            self._emitting_state = False

    @Slot(int, str, int, int)
    def _on_progress(self, message_id: int, stage: str, done: int, total: int) -> None:
        if not message_id or self._runs_here(message_id):
            self.progress.emit(stage, done, total)

    def _runs_here(self, message_id: int) -> bool:
        """Whether the reply in a message is the one that the window shows as running."""
        running = self._visible.growing()
        return running is not None and running.message_id == message_id

    @Slot(int, int, bool)
    def _on_ended(self, conversation_id: int, message_id: int, stopped: bool) -> None:
        self._notebook.name_document(message_id)
        self._visible.refresh(conversation_id)
        if conversation_id == self.conversation and self.notebook:
            self.document_shown.emit()
        self._drafting.check()
        self.reply_ended.emit(conversation_id, message_id, stopped)

    @Slot(str, str)
    def _on_engine_failed(self, sentence: str, details: str) -> None:
        self.report_error(sentence, details, offer_reload=True)
