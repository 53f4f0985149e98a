"""Which of the known models can draft for the loaded one, and why the others cannot; checked off the GUI
thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from PySide6.QtCore import QObject, Signal

from desktop.items.models.local_models import ModelEntry, model_name
from desktop.services.engine.background import Background
from desktop.services.engine.job import Job
from engine.words import N_, _, translate

__all__ = ["DraftCandidate", "DraftModelService", "DraftProblem", "draft_problem"]

DraftProblem = Callable[[Path, Path], str]
"""Why the second model cannot draft for the first, as a sentence; "" if it can.

Like `engine.speculation.compatible`.
"""

ITSELF = N_("This is the loaded model itself. A draft model must be smaller.")


def draft_problem(target: Path, draft: Path) -> str:
    """`engine.speculation.compatible.draft_problem_between`, imported on first use."""
    from engine.speculation.compatible import draft_problem_between

    return draft_problem_between(target, draft)


def _trouble(entry: ModelEntry) -> str:
    """Why a model cannot be read; an assistant can, though nothing else can be done with it than drafting."""
    return "" if entry.info is not None else entry.trouble


class DraftCandidate(NamedTuple):
    """A possible draft model: `problem` says why it cannot draft; "" if it can, None while that is being
    checked.
    """

    entry: ModelEntry
    problem: str | None = None

    @property
    def assistant(self) -> bool:
        """Whether it is made for drafting alone."""
        return self.entry.info is not None and self.entry.info.assistant


class DraftModelService(QObject):
    """Keeps the candidates for one target up to date.

    The check caches its answers as long as the files stay the same.

    Signals:
        changed(object candidates): a tuple of `DraftCandidate`, emitted as answers arrive.
        answered(str target, str draft, str problem): one answer, even if it is the same as before.
    """

    changed = Signal(object)
    answered = Signal(str, str, str)

    def __init__(self, problem: DraftProblem = draft_problem, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._ask = problem
        self._target = ""
        self._entries: tuple[ModelEntry, ...] = ()
        self._others: dict[str, ModelEntry] = {}
        self._answers: dict[tuple[str, str], str] = {}
        self._background = Background("drafts", self)
        self._asked: dict[tuple[str, str], Job] = {}

    @property
    def target(self) -> str:
        """The path of the model to draft for; empty if none is loaded."""
        return self._target

    @property
    def candidates(self) -> tuple[DraftCandidate, ...]:
        """All known models and those checked explicitly, with what is known about them; empty without a
        target.
        """
        known = {entry.path: entry for entry in self._entries}
        entries = (*self._entries, *(other for path, other in self._others.items() if path not in known))
        return tuple(DraftCandidate(entry, self.problem(entry)) for entry in entries) if self._target else ()

    def problem(self, entry: ModelEntry) -> str | None:
        """Why this model cannot draft for the target; "" if it can, None while that is not known."""
        return _trouble(entry) or self.answer(entry.path)

    def answer(self, draft: str) -> str | None:
        """The latest answer about the model at this path; None if there is none."""
        return self._answers.get((self._target, draft))

    def set_target(self, path: str) -> None:
        """Another model was loaded, or (with "") the model was unloaded."""
        if path != self._target:
            for job in self._asked.values():
                self._background.drop(job)
            self._asked.clear()
            self._target = path
            self.refresh()

    def set_entries(self, entries: Iterable[ModelEntry]) -> None:
        """Replace the known models; new ones are checked."""
        entries = tuple(entries)
        if entries != self._entries:
            self._entries = entries
            for entry in entries:
                if self.problem(entry) is None:
                    self._start(entry.path)
            self.changed.emit(self.candidates)

    def refresh(self) -> None:
        """Check all of them again, because files may have changed."""
        for candidate in self.candidates:
            if not _trouble(candidate.entry):
                self._start(candidate.entry.path)
        self.changed.emit(self.candidates)

    def check(self, draft: str) -> None:
        """Check one model, known or not; emits `answered`."""
        if draft not in self._others:
            self._others[draft] = ModelEntry(draft, model_name(draft))
        self._start(draft)

    def close(self) -> bool:
        """End the thread."""
        return self._background.close()

    def _start(self, draft: str) -> None:
        """Check a model, unless there is no target or the check is under way."""
        key = target, _unused = self._target, draft
        if target and key not in self._asked:
            self._asked[key] = self._background.call(
                lambda _stop: self._problem(Path(target), Path(draft)),
                lambda problem: self._on_answer(key, problem),
                lambda sentence, _details: self._on_answer(
                    key, _("It could not be compared with the loaded model. {sentence}", sentence=sentence)
                ),
            )

    def _problem(self, target: Path, draft: Path) -> str:
        return (
            translate(ITSELF)
            if os.path.realpath(target) == os.path.realpath(draft)
            else self._ask(target, draft)
        )

    def _on_answer(self, key: tuple[str, str], problem: str) -> None:
        del self._asked[key]
        self._answers[key] = problem
        self.answered.emit(*key, problem)
        self.changed.emit(self.candidates)
