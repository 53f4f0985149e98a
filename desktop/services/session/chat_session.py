"""ChatSession: what the window talks to.

The state of a conversation's turn, and the only caller of engine room and store.

One turn: `submit` saves the user's message and shows it, adds an empty running reply, and asks the engine;
what arrives (`reply_runner.py`) reaches the item model once a frame and the store five times a second; the
end is saved with its statistics. A reply belongs to its own conversation: the user may look at another one
meanwhile.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal, Slot

from desktop.services.engine.model_host import Describe, OpenChat, describe, open_chat
from desktop.services.engine.stream_thread import MakeGenerator
from desktop.services.models.draft_models import DraftProblem, draft_problem
from desktop.services.session.notebook import NotebookSession
from desktop.services.session.settings import told
from desktop.settings import MODEL_SETTINGS
from desktop.store.conversations.stores import ConversationStores
from desktop.store.settings.preferences import Preferences
from engine.core import ChatSource, ModelInfo
from engine.settings import CacheSettings, LoadSettings, Settings, SpeculationSettings

__all__ = ["ChatSession"]


class ChatSession(NotebookSession):
    """The open conversation and the running reply.

    Lives on the GUI thread; methods that return False said why in `notice`.

    Signals, with those of `TurnSession`, `ConversationSession` and `SettingsSession`:
        progress(str stage, int done, int total): of loading and of reading the prompt; total 0 is unknown.
        model_changed(object): the `ModelInfo` of the loaded model, or None.
        asked(int question, object answer): the answer to an `ask`; None when it failed, was stopped or no
        model is loaded. measured(object): what a task given to `measure` came to; None when it failed.
    """

    progress = Signal(str, int, int)
    model_changed = Signal(object)
    asked = Signal(int, object)
    measured = Signal(object)

    def __init__(
        self,
        stores: ConversationStores,
        preferences: Preferences,
        open_chat: OpenChat = open_chat,
        describe: Describe = describe,
        draft_problem: DraftProblem = draft_problem,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(stores, preferences, open_chat, describe, draft_problem, parent)
        self._outdated_told, self._asked_path = False, ""
        self.reload_offered = False  # with the next notice of an error, which takes it back
        self._runner.engine_failed.connect(self._on_engine_failed)
        self._engine.state_changed.connect(self._on_state)
        self._engine.progress.connect(self.progress)
        self._engine.model_changed.connect(self._on_model)
        self._engine.load_failed.connect(self._on_load_failed)
        self._engine.aside_ended.connect(self.measured)
        self._question = 0
        self._template_given = False

    def close(self) -> bool:
        """Save what runs, release the model and end the engine's thread; False when that did not end in
        time.
        """
        self._save_preferences()
        ended = [self._runner.close(), self.drafts.close()]
        self._save_preferences()  # what came with the last events
        return all(ended)

    # -- model
    # --------------------------------------------------------------------------------------------------------

    def open_model(self, path: str | Path) -> None:
        """Load a model in place of the present one, with what is kept for it and the settings of the Model
        and Context panes.
        """
        self._outdated_told, self._asked_path = False, str(path)
        self._use_model(str(path))
        self._loaded_with = (self.settings(LoadSettings), self.settings(CacheSettings))
        self._engine.open_model(Path(path), *self._loaded_with)

    @property
    def loaded_with(self) -> tuple[LoadSettings, CacheSettings]:
        """The settings with which a model was asked for last."""
        return self._loaded_with

    @property
    def opening(self) -> str:
        """The path of the model that is being loaded; "" for none."""
        return self._engine.opening

    @property
    def base_model(self) -> bool:
        """Whether the loaded model has no chat template, neither its own nor the user's: it continues
        texts.
        """
        return self.model is not None and not self.model.has_chat_template and not self._template_given

    def reload_model(self) -> None:
        """Load the present model again, so that changed settings take effect, or the one that was asked
        for and is not there.
        """
        path = self.model.path if self.model is not None else self._asked_path
        if path:
            self.open_model(path)

    def reload_with(self, settings: LoadSettings) -> None:
        """Put settings in force and load the present model with them, or the one whose device failed; while
        it answers, that is left to the user.
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

    def make_room(self) -> None:
        """The user has acted: what that changes is painted before the model's threads have every core
        again.
        """
        self._engine.make_room()

    def measure(self, make_generator: MakeGenerator) -> None:
        """Run a short task on the engine's thread when it is free; its result comes with `measured`."""
        self._engine.run_aside(make_generator)

    def ask(self, question: Callable[[ChatSource], Any]) -> int:
        """Have something small found out from the loaded model, on its thread, once nothing runs there;
        the number is that of `asked`.
        """
        self._question += 1
        number = self._question

        def work(source: ChatSource, stop: threading.Event) -> Generator[None, None, Any]:
            yield None
            return None if stop.is_set() else question(source)

        self._engine.ask(work, lambda _: None, lambda answer, _: self.asked.emit(number, answer))
        return number

    def switch_drafting_off(self) -> bool:
        """Write without a drafter in the open conversation."""
        return self.set_settings(dataclasses.replace(self.settings(SpeculationSettings), method="none"))

    # -- parts
    # --------------------------------------------------------------------------------------------------------

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
        # a model that was asked for and did not come leaves its settings behind
        if state in ("idle", "no_model"):
            self._take_model(self.model)
        self.state_changed.emit(state)

    @Slot(object)
    def _on_model(self, info: ModelInfo | None) -> None:
        self._template_given = bool(self._loaded_with[0].chat_template.strip())
        if info is not None:
            self._remember_model(info.path)
        self._take_model(info)
        self._draft_told = ("", "", "")
        self.drafts.set_target(info.path if info is not None else "")
        self._check_draft()
        self.model_changed.emit(info)
        if info is not None and info.notice:
            self.error_details = info.report
            self.notice.emit(info.notice, "warning")

    def _take_model(self, info: ModelInfo | None) -> None:
        """The settings of the loaded model, or of none."""
        self._use_model(
            info.path if info is not None else "", dict(info.defaults) if info is not None else {}
        )

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
