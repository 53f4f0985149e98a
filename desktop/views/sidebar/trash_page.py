"""The sidebar's page of deleted chats: restore them, or delete them for good."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QPoint, QSize, Qt, Signal
from PySide6.QtGui import QContextMenuEvent, QFont, QFontMetrics, QKeyEvent, QPainter, QPalette
from PySide6.QtWidgets import (
    QHBoxLayout,
    QListView,
    QMenu,
    QPushButton,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QVBoxLayout,
    QWidget,
)

from desktop.items.chats.conversations import ID_ROLE
from desktop.items.chats.trash import NOTE_ROLE, TrashModel
from desktop.store.conversations.conversations import ConversationSummary
from desktop.views.commands.keymap import native
from desktop.views.layout.fill import fill
from desktop.views.sidebar.item_painting import PAD, background, line
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.icons import IconButton
from desktop.views.widgets.text_label import text_label
from engine.words import N_, _, translate

__all__ = ["TrashPage"]

Index = QModelIndex | QPersistentModelIndex
EMPTY = N_("The trash is empty. Deleted chats are kept here for a while.")


class _Painter(QStyledItemDelegate):
    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(40, QFontMetrics(option.font).height() * 2 + 14)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        background(painter, option)
        high = QFontMetrics(option.font).height()
        first = option.rect.adjusted(PAD, 6, -PAD, 0)
        first.setHeight(high)
        line(painter, option, str(index.data()), first, option.palette.color(QPalette.ColorRole.WindowText))
        small = QFont(option.font)
        small.setPointSizeF(option.font.pointSizeF() * 0.9)
        muted = option.palette.color(QPalette.ColorRole.PlaceholderText)
        line(painter, option, str(index.data(NOTE_ROLE)), first.translated(0, high + 1), muted, small)
        painter.restore()


class _List(QListView):
    def __init__(self, page: TrashPage, model: TrashModel) -> None:
        super().__init__(page)
        self._page = page
        self.setObjectName("conversations")
        self.setAccessibleName(_("Chats in the trash"))
        self.setMouseTracking(True)
        self.setVerticalScrollMode(QListView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSelectionMode(QListView.SelectionMode.ExtendedSelection)
        self.setUniformItemSizes(True)
        self.setItemDelegate(_Painter(self))
        self.setModel(model)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Enter restores; Delete asks whether to delete for good."""
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._page.restore()
        elif event.key() == Qt.Key.Key_Delete:
            self._page.delete()
        else:
            super().keyPressEvent(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        if self.selectedIndexes():
            by_mouse = event.reason() == QContextMenuEvent.Reason.Mouse
            here = self.visualRect(self.currentIndex()).center()
            self.menu().popup(
                (event.globalPos() if by_mouse else self.viewport().mapToGlobal(here)) + QPoint(1, 1)
            )

    def menu(self) -> QMenu:
        """Acts on the whole selection."""
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction(_("Restore"), self._page.restore)
        menu.addSeparator()
        menu.addAction(f"{_('Delete permanently…')}\t{native('Del')}", self._page.delete)
        return menu


class TrashPage(QWidget):
    """`left()` for going back; `restore_requested(ids)`, `delete_requested(ids)`, `empty_requested()`."""

    left = Signal()
    restore_requested = Signal(list)
    delete_requested = Signal(list)
    empty_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName(_("Trash"))
        self.model = TrashModel(self)
        self.back = IconButton("chevron-left", _("Back to chats"))
        self.back.clicked.connect(self.left)
        self.title = text_label(_("Trash"), "heading")
        self.empty = QPushButton(_("Empty"))
        self.empty.setProperty("tone", "quiet")
        self.empty.setAccessibleName(_("Empty trash"))
        self.empty.clicked.connect(self.empty_requested)
        self.list = _List(self, self.model)
        self.nothing = text_label(translate(EMPTY), "muted", wraps=True)
        self.nothing.setContentsMargins(10, 6, 10, 6)
        self.nothing.setAlignment(Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeading)
        self.restore_button = QPushButton(_("Restore"))
        self.restore_button.setAccessibleName(_("Restore the selected chats"))
        self.restore_button.clicked.connect(self.restore)
        self.delete_button = QPushButton(_("Delete…"))
        self.delete_button.setAccessibleName(_("Permanently delete the selected chats"))
        self.delete_button.clicked.connect(self.delete)
        self._arrange()
        self.list.selectionModel().selectionChanged.connect(self._chosen_changed)
        self.show_rows((), 0)

    def _arrange(self) -> None:
        top, foot = QHBoxLayout(), FlowLayout()
        top.addWidget(self.back)
        top.addWidget(self.title, 1)
        top.addWidget(self.empty)
        foot.setContentsMargins(0, 0, 5, 0)
        foot.addWidget(self.restore_button, 1)
        foot.addWidget(self.delete_button, 1)
        fill(QVBoxLayout(self), top, (self.list, 1), (self.nothing, 1), foot, margins=(0, 0, 0, 0), spacing=6)

    def show_rows(self, rows: Sequence[ConversationSummary], keep_days: int) -> None:
        """Show what is in the trash, and for how many days chats are kept there (0: until it is emptied)."""
        self.model.reset(rows, keep_days)
        self.list.setVisible(bool(rows))
        self.nothing.setVisible(not rows)
        self.empty.setEnabled(bool(rows))
        if rows and self.isVisible():
            self.list.setCurrentIndex(self.model.index(0))
        self._chosen_changed()

    def chosen(self) -> list[int]:
        """The ids of the selected chats, in the order of the list."""
        return [index.data(ID_ROLE) for index in sorted(self.list.selectedIndexes(), key=QModelIndex.row)]

    def restore(self) -> None:
        """Request that the selected chats are restored."""
        if self.chosen():
            self.restore_requested.emit(self.chosen())

    def delete(self) -> None:
        """Request that the selected chats are deleted for good."""
        if self.chosen():
            self.delete_requested.emit(self.chosen())

    def _chosen_changed(self) -> None:
        for button in (self.restore_button, self.delete_button):
            button.setEnabled(bool(self.list.selectedIndexes()))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.left.emit()
        else:
            super().keyPressEvent(event)
