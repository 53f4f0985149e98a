"""The loaded model: opening, reloading and releasing it, and questions to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Slot

from desktop.services.engine.engine_controller import EngineController
from desktop.services.session.chat_settings import ChatSettings
from desktop.services.session.draft_check import DraftCheck
from desktop.services.session.signals import SessionSignals, reports_store_errors
from desktop.services.session.visible_chat import VisibleChat
from desktop.settings import MODEL_SETTINGS
from desktop.store.settings.preferences import Preferences
from engine.core import ChatSource, ModelInfo
from engine.settings import CacheSettings, LoadSettings, Settings
from engine.words import _

__all__ = ["ModelLoading"]


class ModelLoading(QObject):
    """Loads models with the settings of the Model and Context panes and what is kept for each of them.

    `loaded_with` are the settings of the last load.
    """

    def __init__(
        self,
        signals: SessionSignals,
        preferences: Preferences,
        engine: EngineController,
        visible: VisibleChat,
        settings: ChatSettings,
        drafts: DraftCheck,
    ) -> None:
        super().__init__(signals)
        self._signals, self._preferences, self._engine = signals, preferences, engine
        self._visible, self._settings, self._drafts = visible, settings, drafts
        self.loaded_with = (LoadSettings(), CacheSettings())
        self._reported_outdated, self._asked_path = False, ""
        self._has_own_template = False
        settings.was_set.connect(self._on_set)
        engine.changed.connect(self._on_engine)
        engine.model_changed.connect(self._on_model)
        engine.load_failed.connect(self._on_load_failed)

    @property
    def is_base_model(self) -> bool:
        """Whether the loaded model has no chat template, neither its own nor the user's: it continues
        texts.
        """
        model = self._engine.model
        return (
            model is not None
            and not model.embedding
            and not model.has_chat_template
            and not self._has_own_template
        )

    def open_model(self, path: str | Path) -> None:
        """Load a model in place of the present one."""
        self._reported_outdated, self._asked_path = False, str(path)
        self._settings.use_model(str(path))
        layers = self._visible.context.layers
        self.loaded_with = (layers.settings(LoadSettings), layers.settings(CacheSettings))
        self._engine.open_model(Path(path), *self.loaded_with)

    def reload_model(self) -> None:
        """Load the present model again, so that changed settings apply, or the one that failed to load."""
        if path := self._path:
            self.open_model(path)

    def reload_with(self, settings: LoadSettings) -> None:
        """Set these and load the model again with them; while it answers, only set them."""
        path = self._path
        free = self._engine.state in ("idle", "no_model") and bool(path)
        self._reported_outdated = self._reported_outdated or free
        self._settings.set_settings(settings)
        if free:
            self.open_model(path)

    @property
    def _path(self) -> str:
        return self._engine.model.path if self._engine.model is not None else self._asked_path

    def unload_model(self) -> None:
        """Release the model's memory."""
        self._asked_path = ""
        self._engine.unload_model()

    def stop_loading(self) -> None:
        """Cancel a load; the model that was there before is gone unless only headers had been read."""
        if self._engine.state == "loading":
            self._engine.stop()

    def ask(self, question: Callable[[ChatSource], Any], answered: Callable[[Any], object]) -> None:
        """Ask the loaded model something small, on its thread, in turn with the replies. `answered` gets the
        answer; None if that failed, was stopped, no model is loaded, or it may not read the open chat.
        """
        if not self._visible.context.may_use(self._engine.model):
            answered(None)
            return

        def work(source: ChatSource, stop: threading.Event) -> Generator[None, None, Any]:
            yield None
            return None if stop.is_set() else question(source)

        self._engine.ask(work, lambda _unused: None, lambda answer, _unused: answered(answer))

    @Slot()
    def _on_engine(self) -> None:
        # a model that failed to load leaves its settings behind
        if self._engine.state in ("idle", "no_model"):
            self._use(self._engine.model)

    @Slot(object)
    def _on_model(self, info: ModelInfo | None) -> None:
        own = bool(self.loaded_with[0].chat_template.strip())
        self._has_own_template = own and not (info is not None and info.host)
        if info is not None:
            self._remember(info.path)
        self._use(info)
        self._drafts.set_target(info if info is not None and not info.host else None)
        self._signals.model_changed.emit(info)
        if info is not None and info.notice:
            self._signals.error_details = info.report
            self._signals.notice.emit(info.notice, "warning")

    @Slot(str, str, str)
    def _on_load_failed(self, _path: str, sentence: str, details: str) -> None:
        reload = self._engine.needs_reload
        self._signals.report_error(sentence, details, reload, not reload and self._engine.model is None)

    @Slot(object)
    def _on_set(self, cls: type[Settings]) -> None:
        model = self._engine.model
        if cls in MODEL_SETTINGS and model is not None and not (model.host or self._reported_outdated):
            self._reported_outdated = True
            self._signals.notice.emit(_("This takes effect when the model is reloaded."), "info")

    def _use(self, info: ModelInfo | None) -> None:
        if info is None:
            self._settings.use_model("", {})
        else:
            self._settings.use_model(info.path, dict(info.defaults))

    @reports_store_errors
    def _remember(self, path: str) -> bool:
        self._preferences.remember_model(path)
        return True
