"""Sidebar, centre and inspector side by side, as many as the window is wide enough for."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QSplitter, QWidget

__all__ = ["Panes"]

LEFT, RIGHT = "left", "right"
_FRAMES = 14
"""Pixels that frames take from a pane besides what its layout asks for."""
_CHARACTERS = {LEFT: 28, "centre": 42, RIGHT: 45}
"""Widths in average characters that make each pane useful."""
_WIDEST = 520
"""Pixels that a pane takes at least, however wide its content."""


class Panes(QSplitter):
    """Three panes.

    A side pane that the user wants is shown where there is room; in a narrow window it is shown on demand,
    alone.

    `alone_changed(side)`: the side pane that fills the window, "" for none.
    """

    alone_changed = Signal(str)

    def __init__(self, left: QWidget, centre: QWidget, right: QWidget, parent: QWidget | None = None) -> None:
        super().__init__(Qt.Orientation.Horizontal, parent)
        self._sides = {LEFT: left, RIGHT: right}
        self._centre = centre
        self._requested = {LEFT: True, RIGHT: True}
        self._alone = ""
        self._reported = ""
        for widget in (left, centre, right):
            self.addWidget(widget)
        self.setChildrenCollapsible(False)
        self.setHandleWidth(1)  # Qt makes the draggable part wider.
        self.setStretchFactor(0, 0)
        self.setStretchFactor(1, 1)
        self.setStretchFactor(2, 0)
        self.fit_text()

    def need(self, which: str) -> int:
        """Pixels that a pane needs with the present text size, and in a language with long words."""
        need = round(self.fontMetrics().averageCharWidth() * _CHARACTERS[which]) + 30
        if which not in self._sides:
            return need
        return max(need, self._sides[which].minimumSizeHint().width() + _FRAMES)

    def requested(self, side: str) -> bool:
        """Whether the user wants this side pane, room or not."""
        return self._requested[side]

    def set_requested(self, side: str, requested: bool) -> None:
        """Restore whether the user wants it, as when the window was closed."""
        self._requested[side] = requested
        self._arrange()

    def toggle(self, side: str) -> None:
        """Show or hide a side pane; without room it replaces the others until it is toggled or left."""
        if not self._sides[side].isHidden():
            self._requested[side] = self._alone == side and self._requested[side]
            self._alone = ""
        else:
            self._requested[side] = True
            self._alone = "" if side in self._fitting() else side
        self._arrange()

    def show_side(self, side: str) -> None:
        """Show a side pane if it is hidden."""
        if self._sides[side].isHidden():
            self.toggle(side)

    def leave_side(self) -> None:
        """Go back to the conversation, in a narrow window."""
        self._alone = ""
        self._arrange()

    def fit_text(self) -> None:
        """Follow the text size."""
        self._limit()
        self.setSizes([self.need(LEFT) + 20, 700, self.need(RIGHT) + 10])
        self._arrange()

    def _fitting(self) -> set[str]:
        """The requested side panes that fit beside the centre; the sidebar comes first."""
        room, fitting = self.width() - self.need("centre"), set()
        for side in (LEFT, RIGHT):
            if self._requested[side] and self.need(side) <= room:
                room -= self.need(side)
                fitting.add(side)
        return fitting

    def _limit(self) -> None:
        """Let no side pane be narrower than is useful, nor wider than the window."""
        room = self.width() if self.isVisible() else _WIDEST
        for side, widget in self._sides.items():
            widget.setMinimumWidth(min(self.need(side), _WIDEST, room))

    def _arrange(self) -> None:
        self._limit()
        fitting = self._fitting()
        if self._alone in fitting:
            self._alone = ""
        shown = {self._alone} if self._alone else fitting
        self._centre.setVisible(not self._alone)
        for side, widget in self._sides.items():
            widget.setVisible(side in shown)
        if self._alone != self._reported:
            self._reported = self._alone
            self.alone_changed.emit(self._alone)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange and hasattr(self, "_reported"):
            self.fit_text()

    def minimumSizeHint(self) -> QSize:
        """Small: panes that do not fit are hidden instead of keeping the window wide."""
        return QSize(300, 240)
