"""Icons: the program's own line drawings, in the colours of the palette."""

from __future__ import annotations

from functools import lru_cache

from PySide6.QtCore import QByteArray, QEvent, QRectF, QSize, Qt
from PySide6.QtGui import QIcon, QPainter, QPaintEvent, QPalette, QPixmap, QShowEvent
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QToolButton, QWidget

import resources

__all__ = ["IconButton", "application_icon", "pixmap", "tinted"]

_SIZES = (16, 20, 24, 32, 48, 64)


@lru_cache(maxsize=64)
def _strokes(name: str) -> str:
    return resources.text(f"icons/{name}.svg")


@lru_cache(maxsize=1024)
def pixmap(name: str, colour: str, size: int) -> QPixmap:
    """resources/icons/`name`.svg at `size` by `size` device pixels, its black strokes in `colour`
    ("#rrggbb").
    """
    source = _strokes(name).replace("#000", colour)
    renderer = QSvgRenderer(QByteArray(source.encode()))
    picture = QPixmap(size, size)
    picture.fill(Qt.GlobalColor.transparent)
    painter = QPainter(picture)
    renderer.render(painter, QRectF(0, 0, size, size))
    painter.end()
    return picture


@lru_cache(maxsize=1024)
def tinted(name: str, colour: str, disabled: str, sizes: tuple[int, ...] = _SIZES) -> QIcon:
    """The icon in `colour`, or in `disabled` for a disabled control; sharp at these device sizes."""
    icon = QIcon()
    for size in sizes:
        icon.addPixmap(pixmap(name, colour, size), QIcon.Mode.Normal)
        icon.addPixmap(pixmap(name, disabled, size), QIcon.Mode.Disabled)
    return icon


def application_icon() -> QIcon:
    """The icon of the window and the taskbar."""
    icon = QIcon()
    for size in (*_SIZES, 128, 256):
        icon.addPixmap(pixmap("inglenook", "#000", size))
    return icon


class IconButton(QToolButton):
    """A flat button with only an icon: `label` is its tooltip and its accessible name."""

    def __init__(
        self,
        icon_name: str,
        label: str,
        parent: QWidget | None = None,
        role: QPalette.ColorRole = QPalette.ColorRole.WindowText,
    ) -> None:
        super().__init__(parent)
        self._icon_name, self._role = icon_name, role
        self._drawn: tuple[str, str, str, tuple[int, ...]] | None = None
        self.setAutoRaise(True)
        self.setCursor(Qt.CursorShape.ArrowCursor)
        self.set_face(icon_name, label)

    def set_face(self, icon_name: str, label: str, tip: str = "") -> None:
        """Change the icon and name; `tip` replaces the name in the tooltip (to add a shortcut)."""
        self._icon_name = icon_name
        self.setAccessibleName(label)
        self.setToolTip(tip or label)
        self._tint()

    def _tint(self) -> None:
        side = self._side()
        if self.iconSize().width() != side:
            self.setIconSize(QSize(side, side))
        if not self.isVisible():  # setting a style notifies each button many times
            return
        palette = self.palette()
        normal = palette.color(QPalette.ColorGroup.Active, self._role).name()
        disabled = palette.color(QPalette.ColorGroup.Disabled, self._role).name()
        look = (self._icon_name, normal, disabled, (self._device_side(),))
        if look != self._drawn:
            self._drawn = look
            self.setIcon(tinted(*look))

    def _side(self) -> int:
        return round(self.fontMetrics().height() * 1.15)

    def _device_side(self) -> int:
        return round(self._side() * self.devicePixelRatioF())

    def changeEvent(self, event: QEvent) -> None:
        """Follow the theme and the text size."""
        super().changeEvent(event)
        if event.type() in (QEvent.Type.PaletteChange, QEvent.Type.FontChange, QEvent.Type.StyleChange):
            self._tint()

    def showEvent(self, event: QShowEvent) -> None:
        """Icons are drawn on first show."""
        self._tint()
        super().showEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Follow the window to a screen of another pixel density, which paints everything again.

        Asking Python about each event of all buttons would take a tenth of the time in which a window opens.
        """
        if self._drawn is not None and self._drawn[-1] != (self._device_side(),):
            self._tint()
        super().paintEvent(event)
