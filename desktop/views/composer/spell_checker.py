"""Underlines words of the message box that no dictionary has, and offers others in its menu."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from PySide6.QtCore import QLocale, QSignalBlocker
from PySide6.QtGui import QColor, QPalette, QSyntaxHighlighter, QTextBlock, QTextCharFormat, QTextCursor
from PySide6.QtWidgets import QMenu

from desktop.services.composer.spelling import SpellingService
from desktop.services.system.debounce import debounce
from desktop.views.composer.message_edit import MessageEdit
from engine.words import _

__all__ = ["WORDS_A_STEP", "SpellChecker"]

WORDS_A_STEP = 100
"""This many words are looked up before the window has its turn: at most 20 ms."""
_BLOCKS_A_STEP = 200
_LONGEST = 20_000
_FENCE = re.compile(r" {0,3}(```|~~~)")
_LEFT_OUT = re.compile(r"`[^`]*`|\w+://\S+|\S+@\S+|[\w.]*[\d_/\\]\S*|<[^>]*>|^/\w+")
"""Code, addresses, names with digits or underscores, tags, and a command at the beginning."""
_WORD = re.compile(r"[^\W\d_](?:[^\W\d_]|[\u0300-\u036f]|['’](?=[^\W\d_]))*")
_PLAIN, _CODE = 0, 1


def _words(text: str) -> Iterator[re.Match[str]]:
    """The words of a paragraph that can be right or wrong."""
    left_out = [match.span() for match in _LEFT_OUT.finditer(text)]
    for match in _WORD.finditer(text):
        if len(match.group()) > 1 and not any(a < match.end() and match.start() < b for a, b in left_out):
            yield match


class SpellChecker(QSyntaxHighlighter):
    """Underlines words while they are written, except the one at the caret. Long texts are checked step by
    step; what is code is left out.
    """

    def __init__(self, box: MessageEdit, spelling: SpellingService) -> None:
        super().__init__(box.document())
        self._box, self._spelling = box, spelling
        self._left, self._next = WORDS_A_STEP, -1
        self._typed = -1
        self._steps = debounce(self, self._step)
        spelling.changed.connect(self._check_all)
        box.cursorPositionChanged.connect(self._leave_word)
        box.menu_opens.connect(self._fill_menu)

    def highlightBlock(self, text: str) -> None:
        """Underline the wrong words of a paragraph; once too many were looked up, the others come later."""
        code = self.previousBlockState() == _CODE
        fence = bool(_FENCE.match(text))
        self.setCurrentBlockState(_CODE if code != fence else _PLAIN)
        if code or fence or not text or len(text) > _LONGEST or not self._spelling.begin():
            return
        number, caret = self.currentBlock().blockNumber(), self._caret()
        for match in _words(text):
            word = match.group().replace("’", "'")
            right = self._spelling.known(word)
            if right is None:
                if self._left <= 0:
                    self._wait_for(number)
                    return
                self._left -= 1
                self._steps.start()
                right = self._spelling.check(word)
            if right:
                continue
            if (number, match.end()) == caret:
                self._typed = number
                continue
            self.setFormat(match.start(), match.end() - match.start(), self._underline())

    def _caret(self) -> tuple[int, int]:
        """The paragraph and the place in it where the user writes."""
        cursor = self._box.textCursor()
        return (cursor.blockNumber(), cursor.positionInBlock()) if self._box.hasFocus() else (-1, -1)

    def _underline(self) -> QTextCharFormat:
        wrong = QTextCharFormat()
        wrong.setUnderlineStyle(QTextCharFormat.UnderlineStyle.SpellCheckUnderline)
        wrong.setUnderlineColor(QColor(self._box.palette().color(QPalette.ColorRole.BrightText)))
        return wrong

    def _wait_for(self, number: int) -> None:
        self._next = number if self._next < 0 else min(self._next, number)
        self._steps.start()

    def _check_all(self) -> None:
        """All of it again, from the first paragraph."""
        self._wait_for(0)

    def _step(self) -> None:
        """The next words have their turn."""
        self._left, first, self._next = WORDS_A_STEP, self._next, -1
        if first < 0:
            return
        block = self.document().findBlockByNumber(first)
        for _number in range(_BLOCKS_A_STEP):
            if not block.isValid():
                return
            self._check(block)
            if self._next >= 0:
                return
            block = block.next()
        if block.isValid():
            self._wait_for(block.blockNumber())

    def _check(self, block: QTextBlock) -> None:
        """Check a paragraph again. What it is shown with is no change of the text, as Qt would report."""
        with QSignalBlocker(self._box):
            self.rehighlightBlock(block)

    def _leave_word(self) -> None:
        """The caret moved: the word that was being written is checked now."""
        number, self._typed = self._typed, -1
        if number >= 0 and (block := self.document().findBlockByNumber(number)).isValid():
            self._check(block)

    # -- the menu

    def wrong_word(self, position: int) -> QTextCursor | None:
        """A cursor that selects the wrong word at a position of the text, or None."""
        block = self.document().findBlock(position)
        place = position - block.position()
        for match in _words(block.text()):
            if match.start() <= place <= match.end() and block.userState() == _PLAIN:
                if self._spelling.known(match.group().replace("’", "'")) is not False:
                    return None
                found = QTextCursor(block)
                found.setPosition(block.position() + match.start())
                found.setPosition(block.position() + match.end(), QTextCursor.MoveMode.KeepAnchor)
                return found
        return None

    def _fill_menu(self, menu: QMenu, position: int) -> None:
        """Put the suggestions for the word at `position` on top, and the languages at the end."""
        if not self._spelling.begin() and not self._spelling.languages:
            return
        wrong, usual = self.wrong_word(position), menu.actions()
        if wrong is not None:
            word = wrong.selectedText()
            made = [
                menu.addAction(text.replace("&", "&&"), partial(self._replace, wrong, text))
                for text in self._spelling.suggest(word.replace("’", "'"))
            ]
            words = _("Add “{word}” to the dictionary", word=word.replace("&", "&&"))
            made.append(menu.addAction(words, partial(self._spelling.add, word.replace("’", "'"))))
            if usual:
                menu.insertActions(usual[0], made)
                menu.insertSeparator(usual[0])
        menu.addSeparator()
        languages = menu.addMenu(_("Spelling"))
        for tag in ("", *self._spelling.languages):
            action = languages.addAction(_language(tag), partial(self._spelling.choose, tag))
            action.setCheckable(True)
            action.setChecked(tag == self._spelling.language)

    def _replace(self, wrong: QTextCursor, text: str) -> None:
        wrong.insertText(text)


def _language(tag: str) -> str:
    """The name of a language in itself, with its country."""
    if not tag:
        return _("Do not check")
    locale = QLocale(tag)
    if locale.language() == QLocale.Language.C:
        return tag
    return f"{locale.nativeLanguageName()} ({locale.nativeTerritoryName()})"
