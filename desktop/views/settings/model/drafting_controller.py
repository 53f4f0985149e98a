"""Serves the Drafting pane: its settings, the possible draft models, the figures of replies."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject

from desktop.services.session.chat_session import ChatSession
from desktop.views.models.controller import ModelController, meant_model
from desktop.views.settings.model.drafting_pane import REPLACED, DraftingPane
from desktop.views.settings.settings_pane import Inspector
from engine.core import Stats
from engine.settings import Settings, SpeculationSettings

__all__ = ["DraftingController"]


class DraftingController(QObject):
    """Puts a `DraftingPane` into the inspector and connects it with the session and the model controller."""

    def __init__(
        self,
        session: ChatSession,
        models: ModelController,
        inspector: Inspector,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._session, self._models = session, models
        self.pane = DraftingPane()
        inspector.set_extra(SpeculationSettings, self.pane, replaces=REPLACED)
        self.pane.changed.connect(self._set)
        self.pane.reset_requested.connect(lambda name: session.reset_setting(SpeculationSettings, name))
        self.pane.candidates_requested.connect(self._look)
        self.pane.file_requested.connect(
            lambda: models.ask_for_model("Choose a draft model's file", self._take)
        )
        self.pane.folder_requested.connect(
            lambda: models.ask_for_model("Choose a draft model's folder", self._take, folder=True)
        )
        session.drafts.changed.connect(self.pane.show_candidates)
        session.model_changed.connect(self.pane.show_model)
        session.settings_changed.connect(self._show_settings)
        session.running_changed.connect(self.pane.show_stats)
        session.stats_changed.connect(self._show_stats)
        self.pane.show_model(session.model)
        self._show_settings(SpeculationSettings)

    def _show_settings(self, cls: type[Settings]) -> None:
        if cls is SpeculationSettings:
            session = self._session
            sources = {
                field.name: session.source_of(cls, field.name)
                for field in dataclasses.fields(SpeculationSettings)
            }
            self.pane.show_values(
                session.settings(SpeculationSettings),
                sources,
                session.layers.after_reset(SpeculationSettings),
            )

    def _show_stats(self, stats: Stats | None, reason: str) -> None:
        self.pane.show_stats(stats)

    def _look(self) -> None:
        self._models.look_for_models()
        self._session.drafts.refresh()

    def _set(self, name: str, value: Any) -> None:
        self._session.set_settings(
            dataclasses.replace(self._session.settings(SpeculationSettings), **{name: value})
        )

    def _take(self, path: Path) -> None:
        self._set("draft_model", str(meant_model(path)))
