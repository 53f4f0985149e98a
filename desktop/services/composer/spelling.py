"""Spelling of what the user writes, by a dictionary of this system; without one it is off."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Event

from PySide6.QtCore import QLocale, QObject, Signal

from desktop.services.composer.enchant import Enchant, SpellingDictionary, load_enchant
from desktop.services.engine.background import Background
from desktop.services.session.chat_session import ChatSession
from desktop.settings import Behaviour

__all__ = ["SpellingService", "best_language"]

_MOST_KNOWN = 20_000
_MOST_SUGGESTIONS = 6
_Opened = tuple[Enchant, tuple[str, ...], SpellingDictionary | None]


def best_language(preferred: Sequence[str], languages: Sequence[str]) -> str:
    """Which of `languages` ("de_DE") fits the first of `preferred` ("de-AT", "en_GB") that one of them
    fits: the same, else one of the same language; "" if none does.
    """
    for name in (each.replace("-", "_") for each in preferred):
        if name in languages:
            return name
        plain = name.partition("_")[0]
        close = [each for each in languages if each.partition("_")[0] == plain]
        same = [each for each in close if each == f"{plain}_{plain.upper()}"]
        if close:
            return (same or close)[0]
    return ""


def _script(word: str) -> str:
    """The script of a word's first letter, such as "LATIN"."""
    return unicodedata.name(word[:1], "").partition(" ")[0] if word else ""


class SpellingService(QObject):
    """Looks words up. The library and a dictionary are loaded in the background when the first text is there
    to be checked. `languages` have a dictionary, `language` is the one in use, or "".

    `changed()`: there is another dictionary, or another word is right.
    """

    changed = Signal()

    def __init__(
        self, session: ChatSession, parent: QObject, load: Callable[[], Enchant | None] = load_enchant
    ) -> None:
        super().__init__(parent)
        self._session, self._load = session, load
        self._background = Background("spelling", self)
        self._library: Enchant | None = None
        self._dictionary: SpellingDictionary | None = None
        self._asked: tuple[bool, str] | None = None
        self._loading, self._script = False, ""
        self._known: dict[str, bool] = {}
        self.languages: tuple[str, ...] = ()
        session.settings_changed.connect(lambda cls: self._follow() if cls is Behaviour else None)

    @property
    def language(self) -> str:
        """The language of the dictionary in use; "" for none."""
        return self._dictionary.language if self._dictionary is not None else ""

    def begin(self) -> bool:
        """There is text to check: load the dictionary, the first time. Whether words can be looked up now."""
        if self._asked is None:
            self._follow(first=True)
        return self._dictionary is not None

    def known(self, word: str) -> bool | None:
        """Whether the word is right, as far as it was looked up before."""
        return self._known.get(word)

    def check(self, word: str) -> bool:
        """Look the word up: 0.02 to 0.2 ms. Words in another script than the language's are not looked up."""
        if self._dictionary is None or _script(word) != self._script:
            return True
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[word] = right = self._dictionary.check(word)
        return right

    def suggest(self, word: str) -> list[str]:
        """A few words that may have been meant."""
        return self._dictionary.suggest(word)[:_MOST_SUGGESTIONS] if self._dictionary is not None else []

    def add(self, word: str) -> None:
        """Keep the word as the user's own."""
        if self._dictionary is not None:
            self._dictionary.add(word)
            self._known[word] = True
            self.changed.emit()

    def choose(self, language: str) -> None:
        """Use the dictionary of this language from now on; "" checks nothing."""
        behaviour = self._session.settings(Behaviour)
        chosen = language or behaviour.spelling_language
        self._session.set_settings(replace(behaviour, spelling=bool(language), spelling_language=chosen))

    def close(self) -> bool:
        """End the thread, and free the library."""
        ended = self._background.close()
        self._dictionary = None
        if self._library is not None and ended:
            self._library.close()
            self._library = None
        return ended

    def _follow(self, first: bool = False) -> None:
        """Do what the settings say, once there was text to check."""
        behaviour = self._session.settings(Behaviour)
        asked = (behaviour.spelling, behaviour.spelling_language.strip())
        if asked == self._asked or (self._asked is None and not first) or self._loading:
            return
        self._asked = asked
        if not behaviour.spelling:
            self._take(None)
            return
        self._loading = True
        self._take(None)  # the library is for one thread at a time
        preferred = [asked[1]] if asked[1] else list(QLocale.system().uiLanguages())

        def open_dictionary(_stop: Event) -> _Opened | None:
            self._library = library = self._library or self._load()  # a second, from a disk that slept
            if library is None:
                return None
            languages = library.languages()
            language = best_language(preferred, languages)
            return library, languages, library.open(language) if language else None

        self._background.call(open_dictionary, self._opened)

    def _opened(self, opened: _Opened | None) -> None:
        self._loading = False
        if opened is not None:
            self.languages = opened[1]
            self._take(opened[2])
        self._follow()  # the settings may have changed meanwhile

    def _take(self, dictionary: SpellingDictionary | None) -> None:
        if dictionary is None and self._dictionary is None:
            return
        self._dictionary = dictionary
        self._script = _script(QLocale(self.language).nativeLanguageName())
        self._known.clear()
        self.changed.emit()
