"""Where the reader is in a transcript: at its end, which is followed, or at a row that stays where it is
whatever happens around it.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from desktop.views.transcript.message_list import Conversation
from desktop.views.transcript.row_pool import EFFORT, SCROLLING_EFFORT, Column, Stage
from desktop.views.transcript.rows import Row
from desktop.views.transcript.scroll_anchor import Anchor, Place

if TYPE_CHECKING:
    from desktop.views.transcript.view import TranscriptView

__all__ = ["Scrolling"]

_END = 1 << 40
_SCROLLS_S = 0.1
"""Somebody who scrolls is still at it so long after the last step."""


class Scrolling:
    """Owns the scroll position of `view`: `arrange` places the rows so that what the reader looks at does
    not move.
    """

    def __init__(self, view: TranscriptView, conversation: Conversation, stage: Stage) -> None:
        self._view, self._conversation, self._stage = view, conversation, stage
        self.at_end = True
        self._anchor: Anchor | None = None
        self._arranging = False
        self._moved = float("-inf")

    def column(self) -> Column:
        """Where the rows are in the viewport."""
        viewport, look = self._view.viewport(), self._conversation.look
        wide = viewport.width()
        margin = 28 if wide >= 640 else 14
        width = max(120, min(look.column, wide - 2 * margin))
        return Column((wide - width) // 2, width, viewport.height(), look.px(1.6))

    def arrange(self) -> bool:
        """Make, measure and place the rows that can be seen; False when that is under way already."""
        if self._arranging:
            return False
        self._arranging = True
        view, conversation, layout, column = (
            self._view,
            self._conversation,
            self._conversation.layout,
            self.column(),
        )
        if column.width != conversation.width:
            conversation.width = column.width
            conversation.forget_heights()
        view.selection.check()
        if self._anchor is not None and not layout.holds(self._anchor.row):
            self._anchor = None
        if self._anchor is None and not self.at_end and layout.rows:
            self.take_anchor()
        most = SCROLLING_EFFORT if perf_counter() - self._moved < _SCROLLS_S else EFFORT
        value = self._stage.arrange(layout, conversation.look, column, self._wanted, self._pinned(), most)
        while view.inspection.load(value):
            view.selection.check()
            value = self._stage.arrange(layout, conversation.look, column, self._wanted, self._pinned(), most)
        bar = view.verticalScrollBar()
        bar.setRange(0, max(0, layout.total + column.foot - column.height))
        bar.setEnabled(bar.maximum() > 0)  # a bar with nothing to scroll shows no handle
        bar.setPageStep(column.height)
        bar.setSingleStep(conversation.look.px(1.4))
        bar.setValue(value)
        self.at_end = bar.value() >= bar.maximum() - 2
        anchor = self._anchor
        if (
            anchor is not None
            and not self.at_end
            and (anchor.share or (anchor.offset < 0 and anchor.line < 0))
        ):
            self.take_anchor()  # now that its lines are known
        self._arranging = False
        return True

    def _wanted(self) -> int:
        """The scroll position that the anchor asks for."""
        anchor = self._anchor
        if self.at_end or anchor is None:
            return _END
        top = self._conversation.layout.top(anchor.row)
        widget = self._stage.fitted(anchor.row) if anchor.line >= 0 else None
        if widget is not None:
            return top + widget.line_height(anchor.line) - anchor.offset
        return top - anchor.offset + round(anchor.share * anchor.row.height)

    def _pinned(self) -> set[Row]:
        """Rows that live on when they are scrolled away, and the one that the scroll position depends on."""
        return self._view.pinned() | (
            {self._anchor.row} if self._anchor is not None and self._anchor.line >= 0 else set()
        )

    def take_anchor(self) -> None:
        """Hold on to what is at the top of the screen: a line of its text, or the row after it where it
        has no lines.
        """
        layout = self._conversation.layout
        value = self._view.verticalScrollBar().value()
        index = layout.at(value)
        if index < 0:
            self._anchor = None
            return
        row = layout.rows[index]
        above = value - layout.top(row)
        widget = self._stage.fitted(row) if above > 0 else None
        line = widget.line_at(above) if widget is not None else -1
        if widget is not None and line >= 0:
            self._anchor = Anchor(row, widget.line_height(line) - above, line=line)
        elif widget is not None and index + 1 < len(layout.rows):
            self._anchor = Anchor(layout.rows[index + 1], layout.top(row) + row.height - value)
        else:
            self._anchor = Anchor(row, -above)

    def keep_thought(self) -> None:
        """A thought in which the reader is reading stays open when it is over."""
        row = self._anchor.row if self._anchor is not None and not self.at_end else None
        if row is not None and row.item.running and self._conversation.layout.holds(row):
            self._conversation.message_of(row).keep_open(row)

    def moved(self) -> None:
        """The scroll bar was moved: by the reader, unless the rows are being arranged."""
        if not self._arranging:
            bar = self._view.verticalScrollBar()
            self.at_end = bar.value() >= bar.maximum() - 2
            self.take_anchor()
            self._moved = perf_counter()
            self._view.arrange()

    def begin_anew(self) -> None:
        """Another conversation is shown from its end."""
        self.at_end, self._anchor, self._moved = True, None, float("-inf")

    def to_end(self) -> None:
        """Go to the end with the next frame, and stay there while it grows."""
        self.at_end, self._moved = True, float("-inf")

    def to_row(self, row: Row, offset: int = 0) -> None:
        """Put the top of a row `offset` pixels below the top of the screen with the next frame."""
        self.at_end, self._anchor, self._moved = False, Anchor(row, offset), float("-inf")

    def stop_following(self) -> None:
        """Something changes by the reader's wish: what is at the top of the screen stays there, even at
        the end.
        """
        if self._anchor is None or self.at_end:
            self.at_end = False
            self.take_anchor()

    def hold(self, row: Row) -> None:
        """Keep a row where it is on the screen, whatever changes above it."""
        self.to_row(row, self._conversation.layout.top(row) - self._view.verticalScrollBar().value())

    def place(self, value: int = -1) -> Place | None:
        """The place at the top of the screen, or at another scroll position; None at the end of the
        conversation, which is followed.
        """
        layout = self._conversation.layout
        value = value if value >= 0 else self._view.verticalScrollBar().value()
        index = layout.at(value)
        return (
            Place.at(layout.rows[index], value - layout.top(layout.rows[index]))
            if index >= 0 and not self.at_end
            else None
        )

    def stay(self, place: Place | None) -> None:
        """Bring a place back to the top of the screen after its message got other rows."""
        if place is not None:
            self._anchor = place.anchor(self._conversation.rows_of(place.message)) or self._anchor

    def show_row(self, row: Row) -> None:
        """Bring a row that has the keyboard on the screen."""
        layout, bar, height = (
            self._conversation.layout,
            self._view.verticalScrollBar(),
            self._view.viewport().height(),
        )
        if not layout.holds(row):
            return
        top = layout.top(row)
        if top < bar.value():
            bar.setValue(top)
        elif top + row.height > bar.value() + height:
            bar.setValue(top + row.height - height)
