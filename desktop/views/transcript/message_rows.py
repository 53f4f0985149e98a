"""The rows of a message. As few as possible are made again while it grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from desktop.blocks import THINKING_TAGS, Block, Kind, Tag, may_be_open, split_plain
from desktop.items.chats.messages import MessageItem, author_label
from desktop.store.attachments.message_format import note_text, split
from desktop.store.conversations.call_words import call_brief, call_label
from desktop.store.conversations.token_trace import TokenTrace
from desktop.views.transcript.call_actions import call_actions
from desktop.views.transcript.call_groups import Place
from desktop.views.transcript.intake import PAGE, PAGE_LINES, Intake, lines_end
from desktop.views.transcript.rows import AFTER_HEADER, Row, RowKind, space_above
from desktop.views.transcript.thinking import ThoughtTimes
from desktop.views.transcript.tokens.pieces import piece_end
from engine.words import _, ngettext

__all__ = ["MessageRows"]

_KINDS = {
    Kind.CODE: RowKind.CODE, Kind.TABLE: RowKind.TABLE, Kind.RULE: RowKind.RULE,
    Kind.THINKING: RowKind.THOUGHT, Kind.MATH: RowKind.MATH,
}  # fmt: skip
_FIRST_GAP = 1.0


class MessageRows:
    """The rows of one message; `sync` brings them up to date after `append`, `update` or a fold.

    `tags` are the thinking tags of its model. Thoughts are folded when they are over, and while they grow
    unless `unfolded`; the reader can fold and unfold each.

    A `whole` message costs next to nothing: it is one row of the kind `WHOLE` until the first `sync`, whose
    header is the same row object, so that what is tied to it stays where it is.
    """

    def __init__(
        self,
        item: MessageItem,
        tags: Sequence[Tag] = THINKING_TAGS,
        unfolded: bool = True,
        whole: bool = False,
    ) -> None:
        self._tags, self._pages, self._opened = tags, 1, item.opened
        self.unfolded = unfolded
        self.thoughts = ThoughtTimes()
        self.item = item
        self.rows: list[Row] = []
        self.editing = False
        self.trace: TokenTrace | None = None
        self.inspected = False
        self.place = Place()
        self._folds: dict[int, bool] = {}
        self._frame: dict[tuple[RowKind, int], Row] = {}
        self._changed: set[Row] = set()
        self.whole = whole
        if whole:
            self.rows = [Row(RowKind.WHOLE, item, item.text, item.text, gap=_FIRST_GAP)]
        else:
            self._restart()
            self.sync()

    def _restart(self) -> None:
        tags = self._tags if self.item.call is None else ()  # a result is no thought, whatever it contains
        self._intake = Intake(tags, self._opened, self._pages, self.item.language)
        self._references: Mapping[str, Any] = {}
        self._settled: list[Row] = []
        self._tail: list[Row] = []
        self._taken = self._offset = 0
        self._cuts = [0]
        self.step()

    def append(self, item: MessageItem, text: str) -> None:
        """The message is now `item`: `text` longer than it was."""
        self.item = item
        self.step()

    @property
    def waits(self) -> bool:
        """Whether there is text for another `step`."""
        return not self.whole and self.item.role != "user" and self._intake.waits(self.item.text)

    def step(self) -> None:
        """Take the next piece of a long text.

        A tag that closes a thought which was never opened shows that the prompt had opened it: then the text
        is read again from its start.
        """
        if self.item.role == "user":
            return
        self._intake.step(self.item.text)
        if self._intake.splitter.orphan:
            self._opened = self._intake.splitter.orphan
            self._restart()

    def show_more(self) -> None:
        """Show the next part of a very long message."""
        self._pages += 1
        self._intake.pages = self._pages
        self.step()

    def update(self, item: MessageItem) -> None:
        """The message is now `item`."""
        if self.whole:
            self.item, self._opened = item, item.opened
            return
        old = self.item
        # a reply that begins or ends may have other tokens
        self.inspected = self.inspected and item.running == old.running
        same = (item.id, item.role, item.language) == (old.id, old.role, old.language)
        if same and item.text.startswith(old.text):
            self.append(item, item.text[len(old.text) :])
            return
        self.item = item
        if item.id != old.id:
            self._folds.clear()
            self._pages = 1
            self._opened = item.opened
            self.thoughts = ThoughtTimes()
            self.editing = False
            self.inspect(None, inspected=False)
        self._restart()

    def inspect(self, trace: TokenTrace | None, inspected: bool = True) -> None:
        """Show the message as these tokens, or (None) as usual; `inspected` notes that its tokens were asked
        for.
        """
        self.trace, self.inspected = trace, inspected

    def fold(self, ordinal: int, folded: bool) -> None:
        """Fold or unfold a thought of this message, counted from 0."""
        self._folds[ordinal] = folded

    def keep_open(self, row: Row) -> None:
        """Do not fold the thought that `row` is a part of."""
        heads = [head for head in self.rows[: row.index - self.rows[0].index] if head.kind is RowKind.THOUGHT]
        if row.in_thought and heads:
            self._folds.setdefault(heads[-1].ordinal, False)

    def sync(self) -> int:
        """Bring `rows` up to date; returns how many rows at the start are the same objects and unchanged."""
        self._changed.clear()
        if self.whole:
            self._split()
        old, self.rows = self.rows, self._make()
        unchanged = 0
        for before, now in zip(old, self.rows, strict=False):
            if before is not now or now in self._changed:
                break
            unchanged += 1
        return unchanged

    def _split(self) -> None:
        """Make the only row of a whole message its header."""
        self.whole = False
        head = self.rows[0]
        head.kind, head.source, head.measured = RowKind.HEADER, "", False
        self._frame[RowKind.HEADER, 0] = head
        self._changed.add(head)
        self._restart()

    def copied(self, first: int, last: int) -> str:
        """The Markdown source of the rows from `first` to `last` (indexes in `rows`), without hidden
        thoughts.
        """
        text = self.item.text
        parts: list[str] = []
        before: Row | None = None
        hidden = False
        for row in self.rows[first : last + 1]:
            hidden = hidden or (row.kind is RowKind.THOUGHT and not row.open)
            if not row.source or (row.kind is RowKind.THOUGHT and not row.open):
                continue
            if before is not None:
                between = text[before.start + len(before.source) : row.start]
                if not hidden or not between.strip() or (before.block is not None and before.block.thought):
                    parts.append(between)
            parts.append(row.source)
            before, hidden = row, False
        return "".join(parts)

    def _keep(self, made: Row, number: int = 0) -> Row:
        """The known row object of this kind and number, now showing what `made` shows."""
        known = self._frame.setdefault((made.kind, number), made)
        if known is not made and known.take(made):
            self._changed.add(known)
        return known

    def _make(self) -> list[Row]:
        item = self.item
        named = item.call is None and not self.place.goes_on
        name, gap = (author_label(item), _FIRST_GAP) if named else ("", 0.0)
        rows = [self._keep(Row(RowKind.HEADER, item, name, gap=gap))]
        if self.editing:
            return [
                *rows,
                *self._files(),
                self._keep(Row(RowKind.EDITOR, item, source=item.text, gap=AFTER_HEADER)),
            ]
        rows += (
            self._bubbles()
            if item.role == "user"
            else self._blocks()
            if self.trace is None
            else self._tokens(self.trace)
        )
        if item.running and not any(row.kind not in (RowKind.HEADER, RowKind.THOUGHT) for row in rows):
            rows.append(self._keep(Row(RowKind.WAITING, item, gap=AFTER_HEADER)))
        hidden = (
            len(item.text) - self._shown()
            if item.role == "user" or self.trace is not None
            else self._intake.hidden(item.text)
        )
        if hidden and not self.waits:
            words = ngettext("Show {n} more character", "Show {n} more characters", hidden)
            rows.append(self._keep(Row(RowKind.MORE, item, words, gap=0.4)))
        if item.notice:
            rows.append(self._keep(Row(RowKind.NOTICE, item, item.notice, gap=0.6)))
        if item.call is None and not self._only_calls(rows[1:]):
            rows.append(self._keep(Row(RowKind.FOOTER, item, gap=0.15)))
        elif call_actions(item):
            rows.append(self._keep(Row(RowKind.CALL, item, gap=0.5)))
        return rows

    def _only_calls(self, rows: list[Row]) -> bool:
        """Whether calls follow at once, perhaps after thoughts: nothing is said that has figures and buttons
        of its own, and the menu of each row has these.
        """
        silent = all(row.kind is RowKind.THOUGHT or row.in_thought for row in rows)
        return self.place.calls and silent and not self.item.running and self.item.variant_count == 1

    def _shown(self) -> int:
        """The number of characters shown of a text without Markdown."""
        text = self.item.text
        return lines_end(text, 0, min(len(text), self._pages * PAGE), self._pages * PAGE_LINES)

    def _files(self) -> list[Row]:
        """A row for each file that the user's message begins with."""
        text = self.item.text if self.item.role == "user" else ""
        files, end = split(text)
        ends = [*(start for start, _unused in files[1:]), end]
        made = (
            Row(RowKind.ATTACHMENT if file.picture is None else RowKind.PICTURE, self.item,
                f"{file.name} ({note_text(file.note)})" if file.note else file.name, text[start:stop],
                gap=0.3 if number else AFTER_HEADER, ordinal=number, start=start)
            for number, ((start, file), stop) in enumerate(zip(files, ends, strict=True))
        )  # fmt: skip
        return [self._keep(row, number) for number, row in enumerate(made)] if files else []

    def _bubbles(self) -> list[Row]:
        files = self._files()
        begin = files[-1].start + len(files[-1].source) if files else 0
        pieces = split_plain(self.item.text[begin : max(begin, self._shown())]) or ([] if files else [""])
        last = len(pieces) - 1
        starts = list(accumulate((len(piece) for piece in pieces), initial=begin))
        made = (
            Row(RowKind.BUBBLE, self.item, piece.removesuffix("\n") if i < last else piece, piece,
                gap=0.0 if i else 0.3 if files else AFTER_HEADER, first=i == 0, last=i == last,
                start=starts[i])
            for i, piece in enumerate(pieces)
        )  # fmt: skip
        return [*files, *(self._keep(row, number) for number, row in enumerate(made))]

    def _tokens(self, trace: TokenTrace) -> list[Row]:
        """The text as it is, in pieces that do not change while it grows."""
        text = self.item.text[: self._shown()]
        while cut := piece_end(text, self._cuts[-1]):
            self._cuts.append(cut)
        ends = [*self._cuts[1:], *([len(text)] if len(text) > self._cuts[-1] else [])]
        rows = []
        for number, (start, end) in enumerate(zip(self._cuts, ends, strict=False)):
            source, covered = text[start:end], max(start, min(trace.length, end))
            made = Row(
                RowKind.TOKENS, self.item, source.removesuffix("\n"), source,
                gap=0.0 if number else AFTER_HEADER, start=start, trace=trace, covered=covered,
            )  # fmt: skip
            rows.append(self._keep(made, number))
        return rows

    def _blocks(self) -> list[Row]:
        """Rows of closed blocks are made once; those of the tail each time, in the row objects of the last
        tail.
        """
        reusable = self._tail
        splitter = self._intake.splitter
        closed = splitter.closed
        for block in closed[self._taken :]:
            self._add(self._settled, block, reusable, self._offset)
            self._offset += len(block.source)
        self._taken = len(closed)
        rows = list(self._settled)
        offset = self._offset
        ended = (
            not self.item.running
            and not self._intake.waits(self.item.text)
            and not self._intake.hidden(self.item.text)
        )
        tail = splitter.tail(ended)
        last = next((block for block in reversed(tail) if block.kind is not Kind.MARKUP), None)
        for block in tail:
            self._add(rows, block, reusable, offset, growing=block is last and self.item.running)
            offset += len(block.source)
        self._tail = rows[len(self._settled) :]
        self._refer(splitter.references)
        return self._fold_thoughts(rows)

    def _refer(self, found: Mapping[str, Any]) -> None:
        """Give every row the link references of the message; rows with links are shown again when references
        change.
        """
        new = found != self._references
        if new:
            self._references = dict(found)
        for row in [*self._settled, *self._tail] if new else self._tail:
            changed = "]" in row.text and (row.references or {}) != self._references
            row.references = self._references
            if changed:
                row.measured = False
                row.revision += 1
                self._changed.add(row)

    def _add(
        self, rows: list[Row], block: Block, reusable: list[Row], start: int, growing: bool = False
    ) -> None:
        if block.kind is Kind.MARKUP:
            thought = self._head_before(rows)
            if thought is not None and block.thought and block.closed and block.source.strip():
                thought.open, thought.until = False, start
            return
        text = block.body
        if block.kind in (Kind.PROSE, Kind.QUOTE) and not text.strip() and not block.alert:
            return
        kind = _KINDS.get(block.kind, RowKind.TEXT)
        ordinal = 0
        if kind is RowKind.THOUGHT:
            before = self._head_before(rows)
            ordinal = before.ordinal + 1 if before is not None else 0
        gap = space_above(rows[-1].block if rows else None, block)
        made = Row(
            kind, self.item, text, block.source, block, gap, open=kind is RowKind.THOUGHT, ordinal=ordinal,
            start=start, wrapped=self.item.call is not None or bool(self.item.language),
            growing=growing and kind in (RowKind.TEXT, RowKind.TABLE) and may_be_open(text),
        )  # fmt: skip
        if kind is RowKind.CODE and block.joined and rows:
            made.first = False
            if rows[-1].last:
                rows[-1].last, rows[-1].measured = False, False
                rows[-1].revision += 1
                self._changed.add(rows[-1])
        while reusable and kind is not RowKind.THOUGHT:
            known = reusable.pop(0)
            if known.kind is kind:
                if known.take(made):
                    self._changed.add(known)
                made = known
                break
        rows.append(made)

    @staticmethod
    def _head_before(rows: list[Row]) -> Row | None:
        """The head of the last thought."""
        return next((row for row in reversed(rows) if row.kind is RowKind.THOUGHT), None)

    def _fold_thoughts(self, rows: list[Row]) -> list[Row]:
        """Leave out the rows of folded thoughts; a thought is folded when it ends unless the reader decided
        otherwise.
        """
        shown: list[Row] = []
        folded = False
        for number, row in enumerate(rows):
            if row.kind is RowKind.THOUGHT:
                if row.until and (number + 1 == len(rows) or not rows[number + 1].in_thought):
                    continue  # a thought without a word
                running = row.open and self.item.running
                self.thoughts.see(row.ordinal, over=not running)
                folded = self._folds.get(row.ordinal, self._folds_itself(row))
                label = self._label(row, running, folded)
                state = replace(row, item=self.item, text=label, open=not folded)
                shown.append(self._keep(state, row.ordinal))
            elif not (folded and row.in_thought):
                shown.append(row)
        return shown

    def _folds_itself(self, row: Row) -> bool:
        """Whether a thought is folded until the reader decides; what is to be allowed is not."""
        if self.item.call is not None:
            return self.item.state != "waiting"
        return not (row.open and (self.unfolded or not self.item.running))

    def _label(self, row: Row, running: bool, folded: bool) -> str:
        call = self.item.call
        if call is None:
            return self.thoughts.label(row.ordinal, running)
        words, brief = call_label(call, self.item.state, self.item.result), call_brief(call)
        return _("{call} · {arguments}", call=words, arguments=brief) if folded and brief else words
