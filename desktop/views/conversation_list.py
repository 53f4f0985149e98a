"""The list of chats in the sidebar: date headings, the open chat marked, titles renamed in place."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QAbstractItemModel, QEvent, QModelIndex, QPersistentModelIndex, QPoint, QRect, QSize, Qt, Signal
from PySide6.QtGui import QColor, QContextMenuEvent, QFont, QFontMetrics, QKeyEvent, QPainter, QPalette
from PySide6.QtWidgets import QLineEdit, QListView, QMenu, QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from desktop.items.conversations import GROUP_ROLE, ID_ROLE

__all__ = ["MESSAGE_ROLE", "SNIPPET_ROLE", "ConversationList"]

Index = QModelIndex | QPersistentModelIndex


SNIPPET_ROLE = int(Qt.ItemDataRole.UserRole) + 20
"""The line of text around what a search found; other rows have none."""
MESSAGE_ROLE = int(Qt.ItemDataRole.UserRole) + 21
"""The id of the message a search found; 0 or nothing for a row that stands for a whole conversation."""


class _Painter(QStyledItemDelegate):
    """A row is its heading (where a new group begins), its title, and for a search hit a line of the text around it."""

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        line = QFontMetrics(option.font).height()
        height = line + 14 + (line + 2 if _snippet(index) else 0)
        return QSize(40, height + (line + 16 if self.heading(index) else 0))

    def heading(self, index: Index) -> str:
        """The heading above this row, or ""."""
        group = "" if _snippet(index) else str(index.data(GROUP_ROLE) or "")
        same = index.row() > 0 and index.model().index(index.row() - 1, 0).data(GROUP_ROLE) == group
        return "" if same else group

    def body(self, rect: QRect, index: Index, font: QFont) -> QRect:
        """The part of a row below its heading."""
        return rect.adjusted(0, QFontMetrics(font).height() + 16, 0, 0) if self.heading(index) else rect

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        state, palette = option.state, option.palette
        line = QFontMetrics(option.font).height()
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        heading = self.heading(index)
        muted = palette.color(QPalette.ColorRole.PlaceholderText)
        if heading:
            small = QFont(option.font)
            small.setPointSizeF(option.font.pointSizeF() * 0.88)
            small.setWeight(QFont.Weight.DemiBold)
            painter.setFont(small)
            painter.setPen(muted)
            painter.drawText(option.rect.adjusted(10, 12, -8, 0), Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeft, heading)
        body = self.body(option.rect, index, option.font)
        chosen = bool(state & QStyle.StateFlag.State_Selected)
        if chosen or state & QStyle.StateFlag.State_MouseOver:
            fill = QColor(palette.color(QPalette.ColorRole.Highlight))
            fill.setAlpha(44 if chosen else 16)
            painter.setBrush(fill)
            focused = chosen and bool(state & QStyle.StateFlag.State_HasFocus)
            painter.setPen(palette.color(QPalette.ColorRole.Highlight) if focused else Qt.PenStyle.NoPen)
            painter.drawRoundedRect(body.adjusted(1, 1, -1, -1), 7, 7)
        self._write(painter, option, index, body, line, muted)
        painter.restore()

    def _write(self, painter: QPainter, option: QStyleOptionViewItem, index: Index, body: QRect, line: int, muted: QColor) -> None:
        text = body.adjusted(10, 0, -10, 0)
        metrics = QFontMetrics(option.font)
        painter.setFont(option.font)
        painter.setPen(option.palette.color(QPalette.ColorRole.WindowText))
        snippet = _snippet(index)
        first = QRect(text.left(), text.top() + 6, text.width(), line + 2) if snippet else text
        title = str(index.data(Qt.ItemDataRole.DisplayRole) or "")
        middle = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeading
        painter.drawText(first, middle, metrics.elidedText(title, Qt.TextElideMode.ElideRight, first.width()))
        if snippet:
            painter.setPen(muted)
            second = first.translated(0, line + 2)
            painter.drawText(second, middle, metrics.elidedText(snippet, Qt.TextElideMode.ElideRight, second.width()))


def _snippet(index: Index) -> str:
    return str(index.data(SNIPPET_ROLE) or "")


class ConversationList(QListView):
    """Shows a model with ID_ROLE and GROUP_ROLE (`ConversationsModel`), or with ID_ROLE and SNIPPET_ROLE (search results).

    `opened(id)`, `message_opened(message id)`, `renamed(id, title)`, `delete_requested(id)`.
    """

    opened = Signal(int)
    message_opened = Signal(int)
    renamed = Signal(int, str)
    delete_requested = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("conversations")
        self.setAccessibleName("Chats")
        self.setMouseTracking(True)
        self.setVerticalScrollMode(QListView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setEditTriggers(QListView.EditTrigger.NoEditTriggers)
        self.setResizeMode(QListView.ResizeMode.Adjust)
        self.setLayoutMode(QListView.LayoutMode.Batched)
        self.setBatchSize(200)
        self._painter = _Painter(self)
        self.setItemDelegate(self._painter)
        self._open = 0
        self._renaming: QLineEdit | None = None
        self.clicked.connect(self._chosen)
        self.activated.connect(self._chosen)

    def setModel(self, model: QAbstractItemModel | None) -> None:
        super().setModel(model)
        if model is not None:
            for signal in (model.modelReset, model.rowsInserted, model.rowsRemoved, model.rowsMoved):
                signal.connect(self._mark)
            for signal in (model.rowsRemoved, model.rowsMoved, model.dataChanged):  # a neighbour may get or lose its heading
                signal.connect(self.scheduleDelayedItemsLayout)
        self._mark()

    def set_open(self, conversation: int) -> None:
        """Mark the conversation that the window shows; 0 is none."""
        self._open = conversation
        self._mark()

    def begin_rename(self, conversation: int) -> None:
        """Put a text box over the title of `conversation`, if it is in the list."""
        index = self._find(conversation)
        if not index.isValid():
            return
        self.scrollTo(index)
        box = QLineEdit(str(index.data(Qt.ItemDataRole.EditRole) or ""), self.viewport())
        box.setAccessibleName("Title of the chat")
        box.setGeometry(self._painter.body(self.visualRect(index), index, self.font()).adjusted(2, 2, -2, -2))
        box.selectAll()
        box.show()
        box.setFocus()
        box.installEventFilter(self)
        box.setProperty("conversation", conversation)
        box.editingFinished.connect(self._finish_rename)
        self._renaming = box

    def eventFilter(self, watched: Any, event: QEvent) -> bool:
        """Esc leaves the title as it was, also while it stops replies everywhere else."""
        kinds = (QEvent.Type.KeyPress, QEvent.Type.ShortcutOverride)
        escape = event.type() in kinds and isinstance(event, QKeyEvent) and event.key() == Qt.Key.Key_Escape
        if watched is self._renaming and escape:
            event.accept()
            if event.type() == QEvent.Type.KeyPress:
                self._end_rename()
            return True
        return False

    def _finish_rename(self) -> None:
        box = self._renaming
        if box is not None:
            conversation, title = int(box.property("conversation")), box.text().strip()
            self._end_rename()
            self.renamed.emit(conversation, title)

    def _end_rename(self) -> None:
        box, self._renaming = self._renaming, None
        if box is not None:
            box.deleteLater()
            self.setFocus()

    def _find(self, conversation: int) -> QModelIndex:
        model = self.model()
        for row in range(model.rowCount() if model is not None else 0):
            index = model.index(row, 0)
            if index.data(ID_ROLE) == conversation:
                return index
        return QModelIndex()

    def _mark(self) -> None:
        index = self._find(self._open)
        self.setCurrentIndex(index)
        if not index.isValid():
            self.clearSelection()

    def _chosen(self, index: QModelIndex) -> None:
        message = index.data(MESSAGE_ROLE)
        if message:
            self.message_opened.emit(message)
        else:
            self.opened.emit(index.data(ID_ROLE))

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        by_mouse = event.reason() == QContextMenuEvent.Reason.Mouse
        index = self.indexAt(event.pos()) if by_mouse else self.currentIndex()
        if index.isValid():
            place = event.globalPos() if by_mouse else self.viewport().mapToGlobal(self.visualRect(index).center())
            self.menu_for(index).popup(place + QPoint(1, 1))

    def menu_for(self, index: QModelIndex) -> QMenu:
        """The context menu of a row."""
        conversation = index.data(ID_ROLE)
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction("Open", lambda: self.opened.emit(conversation))
        menu.addAction("Rename\tF2", lambda: self.begin_rename(conversation))
        menu.addSeparator()
        menu.addAction("Delete", lambda: self.delete_requested.emit(conversation))
        return menu
