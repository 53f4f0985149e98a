"""Rows become others by few announced changes, and what a view remembers follows each row."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, Qt
from PySide6.QtTest import QAbstractItemModelTester

from desktop.items.row_changes import MOST_STEPS, bring_to

NO_PARENT = QModelIndex()
few = st.lists(st.integers(0, 12), unique=True, max_size=10)


class Numbers(QAbstractListModel):
    """A list of numbers, and each change that it announced, as Qt counts it."""

    def __init__(self, rows: Sequence[int]) -> None:
        super().__init__()
        self.rows, self.changes = list(rows), list[tuple[str | int, ...]]()
        self.rowsInserted.connect(lambda _parent, first, last: self.changes.append(("added", first, last)))
        self.rowsRemoved.connect(lambda _parent, first, last: self.changes.append(("removed", first, last)))
        self.rowsMoved.connect(
            lambda _from, first, last, _to, row: self.changes.append(("moved", first, last, row))
        )
        self.tester = QAbstractItemModelTester(self)

    def rowCount(self, _parent: QModelIndex | QPersistentModelIndex = NO_PARENT) -> int:
        return len(self.rows)

    def data(self, index: QModelIndex | QPersistentModelIndex, role: int = 0) -> int | None:
        return self.rows[index.row()] if role == Qt.ItemDataRole.DisplayRole else None

    def remembered(self) -> dict[int, QPersistentModelIndex]:
        return {row: QPersistentModelIndex(self.index(place)) for place, row in enumerate(self.rows)}


@given(few, few)
def test_every_row_keeps_what_was_remembered_of_it(qapp: object, old: list[int], new: list[int]) -> None:
    model = Numbers(old)
    remembered = model.remembered()
    if bring_to(model, model.rows, new):
        assert not set(old) & set(new)
        return
    assert model.rows == new
    for row, index in remembered.items():
        assert index.isValid() == (row in new)
        if index.isValid():
            assert index.row() == new.index(row)


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ([1, 2, 3], [1, 2, 3], []),
        ([], [1, 2], [("added", 0, 1)]),
        ([1, 2], [1, 5, 6, 2], [("added", 1, 2)]),
        ([1, 2, 3, 4], [1, 4], [("removed", 1, 2)]),
        ([1, 2, 3, 4], [4, 1, 2, 3], [("moved", 3, 3, 0)]),
        ([1, 2, 3, 4], [2, 3, 4, 1], [("moved", 0, 0, 4)]),
        ([1, 2, 3, 4], [2, 1, 3, 4], [("moved", 1, 1, 0)]),
        ([1, 2, 3, 4, 5], [1, 3, 5], [("removed", 3, 3), ("removed", 1, 1)]),
        ([1, 2, 3], [7, 8, 1, 2, 9, 3], [("added", 0, 1), ("added", 4, 4)]),
        ([1, 2, 3, 4, 5, 6], [2, 3, 1, 6, 4, 5], [("moved", 0, 0, 3), ("moved", 5, 5, 3)]),
    ],
)
def test_as_few_changes_as_possible(
    qapp: object, old: list[int], new: list[int], changes: list[tuple[str | int, ...]]
) -> None:
    model = Numbers(old)
    assert not bring_to(model, model.rows, new)
    assert (model.rows, model.changes) == (new, changes)


def test_rows_that_have_nothing_in_common_are_set_anew_at_once(qapp: object) -> None:
    for old, new in (([1, 2], [3, 4]), ([1, 2], [])):
        model = Numbers(old)
        assert bring_to(model, model.rows, new)
        assert (model.rows, model.changes) == (old, [])


@pytest.mark.parametrize("removed", [True, False])
def test_many_changes_are_given_up_for_a_reset(qapp: object, removed: bool) -> None:
    for steps, reset in ((MOST_STEPS, False), (MOST_STEPS + 1, True)):
        every = list(range(2 * steps + 1))
        model = Numbers(every if removed else every[::2])
        new = every[::2] if removed else every
        assert bring_to(model, model.rows, new) == reset
        assert reset or model.rows == new
        assert len(model.changes) == (0 if reset and removed else MOST_STEPS)
