"""What is selected: text inside one row, or whole rows from one to another."""

from __future__ import annotations

from desktop.views.transcript.message_list import MessageList
from desktop.views.transcript.row_pool import RowPool
from desktop.views.transcript.row_widgets.base import RowWidget
from desktop.views.transcript.rows import Row

__all__ = ["Selection"]

_ALL = (0, -1)
_NOTHING = (0, 0)


class Selection:
    """Two ends, each a row and a text position.

    When the ends are in different rows, all rows between them are selected whole.
    """

    def __init__(self, messages: MessageList, pool: RowPool) -> None:
        self._messages = messages
        self._pool = pool
        self._anchor: tuple[Row, int] | None = None
        self._head: tuple[Row, int] | None = None
        self._whole = False

    def start(self, row: Row, position: int) -> None:
        """Put both ends at one place."""
        self._anchor = self._head = (row, position)
        self._whole = False

    def extend(self, row: Row, position: int) -> None:
        """Move the second end."""
        self.check()
        if self._anchor is None:
            self.start(row, position)
        else:
            self._head = (row, position)

    def select_all(self) -> None:
        """Select the whole conversation."""
        rows = self._messages.layout.rows
        if rows:
            self._anchor, self._head, self._whole = (rows[0], 0), (rows[-1], 0), True
        self.show()

    def clear(self) -> None:
        """Select nothing."""
        self._anchor = self._head = None
        self._whole = False

    def pinned(self) -> set[Row]:
        """The row whose widget holds the selected text."""
        if (
            self._anchor is not None
            and self._head is not None
            and self._anchor[0] is self._head[0]
            and not self._whole
        ):
            return {self._anchor[0]}
        return set()

    def check(self) -> None:
        """Forget a selection whose ends are gone."""
        layout = self._messages.layout
        if (
            self._anchor is not None
            and self._head is not None
            and not (layout.holds(self._anchor[0]) and layout.holds(self._head[0]))
        ):
            self.clear()

    def show(self) -> None:
        """Paint the selection on the live rows."""
        for row, widget in self._pool.live.items():
            widget.select(*self._range(row))

    def _range(self, row: Row) -> tuple[int, int]:
        if self._anchor is None or self._head is None:
            return _NOTHING
        if self._anchor[0] is self._head[0] and not self._whole:
            return (self._anchor[1], self._head[1]) if row is self._anchor[0] else _NOTHING
        low, high = sorted((self._anchor[0].index, self._head[0].index))
        return _ALL if low <= row.index <= high else _NOTHING

    def text(self) -> str:
        """The text to copy: as shown within one row, the Markdown source of several."""
        self.check()
        if self._anchor is None or self._head is None:
            return ""
        if self._anchor[0] is self._head[0] and not self._whole:
            widget: RowWidget | None = self._pool.widget(self._anchor[0])
            return widget.selected_text() if widget is not None else ""
        first, last = sorted((self._anchor[0], self._head[0]), key=lambda row: row.index)
        return self._messages.copied(first, last)
