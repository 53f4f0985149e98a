"""Shows a file in the system's file manager, selected if possible; otherwise opens its folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, QProcess, QUrl
from PySide6.QtGui import QDesktopServices

from engine.words import _

__all__ = ["FileShower", "show_command"]

Failed = Callable[[str], None]
SERVICE, PLACE = "org.freedesktop.FileManager1", "/org/freedesktop/FileManager1"
"""The file manager interface of Linux desktops:
https://www.freedesktop.org/wiki/Specifications/file-manager-interface
"""
ANSWER_MS = 5000


def show_command(path: Path, platform: str = sys.platform) -> tuple[str, list[str]] | None:
    """The command that selects a file; None on systems without one."""
    if platform == "darwin":
        return "/usr/bin/open", ["-R", str(path)]
    if platform == "win32":
        return str(Path(os.environ.get("SYSTEMROOT", r"C:\Windows")) / "explorer.exe"), [
            "/select,",
            str(path),
        ]
    return None


class FileShower(QObject):
    """`show(path)`; calls `failed(sentence)` if no file manager could be opened."""

    def __init__(self, failed: Failed, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._failed = failed

    def show(self, path: Path) -> None:
        command = show_command(path)
        if command is not None:
            started = QProcess.startDetached(*command)
            if not (started[0] if isinstance(started, tuple) else started):
                self.open_folder(path)
        elif not self._ask_file_manager(path):
            self.open_folder(path)

    def open_folder(self, path: Path) -> None:
        """Open the folder of `path`, or `path` itself if it is a folder."""
        folder = path if path.is_dir() else path.parent
        if not QDesktopServices.openUrl(QUrl.fromLocalFile(str(folder))):
            self._failed(_("No file manager opened {folder}.", folder=folder))

    def _ask_file_manager(self, path: Path) -> bool:
        """Ask over the session bus; False if there is none. If the call fails later, the folder is opened."""
        try:
            from PySide6.QtDBus import QDBusConnection, QDBusMessage, QDBusPendingCallWatcher
        except ImportError:  # Qt was built without it
            return False
        bus = QDBusConnection.sessionBus()
        if not bus.isConnected():
            return False
        message = QDBusMessage.createMethodCall(SERVICE, PLACE, SERVICE, "ShowItems")
        message.setArguments(
            [[QUrl.fromLocalFile(str(path)).toString(QUrl.ComponentFormattingOption.FullyEncoded)], ""]
        )
        watcher = QDBusPendingCallWatcher(bus.asyncCall(message, ANSWER_MS), self)

        def answered() -> None:
            if watcher.isError():
                self.open_folder(path)
            watcher.deleteLater()

        watcher.finished.connect(answered)
        return True
