"""Feeds the text of a message to its splitter in small steps, and no more of it than the reader has asked
for.
"""

from __future__ import annotations

from collections.abc import Sequence

from desktop.blocks import BlockSplitter, Tag

__all__ = ["PAGE", "PAGE_LINES", "PAGE_ROWS", "STEP", "STEP_LINES", "Intake", "lines_end"]

STEP, STEP_LINES = 32_768, 500
"""Characters and lines that are split in one step: a few milliseconds of work."""
PAGE, PAGE_ROWS = 1_000_000, 1_000
"""Characters and blocks of one message that are shown before the reader asks for more."""
PAGE_LINES = 20_000
"""The same for lines of a text without Markdown."""


class Intake:
    """`splitter` has the first `taken` characters of a growing text, which is code if it has a `language`."""

    def __init__(self, tags: Sequence[Tag], opened: str, pages: int = 1, language: str = "") -> None:
        self.splitter = BlockSplitter(tags, opened, language)
        self.taken = 0
        self.pages = pages

    def step(self, text: str) -> None:
        """Feed the next characters of `text`."""
        end = min(self.taken + STEP, self._limit(text))
        if end > self.taken:
            end = lines_end(text, self.taken, end, STEP_LINES)
            self.splitter.feed(text[self.taken : end])
            self.taken = end

    def waits(self, text: str) -> bool:
        """Whether there is text for another step."""
        return self.taken < self._limit(text)

    def hidden(self, text: str) -> int:
        """Characters that are not shown until the reader asks for more."""
        return len(text) - self._limit(text)

    def _limit(self, text: str) -> int:
        full = len(self.splitter.closed) >= self.pages * PAGE_ROWS
        return self.taken if full else min(len(text), self.pages * PAGE)


def lines_end(text: str, start: int, end: int, lines: int) -> int:
    """The end of the first `lines` lines from `start` on, at most `end`."""
    if text.count("\n", start, end) <= lines:
        return end
    place = start
    for _ in range(lines):
        place = text.find("\n", place) + 1
    return place
