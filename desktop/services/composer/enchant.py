"""Spelling dictionaries of this system, through the library Enchant 2 where it is installed.

It reads the dictionaries of Hunspell, Aspell and others, and keeps the user's own words.

Source of the functions: enchant.h of Enchant 2.3 (https://rrthomas.github.io/enchant/src/enchant.html).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, byref, c_char_p, c_int, c_size_t, c_ssize_t, c_void_p
from typing import Any

__all__ = ["FILES", "Enchant", "SpellingDictionary", "load_enchant"]

FILES = ("libenchant-2.so.2", "libenchant-2.2.dylib", "/opt/homebrew/lib/libenchant-2.2.dylib")
"""Names of the library on Linux and macOS."""
_LISTENER = CFUNCTYPE(None, c_char_p, c_char_p, c_char_p, c_char_p, c_void_p)
_FUNCTIONS: tuple[tuple[str, Any, tuple[Any, ...]], ...] = (
    ("enchant_broker_init", c_void_p, ()),
    ("enchant_broker_free", None, (c_void_p,)),
    ("enchant_broker_list_dicts", None, (c_void_p, _LISTENER, c_void_p)),
    ("enchant_broker_request_dict", c_void_p, (c_void_p, c_char_p)),
    ("enchant_broker_free_dict", None, (c_void_p, c_void_p)),
    ("enchant_dict_check", c_int, (c_void_p, c_char_p, c_ssize_t)),
    ("enchant_dict_suggest", POINTER(c_char_p), (c_void_p, c_char_p, c_ssize_t, POINTER(c_size_t))),
    ("enchant_dict_free_string_list", None, (c_void_p, POINTER(c_char_p))),
    ("enchant_dict_add", None, (c_void_p, c_char_p, c_ssize_t)),
)


class SpellingDictionary:
    """The words of a language, such as "de_DE". It lives as long as its `Enchant`."""

    def __init__(self, library: ctypes.CDLL, handle: int, language: str) -> None:
        self._library, self._handle, self.language = library, handle, language

    def check(self, word: str) -> bool:
        """Whether the word is spelled right; a word that cannot be checked is."""
        data = word.encode()
        return int(self._library.enchant_dict_check(self._handle, data, len(data))) <= 0

    def suggest(self, word: str) -> list[str]:
        """Similar words, the likeliest first; takes 2 to 50 ms."""
        data, count = word.encode(), c_size_t()
        found = self._library.enchant_dict_suggest(self._handle, data, len(data), byref(count))
        if not found:
            return []
        words = [found[place].decode("utf-8", "replace") for place in range(count.value)]
        self._library.enchant_dict_free_string_list(self._handle, found)
        return words

    def add(self, word: str) -> None:
        """Keep the word among the user's own, for all programs that use Enchant."""
        data = word.encode()
        self._library.enchant_dict_add(self._handle, data, len(data))


class Enchant:
    """The library. One thread at a time may use it and its dictionaries."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._broker = library.enchant_broker_init()
        self._handles: list[int] = []

    def languages(self) -> tuple[str, ...]:
        """The languages that have a dictionary, such as ("de_DE", "en_GB"), in order."""
        found: set[str] = set()

        def tell(tag: bytes, *_rest: object) -> None:
            found.add(tag.decode("utf-8", "replace"))

        self._library.enchant_broker_list_dicts(self._broker, _LISTENER(tell), None)
        return tuple(sorted(found))

    def open(self, language: str) -> SpellingDictionary | None:
        """The dictionary of a language; None if there is none, or it cannot be read. Takes about 50 ms."""
        handle = self._library.enchant_broker_request_dict(self._broker, language.encode())
        if not handle:
            return None
        self._handles.append(handle)
        return SpellingDictionary(self._library, handle, language)

    def close(self) -> None:
        """Free it with all of its dictionaries."""
        for handle in self._handles:
            self._library.enchant_broker_free_dict(self._broker, handle)
        self._library.enchant_broker_free(self._broker)


def load_enchant(open_library: Callable[[str], ctypes.CDLL] = ctypes.CDLL) -> Enchant | None:
    """The library of this system; None if it is not installed."""
    for file in FILES:
        try:
            library = open_library(file)
            for name, result, arguments in _FUNCTIONS:
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
        except (OSError, AttributeError):  # not there, or another version
            continue
        return Enchant(library)
    return None
