"""The messages of the model as rows in the layout: each change of the model becomes the smallest change of
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from desktop.blocks import THINKING_TAGS, Tag
from desktop.items.chats.messages import MessageItem
from desktop.store.conversations.token_trace import TokenTrace
from desktop.views.transcript.call_groups import place_in
from desktop.views.transcript.message_rows import MessageRows
from desktop.views.transcript.row_layout import RowLayout
from desktop.views.transcript.rows import Row, RowKind
from desktop.views.transcript.style import Style
from desktop.views.transcript.thinking import seconds_of

__all__ = ["MessageList"]

_SPLIT_AT_ONCE = 30
"""The last of many messages, of which the screen shows some."""


class MessageList:
    """Keeps `layout` in step with the messages; heights of new rows are estimates for `style` and `width`.

    New messages are split at the thinking `tags`. Of many, only the last are at first: the others are `whole`
    until they come near the screen. `splits` counts how often that was.
    """

    def __init__(self, style: Style) -> None:
        self.layout = RowLayout()
        self.all: list[MessageRows] = []
        self.style = style
        self.width = style.column
        self.tags: Sequence[Tag] = THINKING_TAGS
        self.splits = 0
        self._unfolded = True
        self._numbers: dict[int, int] = {}
        self._waiting: set[int] = set()

    def reset(self, items: Sequence[MessageItem]) -> None:
        """Show other messages."""
        self.all = self._made(items)
        for position in self._join(0, len(items)):
            self.all[position].sync()
        self._numbers.clear()
        self._number(0)
        self._find_waiting()
        rows = [row for message in self.all for row in message.rows]
        self.layout.estimate(rows, self.style, self.width)
        self.layout.replace(0, len(self.layout.rows), rows)

    def insert(self, position: int, items: Sequence[MessageItem]) -> None:
        """Insert messages before the one at `position`."""
        made = self._made(items)
        start = self._start(position)
        self.all[position:position] = made
        self._number(position)
        self._waiting.update(message.item.id for message in made if message.waits)
        rows = [row for message in made for row in message.rows]
        self.layout.estimate(rows, self.style, self.width)
        self.layout.replace(start, 0, rows)
        self._rejoin(position, position + len(made))

    def _join(self, first: int, last: int) -> list[int]:
        """Tell the messages from `first` to before `last` what is beside them; returns the numbers of those
        whose rows have to be made again.
        """
        changed = []
        for position in range(first, last):
            message, place = self.all[position], place_in(self.all, position)
            if place != message.place:
                message.place = place
                changed += [] if message.whole else [position]
        return changed

    def _rejoin(self, first: int, last: int) -> None:
        """The messages from `first` to before `last` have changed: show what goes on with them as such."""
        while last < len(self.all) and self.all[last].item.call is not None:
            last += 1
        for position in self._join(max(first - 1, 0), min(last + 1, len(self.all))):
            self.sync(position)

    def _made(self, items: Sequence[MessageItem]) -> list[MessageRows]:
        whole = len(items) - _SPLIT_AT_ONCE
        return [
            MessageRows(item, self.tags, self._unfolded, whole=place < whole and not item.running)
            for place, item in enumerate(items)
        ]

    def split(self, rows: Iterable[Row]) -> bool:
        """Give the messages of `rows` that are whole yet rows of their own; returns whether there were
        any.
        """
        found = [self._numbers[row.item.id] for row in rows if row.kind is RowKind.WHOLE]
        if found:
            self.splits += 1
            first, last = min(found), max(found)
            start, count = self._start(first), self._start(last + 1) - self._start(first)
            for position in found:
                self.all[position].sync()
                if self.all[position].waits:
                    self._waiting.add(self.all[position].item.id)
            new = [row for message in self.all[first : last + 1] for row in message.rows]
            self.layout.estimate(new, self.style, self.width)
            self.layout.replace(start, count, new)
        return bool(found)

    def remove(self, first: int, last: int) -> None:
        """Remove the messages from `first` to `last`."""
        start = self._start(first)
        gone = self.all[first : last + 1]
        count = sum(len(message.rows) for message in gone)
        del self.all[first : last + 1]
        for message in gone:
            self._forget(message.item.id)
        self._number(first)
        self.layout.replace(start, count, [])
        self._rejoin(first, first)

    def update(self, position: int, item: MessageItem) -> None:
        """The message at `position` is now `item`."""
        message = self.all[position]
        self._forget(message.item.id)
        message.update(item)
        self._numbers[item.id] = position
        self.sync(position)
        self._rejoin(position, position + 1)

    def sync_message(self, message_id: int) -> None:
        """Bring the rows of the message with this id up to date. Raises KeyError when it is not here."""
        self.sync(self._numbers[message_id])

    def sync(self, position: int) -> None:
        """Bring the rows of a message up to date after it has grown, was folded or is edited."""
        message = self.all[position]
        start, count = self._start(position), len(message.rows)
        unchanged = message.sync()
        if message.waits:
            self._waiting.add(message.item.id)
        self.layout.estimate(message.rows[unchanged:], self.style, self.width)
        self.layout.replace(start + unchanged, count - unchanged, message.rows[unchanged:])

    def step(self) -> bool:
        """Take in more of the last message whose text is too long for one frame; returns whether more is
        left.
        """
        position = max(
            (self._numbers[number] for number in self._waiting if number in self._numbers), default=None
        )
        if position is not None:
            self.all[position].step()
            self._waiting.clear()  # the others are found again when this one is done
            self.sync(position)
        if position is not None and not self._waiting:
            self._find_waiting()
        return bool(self._waiting)

    def finish(self, message_id: int) -> None:
        """Take in at once all of a message's text that is shown before the reader asks for more, for example
        to find something in it. Raises KeyError when it is not here.
        """
        position = self._numbers[message_id]
        self.sync(position)  # a whole one is split
        _take_all(self.all[position])
        self._waiting.discard(message_id)
        self.sync(position)

    def _find_waiting(self) -> None:
        self._waiting = {message.item.id for message in self.all if message.waits}

    def block_rows(self, row: Row) -> list[Row]:
        """The rows of the block that `row` belongs to: long code, or a long table, has several."""
        rows, first, end = self.layout.rows, row.index, row.index + 1
        while first and _goes_on(rows[first]) and rows[first - 1].kind is row.kind:
            first -= 1
        while end < len(rows) and rows[end].kind is row.kind and _goes_on(rows[end]):
            end += 1
        return rows[first:end]

    def body(self, row: Row) -> str:
        """What the whole block that `row` belongs to shows: its code, or the Markdown of its table."""
        rows = self.block_rows(row)
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
            for position, message in enumerate(self.all):
                message.unfolded = unfolded
                if not message.whole:
                    self.sync(position)

    def fill_thought_times(self, rows: Iterable[Row], trace: Callable[[int], TokenTrace | None]) -> bool:
        """Take the exact times of thoughts whose heads are in `rows` from the tokens of their messages.

        Asks for a trace once for each head, and once more when its thought is over. Returns whether rows
        changed.
        """
        changed = False
        for row in [row for row in rows if row.kind is RowKind.THOUGHT]:
            thoughts, state = self.message(row.item.id).thoughts, (row.ordinal, row.until > 0)
            if state in thoughts.asked:
                continue
            thoughts.asked.add(state)
            found = trace(row.item.id)
            seconds = seconds_of(found, row.start, row.until) if found is not None else None
            if seconds is not None:
                thoughts.put(row.ordinal, seconds)
                self.sync_message(row.item.id)
                changed = True
        return changed

    def forget_heights(self) -> None:
        """Make every height an estimate again, after the width or the style has changed."""
        for row in self.layout.rows:
            row.measured = False
        self.layout.estimate(self.layout.rows, self.style, self.width)
        self.layout.moved(0)

    def message(self, message_id: int) -> MessageRows:
        """The message with this id. Raises KeyError when it is not here."""
        return self.all[self._numbers[message_id]]

    def rows_of(self, message_id: int) -> Sequence[Row]:
        """The rows of a message, none when it is not here."""
        position = self._numbers.get(message_id)
        return self.all[position].rows if position is not None else ()

    def split_rows(self, message_id: int) -> Sequence[Row]:
        """The rows of a message; for a whole one those that it would have, which stay unseen. Raises KeyError
        when it is not here.
        """
        message = self.message(message_id)
        return (self._split_copy(message) if message.whole else message).rows

    def copied(self, first: Row, last: Row) -> str:
        """The Markdown source from the row `first` to the row `last`, with an empty line between messages."""
        parts: list[str] = []
        start = self._numbers[first.item.id]
        end = self._numbers[last.item.id]
        for position in range(start, end + 1):
            message = self.all[position]
            base = message.rows[0].index
            low = first.index - base if position == start else 0
            high = last.index - base if position == end else len(message.rows) - 1
            text = self._source(message, low, high).strip("\r\n")
            if text:
                parts.append(text)
        return "\n\n".join(parts)

    def _source(self, message: MessageRows, low: int, high: int) -> str:
        """What is copied of a message; a whole one may hide thoughts, which only its own rows tell."""
        text, opened = message.item.text, message.item.opened
        if message.whole and (opened or any(mark in text for tag in self.tags for mark in tag)):
            message = self._split_copy(message)
            high = len(message.rows) - 1
        return message.copied(low, high)

    def _split_copy(self, message: MessageRows) -> MessageRows:
        made = MessageRows(message.item, self.tags, self._unfolded)
        _take_all(made)
        made.sync()
        return made

    def _start(self, position: int) -> int:
        """The index of the first row of the message at `position`."""
        return self.all[position].rows[0].index if position < len(self.all) else len(self.layout.rows)

    def _number(self, first: int) -> None:
        """Number the messages from `first` on: those above keep their places."""
        for position in range(first, len(self.all)):
            self._numbers[self.all[position].item.id] = position

    def _forget(self, message_id: int) -> None:
        del self._numbers[message_id]
        self._waiting.discard(message_id)


def _take_all(message: MessageRows) -> None:
    while message.waits:
        message.step()


def _goes_on(row: Row) -> bool:
    """Whether the row continues the block of the one before it."""
    return row.block is not None and row.block.joined
