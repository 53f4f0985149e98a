"""The Preferences window: a search, the list of pages, and the chosen page, or all that a search finds."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import QEvent, QSignalBlocker, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QDialog, QHBoxLayout, QListWidget, QPushButton, QVBoxLayout, QWidget

from desktop.settings import PREFERENCES, preference_page
from desktop.views.layout.fill import fill
from desktop.views.layout.spacing import dialog_margins
from desktop.views.layout.tab_order import TabOrder
from desktop.views.preferences.section import PreferenceSection
from desktop.views.settings.form import SettingsForm
from desktop.views.settings.search import query_words, show_in
from desktop.views.settings.search_line import SearchLine
from desktop.views.widgets.combo_box import ComboBox
from desktop.views.widgets.scroll_area import VerticalScrollArea
from desktop.views.widgets.text_label import set_styled, text_label
from engine.settings import Settings
from engine.words import _, translate

__all__ = ["PreferencesWindow"]

_NARROW = 78
"""In fewer average characters than this, a box above the page takes the place of the list beside it."""
_LIST = 22
"""The width of the list in average characters."""
_CHARACTERS, _LINES = 118, 42
"""The window's size at first."""


class PreferencesWindow(QDialog):
    """Shows `PREFERENCES`, and leaves the chat usable. `labels` are the texts of commands by name.

    `changed(cls, name, value)`, `reset_requested(cls, name)` and `command_requested(name)` are what the user
    does; the owner answers with `show_values`.
    """

    changed = Signal(object, str, object)
    reset_requested = Signal(object, str)
    command_requested = Signal(str)

    def __init__(self, labels: Mapping[str, str], parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("preferences")
        self.setWindowTitle(_("Preferences"))
        self.setSizeGripEnabled(True)
        self.setMinimumSize(300, 260)  # what does not fit is scrolled or wrapped
        self._tabs = TabOrder(self)
        self.query = SearchLine(_("Search preferences"))
        self.list = QListWidget()
        self.list.setAccessibleName(_("Pages"))
        self.list.setProperty("tone", "order")
        self.list.setSpacing(2)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.box = ComboBox()
        self.box.setAccessibleName(_("Page"))
        self.box.setPlaceholderText(_("Search results"))
        self.sections = [PreferenceSection(page, labels) for page in PREFERENCES]
        self._nothing = text_label(_("No matching preferences."), "muted", wraps=True)
        self.shut = QPushButton(_("Close"))
        self.shut.setAutoDefault(False)
        self.shut.clicked.connect(self.close)
        self._lay_out()
        for section in self.sections:
            self.list.addItem(translate(section.page.title))
            self.box.addItem(translate(section.page.title))
            section.command_requested.connect(self.command_requested)
            if section.form is not None:
                self._follow(section.form)
        self.list.currentRowChanged.connect(self.show_page)
        self.box.activated.connect(self.show_page)
        self.query.textChanged.connect(self._search)
        self._page = 0
        metrics, room = self.fontMetrics(), parent.size()
        self.resize(
            min(metrics.averageCharWidth() * _CHARACTERS, room.width()),
            min(metrics.height() * _LINES, room.height()),
        )

    def _lay_out(self) -> None:
        self._body = QWidget()
        self._body.setObjectName("preferencesBody")
        column = fill(QVBoxLayout(self._body), self._nothing, margins=(4, 0, 4, 0), spacing=0)
        for section in self.sections:
            column.addWidget(section)
        column.addStretch(1)
        self._scroll = VerticalScrollArea(self._body)
        middle = fill(QHBoxLayout(), self.list, (self._scroll, 1), spacing=16)
        foot = fill(QHBoxLayout(), 1, self.shut)
        layout = fill(QVBoxLayout(self), self.query, self.box, (middle, 1), foot)
        dialog_margins(layout)

    def _follow(self, form: SettingsForm) -> None:
        form.changed.connect(lambda name, value: self.changed.emit(form.cls, name, value))
        form.reset_requested.connect(lambda name: self.reset_requested.emit(form.cls, name))
        form.row_made.connect(self._tabs.renew)

    # -- what is shown

    @property
    def page(self) -> int:
        """The number of the chosen page; during a search, that of the one before it."""
        return self._page

    def show_page(self, number: int) -> None:
        """Show a page, and end a search."""
        self._page = number
        with QSignalBlocker(self.query):
            self.query.clear()
        self._mark(number)
        self._nothing.hide()
        for place, section in enumerate(self.sections):
            if place == number:
                section.show_found(())
            section.setVisible(place == number)
        self._scroll.verticalScrollBar().setValue(0)
        self._tabs.renew()

    def _mark(self, number: int) -> None:
        """Mark a page as the one that is shown; -1: what is shown is of several pages."""
        with QSignalBlocker(self.list):
            self.list.setCurrentRow(number)
        self.box.setCurrentIndex(number)

    def _search(self, text: str) -> None:
        words = query_words(text)
        if not words:
            self.show_page(self.page)
            return
        self._mark(-1)  # so that each page can be chosen, also the last one
        found = [section.show_found(words) for section in self.sections]
        for section, shown in zip(self.sections, found, strict=True):
            section.setVisible(shown)
        self._nothing.setVisible(not any(found))
        self._scroll.verticalScrollBar().setValue(0)
        self._tabs.renew()

    def forms(self, cls: type[Settings]) -> list[SettingsForm]:
        """The forms with fields of a settings class."""
        return [each.form for each in self.sections if each.form is not None and each.form.cls is cls]

    def section(self, cls: type[Settings], name: str) -> PreferenceSection:
        """The page of a field."""
        return self.sections[preference_page(cls, name)]

    def show_values(self, settings: Settings, sources: dict[str, str]) -> None:
        """Show the values of a settings class, and the source of each as `SettingsForm.show_values`."""
        for form in self.forms(type(settings)):
            form.show_values(settings, sources)

    def reveal(self, number: int, name: str) -> None:
        """Show a page; with the name of a field, scroll to it and focus its editor."""
        self.show_page(number)
        form = self.sections[number].form
        if not name or form is None:
            (self.box if self.list.isHidden() else self.list).setFocus()
            return
        row = form.call(name)
        if row is not None:
            show_in(self._scroll, row, form.control(name))

    # -- the window

    def finish(self) -> None:
        """Emit pending changes now instead of after a pause."""
        for section in self.sections:
            if section.form is not None:
                section.form.finish()

    def done(self, result: int) -> None:
        """Closing it applies what was typed last."""
        self.finish()
        super().done(result)

    def _arrange(self) -> None:
        width = self.fontMetrics().averageCharWidth()
        narrow = self.width() < width * _NARROW
        self.list.setVisible(not narrow)
        self.box.setVisible(narrow)
        for section in self.sections:
            set_styled(section.heading, "tone", "heading" if narrow else "page")
        self.list.setFixedWidth(max(width * _LIST, self.list.sizeHintForColumn(0)) + 20)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The list of pages beside the page if there is room, otherwise a box above it."""
        super().resizeEvent(event)
        self._arrange()

    def changeEvent(self, event: QEvent) -> None:
        """Follow the text size."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange and hasattr(self, "shut"):
            self._arrange()
