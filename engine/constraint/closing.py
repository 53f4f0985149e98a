"""Bringing a JSON text to its end while there is room: of what the grammar allows, the tokens that close something.

A small model can nest, list and describe without end, and the limit of tokens would cut the text in the middle. Near that
limit the mask is narrowed: strings are closed, lists and objects too, and no new ones are opened where anything else can stand.
"""

from __future__ import annotations

import re
import threading
import weakref
from typing import NamedTuple

import numpy as np

from engine.constraint.filter import Mask
from engine.constraint.vocabulary import Vocabulary

_BASE, _PER_LEVEL = 64, 8
"""Tokens kept for the end of a text: what may still be required, and for each open list or object what stands behind it."""


class JsonPlace(NamedTuple):
    """Where a JSON text stands: how many lists and objects are open, whether in a string or behind a backslash, its last byte."""

    depth: int = 0
    in_string: bool = False
    escaped: bool = False
    last: int = 0

    def after(self, data: bytes) -> JsonPlace:
        """The place behind some more bytes of the text."""
        depth, in_string, escaped, last = self
        for byte in data:
            if in_string:
                in_string, escaped = escaped or byte != 0x22, not escaped and byte == 0x5C
            elif byte == 0x22:
                in_string = True
            else:
                depth += (byte in b"[{") - (byte in b"]}")
            last = byte
        return JsonPlace(depth, in_string, escaped, last)

    @property
    def reserve(self) -> int:
        """From how many tokens left on the text is brought to its end."""
        return _BASE + _PER_LEVEL * self.depth


class JsonCloser:
    """The masks of one vocabulary that closing needs."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._quoted = self._matching(rb'"[\]}]*')
        self._whole = self._matching(rb"[\x80-\xbf]+|[ -\[\]-~]")  # the rest of a character, or one that leaves nothing open
        self._closing = self._matching(rb"\s*[\]}][\]}\s]*")
        self._comma = self._matching(rb'\s*,\s*"?')
        self._opening = self._matching(rb"[^\"]*[\[{].*")
        self._blank = self._matching(rb"\s+")

    def narrowed(self, mask: Mask, place: JsonPlace) -> Mask:
        """The tokens of `mask` that come first: all of it where none of them closes anything or goes straight on."""
        if place.in_string:
            return _first(mask, mask & self._quoted, mask & self._whole)
        number = place.last in b"0123456789"
        done = mask & (self._closing | self._vocabulary.stop)
        straight = mask & ~self._opening & ~self._blank
        return _first(mask, done, mask & self._comma if number else None, straight, mask & ~self._blank)

    def _matching(self, pattern: bytes) -> Mask:
        found = re.compile(pattern, re.DOTALL)
        texts = self._vocabulary.texts
        return self._vocabulary.mask_of(np.array([i for i, text in enumerate(texts) if text and found.fullmatch(text)], np.int64))


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
