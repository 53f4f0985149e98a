"""What the bar above the composer says while files are shortened to fit, and when they are."""

from __future__ import annotations

from collections.abc import Callable

from desktop.services.composer.attachments import Held
from desktop.services.composer.composer_services import ComposerServices
from desktop.services.composer.meaning import WORDS_ONLY
from desktop.services.system.debounce import debounce
from desktop.views.composer.suggestion_bar import SuggestionBar
from desktop.views.widgets.listening import listen
from engine.words import _, paragraph

__all__ = ["PassageOffers"]

_ABOUT, _WAITING = "passages", "waiting"
_SOON_MS = 300
"""A search that takes less is not worth a word."""


class PassageOffers:
    """Serves `offers`. `trim(by_match)` shortens the files again; `get_models` opens the list of embedding
    models to download. While a question waits for its passages, the bar says so.
    """

    def __init__(
        self, offers: SuggestionBar, writing: ComposerServices, trim: Callable[[bool], object]
    ) -> None:
        self._offers, self._trim = offers, trim
        self._service, self._follow_ups = service, follow_ups = writing.fitting, writing.follow_ups
        self.get_models: Callable[[], object] | None = None
        listen(offers, service.ranking, self._show_progress)
        offers.dismiss.clicked.connect(service.stop_ranking)
        self._wait = debounce(offers, self._show_waiting, _SOON_MS)
        listen(offers, follow_ups.searching, self._on_searching)

    def tell(self, about: str, held: tuple[Held, ...], asks: bool) -> None:
        """Say what is left of the files, and offer the other way to shorten them; `asks` whether there are
        words that passages can match.
        """
        by_match = any(each.attachment.note.endswith(" passages") for each in held)
        other = None
        if by_match and self._service.by_meaning:
            words = _(
                "The passages that match your question best, by words and meaning, were kept. Click a file "
                "to see them."
            )
        elif by_match:
            words = _("The passages that match your words best were kept. Click a file to see them.")
            if self._lacks_model():
                words = paragraph(words, _("With an embedding model, they are found by meaning, too."))
                other = _("Get an embedding model"), self.get_models or (lambda: None)
        else:
            words = _("The files were trimmed to fit. Click a file to see what is left of it.")
        button = _("Use the beginnings") if by_match else _("Use matching passages") if asks else ""
        act = (lambda: self._trim(not by_match)) if button else None
        self._offers.offer(about, words, button, act, other=other)

    def _lacks_model(self) -> bool:
        meaning = self._service.meaning
        return (
            self.get_models is not None
            and meaning is not None
            and meaning.choice != WORDS_ONLY
            and not meaning.choices()
        )

    def _show_progress(self, percent: int) -> None:
        if percent < 0:
            self._offers.withdraw(_ABOUT)
            return
        words = _("Reading the files to find passages by meaning… {percent} %", percent=percent)
        self._offers.offer(_ABOUT, words, _("Stop"), self._service.stop_ranking)

    def _on_searching(self, searching: bool) -> None:
        if searching:
            self._wait.start()
        else:
            self._wait.stop()
            self._offers.withdraw(_WAITING)

    def _show_waiting(self) -> None:
        words = _("Finding the passages of the chat's files that match your question…")
        self._offers.offer(_WAITING, words, _("Skip"), self._follow_ups.skip)
