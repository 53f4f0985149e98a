"""Splits Markdown that arrives in pieces of any size into blocks; what is closed stays as it is, only the tail is open.

The state only moves at whole lines, and the unfinished line is tried on a copy of it. So the blocks depend on the text
alone and not on how it was cut in pieces.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from desktop.blocks.block import Block, Kind
from desktop.blocks.lines import cells, closes_fence, delimiter, fence, indentation, is_rule, list_marker, piece_length

__all__ = ["THINKING_TAGS", "BlockSplitter", "split", "split_plain"]

THINKING_TAGS: tuple[tuple[str, str], ...] = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<|think|>", "<|/think|>"),
)
LIMIT = 2048
"""Characters after which a block of text is closed at the next good place: layout of one document must stay short."""

_HEADING = re.compile(r" {0,3}#{1,6}(?:\s|$)")
_QUOTE = re.compile(r" {0,3}>")
_SETEXT = re.compile(r" {0,3}(?:=+|-{2,})\s*$")
_HALF_MARKER = re.compile(r"[-*+#>`~_=]{1,3}$|\d{1,3}[.)]?$")


@dataclass
class _Open:
    """The block that still grows."""

    kind: Kind
    lines: list[str] = field(default_factory=list)
    size: int = 0
    fence: str = ""
    language: str = ""
    indent: int = 0
    joined: bool = False
    head: str = ""
    sure: bool = True
    blank: bool = False

    def add(self, line: str) -> None:
        self.lines.append(line)
        self.size += len(line)


class _Machine:
    """The state between two lines; `out` receives closed blocks."""

    def __init__(self, tags: Sequence[tuple[str, str]]) -> None:
        self.tags = tags
        self.out: list[Block] = []
        self.open: _Open | None = None
        self.thought = ""
        self.container = 0

    def fork(self) -> _Machine:
        copy = _Machine(self.tags)
        copy.open = replace(self.open, lines=list(self.open.lines)) if self.open else None
        copy.thought, copy.container = self.thought, self.container
        return copy

    def take(self, line: str, starts: bool) -> None:
        """Move on by one line, or by the rest of a cut line when it does not `starts`."""
        close = line.find(self.thought) if self.thought else -1
        if close >= 0:
            if close > 0:
                self._line(line[:close], starts)
            self.end()
            self._after_tag(Kind.MARKUP, line, close + len(self.thought), "")
            return
        if starts and not self.thought and not (self.open and self.open.kind is Kind.CODE):
            lead = len(line) - len(line.lstrip())
            for begin, finish in self.tags:
                if line.startswith(begin, lead):
                    self.end()
                    self._after_tag(Kind.THINKING, line, lead + len(begin), finish)
                    return
        self._line(line, starts)

    def _after_tag(self, kind: Kind, line: str, end: int, thought: str) -> None:
        rest = line[end:]
        keep = end if rest.strip() else len(line)
        tag = line[line.find(self.thought) : keep] if kind is Kind.MARKUP else line[:keep]
        self.out.append(Block(kind, tag, thought=True))
        self.thought = thought
        if rest.strip():
            self.take(rest, True)

    def end(self, closed: bool = True) -> None:
        """Close the open block; with `closed` false it is only handed out as it is now."""
        block = self.open
        if block is None:
            return
        unsure = block.kind is Kind.TABLE and not block.sure and closed
        kind = Kind.PROSE if unsure else block.kind
        source = "".join(block.lines)
        self.out.append(
            Block(kind, source, closed, block.language, block.indent, bool(self.thought), block.joined, "" if unsure else block.head)
        )
        self.open = None

    def _start(self, kind: Kind, line: str, indent: int = 0, joined: bool = False) -> _Open:
        self.end()
        self.open = _Open(kind, indent=indent, joined=joined)
        self.open.add(line)
        return self.open

    def _line(self, line: str, starts: bool) -> None:
        block = self.open
        if block is not None and block.kind is Kind.CODE:
            block.add(line)
            if starts and closes_fence(line, block.fence):
                self.end()
        elif not starts:
            self._rest_of_line(line)
        elif not line.strip():
            self._blank(line)
        elif block is None or block.kind is Kind.MARKUP or not self._continues(block, line):
            self._fresh(line)

    def _rest_of_line(self, line: str) -> None:
        block = self.open
        if not line.strip():
            self._start(Kind.MARKUP, line) if block is None else block.add(line)
        elif block is None or (block.kind is not Kind.TABLE and block.size >= LIMIT):
            kind = block.kind if block is not None and block.kind is Kind.QUOTE else Kind.PROSE
            self._start(kind, line, block.indent if block else 0, joined=True)
        else:
            block.add(line)

    def _blank(self, line: str) -> None:
        block = self.open
        if block is None:
            self._start(Kind.MARKUP, line)
        elif block.kind in (Kind.LIST, Kind.MARKUP):
            block.add(line)
            block.blank = True
        else:
            block.add(line)
            self.end()

    def _continues(self, block: _Open, line: str) -> bool:
        """Add `line` to the open block if it belongs there."""
        if block.kind is Kind.LIST:
            return self._continues_list(block, line)
        if block.kind is Kind.TABLE:
            return self._continues_table(block, line)
        starts = self._kind_at(line, block.indent)
        if block.kind is Kind.QUOTE:
            if starts not in (Kind.QUOTE, Kind.PROSE):
                return False
            if block.size >= LIMIT and starts is Kind.QUOTE:
                self._start(Kind.QUOTE, line, block.indent, joined=True)
            else:
                block.add(line)
            return True
        return self._continues_prose(block, line, starts)

    def _continues_prose(self, block: _Open, line: str, starts: Kind) -> bool:
        if delimiter(line) and "|" in block.lines[-1] and not block.joined:
            head = block.lines.pop()
            if block.lines:
                self._start(Kind.TABLE, head, block.indent)
            else:
                self.open = block = replace(block, kind=Kind.TABLE, lines=[head])
            assert self.open is not None
            self.open.add(line)
            return True
        if _SETEXT.match(line):
            block.add(line)
            block.kind = Kind.HEADING if block.size < LIMIT else Kind.PROSE
            self.end()
            return True
        if starts is Kind.LIST and not block.indent and not self._list_interrupts(line):
            starts = Kind.PROSE
        if starts is not Kind.PROSE:
            return False
        if block.size >= LIMIT:
            self._start(Kind.PROSE, line, block.indent, joined=True)
        else:
            block.add(line)
        return True

    def _continues_list(self, block: _Open, line: str) -> bool:
        if is_rule(line) or fence(line) is not None:
            return False
        marker = list_marker(line)
        inside = indentation(line) >= 2 or marker is not None
        if block.blank and marker is not None and marker[0] <= 1 and (marker[1] == "") != (self._number_of(block) == ""):
            return False
        if not inside and (block.blank or self._kind_at(line, 0) is not Kind.PROSE):
            return False
        full = block.size >= (LIMIT if marker is not None and marker[0] <= 1 else 2 * LIMIT)
        if full:
            self._start(Kind.LIST if marker is not None else Kind.PROSE, line, min(indentation(line), block.indent), joined=True)
        else:
            block.add(line)
            block.blank = False
        return True

    @staticmethod
    def _number_of(block: _Open) -> str:
        """The number of the first item of a list, "" for a bullet."""
        marker = list_marker(block.lines[0])
        return marker[1] if marker is not None else ""

    def _continues_table(self, block: _Open, line: str) -> bool:
        if not block.sure:
            if delimiter(line):
                block.sure = True
                block.add(line)
                return True
            block.kind, block.sure = Kind.PROSE, True
            return self._continues(block, line)
        if "|" not in line or self._kind_at(line, block.indent) not in (Kind.PROSE, Kind.TABLE):
            return False
        if block.size >= LIMIT:
            head = block.head or "".join(block.lines[:2])
            self._start(Kind.TABLE, line, block.indent, joined=True).head = head
        else:
            block.add(line)
        return True

    def _fresh(self, line: str) -> None:
        """Start a block with `line`."""
        in_list = self.open is not None and self.open.kind is Kind.LIST
        lead = indentation(line)
        if not in_list and lead < 2:
            self.container = 0
        opening = fence(line)
        if opening is not None:
            columns, marks, language = opening
            if in_list or self.container or columns > lead:
                self.container = max(columns, 2)
            block = self._start(Kind.CODE, line, columns)
            block.fence, block.language = marks, language
            return
        indent = min(lead, self.container)
        kind = self._kind_at(line, indent)
        block = self._start(kind, line, indent)
        if kind is Kind.TABLE:
            block.sure = False
        elif kind in (Kind.HEADING, Kind.RULE):
            self.end()

    @staticmethod
    def _kind_at(line: str, indent: int) -> Kind:
        """The kind of block that `line` would start."""
        text = line[min(indent, indentation(line)) :]
        if fence(text) is not None:
            return Kind.CODE
        if _HEADING.match(text):
            return Kind.HEADING
        if is_rule(text):
            return Kind.RULE
        if _QUOTE.match(text):
            return Kind.QUOTE
        marker = list_marker(text)
        if marker is not None and marker[0] <= 3:
            return Kind.LIST
        if text.lstrip().startswith("|") and len(cells(text)) > 1:
            return Kind.TABLE
        return Kind.PROSE

    @staticmethod
    def _list_interrupts(line: str) -> bool:
        marker = list_marker(line)
        return marker is not None and marker[2] and marker[1] in ("", "1")


class BlockSplitter:
    """Feed text in pieces of any size; `closed` only grows, `tail` is what may still change."""

    def __init__(self, thinking_tags: Sequence[tuple[str, str]] = THINKING_TAGS) -> None:
        self._machine = _Machine(tuple(thinking_tags))
        self._rest = ""
        self._starts = True

    @property
    def closed(self) -> Sequence[Block]:
        """The blocks that never change again."""
        return self._machine.out

    def feed(self, text: str) -> None:
        """Take the next piece of the text."""
        rest = self._rest + text
        while length := piece_length(rest):
            piece, rest = rest[:length], rest[length:]
            self._machine.take(piece, self._starts)
            self._starts = piece.endswith("\n")
        self._rest = rest

    def tail(self, ended: bool = False) -> list[Block]:
        """The blocks after `closed` as the text stands; `ended` says that nothing follows, so that all are closed."""
        machine = self._machine.fork()
        shown, held = (self._rest, "") if ended else self._hold(self._rest)
        if shown:
            machine.take(shown, self._starts)
        machine.end(closed=ended)
        if held:
            machine.out.append(Block(Kind.MARKUP, held, False, thought=bool(machine.thought)))
        return machine.out

    def blocks(self, ended: bool = False) -> list[Block]:
        """All blocks."""
        return [*self.closed, *self.tail(ended)]

    def _hold(self, line: str) -> tuple[str, str]:
        """Split the unfinished line in what can be shown and what may turn out to be the start of a tag or marker."""
        machine = self._machine
        text = line.strip()
        in_code = machine.open is not None and machine.open.kind is Kind.CODE
        opened = "" if in_code else next((finish for begin, finish in machine.tags if text.startswith(begin)), "")
        finish = machine.thought or opened
        if finish and finish not in line:
            for length in range(min(len(line), len(finish) - 1), 0, -1):
                if finish.startswith(line[-length:]):
                    return line[:-length], line[-length:]
        if in_code or not self._starts or not text:
            return line, ""
        half_tag = not machine.thought and any(tag.startswith(text) and tag != text for tag, _ in machine.tags)
        return ("", line) if half_tag or _HALF_MARKER.match(text) else (line, "")


def split(text: str, thinking_tags: Sequence[tuple[str, str]] = THINKING_TAGS) -> list[Block]:
    """The blocks of a complete text."""
    splitter = BlockSplitter(thinking_tags)
    splitter.feed(text)
    return splitter.blocks(ended=True)


def split_plain(text: str, limit: int = LIMIT) -> list[str]:
    """Plain text in pieces of at most about `limit` characters, cut at line ends where there are any; joined they are `text`."""
    pieces: list[str] = []
    current: list[str] = []
    size = 0
    while text:
        length = piece_length(text) or len(text)
        current.append(text[:length])
        text = text[length:]
        size += length
        if size >= limit:
            pieces.append("".join(current))
            current, size = [], 0
    if current:
        pieces.append("".join(current))
    return pieces
