"""The list of slash commands above the composer: it filters as the user types; its keys work in the box."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import (
    QEvent,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QPoint,
    QRect,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import QFont, QKeyEvent, QPainter, QPalette
from PySide6.QtWidgets import (
    QFrame,
    QListWidget,
    QListWidgetItem,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QVBoxLayout,
)

from desktop.items.commands.slash import Entry, completed
from desktop.views.composer.composer import Composer
from desktop.views.layout.bidi import isolated
from desktop.views.layout.fill import fill
from engine.words import _

__all__ = ["SlashPopup"]

_ENTRY = int(Qt.ItemDataRole.UserRole)
_MOST_ROWS = 8


class SlashPopup(QFrame):
    """Follows the text of `composer`; `find(text)` returns the matching commands.

    `chosen(entry, text)`: Enter or a click.
    """

    chosen = Signal(object, str)

    def __init__(self, composer: Composer, find: Callable[[str], Sequence[Entry]]) -> None:
        super().__init__(composer.window())
        self._composer, self._find, self._dismissed = composer, find, False
        self.setObjectName("slashPopup")
        self.list = QListWidget()
        self.list.setAccessibleName(_("Commands"))
        self.list.setFocusPolicy(Qt.FocusPolicy.TabFocus)  # a click leaves the focus in the box
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setItemDelegate(_Delegate(self.list))
        self.list.itemClicked.connect(lambda item: self._choose(item.data(_ENTRY)))
        fill(QVBoxLayout(self), self.list, margins=(5, 5, 5, 5))
        self.hide()
        composer.box.textChanged.connect(self._follow)
        composer.box.focus_changed.connect(
            lambda focused: None if focused or self.list.hasFocus() else self.hide()
        )
        composer.box.installEventFilter(self)
        self.list.installEventFilter(self)

    def entries(self) -> list[Entry]:
        """The rows that are shown."""
        return [self.list.item(row).data(_ENTRY) for row in range(self.list.count())]

    def _follow(self) -> None:
        text = self._composer.text()
        self._dismissed = self._dismissed and text.startswith("/")
        found = self._find(text) if not self._dismissed and self._composer.box.hasFocus() else ()
        if not found:
            self.hide()
            return
        self.list.clear()
        for entry in found:
            item = QListWidgetItem(f"/{entry.word}")
            item.setData(_ENTRY, entry)
            item.setData(Qt.ItemDataRole.AccessibleTextRole, f"{entry.word}: {entry.words}")
            self.list.addItem(item)
        self.list.setCurrentRow(0)
        self._place()
        self.show()
        self.raise_()

    def _place(self) -> None:
        frame, window = self._composer.frame, self.parentWidget()
        if window is None:
            return
        top = frame.mapTo(window, QPoint(0, 0))
        high = min(self.list.count(), _MOST_ROWS) * self.list.sizeHintForRow(0) + 14
        high = min(high, max(60, top.y() - 60))
        wide = min(frame.width(), 34 * self.fontMetrics().height())
        left = (
            top.x() + frame.width() - wide
            if self.layoutDirection() == Qt.LayoutDirection.RightToLeft
            else top.x()
        )
        self.setGeometry(left, top.y() - high - 6, wide, high)

    def _choose(self, entry: Entry) -> None:
        text = self._composer.text()
        if entry.kind == "text" and not text.partition(" ")[2].strip():
            self._complete(entry)
            return
        self._composer.box.setFocus()
        self.hide()
        self.chosen.emit(entry, text)

    def _complete(self, entry: Entry) -> None:
        self._composer.set_text(completed(entry))
        self._composer.box.setFocus()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Handle the keys of the list while it is visible, in the box and in the list itself."""
        if watched is self.list and event.type() == QEvent.Type.FocusOut:
            if not self._composer.box.hasFocus():
                self.hide()
            return False
        if not self.isVisible() or not isinstance(event, QKeyEvent) or self._composer.box.composing:
            return False
        plain = not event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
        key = event.key()
        if event.type() == QEvent.Type.ShortcutOverride:
            if key == Qt.Key.Key_Escape:
                event.accept()
            return False
        item = self.list.currentItem()
        if event.type() != QEvent.Type.KeyPress or not plain or item is None:
            return False
        if key in (Qt.Key.Key_Up, Qt.Key.Key_Down):
            step = 1 if key == Qt.Key.Key_Down else -1
            self.list.setCurrentRow((self.list.currentRow() + step) % self.list.count())
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._choose(item.data(_ENTRY))
        elif key == Qt.Key.Key_Tab:
            self._complete(item.data(_ENTRY))
        elif key == Qt.Key.Key_Escape:
            self._dismissed = True
            self._composer.box.setFocus()
            self.hide()
        else:
            return False
        return True


class _Delegate(QStyledItemDelegate):
    """Draws the word at the start of the line, and what it does after it."""

    def sizeHint(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> QSize:
        return QSize(100, option.fontMetrics.height() + 12)

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        self.initStyleOption(option, index)
        option.text = ""
        style = option.widget.style()
        style.drawControl(QStyle.ControlElement.CE_ItemViewItem, option, painter, option.widget)
        entry: Entry = index.data(_ENTRY)
        painter.save()
        room = option.rect.adjusted(10, 0, -10, 0)
        word = f"/{entry.word}" + (f" {entry.takes}" if entry.takes else "")
        bold = QFont(option.font)
        bold.setWeight(QFont.Weight.DemiBold)
        painter.setFont(bold)
        painter.setPen(option.palette.color(QPalette.ColorRole.Text))
        shown = painter.fontMetrics().elidedText(word, Qt.TextElideMode.ElideRight, room.width() * 3 // 5)
        wide = painter.fontMetrics().horizontalAdvance(shown)
        side = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignAbsolute
        mirrored = option.direction == Qt.LayoutDirection.RightToLeft
        near = Qt.AlignmentFlag.AlignRight if mirrored else Qt.AlignmentFlag.AlignLeft
        painter.drawText(room, int(side | near), isolated(shown))
        rest = room.adjusted(0, 0, -wide - 14, 0) if mirrored else room.adjusted(wide + 14, 0, 0, 0)
        painter.setFont(option.font)
        painter.setPen(option.palette.color(QPalette.ColorRole.PlaceholderText))
        words = painter.fontMetrics().elidedText(entry.words, Qt.TextElideMode.ElideRight, rest.width())
        painter.drawText(QRect(rest), int(side | near), words)
        painter.restore()
