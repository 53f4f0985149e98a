"""Sidebar, centre and inspector beside each other, as many of them as the window is wide enough for."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QSplitter, QWidget

__all__ = ["Panes"]

LEFT, RIGHT = "left", "right"
_CHARACTERS = {LEFT: 28, "centre": 42, RIGHT: 45}
"""Widths in average characters: what each pane needs to be of use."""


class Panes(QSplitter):
    """Three panes.

    A side pane the user wants is shown where there is room; in a narrow window it is shown on demand, alone.

    `alone_changed(side)` tells which side pane has the window to itself, "" for none.
    """

    alone_changed = Signal(str)

    def __init__(self, left: QWidget, centre: QWidget, right: QWidget, parent: QWidget | None = None) -> None:
        super().__init__(Qt.Orientation.Horizontal, parent)
        self._sides = {LEFT: left, RIGHT: right}
        self._centre = centre
        self._wanted = {LEFT: True, RIGHT: True}
        self._alone = ""
        self._told = ""
        for widget in (left, centre, right):
            self.addWidget(widget)
        self.setChildrenCollapsible(False)
        self.setHandleWidth(1)  # Qt widens the part that can be grabbed by itself
        self.setStretchFactor(0, 0)
        self.setStretchFactor(1, 1)
        self.setStretchFactor(2, 0)
        self.fit_text()

    def need(self, which: str) -> int:
        """Pixels that a pane needs with the present text size."""
        return round(self.fontMetrics().averageCharWidth() * _CHARACTERS[which]) + 30

    def wanted(self, side: str) -> bool:
        """Whether the user wants this side pane, room or not."""
        return self._wanted[side]

    def set_wanted(self, side: str, wanted: bool) -> None:
        """Want it or not, as when the window was closed."""
        self._wanted[side] = wanted
        self._arrange()

    def toggle(self, side: str) -> None:
        """Show or hide a side pane; without room it takes the place of the others until it is toggled or
        left.
        """
        if not self._sides[side].isHidden():
            self._wanted[side] = self._alone == side and self._wanted[side]
            self._alone = ""
        else:
            self._wanted[side] = True
            self._alone = "" if side in self._fitting() else side
        self._arrange()

    def show_side(self, side: str) -> None:
        """Show a side pane if it is hidden."""
        if self._sides[side].isHidden():
            self.toggle(side)

    def leave_side(self) -> None:
        """In a narrow window: back to the conversation."""
        self._alone = ""
        self._arrange()

    def fit_text(self) -> None:
        """Follow the text size."""
        for side, widget in self._sides.items():
            widget.setMinimumWidth(min(self.need(side), 520))
        self.setSizes([self.need(LEFT) + 20, 700, self.need(RIGHT) + 10])
        self._arrange()

    def _fitting(self) -> set[str]:
        """The wanted side panes for which there is room beside the centre; the sidebar comes first."""
        room, fitting = self.width() - self.need("centre"), set()
        for side in (LEFT, RIGHT):
            if self._wanted[side] and self.need(side) <= room:
                room -= self.need(side)
                fitting.add(side)
        return fitting

    def _arrange(self) -> None:
        fitting = self._fitting()
        if self._alone in fitting:
            self._alone = ""
        shown = {self._alone} if self._alone else fitting
        self._centre.setVisible(not self._alone)
        for side, widget in self._sides.items():
            widget.setVisible(side in shown)
        if self._alone != self._told:
            self._told = self._alone
            self.alone_changed.emit(self._alone)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange and hasattr(self, "_told"):
            self.fit_text()

    def minimumSizeHint(self) -> QSize:
        """Small: panes that find no room are hidden instead of keeping the window wide."""
        return QSize(300, 240)
