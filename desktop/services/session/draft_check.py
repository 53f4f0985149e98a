"""Whether the chosen draft model can draft for the loaded one, found out off the GUI thread."""

from __future__ import annotations

from PySide6.QtCore import QObject, Slot

from desktop.items.models.local_models import model_name
from desktop.services.models.draft_models import DraftModelService, DraftProblem
from desktop.services.session.context import ConversationContext
from desktop.services.session.signals import SessionSignals
from desktop.services.session.visible_chat import VisibleChat
from engine.core import ModelInfo
from engine.settings import SpeculationSettings
from engine.words import _

__all__ = ["DraftCheck", "head_problem"]


def head_problem(model: ModelInfo) -> str:
    """Why a model's own head cannot draft; "" if it can."""
    if not model.mtp:
        return _(
            "{model} has no head of its own for drafting. Choose another drafting method, or "
            "turn off drafting.",
            model=model.name,
        )
    return ""


class DraftCheck(QObject):
    """Emits `draft_refused` once for each draft model that does not fit; each message that is sent with it
    says so again.
    """

    def __init__(self, signals: SessionSignals, visible: VisibleChat, problem: DraftProblem) -> None:
        super().__init__(signals)
        self._signals, self._visible = signals, visible
        self.models = DraftModelService(problem, self)
        self.models.answered.connect(self._on_answer)
        self._reported = ("", "", "")
        self._target: ModelInfo | None = None

    def problem_in(self, context: ConversationContext) -> str:
        """Why a chat's draft model, or the model's own head, cannot be used; "" if it can, nothing is known
        yet, it has none, or no model of this computer is loaded.
        """
        drafting = context.layers.settings(SpeculationSettings)
        if drafting.method == "mtp" and self._target is not None:
            return head_problem(self._target)
        if drafting.method != "model" or not self.models.target:
            return ""
        if not drafting.draft_model:
            return _(
                "Drafting with a draft model is on, but no draft model is chosen. Choose one, or "
                "turn off drafting."
            )
        problem = self.models.answer(drafting.draft_model)
        name = model_name(drafting.draft_model)
        return (
            _("The draft model “{name}” cannot be used: {problem}", name=name, problem=problem)
            if problem
            else ""
        )

    def set_target(self, model: ModelInfo | None) -> None:
        """Another model of this computer is loaded; None for none."""
        self._reported, self._target = ("", "", ""), model
        self.models.set_target(model.path if model is not None else "")
        self.check()

    def check_again(self) -> None:
        """The settings were changed: report the same problem again."""
        self._reported = ("", "", "")
        self.check()

    @Slot()
    def check(self) -> None:
        """Have the open chat's draft model checked."""
        drafting = self._visible.context.layers.settings(SpeculationSettings)
        if drafting.method == "model" and drafting.draft_model:
            self.models.check(drafting.draft_model)

    @Slot(str, str, str)
    def _on_answer(self, target: str, draft: str, problem: str) -> None:
        chosen = self._visible.context.layers.settings(SpeculationSettings).draft_model
        if draft == chosen and (target, draft, problem) != self._reported:
            self._reported = (target, draft, problem)
            if sentence := self.problem_in(self._visible.context):
                self._signals.draft_refused.emit(sentence)
