"""A Qt list model over plain rows: the common base of this package's list models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from PySide6.QtCore import QAbstractListModel, QModelIndex, QObject, QPersistentModelIndex, Qt

__all__ = ["RowsModel"]

T = TypeVar("T")
_NO_PARENT = QModelIndex()


class RowsModel(QAbstractListModel, Generic[T]):
    """Subclasses override `value`, which says what a row shows."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rows: list[T] = []

    def value(self, row: T, role: int) -> object:
        """What `row` has for an item role; None for a role that it has nothing for."""
        return None

    def rowCount(self, parent: QModelIndex | QPersistentModelIndex = _NO_PARENT) -> int:
        """The number of rows; 0 below a row, because a list has no children."""
        return 0 if parent.isValid() else len(self._rows)

    def data(
        self, index: QModelIndex | QPersistentModelIndex, role: int = Qt.ItemDataRole.DisplayRole
    ) -> object:
        """The `value` of the row at `index`; None for an index that is not in the list."""
        valid = index.isValid() and 0 <= index.row() < len(self._rows)
        return self.value(self._rows[index.row()], role) if valid else None

    def set_rows(self, rows: Iterable[T]) -> None:
        """Show other rows."""
        self.beginResetModel()
        self._rows = list(rows)
        self.endResetModel()

    def insert_rows(self, place: int, rows: Sequence[T]) -> None:
        """Insert `rows`, at least one, before the row `place`."""
        self.beginInsertRows(QModelIndex(), place, place + len(rows) - 1)
        self._rows[place:place] = rows
        self.endInsertRows()

    def remove_rows(self, first: int, last: int) -> None:
        """Take away the rows from `first` to `last`."""
        self.beginRemoveRows(QModelIndex(), first, last)
        del self._rows[first : last + 1]
        self.endRemoveRows()
