"""The mouse in the transcript: selecting over rows with scrolling at the edges, links, words and blocks by
clicks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QElapsedTimer, QObject, QPoint, Qt, QTimer
from PySide6.QtGui import QGuiApplication, QMouseEvent

from desktop.views.transcript.commands import follow_link, link_words
from desktop.views.transcript.row_widgets.base import RowWidget
from desktop.views.transcript.rows import Row

if TYPE_CHECKING:
    from desktop.views.transcript.view import TranscriptView

__all__ = ["Pointer"]

_SCROLL_MS = 30


class Pointer(QObject):
    """Turns mouse events of the viewport into selections, link clicks and the row under the pointer."""

    def __init__(self, view: TranscriptView) -> None:
        super().__init__(view)
        self._view = view
        self._link = ""
        self._at = QPoint()
        self._pressed: Row | None = None
        self._since = QElapsedTimer()
        self._timer = QTimer(self)
        self._timer.setInterval(_SCROLL_MS)
        self._timer.timeout.connect(self._scroll)

    def pinned(self) -> set[Row]:
        """The row that holds the mouse must stay alive."""
        return {self._pressed} if self._pressed is not None else set()

    def hit(self, point: QPoint) -> tuple[Row, RowWidget, QPoint] | None:
        """The row at, or nearest to, a point of the viewport, its widget and the point in it."""
        row = self._view.row_at(point.y())
        widget = self._view.stage.widget(row) if row is not None else None
        return None if row is None or widget is None else (row, widget, point - widget.pos())

    def press(self, event: QMouseEvent) -> None:
        """Begin a selection, or extend it with Shift; three quick clicks take the block."""
        found = self.hit(event.position().toPoint())
        if event.button() != Qt.MouseButton.LeftButton or found is None:
            return
        row, widget, point = found
        self._view.inspection.press(row, widget, point)
        selection = self._view.selection
        self._at = event.position().toPoint()
        self._pressed = row
        quick = (
            self._since.isValid()
            and self._since.elapsed() < QGuiApplication.styleHints().mouseDoubleClickInterval()
        )
        self._since.invalidate()
        if quick:
            selection.start(row, 0)
            selection.extend(row, 1 << 30)
        elif event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            selection.extend(row, widget.position_at(point))
        else:
            self._link = widget.link_at(point)
            selection.start(row, widget.position_at(point))
        selection.show()

    def double_click(self, event: QMouseEvent) -> None:
        """Select a word."""
        found = self.hit(event.position().toPoint())
        if found is not None and event.button() == Qt.MouseButton.LeftButton:
            row, widget, point = found
            start, end = widget.word_at(point)
            self._view.selection.start(row, start)
            self._view.selection.extend(row, end)
            self._view.selection.show()
            self._since.start()

    def move(self, event: QMouseEvent) -> None:
        """Extend the selection while the button is down; else show what is under the pointer."""
        point = event.position().toPoint()
        if event.buttons() & Qt.MouseButton.LeftButton and self._pressed is not None:
            if (point - self._at).manhattanLength() >= QGuiApplication.styleHints().startDragDistance() // 2:
                self._link = ""
                self._view.inspection.close()
            self._at = point
            self._extend()
            outside = point.y() < 0 or point.y() > self._view.viewport().height()
            if outside and not self._timer.isActive():
                self._timer.start()
            elif not outside:
                self._timer.stop()
            return
        self.hover(point)

    def hover(self, point: QPoint) -> None:
        """Cursor, tooltip and message actions for the place under the pointer."""
        found = self.hit(point)
        link = found[1].link_at(found[2]) if found is not None else ""
        text = found is not None and found[1].over_text(found[2])
        shape = (
            Qt.CursorShape.PointingHandCursor
            if link
            else Qt.CursorShape.IBeamCursor
            if text
            else Qt.CursorShape.ArrowCursor
        )
        viewport = self._view.viewport()
        if viewport.cursor().shape() != shape:
            viewport.setCursor(shape)
        tip = link_words(self._view, found[0], link) if found is not None and link else ""
        if viewport.toolTip() != tip:
            viewport.setToolTip(tip)
        self._view.set_hovered(found[0].item.id if found is not None else None)
        self._view.inspection.hover(*(found or (None, None, point)))

    def release(self, event: QMouseEvent) -> None:
        """End the selection; a link that was pressed and not dragged is opened."""
        self.stop()
        found = self.hit(event.position().toPoint())
        link, self._link = self._link, ""
        if (
            link
            and event.button() == Qt.MouseButton.LeftButton
            and found is not None
            and found[1].link_at(found[2]) == link
        ):
            follow_link(self._view, found[0], link)

    def stop(self) -> None:
        """The button is up, or the view goes away."""
        self._pressed = None
        self._timer.stop()

    def _extend(self) -> None:
        point = QPoint(self._at)
        point.setY(max(0, min(point.y(), self._view.viewport().height() - 1)))
        found = self.hit(point)
        if found is not None:
            row, widget, local = found
            self._view.selection.extend(row, widget.position_at(local))
            self._view.selection.show()

    def _scroll(self) -> None:
        height = self._view.viewport().height()
        over = self._at.y() if self._at.y() < 0 else max(0, self._at.y() - height)
        bar = self._view.verticalScrollBar()
        bar.setValue(bar.value() + max(-60, min(60, over)))
        self._extend()
