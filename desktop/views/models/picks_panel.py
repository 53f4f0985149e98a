"""The first thing on “Get models”: three recommended models for this computer's memory."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from desktop.items.models.picks import ABOUT, TITLES, Suggestion, pick_facts
from desktop.services.models.hub import Fetching
from desktop.services.system.language import date_text
from desktop.views.layout.fill import fill
from desktop.views.widgets.scroll_area import VerticalScrollArea
from desktop.views.widgets.text_label import set_styled, text_label
from engine.units import size_text
from engine.words import N_, _, translate

__all__ = ["PicksPanel"]

LOOKING = N_("Checking how much memory is free…")
NOTHING = N_(
    "None of the recommended models fits into the free memory of this computer now. Close other programs, or "
    "search for a smaller model above."
)
_CARD = 34
"""The least width of a card in average characters; narrower windows show them below each other."""


class _Card(QFrame):
    """One model, with what it is good for and a button to get it."""

    def __init__(self, suggestion: Suggestion) -> None:
        super().__init__()
        self.suggestion, pick = suggestion, suggestion.pick
        self.setObjectName("pickCard")
        self.setAccessibleName(f"{translate(TITLES[suggestion.why])}: {pick.name}")
        self.facts = text_label(tone="muted", wraps=True, plain=True)
        self.get = QPushButton()
        self.get.setAutoDefault(False)
        if suggestion.why == "good":
            self.get.setProperty("tone", "primary")
        fill(
            QVBoxLayout(self),
            text_label(translate(TITLES[suggestion.why]), "muted", wraps=True, plain=True),
            text_label(pick.name, "heading", wraps=True, plain=True),
            text_label(pick.maker, "muted", wraps=True, plain=True),
            text_label(translate(ABOUT[pick.about]), wraps=True, plain=True),
            self.facts,
            1,
            fill(QHBoxLayout(), self.get, 1),
            margins=(14, 12, 14, 12),
            spacing=6,
        )
        self.show_fit(suggestion)
        self.show_state("")

    def show_fit(self, suggestion: Suggestion) -> None:
        """Show the present estimate for the same model."""
        self.suggestion = suggestion
        self.facts.setText(pick_facts(suggestion))

    def show_state(self, state: str) -> None:
        """Show whether it is on this computer ("here"), being downloaded (a `Fetching.state`) or neither."""
        words = {
            "here": _("Load"),
            "finished": _("Load"),
            "": _("Download"),
            "paused": _("Resume"),
            "failed": _("Retry"),
        }
        self.get.setText(words.get(state, _("Downloading…")))
        self.get.setEnabled(state in words)
        self.get.setAccessibleName(f"{self.get.text()} {self.suggestion.pick.name}")


class PicksPanel(QWidget):
    """Shows `Suggestion`s. `download_requested(Pick)`, `load_requested(path)` and `renew_requested()` are
    what the user does.
    """

    download_requested = Signal(object)
    load_requested = Signal(str)
    renew_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.cards: list[_Card] = []
        self._here: dict[str, str] = {}
        self._fetching: dict[tuple[str, str], Fetching] = {}
        self.heading = text_label(_("Recommended for this computer"), "page", wraps=True)
        self.state = text_label(translate(LOOKING), "muted", wraps=True, plain=True)
        self._row = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._row.setSpacing(12)
        self.made = text_label(tone="muted", wraps=True, plain=True)
        self.renew = QPushButton(_("Update the list"))
        self.renew.setToolTip(_("Ask the Hugging Face Hub for the current files of the recommended models."))
        self.renew.clicked.connect(self.renew_requested)
        body = QWidget()
        body.setObjectName("picksBody")
        self._foot = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._foot.addWidget(self.made, 1)
        self._foot.addWidget(self.renew)
        fill(
            QVBoxLayout(body), self.heading, self.state, self._row, self._foot, 1, margins=(2, 4, 8, 8),
            spacing=12,
        )  # fmt: skip
        fill(QVBoxLayout(self), VerticalScrollArea(body), margins=(0, 0, 0, 0))

    def show_suggestions(self, suggestions: Sequence[Suggestion], known: bool, updated: str) -> None:
        """Show these models; `known` says whether it is known what fits, `updated` when the list was made."""
        day = date_text(datetime.date.fromisoformat(updated))
        self.made.setText(_("This list was last updated on {day}.", day=day))
        if [each[:2] for each in suggestions] != [card.suggestion[:2] for card in self.cards]:
            self._make_cards(suggestions)
        for card, suggestion in zip(self.cards, suggestions, strict=True):
            card.show_fit(suggestion)
        free = max((each.fit.free for each in suggestions), default=0)
        if suggestions:
            self.state.setText(
                _("Chosen for {size} of free memory, from small to large.", size=size_text(free))
            )
        else:
            self.state.setText(translate(NOTHING if known else LOOKING))
        set_styled(self.state, "tone", "warning" if known and not suggestions else "muted")

    def _make_cards(self, suggestions: Sequence[Suggestion]) -> None:
        for card in self.cards:
            self._row.removeWidget(card)
            card.hide()
            card.deleteLater()
        self.cards = [_Card(each) for each in suggestions]
        for card in self.cards:
            card.get.clicked.connect(self._clicked(card))
            self._row.addWidget(card, 1)
        self._show_states()
        self._arrange()

    def show_trouble(self, sentence: str) -> None:
        """Show why the list could not be updated."""
        self.state.setText(sentence)
        set_styled(self.state, "tone", "danger")

    def show_here(self, paths: Sequence[str]) -> None:
        """Which files are on this computer."""
        self._here = {path.replace("\\", "/").rpartition("/")[2]: path for path in paths}
        self._show_states()

    def show_downloads(self, downloads: Sequence[Fetching]) -> None:
        """Follow the downloads."""
        self._fetching = {fetching.key: fetching for fetching in downloads}
        self._show_states()

    def _path(self, card: _Card) -> str:
        """Where the model is on this computer; "" if it is not."""
        pick = card.suggestion.pick
        fetching = self._fetching.get((pick.repo, pick.quantisation))
        if fetching is not None and fetching.state == "finished":
            return fetching.path
        return self._here.get(pick.files[0].name, "")

    def _show_states(self) -> None:
        for card in self.cards:
            pick = card.suggestion.pick
            fetching = self._fetching.get((pick.repo, pick.quantisation))
            running = fetching.state if fetching is not None else ""
            card.show_state("here" if self._path(card) else running)

    def _clicked(self, card: _Card) -> Callable[[], None]:
        def act() -> None:
            path = self._path(card)
            if path:
                self.load_requested.emit(path)
            else:
                self.download_requested.emit(card.suggestion.pick)

        return act

    # -- room

    def _arrange(self) -> None:
        need = self.fontMetrics().averageCharWidth() * _CARD
        wide = self.width() >= need * max(1, len(self.cards))
        sideways, down = QBoxLayout.Direction.LeftToRight, QBoxLayout.Direction.TopToBottom
        self._row.setDirection(sideways if wide else down)
        self._foot.setDirection(sideways if self.width() >= need * 2 else down)
        self._foot.setAlignment(self.renew, Qt.AlignmentFlag.AlignLeft)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The cards side by side if there is room, otherwise below each other."""
        super().resizeEvent(event)
        self._arrange()

    def changeEvent(self, event: QEvent) -> None:
        """Follow the text size."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange and hasattr(self, "_foot"):
            self._arrange()
