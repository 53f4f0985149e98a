"""A line above the composer that offers something about the message being written: to attach a long text, to cut what is too long."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QHBoxLayout, QLabel, QPushButton

from desktop.views.icons import IconButton

__all__ = ["OfferBar"]

_NARROW = 56
"""Characters."""


class OfferBar(QFrame):
    """At most one offer at a time; `offer` says what for, so that it can be taken back."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("banner")
        self.about = ""
        self._act: Callable[[], object] | None = None
        self.words = QLabel()
        self.words.setWordWrap(True)
        self.button = QPushButton()
        self.dismiss = IconButton("close", "Dismiss the offer")
        self._row = QBoxLayout(QBoxLayout.Direction.LeftToRight, self)
        self._row.setContentsMargins(12, 5, 6, 5)
        self._row.addWidget(self.words, 1)
        buttons = QHBoxLayout()
        buttons.addStretch(1)
        buttons.addWidget(self.button)
        buttons.addWidget(self.dismiss)
        self._row.addLayout(buttons)
        self.button.clicked.connect(self._accept)
        self.dismiss.clicked.connect(self.hide)
        self.hide()

    def offer(self, about: str, words: str, button: str, act: Callable[[], object] | None, level: str = "info") -> None:
        """Show `words`, and a button that calls `act` if there is one."""
        self.about, self._act = about, act
        self.setProperty("level", level)
        self.style().unpolish(self)
        self.style().polish(self)
        self.words.setText(words)
        self.setAccessibleName(words)
        self.button.setText(button)
        self.button.setVisible(act is not None)
        self.show()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """In little room the buttons stand below the words."""
        super().resizeEvent(event)
        narrow = self.width() < _NARROW * self.fontMetrics().averageCharWidth()
        self._row.setDirection(QBoxLayout.Direction.TopToBottom if narrow else QBoxLayout.Direction.LeftToRight)

    def take_back(self, about: str) -> None:
        """Hide it if it is about this."""
        if self.about == about:
            self.hide()

    def _accept(self) -> None:
        self.hide()
        if self._act is not None:
            self._act()
