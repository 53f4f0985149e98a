"""The emoji that can be inserted, with their names in the user's language and in English."""

from __future__ import annotations

import functools
import json
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import resources
from engine.words import language

__all__ = ["Emoji", "all_emoji", "matching"]


class Emoji(NamedTuple):
    """`text` is what is inserted; `words` are all its names, folded, for the search."""

    text: str
    name: str
    words: str


def all_emoji() -> tuple[Emoji, ...]:
    """All of them, faces first, named in the language in use."""
    return _read(language())


@functools.cache
def _read(code: str) -> tuple[Emoji, ...]:
    found = json.loads(resources.text("emoji.json"))
    english = found["names"]["en"]
    names = found["names"].get(code, english)
    return tuple(
        Emoji(text, name, _folded(f"{name} {other}"))
        for text, name, other in zip(found["emoji"], names, english, strict=True)
    )


def matching(query: str, recent: Sequence[str]) -> tuple[Emoji, ...]:
    """The emoji whose names have words that begin with each word of the query, in any order; those whose name
    begins with the query come first. Without a query, all, those used last first.
    """
    known, asked = all_emoji(), _folded(query).split()
    if not asked:
        place = {text: number for number, text in enumerate(recent)}
        return tuple(sorted(known, key=lambda each: place.get(each.text, len(place))))
    found = [each for each in known if all(_has(each.words, word) for word in asked)]
    return tuple(sorted(found, key=lambda each: not each.words.startswith(" ".join(asked))))


def _has(words: str, word: str) -> bool:
    """Whether a word begins so; in a script without blanks between words, whether it is in the name."""
    return f" {word}" in f" {words}" or (not word.isascii() and word in words)


def _folded(text: str) -> str:
    """In small letters, without accents and signs."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(sign if sign.isalnum() else " " for sign in plain if not unicodedata.combining(sign))
