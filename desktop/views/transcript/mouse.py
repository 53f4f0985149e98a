"""The mouse in the transcript: selecting across rows with scrolling at the edges, links, and words and blocks
by double and triple clicks.
"""

from __future__ import annotations

from PySide6.QtCore import QElapsedTimer, QObject, QPoint, Qt, QTimer
from PySide6.QtGui import QGuiApplication, QMouseEvent

from desktop.views.transcript.links import follow_link, link_words
from desktop.views.transcript.parts import TranscriptParts
from desktop.views.transcript.rows import Row
from desktop.views.transcript.scrolling import Scrolling
from desktop.views.transcript.tokens.inspector import TokenInspector

__all__ = ["Pointer"]

_SCROLL_MS = 30


class Pointer(QObject):
    """Turns mouse events of the viewport into selections, link clicks and the message under the pointer."""

    def __init__(self, parts: TranscriptParts, scrolling: Scrolling, inspection: TokenInspector) -> None:
        super().__init__(parts.area)
        self._parts, self._scrolling, self._inspection = parts, scrolling, inspection
        self._hovered: int | None = None
        self._link = ""
        self._at = QPoint()
        self._pressed: Row | None = None
        self._since = QElapsedTimer()
        self._timer = QTimer(self)
        self._timer.setInterval(_SCROLL_MS)
        self._timer.timeout.connect(self._scroll)

    def pinned(self) -> set[Row]:
        """The row in which the mouse button was pressed."""
        return {self._pressed} if self._pressed is not None else set()

    def press(self, event: QMouseEvent) -> None:
        """Begin a selection, or extend it with Shift; a triple click selects the block."""
        found = self._scrolling.hit(event.position().toPoint())
        if event.button() != Qt.MouseButton.LeftButton or found is None:
            return
        row, widget, point = found
        self._inspection.press(row, widget, point)
        selection = self._parts.selection
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
        found = self._scrolling.hit(event.position().toPoint())
        if found is not None and event.button() == Qt.MouseButton.LeftButton:
            row, widget, point = found
            start, end = widget.word_at(point)
            self._parts.selection.start(row, start)
            self._parts.selection.extend(row, end)
            self._parts.selection.show()
            self._since.start()

    def move(self, event: QMouseEvent) -> None:
        """Extend the selection while the button is down; otherwise show what is under the pointer."""
        point = event.position().toPoint()
        if event.buttons() & Qt.MouseButton.LeftButton and self._pressed is not None:
            if (point - self._at).manhattanLength() >= QGuiApplication.styleHints().startDragDistance() // 2:
                self._link = ""
                self._inspection.close()
            self._at = point
            self._extend()
            outside = point.y() < 0 or point.y() > self._parts.area.viewport().height()
            if outside and not self._timer.isActive():
                self._timer.start()
            elif not outside:
                self._timer.stop()
            return
        self.hover(point)

    def hover(self, point: QPoint) -> None:
        """Set the cursor, the tooltip and the visible message buttons for the place under the pointer."""
        found = self._scrolling.hit(point)
        link = found[1].link_at(found[2]) if found is not None else ""
        text = found is not None and found[1].over_text(found[2])
        shape = (
            Qt.CursorShape.PointingHandCursor
            if link
            else Qt.CursorShape.IBeamCursor
            if text
            else Qt.CursorShape.ArrowCursor
        )
        viewport = self._parts.area.viewport()
        if viewport.cursor().shape() != shape:
            viewport.setCursor(shape)
        tip = link_words(self._parts, found[0], link) if found is not None and link else ""
        if viewport.toolTip() != tip:
            viewport.setToolTip(tip)
        self._set_hovered(found[0].item.id if found is not None else None)
        self._inspection.hover(*(found or (None, None, point)))

    def leave(self) -> None:
        """The pointer has left the transcript."""
        self._inspection.leave()
        self._set_hovered(None)

    def _set_hovered(self, message_id: int | None) -> None:
        if message_id != self._hovered:
            self._hovered = message_id
            self.reveal()

    def reveal(self) -> None:
        """Show the buttons of the last message and of the one under the pointer."""
        rows = self._parts.messages.layout.rows
        last = rows[-1].item.id if rows else None
        for row, widget in self._parts.pool.footers():
            widget.reveal(row.item.id in (self._hovered, last))

    def release(self, event: QMouseEvent) -> None:
        """End the selection; open a link that was pressed without dragging."""
        self.stop()
        found = self._scrolling.hit(event.position().toPoint())
        link, self._link = self._link, ""
        if (
            link
            and event.button() == Qt.MouseButton.LeftButton
            and found is not None
            and found[1].link_at(found[2]) == link
        ):
            follow_link(self._parts, self._scrolling, found[0], link)

    def stop(self) -> None:
        """The button is up, or the view is hidden."""
        self._pressed = None
        self._timer.stop()

    def _extend(self) -> None:
        point = QPoint(self._at)
        point.setY(max(0, min(point.y(), self._parts.area.viewport().height() - 1)))
        found = self._scrolling.hit(point)
        if found is not None:
            row, widget, local = found
            self._parts.selection.extend(row, widget.position_at(local))
            self._parts.selection.show()

    def _scroll(self) -> None:
        height = self._parts.area.viewport().height()
        over = self._at.y() if self._at.y() < 0 else max(0, self._at.y() - height)
        bar = self._parts.area.verticalScrollBar()
        bar.setValue(bar.value() + max(-60, min(60, over)))
        self._extend()
