"""Where the rows are: heights, tops, and the row at a height, for thousands of rows of which few are
measured.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from desktop.views.transcript.rows import Row, RowKind
from desktop.views.transcript.style import Style

__all__ = ["RowLayout"]

_SIGNS = re.compile(r"[*_`\[<~&\\]")
_LINES = {
    RowKind.HEADER: 1.2, RowKind.RULE: 0.1, RowKind.THOUGHT: 1.5, RowKind.WAITING: 1.4, RowKind.NOTICE: 2.2,
    RowKind.FOOTER: 1.9, RowKind.ATTACHMENT: 1.9, RowKind.PICTURE: 14.0,
    RowKind.MORE: 1.9, RowKind.CALL: 2.2,
}  # fmt: skip
_AROUND = 3.6
"""Lines that the header and the footer of a message take, with the space around them."""


class RowLayout:
    """All rows with their tops in pixels. Row indexes and tops are correct after every call."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._bottoms: list[int] = []

    def replace(self, start: int, count: int, rows: Sequence[Row]) -> None:
        """Replace `count` rows from `start` on by `rows`."""
        self.rows[start : start + count] = rows
        if len(rows) == count:
            for index in range(start, start + count):
                self.rows[index].index = index
        else:
            for index in range(start, len(self.rows)):
                self.rows[index].index = index
        self.moved(start)

    def moved(self, start: int) -> None:
        """Heights from the row `start` on have changed."""
        base = self._bottoms[start - 1] if start else 0
        del self._bottoms[start:]
        sums = accumulate((row.height for row in self.rows[start:]), initial=base)
        next(sums)
        self._bottoms.extend(sums)

    @property
    def total(self) -> int:
        """The height of everything."""
        return self._bottoms[-1] if self._bottoms else 0

    def top(self, row: Row) -> int:
        """The top of `row`, its gap included."""
        return self._bottoms[row.index - 1] if row.index else 0

    def at(self, y: int) -> int:
        """The index of the row at the height `y`, or the nearest one; -1 when there are no rows."""
        return min(bisect_right(self._bottoms, y), len(self.rows) - 1)

    def holds(self, row: Row) -> bool:
        """Whether `row` is one of the rows."""
        return row.index < len(self.rows) and self.rows[row.index] is row

    def estimate(self, rows: Sequence[Row], style: Style, width: int) -> None:
        """Estimate the heights of rows that are not measured, for a column of `width` pixels."""
        per_line = max(8.0, width / style.char_width)
        for row in rows:
            if not row.measured:
                row.height = style.px(row.gap) + max(1, round(self._lines(row, per_line) * style.em))

    @staticmethod
    def effort(row: Row) -> int:
        """About how many microseconds a row's widget needs to show it."""
        text = row.text
        wide = 0 if text.isascii() else 4 * (len(text.encode("utf-8", "replace")) - len(text))
        each = {RowKind.TABLE: 90 * text.count("|"), RowKind.CODE: 1000}.get(row.kind, 0)
        if row.kind is RowKind.TEXT:
            each = 10 * len(_SIGNS.findall(text)) + 25 * text.count("\n")
        return 350 + each + 60 * text.count("$") + len(text) // 2 + wide + 10 * text.count("\n")

    @staticmethod
    def _lines(row: Row, per_line: float) -> float:
        fixed = _LINES.get(row.kind)
        if fixed is not None:
            return fixed if row.text or row.kind is not RowKind.HEADER else 0.0
        breaks = row.text.count("\n")
        if row.kind is RowKind.WHOLE:
            return (len(row.text) / per_line + breaks * 0.55 + 0.45) * 1.4 + _AROUND
        if row.kind is RowKind.CODE:
            return (breaks + 1) * 1.0 + 2.6
        if row.kind is RowKind.MATH:
            return (row.text.count("\\\\") + 1) * 2.0
        if row.kind is RowKind.TABLE:
            return max(1, breaks - 1) * 2.0
        if row.kind is RowKind.BUBBLE:
            return (len(row.text) / (per_line * 0.75) + breaks * 0.6 + 1) * 1.35 + 0.8
        return (len(row.text) / per_line + breaks * 0.55 + 0.45) * 1.4
