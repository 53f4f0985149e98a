"""The sidebar's list of pinned chats, folders and dated chats, with selection, keyboard and dragging."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import (
    QEvent,
    QItemSelectionModel,
    QModelIndex,
    QPersistentModelIndex,
    QPoint,
    QRect,
    Qt,
    Signal,
)
from PySide6.QtGui import (
    QContextMenuEvent,
    QDragEnterEvent,
    QDragLeaveEvent,
    QDragMoveEvent,
    QDropEvent,
    QGuiApplication,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPalette,
    QPen,
)  # fmt: skip
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QMenu, QStyle, QTableView, QWidget

from desktop.items.chats.chat_list import (
    CHAT,
    FOLDER,
    FOLDER_ROLE,
    KIND_ROLE,
    PINNED_ROLE,
    ChatListModel,
    dragged,
)
from desktop.items.chats.conversations import ID_ROLE
from desktop.services.system.debounce import debounce
from desktop.views.sidebar.context_menu import fill_menu
from desktop.views.sidebar.delegate import ChatListDelegate
from desktop.views.sidebar.drop_targets import Landing, land
from desktop.views.sidebar.inline_title_edit import InlineTitleEdit
from desktop.views.sidebar.requests import ChatListRequests
from desktop.views.widgets.keys import claims
from engine.words import _

__all__ = ["ChatListView"]

Index = QModelIndex | QPersistentModelIndex
OPEN_AFTER_MS = 700
"""How long something is held over a closed folder before it opens."""
_SEVERAL = Qt.KeyboardModifier.ShiftModifier | Qt.KeyboardModifier.ControlModifier


class ChatListView(QTableView):
    """Shows a `ChatListModel`, and changes nothing itself: what the user asks for goes out by `requests`.

    A table of one column: Qt's list asks for every row again after each change, 20 ms for 10,000 of them.
    """

    opened = Signal(int)
    renamed = Signal(int, str)
    folder_renamed = Signal(int, str)

    def __init__(self, model: ChatListModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("conversations")
        self.setAccessibleName(_("Chats"))
        self.setMouseTracking(True)
        self.setVerticalScrollMode(QTableView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setEditTriggers(QTableView.EditTrigger.NoEditTriggers)
        self.setSelectionMode(QTableView.SelectionMode.ExtendedSelection)
        self.setSelectionBehavior(QTableView.SelectionBehavior.SelectRows)
        self.setShowGrid(False)
        self.setTabKeyNavigation(False)
        self.setCornerButtonEnabled(False)
        self.setWordWrap(False)
        self.horizontalHeader().hide()
        self.horizontalHeader().setMinimumSectionSize(1)
        self.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Stretch)
        self.verticalHeader().hide()
        self.verticalHeader().setMinimumSectionSize(1)
        self.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        self.setDragDropMode(QTableView.DragDropMode.DragDrop)
        self.setDefaultDropAction(Qt.DropAction.MoveAction)
        self.requests = ChatListRequests(self)
        self._painter = ChatListDelegate(self)
        self.setItemDelegate(self._painter)
        self._landing: Landing | None = None
        self._writes_over: tuple[str, int, InlineTitleEdit] | None = None
        self._hold = debounce(self, self._open_held, OPEN_AFTER_MS)
        self._chat_list = model
        self._fit_rows()
        self.setModel(model)
        for signal in (model.modelReset, model.rowsInserted, model.rowsRemoved, model.rowsMoved):
            signal.connect(self._mark)
        self.clicked.connect(self._clicked)
        self.requests.open.connect(self.opened)
        self.requests.begin_rename.connect(self.begin_rename)
        self.requests.begin_rename_folder.connect(self.begin_rename_folder)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange) and hasattr(self, "_painter"):
            self._fit_rows()

    def _fit_rows(self) -> None:
        """Make all rows as high as the text needs."""
        self.verticalHeader().setDefaultSectionSize(self._painter.height(self.font()))

    def chat_list(self) -> ChatListModel:
        """The model."""
        return self._chat_list

    def set_open(self, conversation: int) -> None:
        """Mark the conversation that the window shows; 0 is none. A selection of several chats that contains
        it stays.
        """
        self._painter.opened = conversation
        if len(self.chosen()) <= 1 or conversation not in self.chosen():
            self._choose(self._chat_list.index(self._chat_list.row_of(CHAT, conversation)))
        self.viewport().update()

    def _choose(self, index: QModelIndex) -> None:
        """Select only this row: `setCurrentIndex` would respect pressed keys, such as the Ctrl of Ctrl+N."""
        flag = QItemSelectionModel.SelectionFlag
        self.selectionModel().setCurrentIndex(index, flag.ClearAndSelect | flag.Rows)

    def chosen(self) -> list[int]:
        """The ids of the selected chats, in the order of the list."""
        selection = self.selectionModel().selection()
        ranges = sorted(
            (selection.at(place).top(), selection.at(place).bottom()) for place in range(selection.count())
        )
        rows = self._chat_list.shown()
        return [row.number for first, last in ranges for row in rows[first : last + 1] if row.kind == CHAT]

    def begin_rename(self, conversation: int) -> None:
        """Put a text box over the title of `conversation`, if it is in the list."""
        self._write_over(CHAT, conversation)

    def begin_rename_folder(self, folder: int) -> None:
        """Put a text box over the name of a folder."""
        self._write_over(FOLDER, folder)

    def _write_over(self, kind: str, number: int) -> None:
        index = self._chat_list.index(self._chat_list.row_of(kind, number))
        if not index.isValid():
            return
        self.scrollTo(index)
        if self._writes_over is not None:
            self._writes_over[2].leave()
        done = self.renamed if kind == CHAT else self.folder_renamed
        name = _("Title of the chat") if kind == CHAT else _("Name of the folder")
        text = str(index.data(Qt.ItemDataRole.EditRole) or "")
        box = InlineTitleEdit(self, self._place_of(index), text, name, lambda text: done.emit(number, text))
        self._writes_over = (kind, number, box)
        box.ended.connect(self._box_ended)

    def _place_of(self, index: QModelIndex) -> QRect:
        """The rectangle in which a row's title is edited."""
        rect = self.visualRect(index)
        words = self._painter.words(rect, index, self.font())
        return QStyle.visualRect(self.layoutDirection(), rect, words.adjusted(-8, 2, 8, -2))

    def _box_ended(self) -> None:
        self._writes_over = None

    def _keep_box(self) -> None:
        """The title editor moves with its row, and disappears with it."""
        if self._writes_over is not None:
            kind, number, box = self._writes_over
            index = self._chat_list.index(self._chat_list.row_of(kind, number))
            if index.isValid():
                box.setGeometry(self._place_of(index))
            else:
                box.leave()

    def _mark(self) -> None:
        """The list changed: if nothing is selected, select the open chat."""
        self._keep_box()
        if not self.selectionModel().hasSelection():
            index = self._chat_list.index(self._chat_list.row_of(CHAT, self._painter.opened))
            if index.isValid():
                place = self.verticalScrollBar().value()
                self._choose(index)
                self.verticalScrollBar().setValue(place)

    # -- the mouse

    def _clicked(self, index: QModelIndex) -> None:
        if QGuiApplication.keyboardModifiers() & _SEVERAL:
            return
        if index.data(KIND_ROLE) == FOLDER:
            self._toggle(index)
        elif index.data(KIND_ROLE) == CHAT:
            self.opened.emit(index.data(ID_ROLE))

    def _toggle(self, index: Index) -> None:
        number = index.data(FOLDER_ROLE)
        self.requests.open_folder.emit(number, number not in self._chat_list.open_folders)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        """The first click has opened the folder already: a double click does not close it again."""
        event.accept()

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        by_mouse = event.reason() == QContextMenuEvent.Reason.Mouse
        index = self.indexAt(event.pos()) if by_mouse else self.currentIndex()
        place = (
            event.globalPos() if by_mouse else self.viewport().mapToGlobal(self.visualRect(index).center())
        )
        self.menu_for(index).popup(place + QPoint(1, 1))

    def menu_for(self, index: QModelIndex) -> QMenu:
        """The context menu of a row, for the whole selection if the row is part of it; for the empty space if
        the index is invalid.
        """
        kind, number = index.data(KIND_ROLE), index.data(FOLDER_ROLE) or 0
        chats = self.chosen() if index.isValid() and self.selectionModel().isSelected(index) else []
        if kind == CHAT and index.data(ID_ROLE) not in chats:
            chats = [index.data(ID_ROLE)]
        pinned = [
            bool(self._chat_list.index(self._chat_list.row_of(CHAT, chat)).data(PINNED_ROLE))
            for chat in chats
        ]
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        fill_menu(menu, self.requests, self._chat_list, (str(kind), number), chats, all(pinned))
        return menu

    # -- the keyboard

    def event(self, event: QEvent) -> bool:
        """F2 renames the selected row, not the open chat."""
        return claims(event, Qt.Key.Key_F2) or super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        index, key = self.currentIndex(), event.key()
        kind = index.data(KIND_ROLE)
        mirrored = self.layoutDirection() == Qt.LayoutDirection.RightToLeft
        inward, outward = (
            (Qt.Key.Key_Left, Qt.Key.Key_Right) if mirrored else (Qt.Key.Key_Right, Qt.Key.Key_Left)
        )
        if key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._toggle(index) if kind == FOLDER else self.opened.emit(
                index.data(ID_ROLE)
            ) if kind == CHAT else None
        elif key == Qt.Key.Key_F2:
            self.begin_rename_folder(index.data(FOLDER_ROLE)) if kind == FOLDER else self.begin_rename(
                index.data(ID_ROLE) or 0
            )
        elif key == Qt.Key.Key_Delete:
            self._delete(index)
        elif key in (Qt.Key.Key_Home, Qt.Key.Key_End):  # Of the list, not of the row.
            super().keyPressEvent(
                QKeyEvent(event.type(), key, event.modifiers() | Qt.KeyboardModifier.ControlModifier)
            )
        elif key == inward and kind == FOLDER:
            if index.data(FOLDER_ROLE) not in self._chat_list.open_folders:
                self._toggle(index)
        elif key == outward:
            self._outward(index)
        else:
            super().keyPressEvent(event)

    def _delete(self, index: Index) -> None:
        chats = self.chosen()
        if chats:
            self.requests.delete.emit(chats)
        elif index.data(KIND_ROLE) == FOLDER:
            self.requests.remove_folder.emit(index.data(FOLDER_ROLE))

    def _outward(self, index: Index) -> None:
        """Close the folder, or go to its parent."""
        if not index.isValid():
            return
        if index.data(KIND_ROLE) == FOLDER and index.data(FOLDER_ROLE) in self._chat_list.open_folders:
            self._toggle(index)
            return
        rows = self._chat_list.shown()
        here = rows[index.row()]
        above = next(
            (
                at
                for at in range(index.row(), -1, -1)
                if rows[at].kind == FOLDER and rows[at].depth < here.depth
            ),
            -1,
        )
        if above >= 0:
            self._choose(self._chat_list.index(above))

    # -- dragging

    def _land(self, event: QDropEvent) -> Landing | None:
        chats, folders = dragged(event.mimeData())
        point = event.position().toPoint()
        index = self.indexAt(point)
        rect = self.visualRect(index)
        share = (point.y() - rect.top()) / max(1, rect.height())
        return land(self._chat_list, index.row(), share, chats, folders)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        self.setState(QAbstractItemView.State.DraggingState)
        self.dragMoveEvent(event)

    def dragMoveEvent(self, event: QDragMoveEvent) -> None:
        """Show where a drop would land; the list scrolls near its ends."""
        if event.mimeData().urls():  # A dragged file is for the window.
            event.ignore()
            return
        super().dragMoveEvent(event)
        self._show_landing(self._land(event))
        event.setAccepted(self._landing is not None)

    def dragLeaveEvent(self, event: QDragLeaveEvent) -> None:
        super().dragLeaveEvent(event)
        self._show_landing(None)

    def dropEvent(self, event: QDropEvent) -> None:
        landing, (chats, folders) = self._land(event), dragged(event.mimeData())
        self._show_landing(None)
        self.setState(QAbstractItemView.State.NoState)
        if landing is None:
            event.ignore()
            return
        event.acceptProposedAction()
        self._drop(landing, chats, folders)

    def _drop(self, landing: Landing, chats: Sequence[int], folders: Sequence[int]) -> None:
        if folders:
            self.requests.move_folder.emit(folders[0], landing.folder, landing.position)
        elif landing.action == "pin":
            self.requests.pin.emit(list(chats), True)
        elif landing.folder:
            self.requests.move.emit(list(chats), landing.folder)
        else:
            self.requests.move_out.emit(list(chats))

    def _show_landing(self, landing: Landing | None) -> None:
        if landing != self._landing:
            self._landing = landing
            self._painter.target = landing.row if landing is not None and not landing.edge else -1
            self._hold.start()
            self.viewport().update()

    def _open_held(self) -> None:
        landing = self._landing
        if (
            landing is not None
            and landing.folder
            and not landing.edge
            and landing.folder not in self._chat_list.open_folders
        ):
            self.requests.open_folder.emit(landing.folder, True)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint the rows, and a line between two folders where a drop would land; a ring around the list if
        it has the focus and no row is current.
        """
        super().paintEvent(event)
        landing, accent = self._landing, QPen(self.palette().color(QPalette.ColorRole.Accent), 2)
        if self.hasFocus() and not self.currentIndex().isValid():
            painter = QPainter(self.viewport())
            painter.setPen(accent)
            painter.drawRect(self.viewport().rect().adjusted(1, 1, -1, -1))
            painter.end()
        if landing is not None and landing.edge:
            rect = self.visualRect(self._chat_list.index(landing.row))
            y = rect.top() if landing.edge < 0 else rect.bottom()
            painter = QPainter(self.viewport())
            painter.setPen(accent)
            painter.drawLine(rect.left() + 8, y, rect.right() - 8, y)
            painter.end()
