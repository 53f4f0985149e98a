"""The emoji picker of the message box: a search by name, and a grid that keys and screen readers can use."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QEvent, QObject, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import (
    QDialog,
    QLineEdit,
    QListView,
    QListWidget,
    QListWidgetItem,
    QVBoxLayout,
    QWidget,
)

from desktop.items.text.emoji import matching
from desktop.views.layout.fill import fill
from desktop.views.layout.spacing import dialog_margins
from desktop.views.widgets.combo_box import add_clear_button
from desktop.views.widgets.text_label import text_label
from engine.words import _

__all__ = ["EmojiPicker"]

_LARGER = 1.5
"""The size of an emoji to that of text."""
_DOWN = (Qt.Key.Key_Down, Qt.Key.Key_PageDown)


class EmojiPicker(QDialog):
    """`chosen(text)`: a click, or Enter in the search or on the grid; it closes then. `recent()` are the
    emoji chosen last, which come first.
    """

    chosen = Signal(str)

    def __init__(self, recent: Callable[[], Sequence[str]], parent: QWidget) -> None:
        super().__init__(parent)
        self._recent = recent
        self.setWindowTitle(_("Insert an emoji"))
        self.query = QLineEdit()
        self.query.setPlaceholderText(_("Search emoji by name"))
        self.query.setAccessibleName(_("Search emoji by name"))
        add_clear_button(self.query)
        self.grid = QListWidget()
        self.grid.setObjectName("emojiGrid")
        self.grid.setAccessibleName(_("Emoji"))
        self.grid.setViewMode(QListView.ViewMode.IconMode)
        self.grid.setMovement(QListView.Movement.Static)
        self.grid.setResizeMode(QListView.ResizeMode.Adjust)
        self.grid.setUniformItemSizes(True)
        self.grid.setTextElideMode(Qt.TextElideMode.ElideNone)  # else dots replace wide ones
        self.grid.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.name = text_label("", "muted", wraps=True, plain=True)
        dialog_margins(fill(QVBoxLayout(self), self.query, (self.grid, 1), self.name))
        self.query.textChanged.connect(self._search)
        self.query.installEventFilter(self)
        self.grid.installEventFilter(self)
        self.grid.currentItemChanged.connect(lambda _now, _before: self._show_name())
        self.grid.itemClicked.connect(lambda _item: self._choose())
        self._size(parent.window().size())

    def _size(self, room: QSize) -> None:
        font, step = self.font(), self.fontMetrics().height()
        font.setPointSizeF(font.pointSizeF() * _LARGER)
        self.grid.setFont(font)
        side = max(28, round(step * _LARGER * 1.6))
        self.grid.setGridSize(QSize(side, side))
        self.resize(min(30 * step, room.width() - 20), min(24 * step, room.height() - 40))

    def open_anew(self) -> None:
        """Show it with an empty search."""
        self.query.clear()
        self._search("")
        self.query.setFocus()
        self.show()
        self.activateWindow()

    def _search(self, query: str) -> None:
        self.grid.clear()
        for emoji in matching(query, self._recent()):
            item = QListWidgetItem(emoji.text)
            item.setToolTip(emoji.name)
            item.setData(Qt.ItemDataRole.AccessibleTextRole, emoji.name)
            item.setTextAlignment(Qt.AlignmentFlag.AlignCenter)
            # without a size of its own, each is as wide as the last one, and wider emoji are not painted
            item.setSizeHint(self.grid.gridSize())
            self.grid.addItem(item)
        self.grid.setCurrentRow(0)
        self._show_name()

    def _show_name(self) -> None:
        item = self.grid.currentItem()
        self.name.setText(item.toolTip() if item is not None else _("No emoji has this name."))

    def _choose(self) -> None:
        item = self.grid.currentItem()
        if item is not None:
            self.accept()
            self.chosen.emit(item.text())

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Enter chooses; Down goes from the search to the grid, and letters go from there to the search."""
        if not isinstance(event, QKeyEvent) or event.type() != QEvent.Type.KeyPress:
            return False
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._choose()
            return True
        if watched is self.query and event.key() in _DOWN:
            self.grid.setFocus()
            return True
        if watched is self.grid and event.text().isprintable() and event.text().strip():
            self.query.setFocus()
            self.query.insert(event.text())
            return True
        return False
