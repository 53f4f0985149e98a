"""What the command palette offers, and its ranking: fuzzy matching over titles, fast enough for each key
press.

A long source (ten thousand chats) keeps its folded titles in one text, which C code searches; only the best
few hundred are matched letter by letter.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

from desktop.store.search.folding import fold
from engine.words import N_, translate

__all__ = ["KINDS", "Entry", "EntrySource", "Kind", "Match", "PaletteRow", "fuzzy", "narrowed", "spans_of"]


class Kind(NamedTuple):
    """A kind of entry: its heading, the sign that narrows the search to it, its singular name, and
    its icon.
    """

    heading: str
    sign: str
    one: str
    icon: str


KINDS = {
    "chat": Kind(N_("Chats"), "@", N_("chat"), "chat"),
    "action": Kind(N_("Actions"), ">", N_("action"), "command"),
    "setting": Kind(N_("Settings"), "#", N_("setting"), "inspector"),
    "model": Kind(N_("Models"), "!", N_("model"), "model"),
    "message": Kind(N_("Messages"), "/", N_("message"), "search"),
}
"""The kinds; equally good entries are in this order."""


class Entry(NamedTuple):
    """One entry. `key` identifies it after a restart; `detail` describes it; `words` are searched but not
    shown. `keys` is its shortcut; `trouble` says why it is disabled.
    """

    kind: str
    key: str
    title: str
    detail: str = ""
    words: str = ""
    keys: str = ""
    trouble: str = ""


class Match(NamedTuple):
    """An entry that matches a query, a better one with a higher `score`; `spans` (start, end) of its title
    are marked.
    """

    entry: Entry
    score: float = 0.0
    spans: tuple[tuple[int, int], ...] = ()


class PaletteRow(NamedTuple):
    """A match, with the heading above it where a section begins."""

    match: Match
    heading: str = ""

    @property
    def accessible_text(self) -> str:
        """The text of the row for screen readers."""
        entry = self.match.entry
        return ", ".join(
            part
            for part in (
                entry.title,
                translate(KINDS[entry.kind].one),
                entry.detail,
                entry.keys,
                entry.trouble,
            )
            if part
        )


_LONG = 2000
"""A source with more entries is first searched as one text."""
_EACH_WAY = 80
"""The number of titles taken from each way of matching; those left out were changed earlier and match no
better.
"""
_SEPARATOR = "\n"
_WORTH = 0.3
"""The share of the best score below which a match is left out."""


class EntrySource:
    """The entries of one kind: `titles`, optional further `words` for the search, and a function that makes
    the entry of a number.
    """

    def __init__(
        self, titles: Sequence[str], entry: Callable[[int], Entry], words: Sequence[str] = ()
    ) -> None:
        self._titles, self._given, self._entry = titles, words, entry
        self._folded: list[str] = []
        self._words: list[str] = []
        self._joined = ""
        self._starts: list[int] = []

    def prepare(self) -> None:
        """Prepare the search, which takes some milliseconds for thousands of titles; otherwise the first
        `find` does it.
        """
        if self._folded:
            return
        self._folded = [fold(title).replace(_SEPARATOR, " ") for title in self._titles]
        self._words = [fold(each) for each in self._given]
        if len(self._folded) > _LONG:
            self._joined = _SEPARATOR + _SEPARATOR.join(self._folded)
            place = 1
            for title in self._folded:
                self._starts.append(place)
                place += len(title) + 1

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> EntrySource:
        """A source of ready entries."""
        return cls(
            [entry.title for entry in entries], entries.__getitem__, [entry.words for entry in entries]
        )

    def __len__(self) -> int:
        return len(self._titles)

    def entry(self, number: int) -> Entry:
        """The entry of a number."""
        return self._entry(number)

    def first(self, count: int) -> list[Match]:
        """The first entries, for an empty query."""
        return [Match(self._entry(number)) for number in range(min(count, len(self)))]

    def find(self, query: str, limit: int) -> list[Match]:
        """The best matches, best first; equally good ones in the order of the source."""
        words = fold(query).split()
        if not words:
            return self.first(limit)
        self.prepare()
        numbers: Iterable[int] = self._candidates(words) if self._joined else range(len(self))
        found: list[tuple[float, int, list[int]]] = []
        for number in numbers:
            match = fuzzy(words, self._folded[number], self._words[number] if self._words else "")
            if match is not None:
                found.append((-match[0], number, match[1]))
        found.sort(key=lambda each: each[:2])
        found = [each for each in found if each[0] <= _WORTH * found[0][0]]
        made = []
        for score, number, places in found[:limit]:
            entry = self._entry(number)
            made.append(Match(entry, -score, spans_of(entry.title, places)))
        return made

    # -- pre-selection from a long source

    def _candidates(self, words: list[str]) -> list[int]:
        """The numbers of the titles worth a closer look."""
        query = " ".join(words)
        longest = max(words, key=len)
        ways: list[Iterator[int]] = [self._with(_SEPARATOR + query), self._with(" " + query)]
        if len(words) > 1:
            ways.append(
                number
                for number in self._with(longest)
                if all(word in self._folded[number] for word in words)
            )
        else:
            ways += [self._with(query), self._with_letters(query)]
        return list(dict.fromkeys(number for way in ways for number in islice(way, _EACH_WAY)))

    def _with(self, text: str) -> Iterator[int]:
        """Titles that contain a text, each once."""
        joined, starts = self._joined, self._starts
        place = joined.find(text)
        while place >= 0:
            number = bisect_right(starts, place + (text[0] == _SEPARATOR)) - 1
            yield number
            end = starts[number + 1] - 1 if number + 1 < len(starts) else len(joined)
            place = joined.find(text, max(end, place + 1))

    def _with_letters(self, word: str) -> Iterator[int]:
        """Titles that contain all letters of a word in this order."""
        pattern = _SEPARATOR + "".join(
            f"[^{re.escape(letter)}{_SEPARATOR}]*{re.escape(letter)}" for letter in word
        )
        for found in re.finditer(pattern, self._joined):
            yield bisect_right(self._starts, found.start() + 1) - 1


def fuzzy(words: Sequence[str], title: str, more: str = "") -> tuple[float, list[int]] | None:
    """The score of a folded title for all folded words, and the places of their letters; None when one is
    missing.

    A word that is not in the title may be in `more`, which counts less.
    """
    total, places = 0.0, []
    for word in words:
        found = _word(word, title)
        if found is None:
            place = more.find(word) if len(word) > 1 else -1
            if place < 0:
                return None
            total += 14.0 if _starts_word(more, place) else 8.0
            continue
        total += found[0]
        places += found[1]
    if len(words) > 1 and " ".join(words) in title:
        total += 40.0
    if len(title) == sum(map(len, words)) + len(words) - 1:
        total += 20.0
    return total - min(len(title), 100) * 0.05, sorted(set(places))


def _word(word: str, title: str) -> tuple[float, list[int]] | None:
    place = title.find(word)
    if place < 0:
        return _letters(word, title)
    best = place
    while place >= 0:  # prefer one at the start of a word
        if _starts_word(title, place):
            best = place
            break
        place = title.find(word, place + 1)
    score = 100.0 if best == 0 else 85.0 if _starts_word(title, best) else 45.0
    return score + len(word), list(range(best, best + len(word)))


def _letters(word: str, title: str) -> tuple[float, list[int]] | None:
    """The places of the letters of `word` in this order: at starts of words if possible, otherwise at their
    first occurrences.
    """
    for at_starts in (True, False):
        places: list[int] = []
        place = -1
        for letter in word:
            place = _next(letter, title, place + 1, at_starts)
            if place < 0:
                break
            places.append(place)
        if len(places) == len(word):
            starts = sum(_starts_word(title, each) for each in places)
            beside = sum(after == before + 1 for before, after in pairwise(places))
            if 2 * (starts + beside) < len(word) or not starts:
                continue  # scattered letters are no match
            return 10.0 + 20.0 * (starts + beside) / len(word) - 0.1 * (places[-1] - places[0]), places
    return None


def _next(letter: str, title: str, start: int, at_starts: bool) -> int:
    """The next place of a letter: right here, else at the start of a word (if allowed and there is one), else
    anywhere.
    """
    first = place = title.find(letter, start)
    if not at_starts or first < 0 or (first == start and start):
        return first
    while place >= 0:
        if _starts_word(title, place):
            return place
        place = title.find(letter, place + 1)
    return first


def _starts_word(text: str, place: int) -> bool:
    return place == 0 or (not text[place - 1].isalnum() and text[place].isalnum())


def spans_of(title: str, places: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Places in a folded title as runs (start, end) of the original title."""
    origin: Sequence[int] = range(len(title) + 1)
    if len(fold(title)) != len(title):  # a letter may fold to none or to several
        origin = [number for number, letter in enumerate(title) for _ in fold(letter)]
    spans: list[tuple[int, int]] = []
    for place in places:
        at = origin[place] if place < len(origin) else len(title)
        if spans and at <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], at + 1))
        else:
            spans.append((at, at + 1))
    return tuple(spans)


def narrowed(text: str) -> tuple[str, str]:
    """The kind that a sign at the start of a query narrows to, "" for all, and the query without it."""
    text = text.lstrip()
    for name, kind in KINDS.items():
        if text.startswith(kind.sign):
            return name, text[1:].strip()
    return "", text.strip()
