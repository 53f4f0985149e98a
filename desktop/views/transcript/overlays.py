"""What lies over the rows: the button that leads to the end, and the widget of an empty conversation."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from desktop.views.transcript.row_widgets.editor import EditorRow
from desktop.views.transcript.style import TranscriptColours
from desktop.views.widgets.icons import IconButton
from engine.words import _

__all__ = ["Overlays"]


class _JumpButton(IconButton):
    """Paints its own background, because it lies over the rows."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__("arrow-down", _("Jump to the latest message"), parent)
        self.colours: TranscriptColours | None = None
        self.setObjectName("jumpToLatest")
        self.setFixedSize(36, 36)
        self.hide()

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.colours is not None:
            painter = QPainter(self)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(QPen(self.colours.line, 1.2))
            painter.setBrush(self.colours.background)
            painter.drawEllipse(QRectF(self.rect()).adjusted(1, 1, -1, -1))
            if self.underMouse() or self.hasFocus():
                painter.setPen(QPen(self.colours.muted, 1.6))
                painter.setBrush(Qt.BrushStyle.NoBrush)
                painter.drawEllipse(QRectF(self.rect()).adjusted(1, 1, -1, -1))
            side = self.iconSize().width()
            self.icon().paint(painter, (self.width() - side) // 2, (self.height() - side) // 2, side, side)
            painter.end()


class Overlays:
    """Both are children of the viewport; `place` puts them in position.

    The button hides where it would cover the message that is being edited.
    """

    def __init__(self, viewport: QWidget, jump: Callable[[], None]) -> None:
        self._viewport = viewport
        self._empty: QWidget | None = None
        self._jump = _JumpButton(viewport)
        self._jump.clicked.connect(jump)

    def set_empty(self, widget: QWidget) -> None:
        """Show `widget` for an empty conversation, instead of the one before."""
        if self._empty is not None:
            self._empty.deleteLater()
        self._empty = widget
        widget.setParent(self._viewport)

    def place(self, colours: TranscriptColours, empty: bool, at_end: bool) -> None:
        """Show what belongs to a conversation that is `empty`, or whose view is `at_end`."""
        area = self._viewport.rect()
        if self._empty is not None:
            self._empty.setGeometry(area)
            self._empty.setVisible(empty)
        if (empty or at_end) and self._jump.isHidden():
            return  # at every frame of a reply that is followed
        self._jump.colours = colours
        self._jump.move(area.center().x() - self._jump.width() // 2, area.bottom() - self._jump.height() - 12)
        editor = self._viewport.findChild(EditorRow, options=Qt.FindChildOption.FindDirectChildrenOnly)
        covers = (
            editor is not None and editor.isVisible() and editor.geometry().intersects(self._jump.geometry())
        )
        shown = not empty and not at_end and not covers
        if not shown and self._jump.hasFocus():
            self._viewport.setFocus(Qt.FocusReason.OtherFocusReason)
        self._jump.setVisible(shown)
        self._jump.raise_()
