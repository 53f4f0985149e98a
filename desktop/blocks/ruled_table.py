"""Tables of ziamath with the lines that `array_rules.ruled` asks for. To import this is enough."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from ziafont.fonttypes import BBox
from ziamath.drawable import HLine, VLine
from ziamath.nodes.mtable import Mtable

from desktop.blocks.array_rules import COLUMNS, ROWS

__all__ = ["RuledTable"]


class RuledTable(Mtable, tag="mtable"):  # type: ignore[misc, call-arg]
    """A table that draws its lines, half a space away from the cells. Lengths are pixels, y points down."""

    nodexy: list[tuple[float, float]]
    bbox: BBox

    def _setup(self, **kwargs: Any) -> None:
        super()._setup(**kwargs)
        columns = [int(number) for number in self.element.get(COLUMNS, "").split()]
        rows = [int(number) for number in self.element.get(ROWS, "").split()]
        if not columns and not rows:
            return
        across = self.size_px(self.element.get("columnspacing")) / 2
        down = self.size_px(self.element.get("rowspacing")) / 2
        xs = self._column_edges(across)
        ys = self._row_edges(down)
        rule = self.units_to_points(self.font.math.consts.fractionRuleThickness)
        left, right = (across if edge in columns else 0 for edge in (0, len(xs) - 1))
        top, bottom = (down if edge in rows else 0 for edge in (0, len(ys) - 1))
        begin, end = xs[0] + across - left, xs[-1] - across + right
        upper, lower = ys[0] + down - top, ys[-1] - down + bottom
        lines = [
            (VLine(lower - upper, rule, style=self.style, **kwargs), (xs[n], upper))
            for n in columns
            if n < len(xs)
        ]
        lines += [
            (HLine(end - begin, rule, style=self.style, **kwargs), (begin, ys[n]))
            for n in rows
            if n < len(ys)
        ]
        for line, place in lines:
            self.nodes.append(line)
            self.nodexy.append(place)
        self.nodexy = [(x + left, y) for x, y in self.nodexy]
        self.bbox = BBox(0, self.bbox.xmax + left + right, -lower - rule / 2, -upper + rule / 2)

    def _cells(self) -> list[tuple[int, int, Any, float]]:
        """(row, column, node, baseline) of every cell."""
        places = [(r, c) for r, row in enumerate(self.element) for c in range(len(row))]
        return [
            (r, c, node, y) for (r, c), node, (_x, y) in zip(places, self.nodes, self.nodexy, strict=True)
        ]

    def _column_edges(self, pad: float) -> list[float]:
        """Where the columns begin, each `pad` before its cells, and where the last one ends."""
        cells = self._cells()
        count = 1 + max(c for _r, c, _node, _y in cells)
        widths = [
            max(node.bbox.xmax for _r, c, node, _y in cells if c == column) + 2 * pad
            for column in range(count)
        ]
        extra = (self.bbox.xmax - (sum(widths) - 2 * pad)) / 2
        return [extra - pad + width for width in accumulate(widths, initial=0.0)]

    def _row_edges(self, pad: float) -> list[float]:
        """Where the rows begin, each `pad` above its cells, and where the last one ends."""
        cells = self._cells()
        count = 1 + max(r for r, *_rest in cells)
        tops = [min(y - node.bbox.ymax for r, _c, node, y in cells if r == row) - pad for row in range(count)]
        return [*tops, max(y - node.bbox.ymin for r, _c, node, y in cells if r == count - 1) + pad]
