"""Where the reader is in a transcript: at its end, which is followed, or at a row that stays in place
whatever changes around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import NamedTuple

from PySide6.QtCore import QPoint

from desktop.views.transcript.parts import TranscriptParts
from desktop.views.transcript.row_pool import EFFORT, SCROLLING_EFFORT, Arrangement, Column
from desktop.views.transcript.row_widgets.base import RowWidget
from desktop.views.transcript.rows import Row, RowKind

__all__ = ["Anchor", "Place", "Scrolling"]

_END = 1 << 40
_FOOT_SHARE = 8
"""At most this part of the viewport stays free below the last row, so that a low one shows text."""
_SCROLLS_S = 0.1
"""Seconds after the last step for which the reader still counts as scrolling."""


class Anchor(NamedTuple):
    """What the top of the screen is tied to: `share` of the row's height and minus `offset` pixels of it are
    above.

    With a `line` (not -1) of the row's text, that line is `offset` pixels below the top of the screen. A
    `passing` anchor holds only until the rows above it are placed.
    """

    row: Row
    offset: int = 0
    share: float = 0.0
    line: int = -1
    passing: bool = False


class Place(NamedTuple):
    """A character of a message, or (-1) a `share` of the height of its row of a `kind` without text."""

    message: int
    kind: RowKind
    character: float
    share: float

    @classmethod
    def at(cls, row: Row, above: int) -> Place:
        """The place at `above` pixels from a row's top."""
        share = min(1.0, max(0.0, above / max(1, row.height)))
        return cls(row.item.id, row.kind, row.start + share * len(row.source) if row.source else -1, share)

    def anchor(self, rows: Sequence[Row]) -> Anchor | None:
        """The anchor for the place among the message's present `rows`; None when there are none."""
        if self.character < 0:
            found = next((row for row in rows if row.kind is self.kind), rows[0] if rows else None)
            return Anchor(found, share=self.share) if found is not None else None
        texts = [row for row in rows if row.source]
        row = next(
            (row for row in reversed(texts) if row.start <= self.character), texts[0] if texts else None
        )
        return (
            Anchor(row, share=min(1.0, max(0.0, (self.character - row.start) / len(row.source))))
            if row is not None
            else None
        )


