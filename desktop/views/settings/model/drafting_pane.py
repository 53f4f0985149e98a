"""The Drafting pane's own part: the method, the draft model, and the figures.

The other settings are rows of the form.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from desktop.services.models.draft_models import DraftCandidate
from desktop.services.session.draft_check import head_problem
from desktop.views.layout.fill import fill
from desktop.views.settings.editors import ChoiceEditor
from desktop.views.settings.form_row import Row
from desktop.views.settings.model.draft_model_list import DraftModelList
from desktop.views.settings.model.drafting_stats import DraftingStats
from engine.core import ModelInfo, Stats
from engine.settings import SpeculationSettings, setting_info
from engine.words import N_, _, translate

__all__ = ["REPLACED", "DraftingPane"]

REPLACED = ("method", "draft_model")
"""The settings that this pane shows instead of the form."""

_NO_TARGET = N_("Load a model to see which models can draft for it.")
_HAS_HEAD = N_("This model comes with a head of its own for drafting.")
_HAS_ASSISTANT = N_("An assistant that drafts for this model was found. To use it, choose “Draft model”.")
_NO_CANDIDATE = N_("No other models were found. Choose a smaller model of the same family.")


class DraftingPane(QWidget):
    """Shows `SpeculationSettings`, the candidates and the figures.

    `changed(name, value)` and `reset_requested(name)` as in a form; `candidates_requested()` before the
    models become visible; `file_requested()`, `folder_requested()`.
    """

    changed = Signal(str, object)
    reset_requested = Signal(str)
    candidates_requested = Signal()
    file_requested = Signal()
    folder_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        infos = {field.name: setting_info(field) for field in dataclasses.fields(SpeculationSettings)}
        self._settings = SpeculationSettings()
        self._stats: Stats | None = None
        self._model: ModelInfo | None = None
        self._assisted = False
        self.method = Row(infos["method"], str)
        self.method.editor.edited.connect(lambda value: self.changed.emit("method", value))
        self.method.rename(_("Drafting method"))  # The pane has the setting's own name.
        self.model = Row(infos["draft_model"], str)
        self.model.editor.hide()  # The models are below it.
        for row, name in ((self.method, "method"), (self.model, "draft_model")):
            row.reset.clicked.connect(lambda _checked=False, name=name: self.reset_requested.emit(name))
        self.figures = DraftingStats()
        fill(QVBoxLayout(self), self.method, self._models(), self.figures, margins=(0, 0, 0, 0), spacing=10)
        self._arrange()

    def _models(self) -> QWidget:
        self.models = QWidget()
        self.choices = DraftModelList()
        self.choices.chosen.connect(lambda path: self.changed.emit("draft_model", path))
        self.file, self.folder = QPushButton(_("Choose file…")), QPushButton(_("Choose folder…"))
        self.file.setAccessibleName(_("Choose a draft model's file"))
        self.folder.setAccessibleName(_("Choose a draft model's folder"))
        self.file.clicked.connect(self.file_requested)
        self.folder.clicked.connect(self.folder_requested)
        buttons = fill(QHBoxLayout(), self.file, self.folder, 1, spacing=6)
        fill(QVBoxLayout(self.models), self.model, self.choices, buttons, margins=(0, 0, 0, 0), spacing=8)
        return self.models

    def show_values(
        self, settings: SpeculationSettings, sources: dict[str, str], below: SpeculationSettings
    ) -> None:
        """Show the effective settings, their sources, and the values `below` that a reset restores."""
        assert isinstance(self.method.editor, ChoiceEditor)
        self.method.editor.offer(settings.method, True)
        begun = settings.method == "model" != self._settings.method
        self._settings = settings
        for row, name in ((self.method, "method"), (self.model, "draft_model")):
            value, source = getattr(settings, name), sources[name]
            changed = source == "saved default" or (source != "default" and value != getattr(below, name))
            row.show_source(source, changed)
        self.choices.show_chosen(settings.draft_model)
        self._arrange()
        if begun:
            self.candidates_requested.emit()

    def show_model(self, model: ModelInfo | None) -> None:
        """Show that another model is loaded, or none."""
        self._model = model
        self._arrange()
        if self._model is not None and self._settings.method == "model":
            self.candidates_requested.emit()

    def show_candidates(self, candidates: Iterable[DraftCandidate]) -> None:
        """Show the possible draft models, and what is known about them."""
        candidates = tuple(candidates)
        self._assisted = any(found.problem == "" and found.assistant for found in candidates)
        self.choices.show_candidates(candidates)
        self._arrange()

    def show_stats(self, stats: Stats | None) -> None:
        """Show the figures of a reply, also while it is being written."""
        self._stats = stats
        self._arrange()

    def _arrange(self) -> None:
        drafting, model = self._settings.method != "none", self._model
        can_draft = model is not None and not model.host and not head_problem(model)
        assert isinstance(self.method.editor, ChoiceEditor)
        self.method.editor.offer("mtp", can_draft)
        self.method.editor.set_value(self._settings.method)
        problem = head_problem(model) if model is not None and not model.host else ""
        if self._settings.method == "mtp":
            self.method.show_note(problem)
        else:
            offer = _HAS_HEAD if can_draft else _HAS_ASSISTANT if self._assisted else ""
            self.method.show_note(translate(offer) if offer and not drafting else "", "muted")
        self.models.setVisible(self._settings.method == "model")
        hint = (
            translate(_NO_TARGET)
            if model is None
            else ""
            if self.choices.paths()
            else translate(_NO_CANDIDATE)
        )
        self.model.show_note(hint, "muted")
        self.choices.setVisible(not hint)
        self.figures.setVisible(drafting)
        self.figures.show_stats(self._stats, self._settings.adaptive)
