"""Notifications through the system tray, on Windows and macOS."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QSystemTrayIcon

from desktop.services.system.debounce import debounce
from desktop.views.widgets.icons import application_icon

__all__ = ["TrayNotifier"]

_SECONDS = 15


class TrayNotifier(QObject):
    """Shows an icon in the tray while its notification is visible: Qt shows none without an icon."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._icon: QSystemTrayIcon | None = None
        self._clicked: Callable[[str], None] = lambda _token: None
        self._timer = debounce(self, self.close)

    def show(self, title: str, text: str, clicked: Callable[[str], None], failed: Callable[[], None]) -> None:
        """Show a notification for 15 seconds."""
        if not (QSystemTrayIcon.isSystemTrayAvailable() and QSystemTrayIcon.supportsMessages()):
            failed()
            return
        self.close()
        self._clicked = clicked
        self._icon = QSystemTrayIcon(application_icon(), self)
        self._icon.messageClicked.connect(self._on_click)
        self._icon.activated.connect(self._on_click)
        self._icon.show()
        self._icon.showMessage(title, text, application_icon(), _SECONDS * 1000)
        self._timer.start(_SECONDS * 1000)

    def close(self) -> None:
        """Remove the icon."""
        self._timer.stop()
        if self._icon is not None:
            self._icon.hide()
            self._icon.deleteLater()
            self._icon = None

    def _on_click(self) -> None:
        self.close()
        self._clicked("")
