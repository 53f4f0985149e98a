"""The left pane: a new chat, search in titles and texts, and the list of chats."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from PySide6.QtCore import QAbstractItemModel, QAbstractListModel, QModelIndex, QPersistentModelIndex, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent, QPalette
from PySide6.QtWidgets import QHBoxLayout, QLabel, QLineEdit, QPushButton, QStackedWidget, QVBoxLayout, QWidget

from desktop.items.conversations import ID_ROLE
from desktop.store.records import SearchHit
from desktop.views.conversation_list import MESSAGE_ROLE, SNIPPET_ROLE, ConversationList
from desktop.views.icons import IconButton, tinted

__all__ = ["Sidebar"]

_SEARCH_MILLISECONDS = 180
_NO_PARENT = QModelIndex()


@dataclass(frozen=True)
class Hit:
    """A search result as the list shows it."""

    id: int
    title: str
    snippet: str
    message_id: int


class _HitsModel(QAbstractListModel):
    """The results of a search."""

    def __init__(self) -> None:
        super().__init__()
        self._hits: list[Hit] = []

    def reset(self, hits: Iterable[Hit]) -> None:
        self.beginResetModel()
        self._hits = list(hits)
        self.endResetModel()

    def rowCount(self, parent: QModelIndex | QPersistentModelIndex = _NO_PARENT) -> int:
        return 0 if parent.isValid() else len(self._hits)

    def data(self, index: QModelIndex | QPersistentModelIndex, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if not index.isValid():
            return None
        hit = self._hits[index.row()]
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.EditRole):
            return hit.title
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return f"{hit.title}: {hit.snippet}"
        return {ID_ROLE: hit.id, SNIPPET_ROLE: hit.snippet, MESSAGE_ROLE: hit.message_id}.get(role)


class Sidebar(QWidget):
    """Shows `conversations` (a `ConversationsModel`); `search(query)` finds messages.

    `new_requested()`, `opened(id)`, `message_opened(message id)` for a search hit, `renamed(id, title)`, `delete_requested(id)`,
    `escaped()` for Esc in an empty search box and for the button that `back` is in a narrow window.
    """

    new_requested = Signal()
    opened = Signal(int)
    message_opened = Signal(int)
    renamed = Signal(int, str)
    delete_requested = Signal(int)
    escaped = Signal()

    def __init__(
        self, conversations: QAbstractItemModel, search: Callable[[str], Iterable[SearchHit]], parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setObjectName("sidebar")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setAccessibleName("Chats")
        self._conversations, self._search = conversations, search
        self.new = QPushButton("  New chat")  # the spaces keep the words away from the icon
        self.new.setAccessibleName("New chat")
        self.new.setToolTip("New chat (Ctrl+N)")
        self.new.clicked.connect(self.new_requested)
        self.back = IconButton("close", "Back to the conversation")
        self.back.clicked.connect(self.escaped)
        self.back.hide()
        self.query = QLineEdit()
        self.query.setProperty("tone", "search")
        self.query.setPlaceholderText("Search chats")
        self.query.setAccessibleName("Search chats")
        self.list = ConversationList()
        self.list.setModel(conversations)
        self.hits = _HitsModel()
        self.results = ConversationList()
        self.results.setAccessibleName("Search results")
        self.results.setModel(self.hits)
        self.nothing = QLabel()
        self.nothing.setTextFormat(Qt.TextFormat.PlainText)
        self.nothing.setProperty("tone", "muted")
        self.nothing.setWordWrap(True)
        self.nothing.setContentsMargins(10, 10, 10, 10)
        self.nothing.setAlignment(Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeft)
        self._pages = QStackedWidget()
        for page in (self.list, self.results, self.nothing):
            self._pages.addWidget(page)
        self._arrange()
        for each in (self.list, self.results):
            each.opened.connect(self.opened)
            each.message_opened.connect(self.message_opened)
            each.renamed.connect(self.renamed)
            each.delete_requested.connect(self.delete_requested)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(_SEARCH_MILLISECONDS)
        self._timer.timeout.connect(self.find_now)
        self.query.textChanged.connect(lambda: self._timer.start())
        for signal in (conversations.modelReset, conversations.rowsInserted, conversations.rowsRemoved):
            signal.connect(self.find_now)
        self.fit_text()
        self.find_now()

    def _arrange(self) -> None:
        layout = QVBoxLayout(self)
        layout.setContentsMargins(12, 12, 7, 8)
        layout.setSpacing(8)
        top = QVBoxLayout()
        top.setContentsMargins(0, 0, 5, 0)
        top.setSpacing(8)
        first = QHBoxLayout()
        first.addWidget(self.new, 1)
        first.addWidget(self.back)
        top.addLayout(first)
        top.addWidget(self.query)
        layout.addLayout(top)
        layout.addWidget(self._pages, 1)

    def set_open(self, conversation: int) -> None:
        """Mark the conversation that the window shows; 0 is none."""
        self.list.set_open(conversation)
        self.results.set_open(conversation)

    def begin_rename(self, conversation: int) -> None:
        """Let the user write another title."""
        self.query.clear()
        self.find_now()
        self.list.begin_rename(conversation)

    def fit_text(self) -> None:
        """Follow the theme and the text size."""
        colour = self.palette().color(QPalette.ColorRole.WindowText).name()
        side = round(self.fontMetrics().height() * 1.1)
        self.new.setIcon(tinted("new-chat", colour, colour))
        self.new.setIconSize(QSize(side, side))

    def find_now(self) -> None:
        """Show the results for what stands in the search box, or all chats."""
        self._timer.stop()
        query = self.query.text().strip()
        if not query:
            empty = self._conversations.rowCount() == 0
            self.nothing.setText("Your chats will be here.")
            self._pages.setCurrentWidget(self.nothing if empty else self.list)
            return
        hits = [*self._titles(query), *self._texts(query)]
        self.hits.reset(hits)
        self.nothing.setText(f"No chat contains “{query}”.")
        self._pages.setCurrentWidget(self.results if hits else self.nothing)

    def _titles(self, query: str) -> Iterable[Hit]:
        for row in range(self._conversations.rowCount()):
            index = self._conversations.index(row, 0)
            title = str(index.data(Qt.ItemDataRole.DisplayRole))
            if query.casefold() in title.casefold():
                yield Hit(index.data(ID_ROLE), title, "in the title", 0)

    def _texts(self, query: str) -> Iterable[Hit]:
        for hit in self._search(query):
            if hit.snippet != hit.title:  # else it is the message that gave the chat its title, which is found already
                yield Hit(hit.conversation_id, hit.title, hit.snippet, hit.message_id)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Esc empties the search box, then leaves the sidebar; Down goes from the box into the list."""
        if event.key() == Qt.Key.Key_Escape:
            if self.query.text():
                self.query.clear()
                self.find_now()
            else:
                self.escaped.emit()
        elif event.key() == Qt.Key.Key_Down and self.query.hasFocus():
            (self.results if self.query.text().strip() else self.list).setFocus()
        else:
            super().keyPressEvent(event)
