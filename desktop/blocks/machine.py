"""The splitter's state between two lines of Markdown: takes line after line, hands out closed blocks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from desktop.blocks.block import Block, Kind
from desktop.blocks.lines import (
    cells,
    closes_fence,
    delimiter,
    display_math,
    fence,
    indentation,
    is_rule,
    list_marker,
    opening,
)
from desktop.blocks.open_block import (
    CELLS,
    CODE_LIMIT,
    CODE_LINES,
    COLUMNS,
    DOLLARS,
    LIMIT,
    LINES,
    MATH_LIMIT,
    OpenBlock,
    alert_line,
    depth_at,
    first_number,
    interrupts_prose,
    kind_at,
    with_item,
)
from engine.text.template.reasoning import ANSWER_ENDS, ANSWER_TAGS, Tag

__all__ = ["Machine"]

_MOST_REFERENCES = 1000

# closing tags of other names may belong to what a reply writes about
_MUSES = re.compile(r"think|thought", re.IGNORECASE)
_SETEXT = re.compile(r" {0,3}(?:=+|-{2,})\s*$")


class Machine:
    """`out` receives closed blocks.

    With `opened`, the closing tag of a thought, the text begins inside that thought. `after`: one has just
    ended; `around` is what ends an answer that stands in tags. `items` are as `with_item` has them. With a
    `language`, everything but thoughts is code in it, without a fence.
    """

    def __init__(self, tags: Sequence[Tag], opened: str = "", language: str = "") -> None:
        self.tags, self.language = tags, language
        self.out: list[Block] = []
        self.open: OpenBlock | None = None
        self.thought = opened
        self.thinks = self.begun = bool(opened)
        self.after, self.orphan, self.around, self.container, self.no_math = False, "", "", 0, False
        self.items: list[int] = []
        self.references: dict[str, Any] = {}
        if opened:
            self.out.append(Block(Kind.THINKING, "", thought=True))

    def fork(self) -> Machine:
        copy = Machine(self.tags, language=self.language)
        copy.open = replace(self.open, lines=list(self.open.lines)) if self.open else None
        copy.thought, copy.container, copy.thinks = self.thought, self.container, self.thinks
        copy.begun, copy.after, copy.around = self.begun, self.after, self.around
        copy.references, copy.items = dict(self.references), list(self.items)
        return copy

    def take(self, line: str, starts: bool) -> None:
        """Take one line, or the rest of a cut line when `starts` is false."""
        first, self.begun = not self.begun, self.begun or bool(line.strip())
        in_code = self.open is not None and self.open.kind is Kind.CODE
        if starts and self.thought and not in_code and (again := opening(line, self.tags, self.thought)):
            self.end()  # the tag stands twice
            self.out.append(Block(Kind.MARKUP, line[:again], thought=True))
            if again < len(line):
                self.take(line[again:], True)
            return
        close = line.find(self.thought) if self.thought else -1
        if close >= 0:
            if close > 0:
                self._line(line[:close], starts)
            self.end()
            self.around = ANSWER_ENDS.get(self.thought, "")
            self._after_tag(Kind.MARKUP, line, close + len(self.thought), "")
            return
        if not self.thought and self._around(line, starts):
            return
        if starts and not self.thought and not in_code:
            lead = len(line) - len(line.lstrip())
            for begin, finish in self.tags:
                if line.startswith(begin, lead):
                    self.end()
                    self.thinks = True
                    self._after_tag(Kind.THINKING, line, lead + len(begin), finish)
                    return
            finish = next((tag[1] for tag in self.tags if line.startswith(tag[1], lead)), "") if first else ""
            if finish and line.strip() != finish:  # some models say in this way that they do not think
                self._after_tag(Kind.MARKUP, line, lead + len(finish), "")
                return
            if not self.thinks and not self.orphan:
                ends = (finish for _, finish in self.tags if _MUSES.search(finish))
                self.orphan = next((finish for finish in ends if finish == line.strip()), "")
        self._line(line, starts)

    def _around(self, line: str, starts: bool) -> bool:
        """Take a line with one of the tags that stand around an answer; False for other lines."""
        core = line.rstrip()
        if starts and self.after and core:
            self.after, text = False, core.lstrip()
            tags = (tag for tag in ANSWER_TAGS if text.startswith(tag[0]))
            begin, self.around = next(tags, ("", self.around))
            if begin:
                end = len(core) - len(text) + len(begin) if text != begin else len(line)
                self.out.append(Block(Kind.MARKUP, line[:end]))
                if end < len(line):
                    self.take(line[end:], True)
                return True
        in_code = self.open is not None and self.open.kind is Kind.CODE
        if not self.around or in_code or not core.endswith(self.around):
            return False
        if at := len(core) - len(self.around):
            self._line(line[:at], starts)
        self.end()
        self.out.append(Block(Kind.MARKUP, line[at:]))
        return True

    def _after_tag(self, kind: Kind, line: str, end: int, thought: str) -> None:
        rest = line[end:]
        keep = end if rest.strip() else len(line)
        tag = line[line.find(self.thought) : keep] if kind is Kind.MARKUP else line[:keep]
        self.out.append(Block(kind, tag, thought=True))
        self.thought, self.after = thought, kind is Kind.MARKUP
        if rest.strip():
            self.take(rest, True)

    def end(self, closed: bool = True) -> None:
        """Close the open block; with `closed` false only hand it out as it is now."""
        block = self.open
        if block is None:
            return
        if block.kind is Kind.MATH and not block.sure and closed:
            self._without_math(block)
            return
        unsure = block.kind is Kind.TABLE and not block.sure and closed
        kind = Kind.PROSE if unsure else block.kind
        source, head = "".join(block.lines), "" if unsure else block.head
        defines = source.lstrip().startswith("[") and "]:" in source and not block.joined
        if closed and kind is Kind.PROSE and defines:
            kind = self._define(source)
        thought, depth = bool(self.thought), block.depth
        self.out.append(
            Block(kind, source, closed, block.language, block.indent, thought, block.joined, head, depth)
        )
        self.open = None

    def _define(self, source: str) -> Kind:
        """Remember the link reference definitions at the start of a paragraph (CommonMark 0.31, section 4.7).

        Returns the kind of block that the paragraph is.
        """
        from desktop.blocks.parser import definitions

        found, other = definitions(source)
        for label, address in found.items():
            if len(self.references) < _MOST_REFERENCES:
                self.references.setdefault(label, address)
        return Kind.PROSE if other or self.thought else Kind.MARKUP

    def _without_math(self, block: OpenBlock) -> None:
        """Take the lines of an unclosed formula as other Markdown."""
        self.open, self.no_math, starts = None, True, True
        for line in block.lines:
            self._line(line, starts)
            starts = line.endswith("\n")
        self.end()
        self.no_math = False

    def _start(self, kind: Kind, line: str, indent: int = 0, joined: bool = False) -> OpenBlock:
        self.container = max(self.container, indent) if joined else self.container
        self.end()
        self.open = OpenBlock(kind, indent=indent, joined=joined, depth=depth_at(self.items, indent))
        self.open.add(line)
        return self.open

    def _line(self, line: str, starts: bool) -> None:
        block = self.open
        if block is not None and block.kind is Kind.CODE:
            if block.size >= CODE_LIMIT or len(block.lines) >= CODE_LINES:
                block = self._more_code(block)
            block.add(line)
            if starts and block.fence and closes_fence(line, block.fence):
                self.end()
        elif block is not None and block.kind is Kind.MATH:
            self._more_math(block, line)
        elif not starts:
            self._rest_of_line(line)
        elif not line.strip():
            self._blank(line)
        elif block is None or block.kind is Kind.MARKUP or not self._continues(block, line):
            self._fresh(line)

    def _more_code(self, block: OpenBlock) -> OpenBlock:
        """Continue a long block of code in another one, which knows the first line of the first."""
        self.end()
        self.open = replace(block, lines=[], size=0, joined=True, head=block.head or block.lines[0])
        return self.open

    def _more_math(self, block: OpenBlock, line: str) -> None:
        at = line.find(block.fence)
        if at < 0:
            block.add(line)
            if block.size >= MATH_LIMIT:
                self.end()
            return
        end = at + len(block.fence)
        rest = line[end:]
        block.sure = True
        block.add(line if rest.strip() in ("", ".", ",", ";") else line[:end])
        self.end()
        if rest.strip() not in ("", ".", ",", ";"):
            self._line(rest, True)

    def _rest_of_line(self, line: str) -> None:
        block = self.open
        if not line.strip():
            self._start(Kind.MARKUP, line) if block is None else block.add(line)
        elif block is not None and block.kind is Kind.TABLE and not block.sure and block.size >= 2 * LIMIT:
            block.kind, block.sure = Kind.PROSE, True  # no table has such a head
            self._start(Kind.PROSE, line, block.indent, joined=True)
        elif block is None or (block.size >= 2 * LIMIT if block.kind is Kind.TABLE else block.full):
            kind = block.kind if block is not None and block.kind is Kind.QUOTE else Kind.PROSE
            head = alert_line(block) if block is not None and kind is Kind.QUOTE else ""
            indent = block.text_at(line) if block is not None else 0
            self._start(kind, line, indent, joined=True).head = head
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

    def _continues(self, block: OpenBlock, line: str) -> bool:
        """Add `line` to the open block if it belongs there."""
        if block.kind is Kind.LIST:
            return self._continues_list(block, line)
        if block.kind is Kind.TABLE:
            return self._continues_table(block, line)
        starts = kind_at(line, block.indent, not self.no_math)
        if block.kind is Kind.FOOTNOTE:
            if starts is Kind.PROSE and block.full:
                self._start(Kind.PROSE, line, block.indent, joined=True)
            elif starts is Kind.PROSE:
                block.add(line)
            return starts is Kind.PROSE
        if block.kind is Kind.QUOTE:
            if starts not in (Kind.QUOTE, Kind.PROSE) or (
                starts is Kind.PROSE and not block.lines[-1].strip(" \t\r\n>")
            ):
                return False
            if block.full and starts is Kind.QUOTE:
                self._start(Kind.QUOTE, line, block.indent, joined=True).head = alert_line(block)
            else:
                block.add(line)
            return True
        return self._continues_prose(block, line, starts)

    def _continues_prose(self, block: OpenBlock, line: str, starts: Kind) -> bool:
        if (
            delimiter(line)
            and "|" in block.lines[-1]
            and not block.joined
            and len(cells(block.lines[-1])) <= COLUMNS
        ):
            head = block.lines.pop()
            if block.lines:
                self._start(Kind.TABLE, head, block.indent)
            else:
                self.open = block = replace(block, kind=Kind.TABLE, lines=[head])
            assert self.open is not None
            self.open.columns = len(cells(head))
            self.open.add(line)
            return True
        if _SETEXT.match(line):
            block.add(line)
            block.kind = Kind.HEADING if block.size < LIMIT else Kind.PROSE
            self.end()
            return True
        if starts is Kind.LIST and not block.indent and not interrupts_prose(line):
            starts = Kind.PROSE
        if starts is not Kind.PROSE:
            return False
        if block.full:
            self._start(Kind.PROSE, line, block.indent, joined=True)
        else:
            block.add(line)
        return True

    def _continues_list(self, block: OpenBlock, line: str) -> bool:
        columns = indentation(line.expandtabs(4))
        if (
            (is_rule(line) and columns < 2)
            or fence(line) is not None
            or (not self.no_math and display_math(line) is not None)
        ):
            return False
        marker = list_marker(line)
        inside = columns >= 2 or marker is not None
        item = marker if block.blank and marker is not None and marker[0] <= 1 else None
        if item is not None and (item[1] == "") != (first_number(block) == ""):
            return False
        if marker is not None and columns < block.indent:
            return False  # it is an item of a list around this one
        if not inside and (block.blank or kind_at(line, 0, not self.no_math) is not Kind.PROSE):
            return False
        self.items = with_item(self.items, line)
        more = 1 if marker is not None and marker[0] <= 1 else 2
        full = (
            block.size >= more * LIMIT or len(block.lines) >= more * LINES or block.dollars >= more * DOLLARS
        )
        if full and marker is None:
            self._start(Kind.PROSE, line, block.text_at(line), joined=True)
        elif full:
            self._start(Kind.LIST, line, min(indentation(line), block.indent), joined=True)
        else:
            block.add(line)
            block.blank = False
        return True

    def _continues_table(self, block: OpenBlock, line: str) -> bool:
        if not block.sure:
            if delimiter(line) and len(cells("".join(block.lines))) <= COLUMNS:
                block.sure, block.columns = True, len(cells(block.lines[0]))
                block.add(line)
                return True
            block.kind, block.sure = Kind.PROSE, True
            return self._continues(block, line)
        if "|" not in line or kind_at(line, block.indent, not self.no_math) not in (Kind.PROSE, Kind.TABLE):
            return False
        if block.full or len(block.lines) * block.columns >= CELLS:
            head = block.head or "".join(block.lines[:2])
            columns = block.columns
            block = self._start(Kind.TABLE, line, block.indent, joined=True)
            block.head, block.columns = head, columns
        else:
            block.add(line)
        return True

    def _fresh(self, line: str) -> None:
        """Start a block with `line`."""
        if self.language and not self.thought:
            self._start(Kind.CODE, line).language = self.language
            return
        in_list = self.open is not None and self.open.kind is Kind.LIST
        lead = indentation(line)
        if not in_list and lead < 2:
            self.container, self.items = 0, []
        opening = fence(line)
        if opening is not None:
            columns, marks, language = opening
            self.items = with_item(self.items, line)
            if in_list or self.container or columns > lead:
                self.container = max(columns, 2)
            block = self._start(Kind.CODE, line, columns)
            block.fence, block.language = marks, language
            return
        formula = None if self.no_math else display_math(line)
        if formula is not None:
            if in_list or self.container:
                self.container = max(lead, 2)
            block = self._start(Kind.MATH, line, lead)
            block.fence, block.sure = formula[1], formula[2]
            if formula[2]:
                self.end()
            return
        indent = min(lead, self.container)
        kind = kind_at(line, indent, not self.no_math)
        block = self._start(kind, line, indent)
        if kind is Kind.LIST:
            self.items = with_item(self.items, line)
        elif kind is Kind.TABLE:
            block.sure = False
        elif kind in (Kind.HEADING, Kind.RULE):
            self.end()
