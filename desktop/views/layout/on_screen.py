"""Keeps a window on the screen, with its message box and its title bar, on whatever screens there are."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QObject, QRect, QSize, Slot
from PySide6.QtGui import QGuiApplication, QRegion, QScreen
from PySide6.QtWidgets import QStyle, QWidget

from desktop.services.system.debounce import debounce

__all__ = ["OnScreen", "first_size", "placed"]

_SETTLED_MS = 400
"""How long the system itself may take to move windows to another screen."""
_GRIP = 48
"""Pixels of a title bar that are enough to take hold of it."""


def first_size(window: QWidget, width: int, height: int) -> QSize:
    """The size of a window that is not shown yet: `width` x `height`, or what fits on its screen with the
    frame that it will get.
    """
    room, style = window.screen().availableGeometry(), window.style()
    title = style.pixelMetric(QStyle.PixelMetric.PM_TitleBarHeight, None, window)
    edge = style.pixelMetric(QStyle.PixelMetric.PM_MdiSubWindowFrameWidth, None, window)
    return QSize(min(width, room.width() - 2 * edge), min(height, room.height() - title - edge))


def placed(frame: QRect, screens: Sequence[QRect]) -> QRect:
    """Where a window with the frame `frame` belongs on `screens` (their parts without panels, one at least).

    It stays where it is if its title bar can be taken hold of, and if it is no larger than the screen on
    which most of it lies or all of it lies on screens. Otherwise it is made smaller and moved onto that
    screen; a window on no screen goes to the first.
    """

    def shown(screen: QRect) -> int:
        part = screen.intersected(frame)
        return part.width() * part.height() if part.isValid() else 0

    screen = max(screens, key=shown)
    bar = QRect(frame.left(), frame.top(), frame.width(), 1)
    held = any(bar.intersected(each).width() >= min(_GRIP, frame.width()) for each in screens)
    uncovered = QRegion(frame)
    for each in screens:
        uncovered -= QRegion(each)
    fits = frame.width() <= screen.width() and frame.height() <= screen.height()
    if held and (fits or uncovered.isEmpty()):
        return frame
    size = frame.size().boundedTo(screen.size())
    left = min(max(frame.left(), screen.left()), screen.right() + 1 - size.width())
    top = min(max(frame.top(), screen.top()), screen.bottom() + 1 - size.height())
    return QRect(left, top, size.width(), size.height())


class OnScreen(QObject):
    """Puts `window` onto a screen again when one was unplugged, or got another resolution or panel.

    A window that the user drags to a smaller screen is left as it is; so is one that fills its screen.
    """

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self._window = window
        self._later = debounce(self, self._place)
        app = QGuiApplication.instance()
        assert isinstance(app, QGuiApplication)
        app.screenAdded.connect(self._added)
        app.screenRemoved.connect(self._changed)
        for screen in app.screens():
            self._added(screen)

    @Slot(QScreen)
    def _added(self, screen: QScreen) -> None:
        screen.availableGeometryChanged.connect(self._changed)

    @Slot()
    def _changed(self) -> None:
        self._later.start(_SETTLED_MS)

    @Slot()
    def _place(self) -> None:
        window, screens = self._window, [each.availableGeometry() for each in QGuiApplication.screens()]
        if not window.isVisible() or window.isMinimized() or window.isMaximized() or window.isFullScreen():
            return
        frame = window.frameGeometry()
        target = placed(frame, screens) if screens else frame
        if target != frame:
            around = frame.size() - window.size()
            window.resize(target.size() - around)
            window.move(target.topLeft())
