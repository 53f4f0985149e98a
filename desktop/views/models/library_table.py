"""The table of models: it asks only for visible rows, and uses the palette's colours."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QModelIndex, QPersistentModelIndex, Qt, Signal
from PySide6.QtGui import QContextMenuEvent, QGuiApplication, QKeyEvent, QPainter, QPalette, QResizeEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTableView,
    QWidget,
)

from desktop.items.models.library import (
    ARCHITECTURE,
    BITS,
    COLUMNS,
    CONTEXT,
    ENTRY_ROLE,
    FORMAT,
    LICENCE,
    MEMORY,
    NAME,
    QUANTISATION,
    SIZE,
    SPEED,
    TEMPLATE,
    TONE_ROLE,
    WHERE,
    LibraryModel,
)
from desktop.items.models.local_models import ModelEntry
from desktop.views.layout.bidi import isolated
from engine.words import N_, _, translate

__all__ = ["LibraryTable"]

_SAMPLES = (
    "Mistral-Small-24B-Instruct-Q4_K_M  (loaded)", N_("Too large, 123.4 GB"), N_("≈ {number:,g} tokens/s"),
    "123.4 GB", "Q4_K_M, Q6_K", "16.0", "1,048,576", "qwen3moe 235 B", "Safetensors", N_("Yes"), "Apache-2.0",
    "Hugging Face cache",
)  # fmt: skip
"""The text that each column has room for, besides its title."""
_SHORT_NAME = "Mistral-Small-24B"
"""The least width of the name column, in characters."""
_WITH_SHORT_NAMES = 3
"""The name column is narrowed for this many other columns; the others need room beside its full width."""
_BY_IMPORTANCE = (
    MEMORY,
    SIZE,
    SPEED,
    QUANTISATION,
    CONTEXT,
    ARCHITECTURE,
    WHERE,
    LICENCE,
    FORMAT,
    BITS,
    TEMPLATE,
)
"""Columns are hidden from the end of this list if there is no room; the details show all values."""
_MARGIN = 9
_TONES = {"danger": QPalette.ColorRole.BrightText, "muted": QPalette.ColorRole.PlaceholderText}


class _Cells(QStyledItemDelegate):
    """Draws a cell as one elided text in the colour of its tone; the text says the same.

    The style's own drawing asks the model nine questions per cell and runs the style sheet each time: a frame
    took twice as long.
    """

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        palette: QPalette = option.palette
        selected = bool(option.state & QStyle.StateFlag.State_Selected)
        if selected:
            painter.fillRect(option.rect, palette.color(QPalette.ColorRole.Highlight))
        text = index.data()
        if not text:
            return
        if selected:
            colour = palette.color(QPalette.ColorRole.HighlightedText)
        else:
            # The application's own colours: style sheets make the view's paler for empty
            # places.
            colour = QGuiApplication.palette().color(
                _TONES.get(index.data(TONE_ROLE), QPalette.ColorRole.Text)
            )
        painter.setPen(colour)
        room = option.rect.adjusted(_MARGIN, 0, -_MARGIN, 0)
        shown = option.fontMetrics.elidedText(text, Qt.TextElideMode.ElideMiddle, room.width())
        painter.drawText(room, int(index.data(Qt.ItemDataRole.TextAlignmentRole)), isolated(shown))


class LibraryTable(QTableView):
    """One model is selected at a time.

    `selected(path)` ("" for none), `activated_model(path)` for Enter and a double click,
    `menu_requested(path, point)` with a global point, `remove_requested(path)` for Delete.
    """

    selected = Signal(str)
    activated_model = Signal(str)
    menu_requested = Signal(str, object)
    remove_requested = Signal(str)

    def __init__(self, models: LibraryModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._models = models
        self._was = ""
        self._wide: dict[int, int] = {}
        self._fitting = False
        self.setObjectName("library")
        self.setAccessibleName(_("Models on this computer"))
        self.setModel(models)
        self.setItemDelegate(_Cells(self))
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setTabKeyNavigation(False)  # Tab leaves the table, arrows move in it.
        self.setShowGrid(False)
        self.setWordWrap(False)
        self.setSortingEnabled(True)
        self.verticalHeader().hide()
        header = self.horizontalHeader()
        header.setSectionsMovable(True)
        header.setHighlightSections(False)
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        header.setMinimumSectionSize(1)
        header.sectionResized.connect(self._resized)
        self.sortByColumn(0, Qt.SortOrder.AscendingOrder)
        self.selectionModel().currentRowChanged.connect(
            lambda now, _before: self.selected.emit(self._path(now))
        )
        self.doubleClicked.connect(lambda index: self.activated_model.emit(self._path(index)))
        models.modelAboutToBeReset.connect(self._remember)
        models.modelReset.connect(self._recall)
        self.fit_text()

    def fit_text(self) -> None:
        """Follow the text size."""
        metrics = self.fontMetrics()
        self.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        self.verticalHeader().setDefaultSectionSize(round(metrics.height() * 1.75))
        sign = 2 * metrics.height()  # It shows the sort order, and the header's own edges.
        samples = (translate(sample, number=1200) for sample in _SAMPLES)
        for column, (title, sample) in enumerate(zip(map(translate, COLUMNS), samples, strict=True)):
            header = self.horizontalHeader().fontMetrics().horizontalAdvance(title) + sign
            self._wide[column] = max(header, metrics.horizontalAdvance(sample) + 2 * _MARGIN + 4)
            self.setColumnWidth(column, self._wide[column])
        if self.isVisible():
            self._fit_columns()

    def _fit_columns(self) -> None:
        """Show the columns that fit beside the name, which gets the rest: nothing scrolls sideways."""
        short = self.fontMetrics().horizontalAdvance(_SHORT_NAME) + 2 * _MARGIN
        left = self.viewport().width()
        self._fitting = True
        for place, column in enumerate(_BY_IMPORTANCE):
            name = min(short, self._wide[NAME]) if place < _WITH_SHORT_NAMES else self._wide[NAME]
            fits = self._wide[column] <= left - name
            self.setColumnHidden(column, not fits)
            if fits:
                self.setColumnWidth(column, self._wide[column])
                left -= self._wide[column]
        self.setColumnWidth(NAME, max(1, left))
        self._fitting = False

    def _resized(self, column: int, _before: int, now: int) -> None:
        """A width that the user set stays."""
        if not self._fitting and now:
            self._wide[column] = now

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_columns()

    def path(self) -> str:
        """The path of the selected model; empty for none."""
        return self._path(self.currentIndex())

    def select(self, path: str) -> None:
        """Select the model at `path`, if it is shown."""
        row = self._models.row_of(path)
        if row >= 0:
            self.choose_row(row)
            self.scrollTo(self._models.index(row, 0))

    def choose_row(self, row: int) -> None:
        """Select a row without scrolling sideways; `selectRow` finds no column if the table is mirrored."""
        edge = self.viewport().width() - 1 if self.isRightToLeft() else 0
        self.setCurrentIndex(self._models.index(row, max(0, self.horizontalHeader().logicalIndexAt(edge))))

    def _remember(self) -> None:
        self._was = self.path()

    def _recall(self) -> None:
        """The rows changed: keep the selected model, if it is still shown, and the scroll position."""
        row = self._models.row_of(self._was) if self._was else -1
        if row >= 0:
            place = self.verticalScrollBar().value()
            self.choose_row(row)
            self.verticalScrollBar().setValue(place)
        elif self._was:
            self.selected.emit("")

    def _path(self, index: QModelIndex) -> str:
        entry = index.data(ENTRY_ROLE) if index.isValid() else None
        return entry.path if isinstance(entry, ModelEntry) else ""

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Enter loads, Delete removes from the list."""
        path = self.path()
        if path and event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.activated_model.emit(path)
        elif path and event.key() == Qt.Key.Key_Delete:
            self.remove_requested.emit(path)
        else:
            super().keyPressEvent(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        """The same actions as beside the table."""
        index = (
            self.indexAt(event.pos())
            if event.reason() == QContextMenuEvent.Reason.Mouse
            else self.currentIndex()
        )
        if self._path(index):
            at = self.viewport().mapToGlobal(self.visualRect(index).center())
            self.menu_requested.emit(
                self._path(index),
                event.globalPos() if event.reason() == QContextMenuEvent.Reason.Mouse else at,
            )

    def changeEvent(self, event: QEvent) -> None:
        """Follow the text size."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange:
            self.fit_text()
