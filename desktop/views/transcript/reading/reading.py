"""Opens and closes the reading view of a transcript, and keeps it in step with the messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QPoint, Qt, Slot
from PySide6.QtWidgets import QMenu

from desktop.services.system.debounce import debounce
from desktop.views.transcript.commands import add_message_actions, copy_text
from desktop.views.transcript.parts import TranscriptParts
from engine.words import _

if TYPE_CHECKING:
    from desktop.views.transcript.reading.page import ReadingPage

__all__ = ["Reading"]

_LATER_MS = 500


class Reading(QObject):
    """`page` is made when it is first opened."""

    def __init__(self, parts: TranscriptParts) -> None:
        super().__init__(parts.area)
        self._parts = parts
        self.page: ReadingPage | None = None
        self._later = debounce(self, self._refresh, _LATER_MS)

    @property
    def is_open(self) -> bool:
        """Whether the reading view covers the transcript."""
        return self.page is not None and not self.page.isHidden()

    @Slot()
    def toggle(self) -> None:
        """Read the message at the top of the screen, at the end the last one; or go back to the chat."""
        if self.page is not None and self.is_open:
            self.page.close_page()
            return
        messages = self._parts.messages
        if not messages.all:
            return
        from desktop.views.transcript.reading.page import ReadingPage  # most readers never open it

        if self.page is None:
            self.page = ReadingPage(self._parts.area.viewport())
            self.page.closed.connect(self._closed)
            self.page.menu_requested.connect(self._open_menu)
        bar = self._parts.area.verticalScrollBar()
        index = messages.layout.at(bar.value()) if bar.value() < bar.maximum() - 2 else -1
        found = messages.layout.rows[index].item.id if index >= 0 else messages.all[-1].item.id
        self.page.open(messages.all, messages.style, found, messages.tags)

    @Slot()
    def close(self) -> None:
        """Go back to the chat."""
        if self.page is not None:
            self.page.close_page()

    @Slot()
    def changed(self) -> None:
        """The messages have changed: show them soon."""
        if self.is_open:
            self._later.start()

    def _refresh(self) -> None:
        if self.page is not None and self.is_open:
            self.page.refresh(self._parts.messages.all)

    @Slot(int, QPoint)
    def _open_menu(self, message: int, place: QPoint) -> None:
        page = self.page
        if page is None or not self._parts.messages.rows_of(message):
            return
        menu = QMenu(page)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction(_("Copy"), lambda: copy_text(page.copied()))
        menu.addAction(_("Select all"), page.text.selectAll)
        menu.addSeparator()
        add_message_actions(menu, self._parts, self._parts.messages.message(message).item, self._act)
        menu.popup(place)

    def _act(self, name: str, message: int) -> None:
        """Do it in the chat, which shows what comes of it."""
        if name != "copy":
            self.close()
        self._parts.view.act(name, message)

    @Slot()
    def _closed(self) -> None:
        self._later.stop()
        self._parts.area.setFocus(Qt.FocusReason.OtherFocusReason)
