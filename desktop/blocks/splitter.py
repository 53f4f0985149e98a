"""Splits Markdown that arrives in pieces of any size into blocks. Closed blocks never change; only the tail
is open.

The state changes at whole lines only, and the unfinished line is tried on a copy of it. So the blocks depend
on the text alone, not on how it was cut into pieces.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from desktop.blocks.block import Block, Kind
from desktop.blocks.lines import cells, delimiter, piece_length
from desktop.blocks.machine import Machine
from desktop.blocks.open_block import LIMIT, LINES
from engine.text.template.reasoning import ANSWER_ENDS, ANSWER_TAGS, THINKING_TAGS, Tag

__all__ = ["BlockSplitter", "last_code", "split", "split_plain"]

_FENCES = ("```", "~~~")
_LONGEST_CELL = 40
"""Characters after a bar at the beginning of a line that may still be the first cell of a table."""
_HALF_MARKER = re.compile(r"[-*+#>`~_=$]{1,3}$|\\$|\d{1,3}[.)]?$")


class BlockSplitter:
    """Feed text in pieces of any size; `closed` only grows, `tail` may still change.

    With `opened`, the closing tag of a thought, the text begins inside that thought, which the prompt has
    opened. Its first block is then a `THINKING` without source. With a `language`, the text is no Markdown:
    all of it, except thoughts, is code in that language.
    """

    def __init__(
        self, thinking_tags: Sequence[Tag] = THINKING_TAGS, opened: str = "", language: str = ""
    ) -> None:
        self._machine = Machine(tuple(thinking_tags), opened, language)
        self._rest = ""
        self._starts = True
        self._references: dict[str, Any] = self._machine.references

    @property
    def references(self) -> Mapping[str, Any]:
        """The addresses of links that are defined somewhere in the text, as `parser.definitions` has them."""
        return self._references

    @property
    def closed(self) -> Sequence[Block]:
        """The blocks that never change again."""
        return self._machine.out

    @property
    def orphan(self) -> str:
        """The closing tag, alone on its line, of a thought that was never opened: all text before it is one.

        Empty when there is none.
        """
        return self._machine.orphan

    def feed(self, text: str) -> None:
        """Take the next piece of the text."""
        rest, start = self._rest + text, 0
        while length := piece_length(rest, start):
            piece = rest[start : start + length]
            start += length
            self._machine.take(piece, self._starts)
            self._starts = piece.endswith("\n")
        self._rest = rest[start:]

    def tail(self, ended: bool = False) -> list[Block]:
        """The blocks after `closed` for the text so far; all are closed when the text has `ended`."""
        machine = self._machine.fork()
        shown, held = (self._rest, "") if ended else self._hold(self._rest)
        if shown:
            machine.take(shown, self._starts)
        machine.end(closed=ended)
        self._references = machine.references if ended else self._machine.references
        if held:
            machine.out.append(Block(Kind.MARKUP, held, False, thought=bool(machine.thought)))
        return machine.out

    def blocks(self, ended: bool = False) -> list[Block]:
        """All blocks."""
        return [*self.closed, *self.tail(ended)]

    def _hold(self, line: str) -> tuple[str, str]:
        """Split the unfinished line into what can be shown and what may be the start of a tag or marker."""
        machine = self._machine
        text = line.strip()
        in_code = machine.open is not None and machine.open.kind is Kind.CODE
        opened = (
            "" if in_code else next((finish for begin, finish in machine.tags if text.startswith(begin)), "")
        )
        finish = machine.thought or opened
        # what follows the thought, or is in the answer
        rest = line.partition(finish)[2] if finish else line
        begun = any(begin.startswith(rest.strip()) for begin, _ in ANSWER_TAGS)
        if rest.strip() and begun and (finish or machine.after):
            return line[: len(line) - len(rest)], rest
        if not finish or finish in line:
            after = bool(finish) or machine.after
            around = (end for begin, end in ANSWER_TAGS if after and rest.lstrip().startswith(begin))
            finish = "" if in_code else next(around, ANSWER_ENDS.get(finish, machine.around))
        if finish and finish not in line:
            for length in range(min(len(line), len(finish) - 1), 0, -1):
                if finish.startswith(line[-length:]):
                    return line[:-length], line[-length:]
        if in_code or not self._starts or not text:
            return line, ""
        half_tag = any(
            (begin.startswith(text) and begin != text)
            or (finish.startswith(text) and not machine.begun and not machine.thought)
            for begin, finish in machine.tags
            if machine.thought in ("", finish)
        )
        return ("", line) if half_tag or _HALF_MARKER.match(text) or self._half_table(text) else (line, "")

    def _half_table(self, text: str) -> bool:
        """Whether the unfinished line is the beginning of a table's head, or of the dashes below it."""
        block = self._machine.open
        if block is not None and block.kind is Kind.TABLE:
            return not block.sure and set(text) <= set("|:- \t") and not delimiter(text)
        return text.startswith("|") and len(text) <= _LONGEST_CELL and len(cells(text)) == 1


def split(text: str, thinking_tags: Sequence[Tag] = THINKING_TAGS, language: str = "") -> list[Block]:
    """The blocks of a complete text; with a `language`, it is no Markdown but code."""
    splitter = BlockSplitter(thinking_tags, language=language)
    splitter.feed(text)
    return splitter.blocks(ended=True)


def last_code(text: str, thinking_tags: Sequence[Tag] = THINKING_TAGS, language: str = "") -> str:
    """What the last block of code in a complete text shows, thoughts left out; "" without one. With a
    `language`, all of the text is code in it.
    """
    if not language and not any(fence in text for fence in _FENCES):
        return ""  # without looking at all of a long chat
    source, last = "", None
    for block in reversed(split(text, thinking_tags, language)):
        if block.kind is Kind.CODE and not block.thought:
            source, last = block.source + source, block
            if not block.joined:  # else it was cut for size
                break
    return replace(last, source=source).body if last is not None else ""


def split_plain(text: str, limit: int = LIMIT) -> list[str]:
    """Plain text in pieces of about `limit` characters and at most `LINES` lines, cut at line ends where
    there are any. The pieces, joined, are `text`.
    """
    pieces: list[str] = []
    start = begin = lines = 0
    while start < len(text):
        start += piece_length(text, start) or len(text)
        lines += 1
        if start - begin >= limit or lines >= LINES:
            pieces.append(text[begin:start])
            begin, lines = start, 0
    if begin < len(text):
        pieces.append(text[begin:])
    return pieces
