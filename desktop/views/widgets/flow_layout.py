"""A row of widgets that goes on in further lines where it is too narrow."""

from __future__ import annotations

from collections.abc import Iterator

from PySide6.QtCore import QMargins, QRect, QSize, Qt
from PySide6.QtWidgets import QLayout, QLayoutItem, QSpacerItem, QWidget

from engine.lazy_dataclass import dataclass

__all__ = ["FlowLayout"]

_SPACE = QSpacerItem(0, 0)
"""Of all layouts, none of which shows it to Qt: then it would be Qt's, and nobody would delete it."""


@dataclass(slots=True, eq=False)
class _Part:
    """An item in a line, with its share of the free space; `space` is nothing else."""

    item: QLayoutItem
    stretch: int
    space: bool
    width: int = 0


class FlowLayout(QLayout):
    """As a `QHBoxLayout` while all is beside each other at its preferred size, `gap` pixels apart (-1: as in
    the layout around it). What does not fit goes to the next line. What was pushed to the end of the row
    by something that stretches is at the end there, too. Lines run right to left if the layout does.
    """

    def __init__(self, parent: QWidget | None = None, gap: int = -1) -> None:
        super().__init__(parent)
        self._parts: list[_Part] = []
        self._items: list[_Part] = []  # those that are more than space
        # those around it ask again and again
        self._heights: dict[int, int] = {}  # by width
        self._hints: dict[str, QSize] = {}
        self._placed: tuple[QRect, bool] | None = None
        self.setSpacing(gap)
        self.setContentsMargins(QMargins(0, 0, 0, 0))

    def addItem(self, item: QLayoutItem) -> None:
        self._items.append(_Part(item, 0, space=False))
        self._parts.append(self._items[-1])
        self.invalidate()

    def addWidget(self, widget: QWidget, stretch: int = 0) -> None:
        """Add a widget with its share of the free space of its line."""
        super().addWidget(widget)
        self._parts[-1].stretch = stretch

    def addLayout(self, layout: QLayout, stretch: int = 0) -> None:
        """Add a layout with its share of the free space of its line."""
        self.addChildLayout(layout)
        self.addItem(layout)
        self._parts[-1].stretch = stretch

    def addStretch(self, stretch: int = 0) -> None:
        """Add free space with its share of that of its line."""
        self._parts.append(_Part(_SPACE, max(1, stretch), space=True))
        self.invalidate()

    def count(self) -> int:
        return len(self._items)

    def itemAt(self, index: int) -> QLayoutItem | None:
        return self._items[index].item if 0 <= index < len(self._items) else None

    def takeAt(self, index: int) -> QLayoutItem | None:
        self.invalidate()
        if not 0 <= index < len(self._items):
            return None
        part = self._items.pop(index)
        self._parts.remove(part)
        return part.item

    def invalidate(self) -> None:
        self._heights, self._hints, self._placed = {}, {}, None
        super().invalidate()

    def expandingDirections(self) -> Qt.Orientation:
        return Qt.Orientation(0)

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        if width not in self._heights:
            around = self.contentsMargins()
            inner = width - around.left() - around.right()
            high = self._arrange(QRect(0, 0, inner, 0), move=False)
            self._heights[width] = high + around.top() + around.bottom()
        return self._heights[width]

    def setGeometry(self, rect: QRect) -> None:
        super().setGeometry(rect)
        place = (rect, self._mirrored())
        if place == self._placed:
            return
        self._placed = place
        self._arrange(rect.marginsRemoved(self.contentsMargins()), move=True)

    def sizeHint(self) -> QSize:
        """All in one line."""
        if (known := self._hints.get("preferred")) is not None:
            return known
        shown = [part for part in self._parts if not part.space and not part.item.isEmpty()]
        wide = sum(part.item.sizeHint().width() for part in shown)
        wide += self.spacing() * max(0, len(shown) - 1)
        self._hints["preferred"] = self._with_margins(wide)
        return self._hints["preferred"]

    def minimumSize(self) -> QSize:
        """As wide as the widest part."""
        if (known := self._hints.get("least")) is not None:
            return known
        wide = max((part.item.minimumSize().width() for part in self._parts), default=0)
        self._hints["least"] = self._with_margins(wide)
        return self._hints["least"]

    def _with_margins(self, width: int) -> QSize:
        around = self.contentsMargins()
        high = max((part.item.minimumSize().height() for part in self._parts), default=0)
        return QSize(width + around.left() + around.right(), high + around.top() + around.bottom())

    def _lines(self, width: int) -> Iterator[list[_Part]]:
        """The parts of each line, as wide as they are to be; a line with nothing to see is left out."""
        line: list[_Part] = []
        taken = -self.spacing()  # by what the line shows, with the gaps between
        for part in self._parts:
            if part.space:
                part.width = 0
                line.append(part)
            elif not part.item.isEmpty():
                size = part.item.minimumSize() if part.stretch else part.item.sizeHint()
                part.width = min(size.width(), max(width, 1))
                if _shows(line) and taken + self.spacing() + part.width > width:
                    _share(line, width - taken)
                    yield line
                    line, taken = [], -self.spacing()
                line.append(part)
                taken += self.spacing() + part.width
        if _shows(line):
            _share(line, width - taken)
            yield line

    def _arrange(self, rect: QRect, move: bool) -> int:
        """Place the items if `move`; returns the height they need."""
        mirrored = self._mirrored()
        y, pushed = 0, False
        for line in self._lines(rect.width()):
            shown = [part for part in line if not part.space]
            high = max(_height(part) for part in shown)
            used = sum(part.width for part in line) + self.spacing() * (len(shown) - 1)
            x = rect.width() - used if pushed else 0
            for part in line:
                if move and not part.space:
                    left = rect.right() + 1 - x - part.width if mirrored else rect.left() + x
                    part.item.setGeometry(QRect(left, rect.top() + y, part.width, high))
                x += part.width + (0 if part.space else self.spacing())
            pushed = pushed or any(part.stretch for part in line)
            y += high + self.spacing()
        return max(0, y - self.spacing())

    def _mirrored(self) -> bool:
        parent = self.parentWidget()
        return parent is not None and parent.layoutDirection() == Qt.LayoutDirection.RightToLeft


def _shows(line: list[_Part]) -> bool:
    return any(not part.space for part in line)


def _height(part: _Part) -> int:
    item = part.item
    return item.heightForWidth(part.width) if item.hasHeightForWidth() else item.sizeHint().height()


def _share(line: list[_Part], free: int) -> None:
    """Distribute `free` pixels by the shares of the parts, none above its largest width."""
    growing = [part for part in line if part.stretch]
    while free > 0 and growing:
        shares = sum(part.stretch for part in growing)
        full = [
            part for part in growing
            if not part.space and part.width + free * part.stretch // shares > part.item.maximumSize().width()
        ]  # fmt: skip
        for part in full:
            free -= part.item.maximumSize().width() - part.width
            part.width = part.item.maximumSize().width()
            growing.remove(part)
        if not full:
            for part in growing:
                wider = free * part.stretch // shares
                part.width, free, shares = part.width + wider, free - wider, shares - part.stretch
            growing = []
