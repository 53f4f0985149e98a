"""The rows of the transcript as plain data: what each message turns into, with as little as possible made anew while it grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate

from desktop.blocks import THINKING_TAGS, Block, BlockSplitter, Kind, Tag, split_plain
from desktop.items.messages import MessageItem, speaker_label
from desktop.store.attached import split
from desktop.store.tokens import TokenTrace
from desktop.views.transcript.thoughts import ThoughtTimes

__all__ = ["MessageRows", "Row", "RowKind"]


class RowKind(StrEnum):
    """One kind for each class of row widget."""

    HEADER = "header"
    TEXT = "text"
    BUBBLE = "bubble"
    TOKENS = "tokens"
    CODE = "code"
    TABLE = "table"
    MATH = "math"
    RULE = "rule"
    THOUGHT = "thought"
    WAITING = "waiting"
    NOTICE = "notice"
    FOOTER = "footer"
    EDITOR = "editor"
    ATTACHMENT = "attachment"


_KINDS = {
    Kind.CODE: RowKind.CODE, Kind.TABLE: RowKind.TABLE, Kind.RULE: RowKind.RULE, Kind.THINKING: RowKind.THOUGHT, Kind.MATH: RowKind.MATH,
}  # fmt: skip
_PIECE, _LONGEST = 1000, 2500
_FIRST_GAP, _AFTER_HEADER, _TEXT_GAP = 1.0, 0.4, 0.75


@dataclass(eq=False, slots=True)
class Row:
    """A row: what it shows, and where the layout stands with it.

    `text` is what is shown, `source` what is copied and where it `start`s in the message; `gap` the free space above it in
    lines of text; `height` in pixels with the gap, an estimate until `measured`; `revision` counts the changes of what is shown.
    A row of tokens has the `trace` of the whole message, of which the tokens are `covered` up to that character of it. The head of a
    thought knows the character at which the thought is `until`, 0 while it is not over. Code is `wrapped` when the reader wants it.
    Of a file, `peek` is the line that was searched for.
    """

    kind: RowKind
    item: MessageItem
    text: str = ""
    source: str = ""
    block: Block | None = None
    gap: float = 0.0
    first: bool = True
    last: bool = True
    open: bool = False
    ordinal: int = 0
    start: int = 0
    height: int = 0
    measured: bool = False
    index: int = 0
    revision: int = 0
    trace: TokenTrace | None = None
    covered: int = 0
    until: int = 0
    wrapped: bool = False
    peek: str = ""

    def take(self, other: Row) -> bool:
        """Show what `other` shows; tells whether that is something new."""
        same = (
            self.text == other.text and self.source == other.source and self.gap == other.gap
            and (self.first, self.last, self.open) == (other.first, other.last, other.open)
            and (self.block is other.block or self.block == other.block)
            and self.trace is other.trace and (self.covered == other.covered or other.trace is None)
            and (self.start == other.start or other.trace is None)
        )  # fmt: skip
        footer = self.kind in (RowKind.FOOTER, RowKind.HEADER)
        if same and (not footer or self._head() == other._head()):
            self.item, self.start = other.item, other.start
            return False
        for name in ("item", "text", "source", "block", "gap", "first", "last", "open", "ordinal", "start", "trace", "covered", "until"):
            setattr(self, name, getattr(other, name))
        self.measured = False
        self.revision += 1
        return True

    def _head(self) -> tuple[object, ...]:
        item = self.item
        return (item.id, item.role, item.running, item.variant_index, item.variant_count, item.footer)


class MessageRows:
    """The rows of one message; `sync` brings them up to date after `append`, `update` or a fold.

    `tags` are those that its model thinks in. Thoughts are folded when they are over, and already before unless `unfolded`; the
    reader can have it otherwise.
    """

    def __init__(self, item: MessageItem, tags: Sequence[Tag] = THINKING_TAGS, unfolded: bool = True) -> None:
        self._tags = tags
        self._opened = item.opened
        self.unfolded = unfolded
        self.thoughts = ThoughtTimes()
        self.item = item
        self.rows: list[Row] = []
        self.editing = False
        self.trace: TokenTrace | None = None
        self.inspected = False
        self._folds: dict[int, bool] = {}
        self._frame: dict[tuple[RowKind, int], Row] = {}
        self._changed: set[Row] = set()
        self._restart()
        self.sync()

    def _restart(self) -> None:
        self._splitter = BlockSplitter(self._tags, self._opened)
        self._settled: list[Row] = []
        self._tail: list[Row] = []
        self._taken = self._offset = 0
        self._cuts = [0]
        if self.item.role != "user":
            self._splitter.feed(self.item.text)
            self._find_opened()

    def append(self, item: MessageItem, text: str) -> None:
        """The message is now `item`: `text` longer than it was."""
        self.item = item
        if item.role != "user":
            self._splitter.feed(text)
            self._find_opened()

    def _find_opened(self) -> None:
        """A tag that closes what was never opened tells that the prompt had opened a thought: take the text anew, as one."""
        if self._splitter.orphan:
            self._opened = self._splitter.orphan
            self._restart()

    def update(self, item: MessageItem) -> None:
        """The message is now `item`."""
        old = self.item
        self.inspected = self.inspected and item.running == old.running  # a reply that begins or ends may have other tokens
        if item.id == old.id and item.role == old.role and item.text.startswith(old.text):
            self.append(item, item.text[len(old.text) :])
            return
        self.item = item
        if item.id != old.id:
            self._folds.clear()
            self._opened = item.opened
            self.thoughts = ThoughtTimes()
            self.editing = False
            self.inspect(None, inspected=False)
        self._restart()

    def inspect(self, trace: TokenTrace | None, inspected: bool = True) -> None:
        """Show the message as these tokens, or (None) as usual; `inspected` notes that its tokens were asked for."""
        self.trace, self.inspected = trace, inspected

    def fold(self, ordinal: int, folded: bool) -> None:
        """Fold or unfold a thought of this message, counted from 0."""
        self._folds[ordinal] = folded

    def keep_open(self, row: Row) -> None:
        """Do not fold the thought that `row` is a part of."""
        heads = [head for head in self.rows[: row.index - self.rows[0].index] if head.kind is RowKind.THOUGHT]
        if _thought(row) and heads:
            self._folds.setdefault(heads[-1].ordinal, False)

    def sync(self) -> int:
        """Make `rows` fit the message; returns how many rows at the start are the very same and unchanged."""
        self._changed.clear()
        old, self.rows = self.rows, self._make()
        unchanged = 0
        for before, now in zip(old, self.rows, strict=False):
            if before is not now or now in self._changed:
                break
            unchanged += 1
        return unchanged

    def copied(self, first: int, last: int) -> str:
        """The Markdown source of the rows from `first` to `last` (indexes in `rows`), without what a folded thought hides."""
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
        """The row object of this kind and number from last time, now showing what `made` shows."""
        known = self._frame.setdefault((made.kind, number), made)
        if known is not made and known.take(made):
            self._changed.add(known)
        return known

    def _make(self) -> list[Row]:
        item = self.item
        rows = [self._keep(Row(RowKind.HEADER, item, speaker_label(item), gap=_FIRST_GAP))]
        if self.editing:
            return [*rows, *self._files(), self._keep(Row(RowKind.EDITOR, item, source=item.text, gap=_AFTER_HEADER))]
        rows += self._bubbles() if item.role == "user" else self._blocks() if self.trace is None else self._tokens(self.trace)
        if item.running and not any(row.kind not in (RowKind.HEADER, RowKind.THOUGHT) for row in rows):
            rows.append(self._keep(Row(RowKind.WAITING, item, gap=_AFTER_HEADER)))
        if item.notice:
            rows.append(self._keep(Row(RowKind.NOTICE, item, item.notice, gap=0.6)))
        rows.append(self._keep(Row(RowKind.FOOTER, item, gap=0.15)))
        return rows

    def _files(self) -> list[Row]:
        """A row for each file that the reader's message begins with."""
        text = self.item.text if self.item.role == "user" else ""
        files, end = split(text)
        ends = [*(start for start, _ in files[1:]), end]
        made = (
            Row(RowKind.ATTACHMENT, self.item, f"{name} ({note})" if note else name, text[start:stop], gap=0.3 if number else _AFTER_HEADER,
                ordinal=number, start=start)
            for number, ((start, name, note), stop) in enumerate(zip(((at, f.name, f.note) for at, f in files), ends, strict=True))
        )  # fmt: skip
        return [self._keep(row, number) for number, row in enumerate(made)] if files else []

    def _bubbles(self) -> list[Row]:
        files = self._files()
        begin = files[-1].start + len(files[-1].source) if files else 0
        pieces = split_plain(self.item.text[begin:]) or ([] if files else [""])
        last = len(pieces) - 1
        starts = list(accumulate((len(piece) for piece in pieces), initial=begin))
        made = (
            Row(RowKind.BUBBLE, self.item, piece.removesuffix("\n") if i < last else piece, piece,
                gap=0.0 if i else 0.3 if files else _AFTER_HEADER, first=i == 0, last=i == last, start=starts[i])
            for i, piece in enumerate(pieces)
        )  # fmt: skip
        return [*files, *(self._keep(row, number) for number, row in enumerate(made))]

    def _tokens(self, trace: TokenTrace) -> list[Row]:
        """The text as it is, in pieces that stay as they are while it grows."""
        text = self.item.text
        while cut := _piece_end(text, self._cuts[-1]):
            self._cuts.append(cut)
        ends = [*self._cuts[1:], *([len(text)] if len(text) > self._cuts[-1] else [])]
        rows = []
        for number, (start, end) in enumerate(zip(self._cuts, ends, strict=False)):
            source, covered = text[start:end], max(start, min(trace.length, end))
            made = Row(
                RowKind.TOKENS, self.item, source.removesuffix("\n"), source, gap=0.0 if number else _AFTER_HEADER, start=start,
                trace=trace, covered=covered,
            )  # fmt: skip
            rows.append(self._keep(made, number))
        return rows

    def _blocks(self) -> list[Row]:
        """Rows of closed blocks are made once; those of the tail each time, in the row objects that the last tail had."""
        reusable = self._tail
        closed = self._splitter.closed
        for block in closed[self._taken :]:
            self._add(self._settled, block, reusable, self._offset)
            self._offset += len(block.source)
        self._taken = len(closed)
        rows = list(self._settled)
        offset = self._offset
        for block in self._splitter.tail(ended=not self.item.running):
            self._add(rows, block, reusable, offset)
            offset += len(block.source)
        self._tail = rows[len(self._settled) :]
        return self._fold_thoughts(rows)

    def _add(self, rows: list[Row], block: Block, reusable: list[Row], start: int) -> None:
        if block.kind is Kind.MARKUP:
            thought = next((row for row in reversed(rows) if row.kind is RowKind.THOUGHT), None)
            if thought is not None and block.thought and block.closed and block.source.strip():
                thought.open, thought.until = False, start
            return
        kind = _KINDS.get(block.kind, RowKind.TEXT)
        ordinal = sum(row.kind is RowKind.THOUGHT for row in rows) if kind is RowKind.THOUGHT else 0
        gap = _gap(rows[-1].block if rows else None, block)
        made = Row(kind, self.item, block.body, block.source, block, gap, open=kind is RowKind.THOUGHT, ordinal=ordinal, start=start)
        while reusable and kind is not RowKind.THOUGHT:
            known = reusable.pop(0)
            if known.kind is kind:
                if known.take(made):
                    self._changed.add(known)
                made = known
                break
        rows.append(made)

    def _fold_thoughts(self, rows: list[Row]) -> list[Row]:
        """Leave out the rows of folded thoughts; a thought is folded when it ends unless the reader wants it otherwise."""
        shown: list[Row] = []
        folded = False
        for number, row in enumerate(rows):
            if row.kind is RowKind.THOUGHT:
                if row.until and (number + 1 == len(rows) or not _thought(rows[number + 1])):
                    continue  # a thought without a word
                running = row.open and self.item.running
                self.thoughts.see(row.ordinal, over=not running)
                folded = self._folds.get(row.ordinal, not (row.open and (self.unfolded or not self.item.running)))
                state = replace(row, item=self.item, text=self.thoughts.label(row.ordinal, running), open=not folded)
                shown.append(self._keep(state, row.ordinal))
            elif not (folded and _thought(row)):
                shown.append(row)
        return shown


