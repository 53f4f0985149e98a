"""Finding words in a notebook, with the bar that chats have."""

from __future__ import annotations

import re

from PySide6.QtCore import QEvent, QObject
from PySide6.QtGui import QTextCursor
from PySide6.QtWidgets import QWidget

from desktop.items.text.text_units import Units
from desktop.services.system.debounce import debounce
from desktop.views.notebook.editor import NotebookEditor
from desktop.views.transcript.find_bar import FindBar

__all__ = ["NotebookFinding"]

_AGAIN_MS = 250
_EDGE = 6


class NotebookFinding(QObject):
    """Searches the text regardless of case, and selects the current match."""

    def __init__(self, editor: NotebookEditor, page: QWidget) -> None:
        super().__init__(page)
        self._editor, self._page = editor, page
        self._bar: FindBar | None = None
        self._places: list[tuple[int, int]] = []
        self._at = -1
        self._again = debounce(self, self._search_again, _AGAIN_MS)
        editor.textChanged.connect(self._changed)
        editor.installEventFilter(self)

    @property
    def is_open(self) -> bool:
        """Whether the bar is shown."""
        return self._bar is not None and not self._bar.isHidden()

    @property
    def places(self) -> list[tuple[int, int]]:
        """The matches, (start, end) in units."""
        return self._places

    def open(self) -> None:
        """Show the bar with the selected words, and give it the keyboard."""
        words = self._editor.textCursor().selectedText()
        self._show(words if "\u2029" not in words and len(words) <= 100 else "", focus=True)
        self._search()

    def go_to(self, character: int, words: str) -> None:
        """Show the bar with `words` and select their match at a character of the text."""
        start = Units(self._editor.text()[:character]).units
        if not words:
            self._editor.put_cursor(start)
            return
        self._show(words, focus=False)
        self._places = self._found()
        self._at = min(
            range(len(self._places)), key=lambda place: abs(self._places[place][0] - start), default=-1
        )
        self._select()

    def close(self) -> None:
        """Close the bar."""
        self._again.stop()
        if self._bar is not None and self.is_open:
            self._bar.hide()
            self._keep_free(0)
            self._editor.setFocus()

    def _show(self, words: str, focus: bool) -> None:
        if self._bar is None:
            self._bar = FindBar(self._page)
            self._bar.changed.connect(self._search)
            self._bar.moved.connect(self._move)
            self._bar.closed.connect(self.close)
        self._bar.begin(words, focus)
        self._place()

    def _found(self) -> list[tuple[int, int]]:
        query = self._bar.query() if self._bar is not None else ""
        if not query:
            return []
        text = self._editor.text()
        units = Units(text)
        spans = (match.span() for match in re.finditer(re.escape(query), text, re.IGNORECASE))
        return [(units.unit(start), units.unit(end)) for start, end in spans]

    def _search(self) -> None:
        """Search for other words: go to the first match after the cursor."""
        here = self._editor.textCursor().selectionStart()
        self._places = self._found()
        self._at = next(
            (place for place, (start, _) in enumerate(self._places) if start >= here),
            0 if self._places else -1,
        )
        self._select()

    def _search_again(self) -> None:
        if self.is_open and self._bar is not None:
            self._places, self._at = self._found(), -1
            self._bar.show_count(0, len(self._places), bool(self._bar.query()))

    def _changed(self) -> None:
        if self.is_open:
            self._again.start()

    def _move(self, step: int) -> None:
        if self._places:
            self._at = (self._at + step) % len(self._places) if self._at >= 0 else 0
            self._select()

    def _select(self) -> None:
        if self._bar is None:
            return
        self._bar.show_count(self._at + 1, len(self._places), bool(self._bar.query()))
        if self._at >= 0:
            start, end = self._places[self._at]
            cursor = QTextCursor(self._editor.document())
            cursor.setPosition(start)
            cursor.setPosition(end, QTextCursor.MoveMode.KeepAnchor)
            self._editor.setTextCursor(cursor)
            self._editor.ensureCursorVisible()

    def _place(self) -> None:
        if self._bar is not None:
            bar = self._editor.verticalScrollBar()
            right = self._page.width() - _EDGE - (bar.width() if bar.isVisible() else 0)
            wide = min(self._bar.sizeHint().width(), right - _EDGE)
            high = self._bar.heightForWidth(wide)
            self._bar.setGeometry(right - wide, _EDGE, wide, high)
            self._bar.raise_()
            self._keep_free(high)

    def _keep_free(self, pixels: int) -> None:
        """Keep room above the text, so that the bar does not cover its first lines."""
        if self._editor.above != pixels:
            self._editor.above = pixels
            self._editor.fit()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize and self.is_open:
            self._place()
        return False
