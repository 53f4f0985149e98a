"""A picture in a message: shrunk to the column, loaded when it is first seen; a click opens it large."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QRect, QRectF, QSize, Qt
from PySide6.QtGui import QContextMenuEvent, QKeyEvent, QPainter, QPainterPath, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractButton, QMenu, QStyle, QWidget

from desktop.store.attachments.picture_marks import ADDRESS, PictureMark, marks
from desktop.views.transcript.rendering.image_loader import ImageKey
from desktop.views.transcript.rendering.math_image import Picture
from desktop.views.transcript.row_widgets.base import RowWidget
from desktop.views.transcript.row_widgets.context import RowContext
from desktop.views.transcript.rows import Row
from desktop.views.transcript.style import Style
from engine.words import _

__all__ = ["COPY_PICTURE", "OPEN_PICTURE", "SAVE_PICTURE", "SentPictureRow", "picture_name"]

OPEN_PICTURE, COPY_PICTURE, SAVE_PICTURE = "picture:", "copy-picture:", "save-picture:"
"""The actions of a picture; its key follows."""
_WIDEST, _HIGHEST = 26.0, 20.0
"""In letters' heights."""
_ROUND = 8.0


def picture_name(mark: PictureMark) -> str:
    """A picture's name for a screen reader."""
    return _("Picture: {name}, {width} by {height}", name=mark.name, width=mark.width, height=mark.height)


class _PictureButton(QAbstractButton):
    """Paints `picture`, or a frame while there is none; `opens_menu` is called with a position on screen."""

    def __init__(self, row: SentPictureRow) -> None:
        super().__init__(row)
        self._row = row
        self.picture: Picture | None = None
        self.words = ""
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        self._row.make_menu(self).popup(event.globalPos())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Open with Enter, too."""
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.click()
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        style = self._row.row_style
        if style is None:
            return
        painter = QPainter(self)
        painter.setRenderHints(QPainter.RenderHint.Antialiasing | QPainter.RenderHint.SmoothPixmapTransform)
        around = QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5)
        path = QPainterPath()
        path.addRoundedRect(around, _ROUND, _ROUND)
        if self.picture is not None:
            painter.setClipPath(path)
            painter.drawImage(around, self.picture.image)
            painter.setClipping(False)
        else:
            painter.setPen(style.colours.muted)
            painter.setFont(style.small_font)
            flags = Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap
            painter.drawText(self.rect().adjusted(6, 4, -6, -4), int(flags), self.words)
        focused = self.hasFocus()
        painter.setPen(QPen(style.colours.link if focused else style.colours.muted, 2.0 if focused else 1.0))
        painter.drawPath(path)
        painter.end()


class SentPictureRow(RowWidget):
    """A click emits the action `OPEN_PICTURE` with the picture's key, the menu the others."""

    def __init__(self, context: RowContext) -> None:
        super().__init__(context)
        self._pictures = context.pictures
        self._shown_key: ImageKey | None = None
        self._mark: PictureMark | None = None
        self.button = _PictureButton(self)
        self.button.clicked.connect(lambda: self._act(OPEN_PICTURE))
        self.watch(self.button)
        self._pictures.arrived.connect(self._arrived)

    def show_row(self, row: Row, style: Style, fresh: bool) -> None:
        self._mark = next(iter(marks(row.source)), None)
        if self._mark is not None:
            name = picture_name(self._mark)
            self.button.setAccessibleName(name)
            self.button.setToolTip(_("{name}\nClick to open it", name=self._mark.name))
            self.setAccessibleName(name)

    def release(self) -> None:
        super().release()
        self.button.picture, self._shown_key = None, None

    def fit(self, width: int) -> int:
        if self.row_style is None or self._mark is None:
            return 0
        size = _shown_size(self._mark, width, self.row_style)
        place = QRect(width - size.width(), self.gap, size.width(), size.height())
        if self.row is not None and self.row.item.role != "user":
            place.moveLeft(0)
        self.button.setGeometry(QStyle.visualRect(self.layoutDirection(), QRect(0, 0, width, 1 << 15), place))
        self._want(max(size.width(), size.height()))
        return self.gap + size.height()

    def make_menu(self, parent: QWidget) -> QMenu:
        """What can be done with the picture."""
        menu = QMenu(parent)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction(_("Open picture"), partial(self._act, OPEN_PICTURE))
        menu.addAction(_("Copy picture"), partial(self._act, COPY_PICTURE))
        menu.addAction(_("Save picture as…"), partial(self._act, SAVE_PICTURE))
        return menu

    def _act(self, action: str) -> None:
        if self.row is not None and self._mark is not None:
            self.signals.action.emit(action + self._mark.key, self.row.item.id)

    def _want(self, side: int) -> None:
        if self._mark is None:
            return
        self._shown_key = ImageKey(ADDRESS + self._mark.key, width=side, ratio=self.devicePixelRatioF())
        self._pictures.want(self._shown_key)
        self._show_picture()

    def _arrived(self, keys: set[ImageKey]) -> None:
        if self._shown_key in keys:
            self._show_picture()

    def _show_picture(self) -> None:
        if self._shown_key is None or self._mark is None:
            return
        self.button.picture = self._pictures.get(self._shown_key)
        lost = self.button.picture is None and self._pictures.known(self._shown_key)
        self.button.words = (
            _("{name}\nThis picture is no longer there.", name=self._mark.name) if lost else self._mark.name
        )
        self.button.update()


def _shown_size(mark: PictureMark, width: int, style: Style) -> QSize:
    """The size in logical pixels: never enlarged, and within the column and a share of the window."""
    most = QSize(min(round(width * 0.86), round(_WIDEST * style.em)), round(_HIGHEST * style.em))
    size = QSize(max(1, mark.width), max(1, mark.height))
    if size.width() > most.width() or size.height() > most.height():
        size = size.scaled(most, Qt.AspectRatioMode.KeepAspectRatio)
    return size.expandedTo(QSize(round(2 * style.em), round(2 * style.em)))
