"""Notifications through the system's tray, where there is no bus for them: Windows and macOS."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QSystemTrayIcon

from desktop.views.widgets.debounce import debounce
from desktop.views.widgets.icons import application_icon

__all__ = ["TrayNotifier"]

_SECONDS = 15


class TrayNotifier(QObject):
    """Shows an icon in the tray as long as its notification is there, for Qt shows none without one."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._icon: QSystemTrayIcon | None = None
        self._clicked: Callable[[str], None] = lambda _token: None
        self._timer = debounce(self, self.close)

    def show(self, title: str, text: str, clicked: Callable[[str], None], failed: Callable[[], None]) -> None:
        """Show one for a quarter of a minute."""
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
        """Take the icon away."""
        self._timer.stop()
        if self._icon is not None:
            self._icon.hide()
            self._icon.deleteLater()
            self._icon = None

    def _on_click(self) -> None:
        self.close()
        self._clicked("")
