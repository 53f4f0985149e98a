"""The messages of the model as rows in the layout: each change of the model becomes the smallest change of
rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from desktop.blocks import THINKING_TAGS, Tag
from desktop.items.chats.messages import MessageItem
from desktop.views.transcript.row_layout import RowLayout
from desktop.views.transcript.rows import MessageRows, Row
from desktop.views.transcript.style import Look

__all__ = ["Conversation"]


class Conversation:
    """Keeps `layout` in step with the messages; heights of new rows are estimates for `look` and `width`.

    Messages that come are split at the thinking `tags`.
    """

    def __init__(self, look: Look) -> None:
        self.layout = RowLayout()
        self.messages: list[MessageRows] = []
        self.look = look
        self.width = look.column
        self.tags: Sequence[Tag] = THINKING_TAGS
        self._unfolded = True
        self._numbers: dict[int, int] = {}
        self._waiting: set[int] = set()

    def reset(self, items: Sequence[MessageItem]) -> None:
        """Other messages altogether."""
        self.messages = [MessageRows(item, self.tags, self._unfolded) for item in items]
        self._number()
        rows = [row for message in self.messages for row in message.rows]
        self.layout.estimate(rows, self.look, self.width)
        self.layout.replace(0, len(self.layout.rows), rows)

    def insert(self, position: int, items: Sequence[MessageItem]) -> None:
        """New messages before the one at `position`."""
        made = [MessageRows(item, self.tags, self._unfolded) for item in items]
        start = self._start(position)
        self.messages[position:position] = made
        self._number()
        rows = [row for message in made for row in message.rows]
        self.layout.estimate(rows, self.look, self.width)
        self.layout.replace(start, 0, rows)

    def remove(self, first: int, last: int) -> None:
        """The messages from `first` to `last` are gone."""
        start = self._start(first)
        count = sum(len(message.rows) for message in self.messages[first : last + 1])
        del self.messages[first : last + 1]
        self._number()
        self.layout.replace(start, count, [])

    def update(self, position: int, item: MessageItem) -> None:
        """The message at `position` is now `item`."""
        self.messages[position].update(item)
        self._number()
        self.sync(position)

    def sync(self, position: int) -> None:
        """Bring the rows of a message up to date after it has grown, was folded or is edited."""
        message = self.messages[position]
        start, count = self._start(position), len(message.rows)
        unchanged = message.sync()
        if message.waits:
            self._waiting.add(message.item.id)
        self.layout.estimate(message.rows[unchanged:], self.look, self.width)
        self.layout.replace(start + unchanged, count - unchanged, message.rows[unchanged:])

    def step(self) -> bool:
        """Take in more of the last message whose text is too long for one frame; tells whether there is
        still more.
        """
        position = max(
            (self._numbers[number] for number in self._waiting if number in self._numbers), default=None
        )
        if position is not None:
            self.messages[position].step()
            self._waiting.clear()  # the others are found again when it is done
            self.sync(position)
        if position is not None and not self._waiting:
            self._find_waiting()
        return bool(self._waiting)

    def _find_waiting(self) -> None:
        self._waiting = {message.item.id for message in self.messages if message.waits}

    def code_rows(self, row: Row) -> list[Row]:
        """The rows of a block of code whose first one is `row`: a long one has several."""
        rows = [row]
        for following in self.layout.rows[row.index + 1 :]:
            if following.kind is not row.kind or following.first:
                break
            rows.append(following)
        return rows

    def code(self, row: Row) -> str:
        """All the code of a block whose first row is `row`."""
        rows = self.code_rows(row)
        block = rows[0].block
        return (
            replace(block, source="".join(part.source for part in rows), closed=True).body
            if block is not None
            else row.text
        )

    def unfold_thoughts(self, unfolded: bool) -> None:
        """Whether thoughts are shown while they are written."""
        if unfolded != self._unfolded:
            self._unfolded = unfolded
            for position, message in enumerate(self.messages):
                message.unfolded = unfolded
                self.sync(position)

    def forget_heights(self) -> None:
        """Width or look have changed: every height is an estimate again."""
        for row in self.layout.rows:
            row.measured = False
        self.layout.estimate(self.layout.rows, self.look, self.width)
        self.layout.moved(0)

    def position(self, message_id: int) -> int:
        """Where the message with this id is. Raises KeyError when it is not here."""
        return self._numbers[message_id]

    def item(self, message_id: int) -> MessageItem:
        """The message with this id. Raises KeyError when it is not here."""
        return self.messages[self._numbers[message_id]].item

    def rows_of(self, message_id: int) -> Sequence[Row]:
        """The rows of a message, none when it is not here."""
        position = self._numbers.get(message_id)
        return self.messages[position].rows if position is not None else ()

    def message_of(self, row: Row) -> MessageRows:
        """The message that `row` belongs to."""
        return self.messages[self._numbers[row.item.id]]

    def copied(self, first: Row, last: Row) -> str:
        """The Markdown source of everything from the row `first` to the row `last`, messages parted by an
        empty line.
        """
        parts: list[str] = []
        start = self._numbers[first.item.id]
        end = self._numbers[last.item.id]
        for position in range(start, end + 1):
            message = self.messages[position]
            base = message.rows[0].index
            low = first.index - base if position == start else 0
            high = last.index - base if position == end else len(message.rows) - 1
            text = message.copied(low, high).strip("\r\n")
            if text:
                parts.append(text)
        return "\n\n".join(parts)

    def _start(self, position: int) -> int:
        """The index of the first row of the message at `position`."""
        return (
            self.messages[position].rows[0].index if position < len(self.messages) else len(self.layout.rows)
        )

    def _number(self) -> None:
        self._find_waiting()
        self._numbers = {message.item.id: position for position, message in enumerate(self.messages)}