class Scrolling:
    """Owns the scroll position: `begin` and `end` enclose the placing of the rows, so that what the reader
    looks at does not move.
    """

    def __init__(self, parts: TranscriptParts) -> None:
        self._parts, self._messages, self._pool = parts, parts.messages, parts.pool
        self._bar = parts.area.verticalScrollBar()
        self.at_end = True
        self._anchor: Anchor | None = None
        self._arranging = False
        self._moved = float("-inf")

    def column(self) -> Column:
        """Where the rows are in the viewport."""
        viewport, style = self._parts.area.viewport(), self._messages.style
        wide = viewport.width()
        margin = 28 if wide >= 640 else 14
        width = max(120, min(style.column, wide - 2 * margin))
        high = viewport.height()
        return Column((wide - width) // 2, width, high, min(style.px(1.6), high // _FOOT_SHARE))

    def begin(self) -> Arrangement | None:
        """What the pool is to arrange; `end` takes the scroll position that comes of it. None while an
        arrangement is under way.
        """
        if self._arranging:
            return None
        self._arranging = True
        messages, layout, column = self._messages, self._messages.layout, self.column()
        if column.width != messages.width:
            messages.width = column.width
            messages.forget_heights()
        self._parts.selection.check()
        if self._anchor is not None and not layout.holds(self._anchor.row):
            self._anchor = None
        if self._anchor is None and not self.at_end and layout.rows:
            self.take_anchor()
        most = SCROLLING_EFFORT if perf_counter() - self._moved < _SCROLLS_S else EFFORT
        held = self._anchor.row if self._anchor is not None and not self.at_end else None
        return Arrangement(
            layout, messages.style, column, self._target, self._pinned, messages.split, held, most
        )

    def end(self, value: int) -> None:
        """The rows are placed for scroll position `value`."""
        messages, layout, column = self._messages, self._messages.layout, self.column()
        bar = self._bar
        bar.setRange(0, max(0, layout.total + column.foot - column.height))
        bar.setEnabled(bar.maximum() > 0)  # a bar with nothing to scroll shows no handle
        bar.setPageStep(column.height)
        bar.setSingleStep(messages.style.px(1.4))
        bar.setValue(value)
        self.at_end = bar.value() >= bar.maximum() - 2
        anchor = self._anchor
        if (
            anchor is not None
            and not self.at_end
            and (anchor.share or anchor.passing or (anchor.offset < 0 and anchor.line < 0))
        ):
            self.take_anchor()  # now that its lines are known
        self._arranging = False

    def _target(self) -> int:
        """The scroll position that the anchor asks for, `_END` without one."""
        anchor = self._anchor
        if self.at_end or anchor is None:
            return _END
        top = self._messages.layout.top(anchor.row)
        widget = self._pool.fitted(anchor.row) if anchor.line >= 0 else None
        if widget is not None:
            return top + widget.line_height(anchor.line) - anchor.offset
        return top - anchor.offset + round(anchor.share * anchor.row.height)

    def _pinned(self) -> set[Row]:
        """Rows whose widgets live on when they are scrolled away, and the one that the scroll position
        depends on.
        """
        return self._parts.view.pinned() | (
            {self._anchor.row} if self._anchor is not None and self._anchor.line >= 0 else set()
        )

    def take_anchor(self) -> None:
        """Anchor what is at the top of the screen: a line of its text, or the next row if it has no lines.
        While the reader scrolls up, it is the first row that was on the screen before: rows between may be
        unmeasured.
        """
        layout = self._messages.layout
        value = self._bar.value()
        index = layout.at(value)
        if index < 0:
            self._anchor = None
            return
        row = layout.rows[index]
        above = value - layout.top(row)
        height = self._parts.area.viewport().height()
        seen = self._pool.seen(layout.rows[index : layout.at(value + height) + 1], height)
        if seen is not None and seen is not row:
            self._anchor = Anchor(seen, layout.top(seen) - value, passing=True)
            return
        widget = self._pool.fitted(row) if above > 0 else None
        line = widget.line_at(above) if widget is not None else -1
        if widget is not None and line >= 0:
            self._anchor = Anchor(row, widget.line_height(line) - above, line=line)
        elif widget is not None and index + 1 < len(layout.rows):
            self._anchor = Anchor(layout.rows[index + 1], layout.top(row) + row.height - value)
        else:
            self._anchor = Anchor(row, -above)

    def keep_thought(self) -> None:
        """Keep a thought open when it ends while the reader is in it."""
        row = self._anchor.row if self._anchor is not None and not self.at_end else None
        if row is not None and row.item.running and self._messages.layout.holds(row):
            self._messages.message(row.item.id).keep_open(row)

    def moved(self) -> None:
        """The scroll bar has moved: by the reader, unless the rows are being arranged."""
        if not self._arranging:
            self.at_end = self._bar.value() >= self._bar.maximum() - 2
            self.take_anchor()
            self._moved = perf_counter()
            self._parts.view.put_off()
            self._parts.view.arrange()

    def reset(self) -> None:
        """Start at the end of another conversation."""
        self.at_end, self._anchor, self._moved = True, None, float("-inf")

    def to_end(self) -> None:
        """Go to the end with the next frame, and stay there while it grows."""
        self.at_end, self._moved = True, float("-inf")
        self._parts.view.schedule()

    def to_row(self, row: Row, offset: int = 0) -> None:
        """Put the top of a row `offset` pixels below the top of the screen with the next frame."""
        self.at_end, self._anchor, self._moved = False, Anchor(row, offset), float("-inf")
        self._parts.view.schedule()

    def to_message(self, message_id: int) -> None:
        """Put the top of a message at the top of the screen. Raises KeyError when it is not here."""
        self.to_row(self._messages.message(message_id).rows[0])

    def stop_following(self) -> None:
        """Anchor what is at the top of the screen, even at the end, because the reader changes something."""
        if self._anchor is None or self.at_end:
            self.at_end = False
            self.take_anchor()

    def fold(self, row: Row) -> None:
        """Unfold or fold the thought whose head the row is."""
        if self._messages.layout.holds(row):
            self._messages.message(row.item.id).fold(row.ordinal, row.open)
            if not row.item.running:
                self.stop_following()
            self._messages.sync_message(row.item.id)
            self._parts.view.schedule()

    def show_more(self, row: Row) -> None:
        """Show the next part of the long message that the row belongs to."""
        if self._messages.layout.holds(row):
            self.stop_following()
            self._messages.message(row.item.id).show_more()
            self._messages.sync_message(row.item.id)
            self._parts.view.schedule()

    def row_at(self, y: int) -> Row | None:
        """The row at, or nearest to, a height of the viewport."""
        layout = self._messages.layout
        index = layout.at(self._bar.value() + y)
        return layout.rows[index] if index >= 0 else None

    def hit(self, point: QPoint) -> tuple[Row, RowWidget, QPoint] | None:
        """The row at, or nearest to, a point of the viewport, its widget and the point in it."""
        row = self.row_at(point.y())
        widget = self._pool.widget(row) if row is not None else None
        return None if row is None or widget is None else (row, widget, point - widget.pos())

    def hold(self, row: Row) -> None:
        """Keep a row where it is on the screen, whatever changes above it."""
        self.to_row(row, self._messages.layout.top(row) - self._bar.value())

    def place(self, value: int = -1) -> Place | None:
        """The place at the top of the screen, or at scroll position `value`; None at the end, which is
        followed.
        """
        layout = self._messages.layout
        value = value if value >= 0 else self._bar.value()
        index = layout.at(value)
        return (
            Place.at(layout.rows[index], value - layout.top(layout.rows[index]))
            if index >= 0 and not self.at_end
            else None
        )

    def stay(self, place: Place | None) -> None:
        """Put a place back at the top of the screen after its message got other rows."""
        if place is not None:
            self._anchor = place.anchor(self._messages.rows_of(place.message)) or self._anchor

    def show_row(self, row: Row) -> None:
        """Scroll a row that has the keyboard onto the screen."""
        layout, bar, height = self._messages.layout, self._bar, self._parts.area.viewport().height()
        if not layout.holds(row):
            return
        top = layout.top(row)
        if top < bar.value():
            bar.setValue(top)
        elif top + row.height > bar.value() + height:
            bar.setValue(top + row.height - height)
