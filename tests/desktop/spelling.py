"""A library of dictionaries for tests: each language has the words that it is given."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field

__all__ = ["FakeDictionary", "FakeEnchant"]


@dataclass
class FakeDictionary:
    """Stands for `SpellingDictionary`."""

    library: FakeEnchant
    language: str

    def check(self, word: str) -> bool:
        self.library.asked.append(word)
        return word in self.library.words[self.language]

    def suggest(self, word: str) -> list[str]:
        return difflib.get_close_matches(word, sorted(self.library.words[self.language]))

    def add(self, word: str) -> None:
        self.library.words[self.language].add(word)


@dataclass
class FakeEnchant:
    """Stands for `Enchant`: `asked` are the words that were looked up, `opened` the languages."""

    words: dict[str, set[str]]
    asked: list[str] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)
    closed: bool = False

    def languages(self) -> tuple[str, ...]:
        return tuple(sorted(self.words))

    def open(self, language: str) -> FakeDictionary | None:
        self.opened.append(language)
        return FakeDictionary(self, language) if language in self.words else None

    def close(self) -> None:
        self.closed = True
