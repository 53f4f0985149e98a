"""The rows of the transcript as plain data, and the free space between them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from desktop.blocks import Block, Kind
from desktop.items.chats.messages import MessageItem
from desktop.store.conversations.token_trace import TokenTrace
from engine.lazy_dataclass import dataclass

__all__ = ["AFTER_HEADER", "Row", "RowKind", "space_above"]

AFTER_HEADER, _BETWEEN = 0.4, 0.75
_SHOWN = (
    "item", "text", "source", "block", "gap", "first", "last", "open", "ordinal", "start", "trace", "covered",
    "until", "growing",
)  # fmt: skip
"""The fields of a row that say what it shows."""


class RowKind(StrEnum):
    """One kind for each class of row widget, and one without."""

    HEADER = "header"
    TEXT = "text"
    BUBBLE = "bubble"
    TOKENS = "tokens"
    CODE = "code"
    TABLE = "table"
    MATH = "math"
    RULE = "rule"
    THOUGHT = "thought"
    CALL = "call"
    WAITING = "waiting"
    NOTICE = "notice"
    FOOTER = "footer"
    EDITOR = "editor"
    ATTACHMENT = "attachment"
    PICTURE = "picture"
    MORE = "more"
    WHOLE = "whole"
    """A message that nobody has looked at yet, in one row; it gets its own rows before it is shown."""


@dataclass(eq=False, slots=True)
class Row:
    """What a row shows, and its place in the layout.

    `text` is what is shown, `source` what is copied, which `start`s there in the message; `gap` the free
    space above in lines of text; `height` in pixels with the gap, an estimate until `measured`; `revision`
    counts the changes of what is shown. A row of tokens has the `trace` of the whole message, whose tokens
    are known up to the character `covered`. The head of a thought has the character `until` which the thought
    goes, 0 while it grows. Code is `wrapped` when the reader wants that,
    and in calls of tools, so that nothing of what is to be allowed is out of sight, and where a whole reply
    is code. `peek` is the line of a
    file that was searched for. A header without a text is not seen. Links may name one of the `references`
    of the message. The last row of a reply that is still written is `growing`, if marks may be open in it.
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
    growing: bool = False
    peek: str = ""
    references: Mapping[str, Any] | None = None

    @property
    def in_thought(self) -> bool:
        """Whether the row is part of a thought and not its head."""
        return self.block is not None and self.block.thought and self.kind is not RowKind.THOUGHT

    def take(self, other: Row) -> bool:
        """Show what `other` shows; returns whether that is a change."""
        same = (
            self.text == other.text and self.source == other.source and self.gap == other.gap
            and (self.first, self.last, self.open) == (other.first, other.last, other.open)
            and self.growing == other.growing
            and (self.block is other.block or self.block == other.block)
            and self.trace is other.trace and (self.covered == other.covered or other.trace is None)
            and (self.start == other.start or other.trace is None)
        )  # fmt: skip
        footer = self.kind in (RowKind.FOOTER, RowKind.HEADER, RowKind.CALL)
        if same and (not footer or self._head() == other._head()):
            self.item, self.start = other.item, other.start
            return False
        for name in _SHOWN:
            setattr(self, name, getattr(other, name))
        self.measured = False
        self.revision += 1
        return True

    def _head(self) -> tuple[object, ...]:
        item = self.item
        return (
            item.id, item.role, item.running, item.variant_index, item.variant_count, item.footer, item.state,
            item.model,
        )  # fmt: skip


def space_above(previous: Block | None, block: Block) -> float:
    """Free space above a block, in lines of text."""
    if previous is None:
        return AFTER_HEADER
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
    return _BETWEEN
