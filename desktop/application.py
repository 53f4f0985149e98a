"""The QApplication, and the first paint of its window."""

from __future__ import annotations

import os
from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, Signal
from PySide6.QtGui import QFileOpenEvent, QGuiApplication
from PySide6.QtWidgets import QApplication

from desktop.services.system.malloc_trim import share_arenas
from desktop.views.widgets.icons import application_icon

__all__ = ["Application", "FirstPaint", "make_application"]


class FirstPaint(QObject):
    """Calls `then` once, in the next round of the event loop after the first paint of `window`."""

    def __init__(self, window: QObject, then: Callable[[], None]) -> None:
        super().__init__(window)
        self._then = then
        window.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Paint:
            watched.removeEventFilter(self)
            QTimer.singleShot(0, self, self._then)
        return False


class Application(QApplication):
    """The application object; `file_opened(path)` is how macOS hands over a file that was double-clicked."""

    file_opened = Signal(str)

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QFileOpenEvent) and event.file():
            self.file_opened.emit(event.file())
            return True
        return super().event(event)


def make_application(arguments: list[str]) -> Application:
    """The QApplication with the program's name, icon and exact fractional scaling."""
    share_arenas()  # Before the first thread starts.
    QGuiApplication.setHighDpiScaleFactorRoundingPolicy(Qt.HighDpiScaleFactorRoundingPolicy.PassThrough)
    app = Application(arguments)
    app.setApplicationName("Inglenook")
    app.setDesktopFileName(os.environ.get("FLATPAK_ID", "inglenook"))
    app.setWindowIcon(application_icon())
    app.setQuitOnLastWindowClosed(False)  # `live` ends when the window is closed
    return app
