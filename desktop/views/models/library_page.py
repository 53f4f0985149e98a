"""The library's first page: search, filter and folders, the table and its details, the progress."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QEvent, QPoint, Qt, Signal
from PySide6.QtGui import QAction, QKeySequence, QResizeEvent
from PySide6.QtWidgets import (
    QBoxLayout,
    QComboBox,
    QLabel,
    QLineEdit,
    QMenu,
    QPushButton,
    QSplitter,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from desktop.items.models.library import LibraryModel
from desktop.items.models.local_models import ModelEntry
from desktop.services.session.chat_session import ChatSession
from desktop.services.system.debounce import debounce
from desktop.views.layout.fill import fill
from desktop.views.models.library_details import LibraryDetails
from desktop.views.models.library_table import LibraryTable
from desktop.views.widgets.combo_box import ComboBox, add_clear_button
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.icons import IconButton
from desktop.views.widgets.menu_button import MenuButton
from desktop.views.widgets.progress_bar import progress_bar
from desktop.views.widgets.text_label import text_label
from engine.words import N_, _, ngettext, translate

__all__ = ["LibraryPage"]

EVERYWHERE = N_("Everywhere")
EMPTY = N_("No models were found on this computer. Add a folder, open a file, or download a model.")
NO_MATCH = N_("No matching models. Change the search, or choose Everywhere.")
SEARCH_MS = 120
_WIDE = 130
"""From this width in characters on, the details are beside the table."""
_NARROW = 80
"""Below this width, the search has a line of its own."""


class LibraryPage(QWidget):
    """Shows `models`.

    Signals: `load_requested(path)`, `unload_requested()`, `stop_requested()`, `show_requested(path)`,
    `remove_requested(path)`, `folder_add_requested()`, `folder_remove_requested(folder)`, `file_requested()`,
    `refresh_requested()`, `restore_requested()` (show removed models again), `get_requested()` (show those to
    download).
    """

    load_requested = Signal(str)
    unload_requested = Signal()
    stop_requested = Signal()
    show_requested = Signal(str)
    remove_requested = Signal(str)
    folder_add_requested = Signal()
    folder_remove_requested = Signal(str)
    file_requested = Signal()
    refresh_requested = Signal()
    restore_requested = Signal()
    get_requested = Signal()

    def __init__(self, session: ChatSession, models: LibraryModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._session, self.models = session, models
        self.table = LibraryTable(models)
        self.details = LibraryDetails(session)
        self.query = QLineEdit()
        self.query.setProperty("tone", "search")
        self.query.setPlaceholderText(_("Search models"))
        self.query.setAccessibleName(_("Search models"))
        add_clear_button(self.query)
        self.source = ComboBox()
        self.source.setAccessibleName(_("Where to look for models"))
        self.source.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
        self.source.addItem(translate(EVERYWHERE))
        self.folders = MenuButton()
        self.folders.setObjectName("more")
        self.folders.setText(_("Folders ▾"))
        self.folders.setAccessibleName(_("Folders to search for models"))
        self.folders.setMenu(QMenu(self))
        self.folders.menu().aboutToShow.connect(self._fill_folders)
        self.open_file = QPushButton(_("Open file…"))
        self.again = IconButton("regenerate", _("Look for models again"))
        self.again.setToolTip(_("Look for models again (F5)"))
        self.nothing = text_label(translate(EMPTY), "muted", wraps=True)
        self.nothing.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.get = QPushButton(_("Get models…"))
        self.get.setProperty("tone", "primary")
        self.count = text_label(tone="muted")
        self.doing = QLabel()
        self.bar = progress_bar(_("Loading the model"))
        self.stop = QPushButton(_("Cancel"))
        self.stop.setAccessibleName(_("Cancel loading"))
        self._wait = debounce(self, self.apply_filter, SEARCH_MS)
        self._lay_out()
        self._connect()
        self.show_searching(False)
        self.show_state(session.state)

    def _lay_out(self) -> None:
        top = self._top = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        top.addWidget(self.query, 1)
        tools = FlowLayout()
        top.addLayout(tools)
        fill(tools, (self.source, 1), self.folders, self.open_file, self.again)
        self._tables = QStackedWidget()
        self._tables.addWidget(self.table)
        self._empty = QWidget()
        center = Qt.AlignmentFlag.AlignCenter
        middle = fill(QVBoxLayout(self._empty), 1, self.nothing, self.get, 1, margins=(0, 0, 0, 0))
        middle.setAlignment(self.get, center)
        self._tables.addWidget(self._empty)
        self.split = QSplitter(Qt.Orientation.Horizontal)
        self.split.setChildrenCollapsible(False)
        self.split.setHandleWidth(1)
        self.split.addWidget(self._tables)
        self.split.addWidget(self.details)
        self.split.setStretchFactor(0, 3)
        self.split.setStretchFactor(1, 2)
        foot = fill(FlowLayout(), self.count, 1, self.doing, (self.bar, 1), self.stop)
        fill(QVBoxLayout(self), top, (self.split, 1), foot, margins=(12, 12, 12, 8))

    def _connect(self) -> None:
        self.query.textChanged.connect(lambda: self._wait.start())
        self.query.returnPressed.connect(self.table.setFocus)
        self.source.activated.connect(lambda: self.apply_filter())
        self.open_file.clicked.connect(self.file_requested)
        self.again.clicked.connect(self.refresh_requested)
        self.get.clicked.connect(self.get_requested)
        self.stop.clicked.connect(self.stop_requested)
        self.table.selected.connect(self._show_details)
        self.table.activated_model.connect(self._load)
        self.table.remove_requested.connect(self.remove_requested)
        self.table.menu_requested.connect(self._open_menu)
        details = self.details
        details.load_requested.connect(self.load_requested)
        details.unload_requested.connect(self.unload_requested)
        details.show_requested.connect(self.show_requested)
        details.remove_requested.connect(self.remove_requested)
        self._session.progress.connect(self._show_progress)
        self._session.state_changed.connect(self.show_state)
        for keys, handler in (("Ctrl+F", self.search), ("F5", self.refresh_requested.emit)):
            action = QAction(self)
            action.setShortcut(QKeySequence(keys))
            action.setShortcutContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
            action.triggered.connect(handler)
            self.addAction(action)

    # -- what is shown

    def refresh(self) -> None:
        """Update the page: the models, or what is known about them, changed."""
        sources = [translate(EVERYWHERE), *self.models.sources()]
        if sources != [self.source.itemText(row) for row in range(self.source.count())]:
            chosen = self.source.currentText()
            self.source.clear()
            self.source.addItems(sources)
            self.source.setCurrentIndex(max(0, self.source.findText(chosen)))
        self.apply_filter()
        self._show_details(self.table.path())

    def apply_filter(self) -> None:
        """Show the models that match the search and the filter."""
        chosen = self.source.currentText()
        self.models.show_matching(
            self.query.text(),
            "" if chosen == translate(EVERYWHERE) else chosen,
            self._session.preferences.hidden_models,
        )
        shown, all_ = self.models.rowCount(), self.models.count
        self._tables.setCurrentWidget(self.table if shown else self._empty)
        self.get.setVisible(not all_ and not self._searching)
        self.details.setVisible(bool(all_))
        self.nothing.setText(
            translate(NO_MATCH) if all_ else _("Looking for models…") if self._searching else translate(EMPTY)
        )
        self._show_count(shown, all_)

    def show_searching(self, searching: bool) -> None:
        """Show whether models are being searched.

        At the end one is selected, if possible the loaded one.
        """
        self._searching = searching
        self.apply_filter()
        if not searching and self.models.rowCount() and not self.table.path():
            self.table.select(self._session.model.path if self._session.model is not None else "")
            if not self.table.path():
                self.table.choose_row(0)

    def show_state(self, state: str) -> None:
        """Show the progress while a model is loaded or released."""
        for widget in (self.doing, self.bar, self.stop):
            widget.setVisible(state == "loading")
        if state != "loading":
            self.doing.setText("")

    def search(self) -> None:
        """Focus the search box."""
        self.query.setFocus()
        self.query.selectAll()

    def _show_count(self, shown: int, all_: int) -> None:
        models = ngettext("{n} model", "{n} models", all_)
        text = models if shown == all_ else _("{shown:,} of {models}", shown=shown, models=models)
        self.count.setText(
            _("{text}, still looking…", text=text) if self._searching else text if all_ else ""
        )

    def _show_progress(self, stage: str, done: int, total: int) -> None:
        if self._session.state == "loading":
            self.doing.setText(stage)
            self.bar.setRange(0, 1000 if total > 1 else 0)
            if total > 1:
                self.bar.setValue(min(1000, done * 1000 // total))

    def _show_details(self, path: str) -> None:
        self.details.show_entry(self.models.entry(path), self.models.fit(path))

    # -- what the user does

    def _load(self, path: str) -> None:
        entry = self.models.entry(path)
        if entry is not None and not entry.trouble:
            self.load_requested.emit(path)

    def _open_menu(self, path: str, point: QPoint) -> None:
        entry = self.models.entry(path)
        if entry is not None:
            menu = self.make_menu(entry)
            menu.aboutToHide.connect(menu.deleteLater)
            menu.popup(point)

    def make_menu(self, entry: ModelEntry) -> QMenu:
        """The context menu of a model."""
        menu = QMenu(self)
        loaded = self._session.model is not None and self._session.model.path == entry.path
        action = menu.addAction(_("Unload") if loaded else _("Load"))
        action.triggered.connect(lambda: self.unload_requested.emit() if loaded else self._load(entry.path))
        action.setEnabled(not entry.trouble)
        menu.addAction(_("Show in folder"), lambda: self.show_requested.emit(entry.path))
        menu.addSeparator()
        menu.addAction(_("Remove from list"), lambda: self.remove_requested.emit(entry.path))
        return menu

    def _fill_folders(self) -> None:
        menu = self.folders.menu()
        menu.clear()
        menu.addAction(_("Add a folder…"), self.folder_add_requested.emit)
        own = self._session.preferences.model_folders
        if own:
            menu.addSection(_("Remove"))
            for folder in own:
                shown = (
                    self.fontMetrics()
                    .elidedText(folder, Qt.TextElideMode.ElideMiddle, 420)
                    .replace("&", "&&")
                )
                menu.addAction(_("Remove {shown}", shown=shown)).triggered.connect(
                    partial(self.folder_remove_requested.emit, folder)
                )
        hidden = len(self._session.preferences.hidden_models)
        if hidden:
            menu.addSeparator()
            menu.addAction(
                ngettext("Restore {n} removed model", "Restore {n} removed models", hidden),
                self.restore_requested.emit,
            )

    # -- room

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The details beside the table if there is room, otherwise below it."""
        super().resizeEvent(event)
        self._arrange()

    def changeEvent(self, event: QEvent) -> None:
        """Follow the text size."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange and hasattr(self, "split"):
            self._arrange()

    def _arrange(self) -> None:
        wide = self.width() >= self.fontMetrics().averageCharWidth() * _WIDE
        narrow = self.width() < self.fontMetrics().averageCharWidth() * _NARROW
        self._top.setDirection(
            QBoxLayout.Direction.TopToBottom if narrow else QBoxLayout.Direction.LeftToRight
        )
        requested = Qt.Orientation.Horizontal if wide else Qt.Orientation.Vertical
        if self.split.orientation() != requested:
            self.split.setOrientation(requested)
            size = self.split.width() if wide else self.split.height()
            self.split.setSizes([size * 3 // 5, size * 2 // 5])
        self.details.setMinimumWidth(self.fontMetrics().averageCharWidth() * 48 if wide else 0)