def _thought(row: Row) -> bool:
    """Whether the row is part of a thought, not its head."""
    return row.block is not None and row.block.thought and row.kind is not RowKind.THOUGHT


def _piece_end(text: str, start: int) -> int:
    """Where the piece of tokens from `start` on ends: behind the first line break after 1,000 characters, or a space after 2,500."""
    if len(text) - start <= _PIECE:
        return 0
    found = text.find("\n", start + _PIECE, start + _LONGEST)
    if found < 0 and len(text) - start > _LONGEST + _PIECE:
        found = text.find(" ", start + _LONGEST, start + _LONGEST + _PIECE)
        found = found if found >= 0 else start + _LONGEST
    return found + 1


def _gap(previous: Block | None, block: Block) -> float:
    """Free space above a block, in lines of text."""
    if previous is None:
        return _AFTER_HEADER
    if block.joined:
        return 0.22 if block.kind is Kind.LIST else 0.0
    if block.kind is Kind.HEADING:
        return 1.15
    if previous.kind is Kind.HEADING:
        return 0.45
    if previous.kind is Kind.THINKING:
        return 0.4
    if block.kind is Kind.RULE or previous.kind is Kind.RULE:
        return 0.9
    if block.kind is Kind.FOOTNOTE is previous.kind:
        return 0.25
    if max(block.indent, previous.indent) >= 2:
        return 0.5
    if Kind.CODE in (block.kind, previous.kind) or Kind.TABLE in (block.kind, previous.kind):
        return 0.85
    if previous.kind is Kind.PROSE and block.kind is Kind.LIST:
        return 0.5
    return _TEXT_GAP
