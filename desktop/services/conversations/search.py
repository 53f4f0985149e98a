"""A search over titles and all messages: what is quick at once, the rest in short steps, a page at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from PySide6.QtCore import QObject, Signal, Slot

from desktop.services.session.chat_session import ChatSession
from desktop.services.system.idle_steps import Steps
from desktop.store.conversations.records import ConversationSummary, SearchHit
from desktop.store.search.folding import fold, places, query_words

__all__ = ["Finder", "TitleHit"]

PAGE = 100
"""Hits that are looked for before the user is asked whether to go on."""
TITLES = 50
FIRST = 50
LONGEST = 400
"""Characters of a message that are looked through for what stands at a place."""

TitleHit = tuple[ConversationSummary, tuple[tuple[int, int], ...]]
"""A conversation whose title has all the words, and where they stand in it."""


class Finder(QObject):
    """Signals:
    titles_found(object): a tuple of `TitleHit`, for a new search, whose hits follow.
    found(object): more `SearchHit`s, at least one.
    ended(bool): nothing runs any more; True when there may be more, for `more`.
    """

    titles_found = Signal(object)
    found = Signal(object)
    ended = Signal(bool)

    def __init__(self, session: ChatSession, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self._query = ""
        self._rest: Iterator[tuple[SearchHit, ...]] = iter(())
        self._spare: list[SearchHit] = []  # found with the last page, for the next one
        self._room = 0
        self._steps = Steps(self)
        self._steps.ended.connect(self._finish)
        self._steps.failed.connect(self._fail)

    @property
    def running(self) -> bool:
        """Whether it is still looking."""
        return self._steps.running

    def find(self, query: str) -> None:
        """Begin another search: titles and the first hits are told before this returns, the others later."""
        self._steps.stop()
        self._query = query
        self.titles_found.emit(self._titles(query))
        hits = self._session.search(query, FIRST)
        if hits:
            self.found.emit(hits)
        self._rest = self._session.stores.kept.search_rest(query, [hit.message_id for hit in hits])
        self._spare, self._room = [], PAGE - len(hits)
        self._steps.run(self._look())

    def more(self) -> None:
        """Look for another page of hits."""
        self._room = PAGE
        self._steps.run(self._look())

    def stop(self) -> None:
        """Look no further."""
        self._steps.stop()
        self._rest = iter(())

    def words_at(self, text: str, place: int) -> str:
        """What was looked for as it is written at a place of a message: all the words, where they follow
        each other there.
        """
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

    def _look(self) -> Iterator[None]:
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
