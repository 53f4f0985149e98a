"""A search of titles and all messages: quick results at once, the rest in short steps, one page at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from PySide6.QtCore import QObject, Signal, Slot

from desktop.services.session.chat_session import ChatSession
from desktop.services.system.idle_steps import Steps
from desktop.store.conversations.records import ConversationSummary, SearchHit
from desktop.store.search.folding import fold, places, query_words

__all__ = ["Finder", "TitleHit"]

PAGE = 100
"""Hits to find before the user is asked whether to continue."""
TITLES = 50
FIRST = 50
LONGEST = 400
"""Characters of a message to search for the words at a place."""

TitleHit = tuple[ConversationSummary, tuple[tuple[int, int], ...]]
"""A conversation whose title contains all words, and where they are in it."""


class Finder(QObject):
    """Signals:
    titles_found(object): a tuple of `TitleHit` for a new search, before its hits.
    found(object): more `SearchHit`s, at least one.
    ended(bool): the search stopped; True if there may be more hits (`more`).
    """

    titles_found = Signal(object)
    found = Signal(object)
    ended = Signal(bool)

    def __init__(self, session: ChatSession, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self._query = ""
        self._rest: Iterator[tuple[SearchHit, ...]] = iter(())
        self._spare: list[SearchHit] = []  # found with the last page, but for the next one
        self._room = 0
        self._steps = Steps(self)
        self._steps.ended.connect(self._finish)
        self._steps.failed.connect(self._fail)

    @property
    def running(self) -> bool:
        return self._steps.running

    def find(self, query: str) -> None:
        """Start a new search: emits titles and the first hits before it returns, the others later."""
        self._steps.stop()
        self._query = query
        self.titles_found.emit(self._titles(query))
        hits = self._session.search(query, FIRST)
        if hits:
            self.found.emit(hits)
        self._rest = self._session.stores.kept.search_rest(query, [hit.message_id for hit in hits])
        self._spare, self._room = [], PAGE - len(hits)
        self._steps.run(self._search())

    def more(self) -> None:
        """Search for another page of hits."""
        self._room = PAGE
        self._steps.run(self._search())

    def stop(self) -> None:
        self._steps.stop()
        self._rest = iter(())

    def words_at(self, text: str, place: int) -> str:
        """The search words as written at a place of a message: all of them if they are adjacent there."""
        words = query_words(self._query)
        whole = places(text, (" ".join(words),), place, place + LONGEST)
        found = whole if whole and whole[0][0] == place else places(text, words, place, place + LONGEST)
        return text[found[0][0] : found[0][1]] if found else ""

    def _titles(self, query: str) -> Sequence[TitleHit]:
        words = query_words(query)
        found: list[TitleHit] = []
        for chat in self._session.conversations.summaries() if words else ():
            folded = fold(chat.title)
            if all(word in folded for word in words):
                found.append((chat, places(chat.title, words)))
                if len(found) == TITLES:
                    break
        return tuple(found)

    def _search(self) -> Iterator[None]:
        while True:
            if not self._spare:
                hits = next(self._rest, None)
                if hits is None:
                    return
                self._spare = list(hits)
            shown, self._spare = self._spare[: self._room], self._spare[self._room :]
            if shown:
                self._room -= len(shown)
                self.found.emit(shown)
            if self._room <= 0:
                self._steps.stop()
                self.ended.emit(True)
                return
            yield

    @Slot()
    def _finish(self) -> None:
        self.ended.emit(False)

    @Slot(str)
    def _fail(self, sentence: str) -> None:
        self._session.notice.emit(sentence, "error")
        self.ended.emit(False)
