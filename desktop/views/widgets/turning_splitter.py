"""Two parts side by side, or one below the other where the window is too narrow for that."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QSize, Qt
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import QSplitter, QWidget

from desktop.views.layout.spacing import SCALE

__all__ = ["TurningSplitter"]


class TurningSplitter(QSplitter):
    """`parts` with their `shares` of the space; below each other in less than `characters` of average
    width."""

    def __init__(self, parts: tuple[QWidget, ...], shares: tuple[int, ...], characters: int) -> None:
        super().__init__(Qt.Orientation.Horizontal)
        self._parts, self._shares, self._characters = parts, shares, characters
        self._shown = False
        self.setChildrenCollapsible(False)
        self.setProperty("tone", "gap")
        self.setHandleWidth(SCALE[2])
        for part in parts:
            self.addWidget(part)
        self.setSizes(list(shares))

    def _turn(self) -> None:
        wide = self.width() >= self.fontMetrics().averageCharWidth() * self._characters
        # from right to left, Qt puts the parts a pixel too far to the right, where the last one is cut off
        self.setContentsMargins(0, 0, int(wide and self.isRightToLeft()), 0)
        turned = Qt.Orientation.Horizontal if wide else Qt.Orientation.Vertical
        if self.orientation() != turned or not self._shown:
            self.setOrientation(turned)
            size = self.width() if wide else self.height()
            self.setSizes([size * share // sum(self._shares) for share in self._shares])
        for part in self._parts:  # Qt does not ask how high a part is whose text wraps
            wraps = not wide and part.hasHeightForWidth()
            layout = part.layout()
            part.setMinimumHeight(
                layout.totalMinimumHeightForWidth(self.width()) if wraps and layout is not None else 0
            )

    def event(self, event: QEvent) -> bool:
        """Follow the text of the parts."""
        if event.type() == QEvent.Type.LayoutRequest:
            self._turn()
        return super().event(event)

    def showEvent(self, event: QShowEvent) -> None:
        """Divide the space by the shares; from then on, the user may move the handle."""
        self._turn()
        self._shown = True
        super().showEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._turn()
        super().resizeEvent(event)

    def changeEvent(self, event: QEvent) -> None:
        """Follow the text size."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange and hasattr(self, "_characters"):
            self._turn()

    def minimumSizeHint(self) -> QSize:
        """As narrow as the widest part, whether it has turned or not."""
        widest = max(part.minimumSizeHint().width() for part in self._parts)
        return QSize(widest, super().minimumSizeHint().height())
