"""The sidebar's page of search results: the hits, their number, and a button for more."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QPushButton, QVBoxLayout, QWidget

from desktop.items.chats.search_hits import SearchHitsModel
from desktop.views.sidebar.search_results import SearchResults
from desktop.views.widgets.text_label import text_label
from engine.words import _, ngettext

__all__ = ["SearchPage"]


class SearchPage(QWidget):
    """`more_requested()` asks for another page of hits."""

    more_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.hits = SearchHitsModel(self)
        self.list = SearchResults(self.hits)
        self.state = text_label(tone="muted", wraps=True, plain=True)
        self.state.setContentsMargins(10, 4, 10, 4)
        self.more = QPushButton(_("Show more"))
        self.more.setProperty("tone", "quiet")
        self.more.setAccessibleName(_("Show more results"))
        self.more.clicked.connect(self.more_requested)
        self.more.hide()
        self._column = layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(4)
        layout.addWidget(self.state)
        layout.addWidget(self.list, 1)
        layout.addWidget(self.more)

    def show_state(self, query: str, running: bool, more: bool = False) -> None:
        """Show how far the search is."""
        found = self.hits.rowCount() > 0
        counted = ngettext(
            "{n} message in {chats}",
            "{n} messages in {chats}",
            self.hits.messages,
            chats=ngettext("{n} chat", "{n} chats", self.hits.chats),
        )
        if running:
            words = _("{counted}, still searching…", counted=counted) if found else _("Searching…")
        else:
            words = counted if found else _("No chat contains “{query}”.", query=query)
        self.state.setText(words)
        self.more.setVisible(more)
        self.list.setVisible(found)
        self._column.setAlignment(self.state, Qt.AlignmentFlag(0) if found else Qt.AlignmentFlag.AlignTop)
