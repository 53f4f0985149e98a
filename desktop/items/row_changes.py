"""Changes the rows of a Qt list model with few insertions, removals and moves, so that a view keeps its
place.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import compress, count
from operator import ne
from typing import Protocol, TypeVar

from PySide6.QtCore import QModelIndex

__all__ = ["bring_to"]

MOST_STEPS = 40
"""After more changes than this the model is reset."""
T = TypeVar("T", bound=Hashable)


class _Changes(Protocol):
    """The methods of `QAbstractItemModel` that announce changes."""

    def beginInsertRows(self, parent: QModelIndex, first: int, last: int, /) -> None: ...
    def endInsertRows(self) -> None: ...
    def beginRemoveRows(self, parent: QModelIndex, first: int, last: int, /) -> None: ...
    def endRemoveRows(self) -> None: ...
    def beginMoveRows(
        self, source: QModelIndex, first: int, last: int, target: QModelIndex, row: int, /
    ) -> bool: ...
    def endMoveRows(self) -> None: ...


def bring_to(model: _Changes, rows: list[T], new: list[T]) -> bool:
    """Change `rows`, which belong to `model`, into `new`; each has no row twice.

    Returns True when too much differs, and the caller must reset the model; changes made until then are
    announced.
    """
    if _one_change(model, rows, new):
        return False
    keep = set(new)
    if rows and keep.isdisjoint(rows):
        return True
    steps = _remove(model, rows, keep)
    if steps > MOST_STEPS:
        return True
    place = 0
    present = set(rows)
    while place < len(new):
        if rows[place:] == new[place:]:
            return False
        while place < len(rows) and rows[place] == new[place]:
            place += 1
        steps += 1
        if steps > MOST_STEPS:
            return True
        if new[place] not in present:
            end = place
            while end < len(new) and new[end] not in present:
                end += 1
            model.beginInsertRows(QModelIndex(), place, end - 1)
            rows[place:place] = new[place:end]
            model.endInsertRows()
        elif place + 1 < len(rows) and rows[place + 1] == new[place]:
            target = _target(rows, new, place)
            _move(model, rows, place, target)
        else:
            _move(model, rows, rows.index(new[place], place), place)
    return False


def _one_change(model: _Changes, rows: list[T], new: list[T]) -> bool:
    """Handle the usual changes without visiting each of 10,000 rows: one run of rows is added or removed, or
    one row moves.
    """
    shorter = min(len(rows), len(new))
    first = _common(rows, new, shorter)
    last = _common(reversed(rows), reversed(new), shorter - first)
    end, new_end = len(rows) - last, len(new) - last
    if first == end:
        if first < new_end:
            model.beginInsertRows(QModelIndex(), first, new_end - 1)
            rows[first:first] = new[first:new_end]
            model.endInsertRows()
        return True
    if first == new_end:
        if not new:
            return False
        model.beginRemoveRows(QModelIndex(), first, end - 1)
        del rows[first:end]
        model.endRemoveRows()
        return True
    if end != new_end:
        return False
    if rows[end - 1] == new[first] and rows[first : end - 1] == new[first + 1 : end]:
        _move(model, rows, end - 1, first)
        return True
    if rows[first] == new[end - 1] and rows[first + 1 : end] == new[first : end - 1]:
        _move(model, rows, first, end - 1)
        return True
    return False


def _common(rows: Iterable[T], new: Iterable[T], most: int) -> int:
    """The number of equal rows at the start."""
    return min(most, next(compress(count(), map(ne, rows, new)), most))


def _remove(model: _Changes, rows: list[T], keep: set[T]) -> int:
    """Remove the rows that are not in `keep`; returns the number of steps, `MOST_STEPS` + 1 when there would
    be too many.
    """
    gone = [place for place, row in enumerate(rows) if row not in keep]
    runs: list[list[int]] = []
    for place in gone:
        if runs and runs[-1][1] == place - 1:
            runs[-1][1] = place
        else:
            runs.append([place, place])
    if len(runs) > MOST_STEPS:
        return MOST_STEPS + 1
    for first, last in reversed(runs):
        model.beginRemoveRows(QModelIndex(), first, last)
        del rows[first : last + 1]
        model.endRemoveRows()
    return len(runs)


def _target(rows: list[T], new: list[T], place: int) -> int:
    """The target of the row at `place`, further down: after the present rows that precede it in `new`."""
    before = set(new[: new.index(rows[place])])
    return sum(1 for row in rows if row in before)


def _move(model: _Changes, rows: list[T], old: int, place: int) -> None:
    # Qt counts the target row before the moved row is removed
    model.beginMoveRows(QModelIndex(), old, old, QModelIndex(), place if place < old else place + 1)
    rows.insert(place, rows.pop(old))
    model.endMoveRows()
