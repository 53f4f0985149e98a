"""The left pane: new chat, new folder, search, the list of chats, and the trash."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPalette
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QPushButton, QStackedWidget, QVBoxLayout, QWidget

from desktop.items.chats.chat_list import CHAT, ChatListModel
from desktop.services.system.debounce import debounce
from desktop.views.layout.fill import fill
from desktop.views.sidebar.chat_list import ChatListView
from desktop.views.sidebar.search_page import SearchPage
from desktop.views.sidebar.trash_page import TrashPage
from desktop.views.widgets.icons import IconButton, tinted
from desktop.views.widgets.text_label import text_label
from engine.words import _, ngettext

__all__ = ["Sidebar"]

_GAP = "  "
"""Separates a button's text from its icon."""
_SEARCH_MILLISECONDS = 140


class Sidebar(QWidget):
    """Shows `rows`; `list.requests` and `trash` say what the user asks for.

    `new_requested(folder)` for a new chat, 0 for one in no folder; `opened(id)`; `escaped()` for Esc in an
    empty search box and for the button `back` in a narrow window; `searched(query)` after a pause in typing,
    "" if there is nothing to search for; `trash_requested()` when the trash is shown.
    """

    new_requested = Signal(int)
    opened = Signal(int)
    searched = Signal(str)
    escaped = Signal()
    trash_requested = Signal()

    def __init__(self, rows: ChatListModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("sidebar")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setAccessibleName(_("Chats"))
        self._rows = rows
        self._make_head()
        self.list = ChatListView(rows)
        self.list.requests.new_chat.connect(self.new_requested)
        self.search = SearchPage()
        self.results, self.hits = self.search.list, self.search.hits
        self.trash = TrashPage()
        self.nothing = text_label(_("Your chats will appear here."), "muted", wraps=True, plain=True)
        self.nothing.setContentsMargins(10, 10, 10, 10)
        self.nothing.setAlignment(Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeading)
        self.trash_button = QPushButton()
        self.trash_button.setProperty("tone", "entry")
        self.trash_button.clicked.connect(self.show_trash)
        self.pages = QStackedWidget()
        for page in (self.list, self.search, self.nothing, self.trash):
            self.pages.addWidget(page)
        self._arrange()
        for each in (self.list, self.results):
            each.opened.connect(self.opened)
        self.trash.left.connect(self.leave_trash)
        self._timer = debounce(self, self.find_now, _SEARCH_MILLISECONDS)
        self.query.textChanged.connect(lambda: self._timer.start())
        for signal in (rows.modelReset, rows.rowsInserted, rows.rowsRemoved):
            signal.connect(self._choose_page)
        self.show_trash_count(0)
        self._tint()
        self._choose_page()

    def _make_head(self) -> None:
        self.new = QPushButton(_GAP + _("New chat"))
        self.new.setAccessibleName(_("New chat"))
        self.new.clicked.connect(lambda: self.new_requested.emit(0))
        self.new_folder = IconButton("new-folder", _("New folder"))
        self.new_folder.clicked.connect(lambda: self.list.requests.new_folder.emit(0))
        self.back = IconButton("close", _("Back to the chat"))
        self.back.clicked.connect(self.escaped)
        self.back.hide()
        self.query = QLineEdit()
        self.query.setProperty("tone", "search")
        self.query.setPlaceholderText(_("Search chats"))
        self.query.setAccessibleName(_("Search chats"))

    def _arrange(self) -> None:
        layout = QVBoxLayout(self)
        layout.setContentsMargins(12, 12, 7, 8)
        layout.setSpacing(8)
        top = QVBoxLayout()
        top.setContentsMargins(0, 0, 5, 0)
        top.setSpacing(8)
        first = fill(QHBoxLayout(), (self.new, 1), self.new_folder, self.back, spacing=4)
        top.addLayout(first)
        top.addWidget(self.query)
        layout.addLayout(top)
        layout.addWidget(self.pages, 1)
        layout.addWidget(self.trash_button)

    def focus_target(self) -> QWidget:
        """The widget that gets the focus first."""
        return self.list if self.list.isVisible() else self.query

    # -- what is shown

    def set_open(self, conversation: int) -> None:
        """Mark the open conversation; 0 is none. Leaves the trash, and a search that does not contain it."""
        self.list.set_open(conversation)
        self.results.set_open(conversation)
        missed = bool(self.query.text().strip()) and not self.hits.has(conversation)
        hidden = missed or self.pages.currentWidget() is self.trash
        if hidden and self._rows.row_of(CHAT, conversation) >= 0:
            self.show_chats()

    def set_drafts(self, ids: frozenset[int]) -> None:
        """Mark the chats that have a draft."""
        self._rows.set_drafts(ids)

    def show_trash_count(self, count: int) -> None:
        """Show how many chats are in the trash."""
        words = _("Trash  ({count:,})", count=count) if count else _("Trash")
        self.trash_button.setText(_GAP + words)
        self.trash_button.setAccessibleName(
            ngettext("Trash, {n} chat", "Trash, {n} chats", count) if count else _("Trash, empty")
        )

    def begin_rename(self, conversation: int) -> None:
        """Edit the title of a conversation."""
        self.show_chats()
        self.list.begin_rename(conversation)

    def changeEvent(self, event: QEvent) -> None:
        """Follow the theme and the text size."""
        super().changeEvent(event)
        if event.type() in (QEvent.Type.PaletteChange, QEvent.Type.FontChange) and hasattr(
            self, "trash_button"
        ):
            self._tint()

    def _tint(self) -> None:
        colour = self.palette().color(QPalette.ColorRole.WindowText).name()
        side = round(self.fontMetrics().height() * 1.1)
        for button, name in ((self.new, "new-chat"), (self.trash_button, "trash")):
            button.setIcon(tinted(name, colour, colour))
            button.setIconSize(QSize(side, side))

    # -- its pages

    def show_chats(self) -> None:
        """Show all chats: leave the search or the trash."""
        self.query.clear()
        self.find_now()

    def show_trash(self) -> None:
        """Show the trash."""
        self.query.clear()
        self.find_now()
        self.pages.setCurrentWidget(self.trash)
        self.trash_button.hide()
        self.trash_requested.emit()
        (self.trash.list if self.trash.model.rowCount() else self.trash.back).setFocus()

    def leave_trash(self) -> None:
        """Go back from the trash to the chats."""
        self.pages.setCurrentWidget(self.list)
        self._choose_page()
        self.list.setFocus()

    def find_now(self) -> None:
        """Search for the words in the box, or show all chats."""
        self._timer.stop()
        query = self.query.text().strip()
        self.pages.setCurrentWidget(self.search if query else self.list)
        self._choose_page()
        self.searched.emit(query)

    def _choose_page(self) -> None:
        self.trash_button.setVisible(self.pages.currentWidget() is not self.trash)
        if self.pages.currentWidget() in (self.list, self.nothing):
            self.pages.setCurrentWidget(self.list if self._rows.rowCount() else self.nothing)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Esc clears the search box, then leaves the sidebar; Down moves from the box into the list."""
        if event.key() == Qt.Key.Key_Escape:
            if self.query.text():
                self.query.setFocus()
                self.show_chats()
            else:
                self.escaped.emit()
        elif event.key() == Qt.Key.Key_Down and self.query.hasFocus():
            target = self.results if self.query.text().strip() else self.list
            target.setFocus()
            if not target.currentIndex().isValid():
                target.setCurrentIndex(target.model().index(0, 0))
        else:
            super().keyPressEvent(event)
