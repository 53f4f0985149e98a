"""The rows that exist as widgets: those near the screen, with widgets from a pool."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from PySide6.QtCore import QRect, Qt
from PySide6.QtWidgets import QWidget

from desktop.views.transcript.row_layout import RowLayout
from desktop.views.transcript.row_widgets.base import RowWidget
from desktop.views.transcript.rows import Row, RowKind
from desktop.views.transcript.style import Style

__all__ = ["EFFORT", "SCROLLING_EFFORT", "Arrangement", "Column", "RowPool"]

_SPARE = 12
_STOCK = {
    RowKind.TEXT: 6, RowKind.CODE: 3, RowKind.FOOTER: 3, RowKind.HEADER: 3, RowKind.TABLE: 2,
    RowKind.BUBBLE: 2, RowKind.MATH: 2,
}  # fmt: skip
"""Widgets of each kind that are made before the reader scrolls to such rows."""
EFFORT = 8_000
"""Microseconds of work on rows in one frame, as estimated by `RowLayout.effort`; a single row may take more.
"""
SCROLLING_EFFORT = 4_000
"""The same while the reader scrolls, when every frame brings new rows and must be painted in time."""


class Column(NamedTuple):
    """The column of rows in the viewport: `left` and `width` of the column, `height` of the viewport,
    `foot` free below the last row.
    """

    left: int
    width: int
    height: int
    foot: int


class Arrangement(NamedTuple):
    """Rows in their column: `scroll()` is the scroll position that is asked for, `pinned()` the rows whose
    widgets live on off the screen, `held` the row that stays in place (None for the last), `most` the
    microseconds of work that may be done. `split(rows)` gives whole messages among them rows of their own;
    it returns whether there were any.
    """

    layout: RowLayout
    style: Style
    column: Column
    scroll: Callable[[], int]
    pinned: Callable[[], Collection[Row]]
    split: Callable[[Iterable[Row]], bool]
    held: Row | None = None
    most: int = EFFORT


class RowPool:
    """Owns the live row widgets.

    `make(kind)` builds one; released widgets are reused for rows of the same kind. `scroll(dx, dy)` moves all
    of them with their pixels, which costs much less than painting them at another place.
    """

    def __init__(self, make: Callable[[RowKind], RowWidget], scroll: Callable[[int, int], object]) -> None:
        self._make, self._scroll = make, scroll
        self.live: dict[Row, RowWidget] = {}
        self._spare: dict[RowKind, list[RowWidget]] = {}
        self._width = 0
        self.unfinished = False

    def stock(self) -> Iterator[None]:
        """Make spare widgets, one with each step: up to 3 ms each, which a frame of scrolling cannot
        afford.
        """
        for kind, target in _STOCK.items():
            spare = self._spare.setdefault(kind, [])
            while len(spare) + sum(row.kind is kind for row in self.live) < target:
                widget = self._make(kind)
                widget.ensurePolished()
                spare.append(widget)
                yield

    def widget(self, row: Row) -> RowWidget | None:
        """The widget that shows `row`, if there is one."""
        return self.live.get(row)

    def fitted(self, row: Row) -> RowWidget | None:
        """The widget that shows `row` in its present state, laid out; None without one."""
        widget = self.live.get(row)
        return widget if widget is not None and row.measured and widget.revision == row.revision else None

    def seen(self, rows: Iterable[Row], height: int) -> Row | None:
        """The first of `rows` that is laid out and on the screen, a viewport of `height` pixels; None without
        one.
        """
        for row in rows:
            widget = self.fitted(row)
            if widget is not None and not widget.isHidden() and -widget.height() < widget.y() < height:
                return row
        return None

    def footers(self) -> Iterable[tuple[Row, RowWidget]]:
        """The live rows below messages."""
        return [(row, widget) for row, widget in self.live.items() if row.kind is RowKind.FOOTER]

    def arrange(self, plan: Arrangement) -> int:
        """Make, measure and place the rows within half a viewport of the screen, and keep those slightly
        further away.

        Returns the scroll position after that. Measuring changes heights and so the position; both are
        repeated until every row in reach has its true height, or as much work is done as may be: then the
        pool is `unfinished`, and rows that are not ready are left out until the next frame.
        """
        layout, style, column, pinned = plan.layout, plan.style, plan.column, plan.pinned()
        self.unfinished = False
        spent = 0
        reach = column.height // 2
        fitted = column.width == self._width
        self._width = column.width
        seen = {row for row in pinned if layout.holds(row)}
        for row in seen:
            spent += 0 if fitted and self.fitted(row) is not None else layout.effort(row)
            if self._fit(row, style, column.width, fitted):
                layout.moved(row.index)
        while True:
            value = self._clamp(layout, column, plan.scroll())
            first = max(0, layout.at(value - reach))
            reached = layout.rows[first : layout.at(value + column.height + reach) + 1]
            if plan.split(reached):
                continue
            lowest, top, bottom = -1, layout.at(value), layout.at(value + column.height)
            held = plan.held.index if plan.held is not None and layout.holds(plan.held) else bottom
            # what is on the screen comes first; no gap is left that would push away what is beyond it later
            for row in sorted(
                reached, key=lambda row: (max(0, top - row.index, row.index - bottom), abs(row.index - held))
            ):
                if row in seen:
                    continue
                if not (fitted and self.fitted(row) is not None):
                    effort = layout.effort(row)
                    if spent and (self.unfinished or spent + effort > plan.most):
                        self.unfinished = True
                        continue
                    spent += effort
                seen.add(row)
                if self._fit(row, style, column.width, fitted):
                    lowest = row.index if lowest < 0 else min(lowest, row.index)
            if lowest < 0:
                break
            layout.moved(lowest)
        far = reach + reach // 2
        near = range(layout.at(value - far), layout.at(value + column.height + far) + 1)
        # otherwise a row at the edge would come and go
        kept = [row for row in self.live if row.index in near and layout.holds(row)]
        keep = {row for row in (*reached, *kept, *pinned) if layout.holds(row) and row in self.live}
        areas = {row: QRect(column.left, layout.top(row) - value, column.width, row.height) for row in keep}
        self._move(areas, column.height)  # first: Qt copies no pixels where something has to be painted
        self._release([row for row in self.live if row not in keep])
        for row, area in areas.items():
            self._place(self.live[row], area)
        return value

    def _move(self, areas: Mapping[Row, QRect], height: int) -> None:
        """Scroll by the distance that most pixels of a viewport of this height move."""
        moved: dict[int, int] = {}
        for row, area in areas.items():
            widget = self.live[row]
            seen = min(height, area.bottom() + 1) - max(0, area.top())
            if seen > 0 and not widget.isHidden():
                distance = area.top() - widget.y()
                moved[distance] = moved.get(distance, 0) + seen
        distance = max(moved, key=moved.__getitem__, default=0)
        if distance:
            self._scroll(0, distance)

    @staticmethod
    def _clamp(layout: RowLayout, column: Column, value: int) -> int:
        return max(0, min(value, layout.total + column.foot - column.height))

    def _fit(self, row: Row, style: Style, width: int, fitted: bool) -> bool:
        """Bind and measure a row; returns whether its height has changed."""
        widget = self.live.get(row)
        fresh = widget is None
        if widget is None:
            spare = self._spare.get(row.kind)
            widget = self.live[row] = spare.pop() if spare else self._make(row.kind)
        fresh = fresh or widget.row_style is not style or widget.revision != row.revision
        widget.bind(row, style)
        if not fresh and fitted and row.measured:
            return False
        before, row.height, row.measured = row.height, widget.fit(width), True
        return before != row.height

    @staticmethod
    def _place(widget: RowWidget, area: QRect) -> None:
        if widget.geometry() != area:
            widget.setGeometry(area)
        widget.placed()
        if widget.isHidden():
            widget.show()

    def _release(self, rows: Iterable[Row]) -> None:
        for row in rows:
            widget = self.live.pop(row)
            widget.release()
            spare = self._spare.setdefault(row.kind, [])
            if len(spare) < _SPARE and row.kind is not RowKind.EDITOR:
                spare.append(widget)
            else:
                widget.setParent(None)
                widget.deleteLater()

    def put_in_order(self) -> None:
        """Bring the widgets into the order of their rows among their siblings: a screen reader takes its
        order from that, and widgets from the pool are older or younger than their neighbours.
        """
        widgets = [self.live[row] for row in sorted(self.live, key=lambda row: row.index)]
        place = {widget: number for number, widget in enumerate(widgets)}
        parent = widgets[0].parentWidget() if widgets else None
        now = [place[child] for child in parent.children() if child in place] if parent is not None else []
        if now == sorted(now):
            return
        for widget, above in zip(widgets[-2::-1], widgets[:0:-1], strict=True):
            widget.stackUnder(above)  # what lies over the rows stays there

    def order_tabs(self, before: QWidget) -> None:
        """Let Tab visit the controls of the rows after `before`, in the order of the rows: their widgets were
        made for other rows, or later.
        """
        for row in sorted(self.live, key=lambda row: row.index):
            for control in self.live[row].findChildren(QWidget):
                if control.focusPolicy() & Qt.FocusPolicy.TabFocus and not control.isHidden():
                    QWidget.setTabOrder(before, control)
                    before = control

    def widgets(self) -> Iterable[QWidget]:
        """All live row widgets."""
        return self.live.values()
