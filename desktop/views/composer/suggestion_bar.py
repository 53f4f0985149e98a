"""A bar above the composer with a suggestion: attach a long text, shorten what is too long."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QApplication, QBoxLayout, QFrame, QHBoxLayout, QPushButton

from desktop.views.layout.fill import fill
from desktop.views.widgets.icons import IconButton
from desktop.views.widgets.text_label import set_styled, text_label
from engine.words import _

__all__ = ["SuggestionBar"]

_NARROW = 56
"""Characters."""


class SuggestionBar(QFrame):
    """At most one suggestion at a time; `about` names its subject, so that it can be withdrawn. `left()`: it
    is hidden, and had the keyboard, which Qt would give to any button of the window.
    """

    left = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("banner")
        self.about = ""
        self._act: Callable[[], object] | None = None
        self.words = text_label(wraps=True)
        self.button, self.other = QPushButton(), QPushButton()
        self.other.setProperty("tone", "quiet")
        self._act_other: Callable[[], object] | None = None
        self.dismiss = IconButton("close", _("Dismiss this suggestion"))
        self._row = fill(
            QBoxLayout(QBoxLayout.Direction.LeftToRight, self), (self.words, 1), margins=(12, 5, 6, 5)
        )
        self._buttons = fill(QHBoxLayout(), 1, self.other, self.button, self.dismiss)
        self._row.addLayout(self._buttons)
        self.button.clicked.connect(lambda: self._accept(self._act))
        self.other.clicked.connect(lambda: self._accept(self._act_other))
        self.dismiss.clicked.connect(self.hide)
        self.hide()

    def offer(
        self, about: str, words: str, button: str, act: Callable[[], object] | None, level: str = "info",
        other: tuple[str, Callable[[], object]] | None = None,
    ) -> None:  # fmt: skip
        """Show `words`, and a button that calls `act` if given; `other` is the text and the action of a
        second button.
        """
        self.about, self._act = about, act
        words_of_other, self._act_other = other if other is not None else ("", None)
        self.other.setText(words_of_other)
        self.other.setVisible(other is not None)
        set_styled(self, "level", level)
        self.words.setText(words)
        self.setAccessibleName(words)
        self.button.setText(button)
        self.button.setVisible(act is not None)
        self._arrange()
        self.show()

    def setVisible(self, visible: bool) -> None:
        """Show or hide it; hidden with the keyboard inside, it emits `left`."""
        focused = QApplication.focusWidget()
        inside = focused is not None and self.isAncestorOf(focused)
        super().setVisible(visible)
        if inside and not visible:
            self.left.emit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """In a narrow bar the buttons are below the text."""
        super().resizeEvent(event)
        self._arrange()

    def _arrange(self) -> None:
        least = _NARROW * self.fontMetrics().averageCharWidth()
        narrow = self.width() < max(least, 2 * self._buttons.sizeHint().width())
        self._row.setDirection(
            QBoxLayout.Direction.TopToBottom if narrow else QBoxLayout.Direction.LeftToRight
        )

    def withdraw(self, about: str) -> None:
        """Hide it if it is about this."""
        if self.about == about:
            self.hide()

    def _accept(self, act: Callable[[], object] | None) -> None:
        self.hide()
        if act is not None:
            act()
