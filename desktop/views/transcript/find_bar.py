"""The bar for finding words in the open chat: a text box, the number of matches, next, previous, close, and
how many there are in other versions.
"""

from __future__ import annotations

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QFrame, QLabel, QLineEdit, QToolButton, QWidget

from desktop.views.layout.fill import fill
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.icons import IconButton
from engine.words import _, ngettext

__all__ = ["FindBar"]


class FindBar(QFrame):
    """Signals: `changed(str query)` while the user types; `moved(int step)` for the next (1) or previous (-1)
    match; `version_requested()` for a match in another version; `closed()`.
    """

    changed = Signal(str)
    moved = Signal(int)
    version_requested = Signal()
    closed = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("findBar")
        self.setAccessibleName(_("Find in this chat"))
        self.box = QLineEdit(self)
        self.box.setPlaceholderText(_("Find in this chat"))
        self.box.setAccessibleName(_("Text to find in this chat"))
        self.box.setMinimumWidth(self.fontMetrics().horizontalAdvance("x" * 15))
        self.box.textChanged.connect(self.changed)
        self.count = QLabel(self)
        self.count.setProperty("tone", "muted")
        self.count.setMinimumWidth(self.fontMetrics().horizontalAdvance("1,234 of 1,234"))
        self.count.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.previous = IconButton("chevron-up", _("Previous match"), self)
        self.previous.setToolTip(_("Previous match (Shift+Enter)"))
        self.previous.clicked.connect(lambda: self.moved.emit(-1))
        self.next = IconButton("chevron-down", _("Next match"), self)
        self.next.setToolTip(_("Next match (Enter)"))
        self.next.clicked.connect(lambda: self.moved.emit(1))
        self.others = QToolButton(self)
        self.others.setToolTip(_("Show the next match in a version that is not shown"))
        self.others.clicked.connect(self.version_requested)
        self.others.hide()
        self.shut = IconButton("close", _("Close search"), self)
        self.shut.setToolTip(_("Close search (Esc)"))
        self.shut.clicked.connect(self.closed)
        fill(
            FlowLayout(self),
            (self.box, 1),
            self.count,
            self.previous,
            self.next,
            self.others,
            self.shut,
            margins=(6, 5, 6, 5),
            spacing=3,
        )
        self.show_count(0, 0, asked=False)

    def query(self) -> str:
        """The text to find."""
        return self.box.text()

    def begin(self, words: str, focus: bool = True) -> None:
        """Show the bar and, with `focus`, give it the keyboard; `words`, unless empty, replace the last
        query.
        """
        if words:
            with QSignalBlocker(self.box):
                self.box.setText(words)
        self.show()
        if focus:
            self.box.setFocus(Qt.FocusReason.ShortcutFocusReason)
            self.box.selectAll()

    def show_count(self, at: int, count: int, asked: bool) -> None:
        """Show that the current match is number `at` (0 for none) of `count`; `asked` is false without a
        query.
        """
        words = (
            _("{at:,} of {count:,}", at=at, count=count)
            if at
            else _("{count:,} found", count=count)
            if count
            else _("No matches")
            if asked
            else ""
        )
        self.count.setText(words)
        self.count.setAccessibleName(words or _("No search text"))
        self.previous.setEnabled(count > 0)
        self.next.setEnabled(count > 0)

    def show_others(self, count: int) -> None:
        """Show how many matches there are in versions that are not shown."""
        words = ngettext("{n} in another version", "{n} in other versions", count)
        self.others.setText(words)
        self.others.setVisible(count > 0)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.moved.emit(-1 if event.modifiers() & Qt.KeyboardModifier.ShiftModifier else 1)
        elif event.key() == Qt.Key.Key_Escape:
            self.closed.emit()
        else:
            super().keyPressEvent(event)
