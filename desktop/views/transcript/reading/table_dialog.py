"""The cells of a table as a grid of their own."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractButton, QDialog, QTableWidget, QTableWidgetItem, QVBoxLayout, QWidget

from desktop.views.layout.bidi import isolated
from desktop.views.layout.fill import fill
from engine.words import _, ngettext

__all__ = ["TableDialog"]

_WIDEST = 60
"""Average characters of a column: longer texts go on below."""


class TableDialog(QDialog):
    """The cells of a table as a grid, which screen readers read with its row and column; Esc closes it."""

    def __init__(self, cells: Sequence[Sequence[str]], parent: QWidget) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(_("Table"))
        head, rows = cells[0], cells[1:]
        self.table = QTableWidget(len(rows), len(head))
        self.table.setAccessibleName(ngettext("Table with {n} row", "Table with {n} rows", len(rows)))
        self.table.setHorizontalHeaderLabels(list(map(isolated, head)))
        self.table.setEditTriggers(QTableWidget.EditTrigger.NoEditTriggers)
        self.table.setTabKeyNavigation(False)
        self.table.setCornerButtonEnabled(False)
        corner = self.table.findChild(QAbstractButton)  # empty, but Qt shows it to screen readers
        if corner is not None:
            corner.setAccessibleName(_("Corner of the table"))
        for row, values in enumerate(rows):
            for column, value in enumerate(values):
                self.table.setItem(row, column, QTableWidgetItem(isolated(value)))
        self.table.horizontalHeader().setMaximumSectionSize(_WIDEST * self.fontMetrics().averageCharWidth())
        self.table.resizeColumnsToContents()
        self.table.resizeRowsToContents()
        if rows:
            self.table.setCurrentCell(0, 0)
        fill(QVBoxLayout(self), (self.table, 1), margins=(12, 12, 12, 12))
        self.resize(min(640, max(360, parent.width() - 40)), min(420, max(240, parent.height() - 40)))
