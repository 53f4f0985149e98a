"""Searches the files of a chat for passages that match a question, on the threads of the background and, with
an embedding model, of the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from itertools import accumulate

from desktop.services.composer.fitting import FittingService
from desktop.services.composer.meaning import MeaningService, Orders
from desktop.services.engine.background import Background
from desktop.services.engine.job import Job
from desktop.services.session.chat_session import ChatSession
from desktop.services.session.context import is_temporary
from desktop.store.attachments.message_format import HEAD, Attachment, split
from desktop.store.attachments.passages import further, kept, matching, passages
from desktop.store.attachments.whole_texts import PackedText, WholeTextStore
from engine.lazy_dataclass import dataclass
from engine.settings import StopSettings

__all__ = ["PassageSearch", "Search", "files_of", "read_anyway"]

MOST_PASSAGES = 5
"""That go with a later question: about 1,250 tokens."""
_TOKENS_FOR_EACH = 1000
"""Of the context for each passage: in a small one, fewer go with a question."""
_CHARACTERS_PER_TOKEN = 3
"""Fewer than in most texts: what surely fits into the context."""


@dataclass(frozen=True, eq=False)
class Search:
    """The passages of which files are wanted: `said` are the messages that have or had these files, `read`
    the texts that the model reads before the `question`. Of each file named in `firsts`, which no earlier
    message has, it asks for that many passages; of all others together, for a few new ones.
    """

    conversation: int
    question: str
    said: Sequence[str]
    read: Sequence[str]
    ended: Callable[[tuple[Attachment, ...]], object]
    firsts: Mapping[str, int] = field(default_factory=dict)


class PassageSearch:
    """Runs one search at a time."""

    def __init__(self, session: ChatSession, fitting: FittingService, background: Background) -> None:
        self._session, self._fitting, self._background = session, fitting, background
        self._search: Search | None = None
        self._job: Job | None = None
        self._ranking: MeaningService | None = None

    def begin(self, search: Search) -> None:
        """Stop the search before, and begin another. Raises `StoreError`."""
        self.stop()
        store = WholeTextStore(self._session.stores.database_of(search.conversation))
        texts = store.of(search.conversation)
        self._search = search
        self._job = self._background.call(
            lambda _stop: files_of(search.said, texts), partial(self._on_files, search)
        )

    def stop(self) -> None:
        """Stop searching; `ended` is not called."""
        self._background.drop(self._job)
        ranking, self._ranking = self._ranking, None
        self._job = self._search = None
        if ranking is not None:
            ranking.stop()

    def skip(self) -> None:
        """Stop searching; `ended` is called with no passages, if there was a search."""
        search = self._search
        self.stop()
        if search is not None:
            search.ended(())

    def _on_files(self, search: Search, files: tuple[Attachment, ...] | None) -> None:
        meaning = self._fitting.meaning
        model = meaning.model() if meaning is not None and files and not meaning.running else None
        if meaning is None or model is None or not files:
            self._choose(search, files or (), ())
            return

        def ranked(orders: Orders, _sentence: str) -> None:
            if self._search is search:
                self._ranking = None
                self._choose(search, files, orders)

        self._ranking = meaning
        keep = not is_temporary(search.conversation)
        meaning.rank(
            model, files, search.question, keep, lambda _percent: None, ranked, partial(self._end, search)
        )

    def _choose(self, search: Search, files: tuple[Attachment, ...], orders: Orders) -> None:
        model = self._session.model
        context = model.context_length if model is not None else 0
        drops = self._session.settings(StopSettings).when_full == "drop_oldest"
        known = read_anyway(search.read, context * _CHARACTERS_PER_TOKEN if drops else 0)
        most = min(MOST_PASSAGES, max(1, context // _TOKENS_FOR_EACH)) if context else MOST_PASSAGES
        self._job = self._background.call(
            lambda _stop: _chosen(search, files, known, most, orders), partial(self._end, search)
        )

    def _end(self, search: Search, found: tuple[Attachment, ...] | None = None) -> None:
        if self._search is search:
            self._job = self._search = self._ranking = None
            search.ended(found or ())


def _chosen(
    search: Search, files: Sequence[Attachment], known: str, most: int, orders: Sequence[Sequence[int]]
) -> tuple[Attachment, ...]:
    """The passages that go with the question, for each file that has any."""
    found, later = list[Attachment](), list[int]()
    for place, file in enumerate(files):
        if (count := search.firsts.get(file.name, 0)) == 0:
            later.append(place)
            continue
        pieces = passages(file.text)
        if numbers := matching(pieces, search.question, orders[place] if orders else ()):
            found.append(kept(file, pieces, numbers[:count]))
    ranked = [orders[place] for place in later] if orders else []
    return (*found, *further([files[place] for place in later], search.question, known, most, ranked))


def files_of(texts: Sequence[str], kept: Sequence[PackedText]) -> tuple[Attachment, ...]:
    """The whole files of a chat's messages, each once: those that messages have, and for those of which they
    have a part, the longest of the texts that were `kept`.
    """
    found: dict[str, Attachment] = {}
    parts = set[str]()
    for text in texts:
        for _place, file in split(text)[0] if HEAD in text else ():
            if file.note:
                parts.add(file.name)
            elif file.picture is None and file.text.strip():
                found[file.name] = file
    for each in kept:
        whole = each.text if each.name in parts else ""
        if len(whole) > len(found[each.name].text if each.name in found else ""):
            found[each.name] = Attachment(each.name, whole)
    return tuple(found.values())


def read_anyway(texts: Sequence[str], room: int) -> str:
    """The last of a chat's texts, as many as have `room` characters together; all of them if that is 0."""
    lengths = accumulate(len(text) for text in reversed(texts))
    count = sum(length <= room for length in lengths) if room else len(texts)
    return "\n".join(texts[len(texts) - count :])
