"""A language that nobody speaks, made while a test runs: texts are two fifths longer, accented, in brackets.

What is not translated shows as plain letters, and what has no room for longer words is cut off.
"""

from __future__ import annotations

import contextlib
import gettext
import re
from collections.abc import Iterator

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication

from engine.words import use_catalogue

__all__ = ["Pseudo", "pseudo_language"]

_ACCENTED = str.maketrans("aceinouyACEINOUYdgklrstz", "áçéíñóúýÁÇÉÍÑÓÚÝďğķľŕšťž")
_KEPT = re.compile(r"\{[^{}]*\}|<[^<>]*>|\([*][^()]*\)|;;|&+|https?://\S+|\t.*|%\w|[A-Z]\w*\+\S+")
"""Placeholders, tags, patterns of file names, addresses and keys."""


class Pseudo(gettext.NullTranslations):
    """A catalogue that translates every text: "Close" becomes "[Çľóšé ~~]"."""

    def gettext(self, message: str) -> str:
        kept = _KEPT.findall(message)
        parts = [part.translate(_ACCENTED) for part in _KEPT.split(message)]
        text = "".join(part + keep for part, keep in zip(parts, [*kept, ""], strict=True))
        words, tab, key = text.partition("\t")
        if not any(letter.isalpha() for part in parts for letter in part):
            return message
        body = words.strip()
        start, end = words[: len(words) - len(words.lstrip())], words[len(words.rstrip()) :]
        longer = " ~" * max(1, round(len(body) * 0.2))
        if ";;" in body:  # the patterns of a file dialog
            return text
        return f"{start}[{body}{longer}]{end}{tab}{key}"

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        return self.gettext(msgid1 if n == 1 else msgid2)


@contextlib.contextmanager
def pseudo_language(mirrored: bool = False) -> Iterator[None]:
    """Speak it in this block, from right to left if `mirrored`."""
    app = QApplication.instance()
    assert isinstance(app, QApplication)
    use_catalogue("en_XA", Pseudo())
    app.setLayoutDirection(Qt.LayoutDirection.RightToLeft if mirrored else Qt.LayoutDirection.LeftToRight)
    try:
        yield
    finally:
        use_catalogue("en", None)
        app.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
