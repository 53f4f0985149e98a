"""What counts as the same text in a search (case, accents and width are ignored), and the words to index.

Folding goes character by character, so that a position in folded text can be mapped back to the original.
Scripts without spaces (Chinese, Japanese, Thai and others, and symbols and emoji) are indexed in pairs of
characters, which find any substring; other scripts are indexed by word. Sources: Unicode Standard Annex 15
(NFKD), section 3.13 of the standard (case folding).
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterator

from desktop.store.attachments.picture_marks import searchable

__all__ = ["LONGEST_TOKEN", "first_place", "fold", "index_text", "places", "query_terms", "query_words"]

LONGEST_TOKEN = 40
"""Indexed characters of a word; what follows (base64, hashes) is compared with the text itself."""
_NOT_DECOMPOSED = {
    "ø": "o",
    "ł": "l",
    "đ": "d",
    "ħ": "h",
    "æ": "ae",
    "œ": "oe",
    "ı": "i",
    "þ": "th",
    "ð": "d",
    "ـ": "",
}
_VOICED = "\u3099\u309a"
"""Voicing marks make another kana letter, so they are kept."""
_UNSPACED = (
    "\u0e00-\u0eff\u0f00-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\u2100-\u2bff\u2e80-\u30ff\u31a0-"
    "\u9fff\ua000-\ua4cf"
    "\uf900-\ufaff\U0001b000-\U0001b2ff\U0001f000-\U0001fbff\U00020000-\U0003ffff"
)
_FOLDS = "[^\x00-\x7f\u2012-\u2015\u2018-\u2019\u201c-\u201d\u2022\u2190-\u2193\u3001\u3002\u4e00-\u9fff]"
"""Characters that may fold to something else. Text of other characters (ASCII, dashes, quotes, ideographs)
only needs lower case.
"""
_PIECES, _UNSPACED_START = f"[{_UNSPACED}]+|[^{_UNSPACED}]+", f"[{_UNSPACED}]"
_STRIDE = 256
_compiled = functools.cache(re.compile)  # on first use: these take 10 ms to compile


class _Folded(dict[int, str]):
    """A table for `str.translate`: drops case, accents, width and invisible characters."""

    def __missing__(self, code: int) -> str:
        decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", chr(code)).casefold())
        kept = "".join(_NOT_DECOMPOSED.get(char, char) for char in decomposed if not _ignored(char))
        return self.setdefault(code, kept)


class _Words(dict[int, str]):
    """A table for `str.translate`: turns characters that belong to no word into spaces."""

    def __missing__(self, code: int) -> str:
        kind = unicodedata.category(chr(code))
        part = (
            kind[0] in "LNM"
            or kind == "Co"
            or (kind[0] == "S" and _compiled(_UNSPACED_START).match(chr(code)) is not None)
        )
        return self.setdefault(code, chr(code) if part else " ")


_FOLDED, _WORDS = _Folded(), _Words()


class _Indexed(dict[int, str]):
    """Both tables in one, because translating is most of the work of indexing an import of hundreds of MB."""

    def __missing__(self, code: int) -> str:
        return self.setdefault(code, chr(code).translate(_FOLDED).translate(_WORDS))


_INDEXED = _Indexed()


def _ignored(char: str) -> bool:
    accent = unicodedata.combining(char) and char not in _VOICED
    return bool(accent) or unicodedata.category(char) == "Cf" or "\ufe00" <= char <= "\ufe0f"


def fold(text: str) -> str:
    """`text` without case, accents, width and invisible characters; the length may change."""
    return text.lower() if _plain(text) else text.translate(_FOLDED)


def _plain(text: str) -> bool:
    return text.isascii() or _compiled(_FOLDS).search(text) is None


def index_text(text: str) -> str:
    """The tokens of a message, each once, separated by spaces: the text for the index."""
    words = dict.fromkeys(searchable(text).translate(_INDEXED).split())
    joined = " ".join(words)
    cut = (
        _tokens(joined)
        if _compiled(_UNSPACED_START).search(joined)
        else (word[:LONGEST_TOKEN] for word in words)
    )
    return " ".join(dict.fromkeys(cut))


def query_words(query: str) -> tuple[str, ...]:
    """The folded words of a query, each once; a hit contains every one of them somewhere."""
    return tuple(dict.fromkeys(fold(query.replace("\0", " ")).split()))


def query_terms(word: str) -> tuple[tuple[str, bool], ...]:
    """The tokens of a message that contains the folded `word` at the start of a word; True marks a token's
    beginning.

    Empty for a word of nothing but punctuation.
    """
    found: list[tuple[str, bool]] = []
    pieces = list(_pieces(word))
    for place, piece in enumerate(pieces):
        if not _compiled(_UNSPACED_START).match(piece):
            found.append((piece[:LONGEST_TOKEN], place == len(pieces) - 1))
        elif len(piece) == 1:
            found.append((piece, True))
        else:
            found += [(piece[at : at + 2], False) for at in range(len(piece) - 1)]
    # A word that ends in punctuation is complete, so its last token is not just a beginning.
    ends = _WORDS[ord(word[-1])] != " "
    return tuple(
        dict.fromkeys(
            (term, begins and (ends or bool(_compiled(_UNSPACED_START).match(term))))
            for term, begins in found
        )
    )


def places(
    text: str, words: tuple[str, ...], start: int = 0, end: int | None = None
) -> tuple[tuple[int, int], ...]:
    """Where the folded `words` are in `text` between `start` and `end`: (start, end) pairs in order, not
    overlapping.
    """
    end = len(text) if end is None else end
    piece = text[start:end]
    folded = fold(piece)
    found = sorted(match.span() for word in words if word for match in re.finditer(re.escape(word), folded))
    back = _source_positions(piece) if not _plain(piece) else None
    merged: list[tuple[int, int]] = []
    for first, stop in found:
        if back is not None:
            first, stop = back[first], back[stop - 1] + 1
            while stop < len(piece) and not fold(piece[stop]):  # a combining accent after its letter
                stop += 1
        if merged and start + first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], start + stop))
        else:
            merged.append((start + first, start + stop))
    return tuple(merged)


def first_place(text: str, words: tuple[str, ...]) -> int:
    """The character of `text` where the first of the folded `words` begins; 0 if there is none."""
    folded = fold(text)
    target = min((place for word in words if (place := folded.find(word)) >= 0), default=0)
    if _plain(text):
        return target
    at = passed = 0
    while at < len(text) and passed + (size := len(fold(text[at : at + _STRIDE]))) <= target:
        at, passed = at + _STRIDE, passed + size
    return at + _source_positions(text[at : at + _STRIDE])[target - passed] if at < len(text) else 0


def _source_positions(text: str) -> list[int]:
    """For each character of the folded text, the position in `text` that it comes from."""
    return [place for place, char in enumerate(text) for _ in fold(char)]


def _tokens(folded: str) -> Iterator[str]:
    for piece in _pieces(folded):
        if _compiled(_UNSPACED_START).match(piece):
            for at in range(len(piece)):
                yield piece[at : at + 2]
        else:
            yield piece[:LONGEST_TOKEN]


def _pieces(folded: str) -> Iterator[str]:
    for token in folded.translate(_WORDS).split():
        if token.isascii():
            yield token
        else:
            yield from _compiled(_PIECES).findall(token)
