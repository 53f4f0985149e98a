"""Log, error reports, notifications, and the entry in the system's menu."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QWidget

from desktop.services.services import Services
from desktop.services.system.notifications import BusNotifier, Notifier, ReplyWatch
from desktop.services.system.reveal_file import FileShower
from desktop.views.layout.bring_forward import bring_forward
from desktop.views.widgets.banner import Banner
from engine.words import N_, _, paragraph, translate

if TYPE_CHECKING:
    from desktop.views.application.desktop_entry_dialog import MenuEntryDialog
    from desktop.views.application.log_window import LogWindow
    from desktop.views.application.update_dialog import UpdateDialog
    from desktop.views.local_server.server_window import LocalServerWindow
    from engine.hub.updates.manifest import Update

__all__ = ["LOG_FILE", "ApplicationController", "make_notifier"]

LOG_FILE = "logs/inglenook.log"
CRASHED = N_("Inglenook crashed the last time it ran. Everything written until then was saved.")
NOT_LOADED = N_("The model was not loaded automatically this time, in case it caused the crash.")
CUT_OFF = N_(
    "Inglenook ended unexpectedly the last time it ran, and the cause is unknown. Everything written "
    "until then was saved."
)


def make_notifier(platform: str = sys.platform) -> Notifier:
    """The notifications of this system."""
    if platform not in ("win32", "darwin"):
        return BusNotifier()
    from desktop.views.application.tray_notifier import TrayNotifier  # Only where it is needed.

    return TrayNotifier()


def in_front() -> bool:
    """Whether one of this program's windows is active."""
    return QGuiApplication.applicationState() == Qt.ApplicationState.ApplicationActive


class ApplicationController(QObject):
    """Serves `window`: reports errors in its banner, and makes its dialogs when they are first opened.

    `show_chat(conversation)` shows a chat in the window; `log_window`, `entry_dialog`, `server_window` and
    `update_dialog` are None until they are made.
    """

    def __init__(
        self, services: Services, banner: Banner, show_chat: Callable[[int], object], window: QWidget
    ) -> None:
        super().__init__(window)
        self._services, self._banner, self._show_chat, self._window = services, banner, show_chat, window
        self._log_file = services.folder / LOG_FILE
        self._shower = FileShower(lambda sentence: banner.show_notice(sentence, "warning"), self)
        self.log_window: LogWindow | None = None
        self.entry_dialog: MenuEntryDialog | None = None
        self.server_window: LocalServerWindow | None = None
        self.update_dialog: UpdateDialog | None = None
        services.updates.available.connect(self._offer_update)
        services.local_server.not_restored.connect(self._report_server)
        self.watch = ReplyWatch(services.session, make_notifier, in_front, self)
        self.watch.show_requested.connect(self._show_reply)
        self.watch.unheard.connect(lambda: QApplication.alert(window))

    def commands(self) -> dict[str, Callable[[], object]]:
        """The commands of the Help menu."""
        return {
            "local_server": self.show_local_server,
            "log": self.show_log,
            "menu_entry": self.show_menu_entry,
            "updates": lambda: self.show_updates(),
            "about": self.show_about,
        }

    def show_about(self) -> None:
        """Show the About dialog."""
        from desktop.views.application.about_dialog import AboutDialog  # only when needed

        AboutDialog(self._window).open()

    def show_updates(self, found: Update | None = None) -> None:
        """Ask whether there is a newer version, or show the one that was `found`."""
        from desktop.views.application.update_dialog import UpdateDialog  # only when needed

        self.update_dialog = dialog = UpdateDialog(self._services.updates, self._window, found)
        dialog.restart_requested.connect(self._restart)
        dialog.finished.connect(self._forget_update_dialog)
        dialog.open()

    @Slot()
    def _forget_update_dialog(self) -> None:
        self.update_dialog = None

    @Slot()
    def _restart(self) -> None:
        self._services.updates.restart = True
        if not self._window.close():
            self._services.updates.restart = False  # something still has to be saved, or the user stays

    @Slot(object)
    def _offer_update(self, update: Update) -> None:
        self._banner.show_notice(
            _("Inglenook {version} is available.", version=update.version),
            "info",
            offer=(_("Show…"), lambda: self.show_updates(update)),
        )

    @Slot(str)
    def _report_server(self, trouble: str) -> None:
        """Other programs wait for it: the user has to know, and may not have opened its window for weeks."""
        self._banner.show_notice(
            _("The local server did not start. {trouble}", trouble=trouble),
            "warning",
            offer=(_("Local server…"), self.show_local_server),
        )

    def close(self) -> None:
        """Close its windows, with the main window."""
        self.watch.close()
        if self.log_window is not None:
            self.log_window.close()
        if self.entry_dialog is not None:
            self.entry_dialog.close()
        if self.server_window is not None:
            self.server_window.close()

    def show_log(self) -> None:
        """Show the log as it grows."""
        if self.log_window is None:
            from desktop.views.application.log_window import LogWindow  # only when needed

            self.log_window = LogWindow(self._log_file, self._shower.show, self._window)
        self.log_window.show()
        self.log_window.activateWindow()

    def show_local_server(self) -> None:
        """Show the server for other programs, and who uses it."""
        if self.server_window is None:
            # only when needed
            from desktop.views.local_server.server_window import LocalServerWindow

            self.server_window = LocalServerWindow(self._services.local_server, self._window)
        self.server_window.show()
        self.server_window.activateWindow()

    def show_menu_entry(self) -> None:
        """Let the user add the program to the system's menu, or remove it."""
        if self.entry_dialog is None:
            # only when needed
            from desktop.views.application.desktop_entry_dialog import MenuEntryDialog

            self.entry_dialog = MenuEntryDialog(self._window)
        self.entry_dialog.look()
        self.entry_dialog.open()

    def report_error(self, sentence: str, trace: str) -> None:
        """Report an error that nothing handled; a repeated one is reported once."""
        if self._banner.isVisible() and self._banner.text.text() == sentence:
            return
        self._show_with_report(sentence, "error", trace)

    def report_last_run(self, trace: str) -> None:
        """Report that the last run ended unexpectedly; `trace` is what a crash wrote, "" without one."""
        left_out = (
            translate(NOT_LOADED)
            if self._services.session.preferences.last_model and self._services.session.state == "no_model"
            else ""
        )
        self._show_with_report(
            paragraph(translate(CRASHED), left_out) if trace else translate(CUT_OFF), "warning", trace
        )

    def _show_with_report(self, sentence: str, level: str, trace: str) -> None:
        from desktop.report import shortened

        offer = (_("Show report…"), lambda: self._show_report(sentence, trace))
        self._banner.show_notice(sentence, level, details=shortened(trace), offer=offer)

    def _show_report(self, what: str, trace: str) -> None:
        from desktop.report import build_report, facts, last_lines

        model = self._services.session.model
        words = (
            _(
                "{model}, {architecture}, {format}, {bits_per_weight:.2f} bits",
                model=model.name,
                architecture=model.architecture,
                format=model.format,
                bits_per_weight=model.bits_per_weight,
            )
            if model is not None
            else ""
        )
        report = build_report(
            what, trace, last_lines(self._log_file), facts(QGuiApplication.platformName()), words
        )
        from desktop.views.application.error_report_dialog import ErrorReportDialog  # only when needed

        ErrorReportDialog(what, report, self.show_log, self._window).open()

    @Slot(int, str)
    def _show_reply(self, conversation: int, token: str) -> None:
        bring_forward(self._window, token)
        self._show_chat(conversation)
