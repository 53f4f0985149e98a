"""Closing a JSON text while there is room: its state, and which of the allowed tokens close something.

A small model can nest, list and describe without end, and the token limit would cut the text in the middle.
Near that limit the mask is narrowed: strings, lists and objects are closed, and no new ones are opened where
anything else is possible.
"""

from __future__ import annotations

import re
import threading
import weakref
from typing import NamedTuple

import numpy as np

from engine.constraint.vocabulary import Mask, Vocabulary

_LONGEST_NAME = 64
"""This many bytes of a property's name are kept, which tell it from others."""


Open = int | bytes | tuple[str, bytes]
"""One open list or object, see `JsonPlace.path`."""
Path = tuple[Open, ...]


class JsonPlace(NamedTuple):
    """The state of a JSON text.

    `path` has, for each open list, the number of complete values, and for each open object the name of the
    current value (its bytes and the closing quote), or a pair of nothing and the last name while a name is
    still to come. `size` counts the bytes of the string, number or word under way; `name` has the last of
    them if it is a property's name; `last` is the last byte of the text.
    """

    path: Path = ()
    size: int = 0
    name: bytes = b""
    in_string: bool = False
    escaped: bool = False
    last: int = 0

    @property
    def depth(self) -> int:
        """The number of open lists and objects."""
        return len(self.path)

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for two texts in the same state, whatever the current string or number holds."""
        return self.path, self.size, self.name, self.in_string, self.escaped

    def after(self, data: bytes) -> JsonPlace:
        """The state after more bytes of the text."""
        path, size, name, in_string, escaped, last = self
        for byte in data:
            if in_string:
                naming = bool(path) and isinstance(path[-1], tuple)
                in_string, escaped = escaped or byte != 0x22, not escaped and byte == 0x5C
                size = size + 1 if in_string or naming else 0
                name = (name + bytes((byte,)))[-_LONGEST_NAME:] if naming else b""
            elif byte == 0x22:
                in_string, size, name = True, 1, b""
            elif byte in b"[{":
                path, size = (*path, 0 if byte == 0x5B else ("", b"")), 0
            elif byte in b"]}":
                path, size = path[:-1], 0
            elif byte in b",:" and path:
                path, size, name = (*path[:-1], _beyond(path[-1], name)), 0, b""
            elif byte not in b" \t\r\n":
                size += 1
            last = byte
        return JsonPlace(path, size, name, in_string, escaped, last)


def _beyond(top: Open, name: bytes) -> Open:
    """The entry of `path` for a list or object after a comma or colon in it."""
    if isinstance(top, int):
        return top + 1
    return name if isinstance(top, tuple) else ("", top)


class JsonCloser:
    """The masks of one vocabulary that closing needs."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._quoted = self._matching(rb'"[\]}]*')
        # the rest of a character, or one that leaves nothing open
        self._whole = self._matching(rb"[\x80-\xbf]+|[ -\[\]-~]")
        self._closing = self._matching(rb"\s*[\]}][\]}\s]*")
        self._comma = self._matching(rb'\s*,\s*"?')
        self._opening = self._matching(rb"[^\"]*[\[{].*")
        self._blank = self._matching(rb"\s+")

    def narrowed(self, mask: Mask, place: JsonPlace) -> Mask:
        """The preferred tokens of `mask`: all of them if none closes anything or leads straight on."""
        if place.in_string:
            return _first(mask, mask & self._quoted, mask & self._whole)
        number = place.last in b"0123456789"
        done = mask & (self._closing | self._vocabulary.stop)
        straight = mask & ~self._opening & ~self._blank
        return _first(mask, done, mask & self._comma if number else None, straight, mask & ~self._blank)

    def _matching(self, pattern: bytes) -> Mask:
        found = re.compile(pattern, re.DOTALL)
        texts = self._vocabulary.texts
        return self._vocabulary.mask_of(
            np.array([i for i, text in enumerate(texts) if text and found.fullmatch(text)], np.int64)
        )


_lock = threading.Lock()
_known: weakref.WeakKeyDictionary[Vocabulary, JsonCloser] = weakref.WeakKeyDictionary()


def closer_of(vocabulary: Vocabulary) -> JsonCloser:
    """The masks of a vocabulary, made once while it lives. From any thread."""
    with _lock:
        if vocabulary not in _known:
            _known[vocabulary] = JsonCloser(vocabulary)
        return _known[vocabulary]


def _first(mask: Mask, *better: Mask | None) -> Mask:
    """The first of `better` that allows anything, else `mask`."""
    return next((one for one in better if one is not None and one.any()), mask)
