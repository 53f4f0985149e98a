"""The list of possible draft models: those that fit can be chosen, the others say why not."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QEvent, QSize, Qt, Signal
from PySide6.QtGui import QFontMetrics, QResizeEvent
from PySide6.QtWidgets import (
    QPushButton,
    QRadioButton,
    QSizePolicy,
    QStyle,
    QStyleOptionButton,
    QVBoxLayout,
    QWidget,
)

from desktop.services.models.draft_models import DraftCandidate
from desktop.views.layout.fill import fill
from desktop.views.widgets.text_label import text_label
from engine.printable import one_line
from engine.words import N_, _, translate

__all__ = ["CHECKING", "DraftModelList"]

CHECKING = N_("Checking whether it fits…")
_REASON_CHARACTERS = 160
_MOST_REFUSED = 3
"""If more models than these do not fit, they are hidden until asked for."""


class _NameButton(QRadioButton):
    """A radio button with elided text."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self.setAccessibleName(name)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self._cut()

    def sizeHint(self) -> QSize:
        return QSize(60, max(super().sizeHint().height(), self.fontMetrics().height() + 6))

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._cut()

    def words_left(self) -> int:
        """The left edge of the name, for what is aligned below it."""
        option = QStyleOptionButton()
        self.initStyleOption(option)
        return self.style().subElementRect(QStyle.SubElement.SE_RadioButtonContents, option, self).left()

    def _cut(self) -> None:
        room = self.width() - self.words_left() - 4
        self.setText(
            QFontMetrics(self.font())
            .elidedText(self._name, Qt.TextElideMode.ElideMiddle, room)
            .replace("&", "&&")
        )


class _Choice(QWidget):
    """One model: its name, and below it its size or why it does not fit."""

    def __init__(self, candidate: DraftCandidate) -> None:
        super().__init__()
        self.button = _NameButton(candidate.entry.name)
        self.button.setAutoExclusive(False)  # The settings decide which one is checked.
        self.words = text_label(tone="muted", wraps=True, plain=True)
        fill(QVBoxLayout(self), self.button, self.words, margins=(0, 0, 0, 0), spacing=0)
        self.show_candidate(candidate)

    def show_candidate(self, candidate: DraftCandidate) -> None:
        problem = candidate.problem
        words = translate(CHECKING) if problem is None else problem or candidate.entry.detail or _("It fits.")
        self.words.setText(
            words if len(words) <= _REASON_CHARACTERS else words[: _REASON_CHARACTERS - 1] + "…"
        )
        self.words.setIndent(self.button.words_left())
        self.button.setEnabled(not problem)
        self.button.setAccessibleDescription(words)
        path = one_line(candidate.entry.path)
        self.setToolTip(f"{problem}\n{path}" if problem else path)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange) and hasattr(self, "words"):
            self.words.setIndent(self.button.words_left())


class DraftModelList(QWidget):
    """`chosen(path)`: the user picked one; the owner answers with `show_chosen`.

    Models that fit come first, and among them assistants.
    """

    chosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName(_("Draft model"))
        self._chosen = ""
        self._choices: dict[str, _Choice] = {}
        self._refused: frozenset[str] = frozenset()
        self.more = QPushButton()
        self.more.setProperty("tone", "quiet")
        self.more.setCheckable(True)
        self.more.toggled.connect(self._fold)
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self._layout.setSpacing(6)
        self._layout.addWidget(self.more, 0, Qt.AlignmentFlag.AlignLeft)
        self._fold()

    def show_candidates(self, candidates: Iterable[DraftCandidate]) -> None:
        """Update the rows; those that stay keep the focus."""
        ordered = sorted(candidates, key=lambda found: (bool(found.problem), not found.assistant))
        requested = [candidate.entry.path for candidate in ordered]
        for path in set(self._choices) - set(requested):
            choice = self._choices.pop(path)
            choice.hide()
            choice.deleteLater()
        for place, candidate in enumerate(ordered):
            choice = self._choices.get(candidate.entry.path) or self._add(candidate)
            choice.show_candidate(candidate)
            if self._layout.indexOf(choice) != place:
                self._layout.insertWidget(place, choice)
        self._refused = frozenset(candidate.entry.path for candidate in ordered if candidate.problem)
        self.show_chosen(self._chosen)

    def show_chosen(self, path: str) -> None:
        """Mark the model that the settings name; "" is none."""
        self._chosen = path
        for known, choice in self._choices.items():
            choice.button.setChecked(known == path)
        self._fold()

    def paths(self) -> tuple[str, ...]:
        """The models in the order of the list."""
        at = {self._layout.indexOf(choice): path for path, choice in self._choices.items()}
        return tuple(at[place] for place in sorted(at))

    def button(self, path: str) -> QRadioButton:
        """The button of a model."""
        return self._choices[path].button

    def words(self, path: str) -> str:
        """The text below its name."""
        return self._choices[path].words.text()

    def _add(self, candidate: DraftCandidate) -> _Choice:
        choice = self._choices[candidate.entry.path] = _Choice(candidate)
        choice.button.clicked.connect(lambda: self._take(candidate.entry.path))
        self._layout.insertWidget(self._layout.count() - 1, choice)
        return choice

    def _fold(self) -> None:
        """Show the models that do not fit: all of them if they are few or asked for, and always the chosen
        one.
        """
        count = len(self._refused)
        for path, choice in self._choices.items():
            choice.setVisible(
                path not in self._refused
                or count <= _MOST_REFUSED
                or self.more.isChecked()
                or path == self._chosen
            )
        self.more.setVisible(count > _MOST_REFUSED)
        self.more.setText(
            _("Hide the {count} that do not fit", count=count)
            if self.more.isChecked()
            else _("Show {count} that do not fit, and why", count=count)
        )

    def _take(self, path: str) -> None:
        self.show_chosen(self._chosen)  # Until the settings say so.
        self.chosen.emit(path)
