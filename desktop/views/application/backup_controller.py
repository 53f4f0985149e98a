"""Makes and restores backups, and reports a file that was damaged or empty."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Slot
from PySide6.QtWidgets import QWidget

from desktop.services.session.chat_session import ChatSession
from desktop.services.system.backups import BackupService
from desktop.services.system.reveal_file import FileShower
from desktop.services.transfer.transfer import TransferService
from desktop.views.chat.chat_pane import ChatPane
from engine.words import _

if TYPE_CHECKING:
    from desktop.views.application.backup_dialog import BackupDialog

__all__ = ["BackupController"]


class BackupController(QObject):
    """Opens the list of backups, also from the notice that the file was empty; offers to show the file that
    was set aside.
    """

    def __init__(
        self,
        session: ChatSession,
        backups: BackupService,
        transfer: TransferService,
        chat: ChatPane,
        window: QWidget,
    ) -> None:
        super().__init__(window)
        self._session, self._backups, self._transfer = session, backups, transfer
        self._chat, self._window = chat, window
        self._shower = FileShower(lambda sentence: chat.show_notice(sentence, "warning"), self)
        self.dialog: BackupDialog | None = None
        self._when = ""
        backups.listed.connect(self._show_rows)
        backups.made.connect(self._on_made)
        backups.trouble.connect(self._on_trouble)
        backups.refused.connect(self._on_refused)
        backups.restored.connect(self._on_restored)
        session.notice.connect(self._offer)  # After the chat pane, which shows it without the button.

    def commands(self) -> dict[str, Callable[[], object]]:
        """The command that opens the list of backups."""
        return {"restore_backup": self.open}

    def open(self) -> None:
        """Show the list of backups."""
        if self.dialog is None:
            from desktop.views.application.backup_dialog import BackupDialog  # Only when needed.

            self.dialog = dialog = BackupDialog(self._window)
            dialog.make_requested.connect(self._backups.make_now)
            dialog.restore_requested.connect(self._restore)
            dialog.finished.connect(self._forget_dialog)
            self._backups.look()
        self.dialog.show()
        self.dialog.activateWindow()

    @Slot()
    def _forget_dialog(self) -> None:
        self.dialog = None

    @Slot(object)
    def _show_rows(self, rows: object) -> None:
        if self.dialog is not None and isinstance(rows, tuple):
            self.dialog.show_rows(rows)

    @Slot()
    def _on_made(self) -> None:
        if self.dialog is not None:
            self._backups.look()

    def _restore(self, path: Path, when: str) -> None:
        if self._transfer.busy:
            self._show_notice(
                _("An import or export is still running. Wait for it or cancel it, then restore again."),
                "warning",
            )
            return
        self._when = when
        if self.dialog is not None:
            self.dialog.show_restoring()
        self._backups.restore(path)

    @Slot(str)
    def _on_refused(self, sentence: str) -> None:
        self._show_notice(_("Nothing was restored. {sentence}", sentence=sentence), "error")

    @Slot(str)
    def _on_restored(self, aside: str) -> None:
        if self.dialog is not None:
            self.dialog.accept()
        words = _("Your chats were restored from the backup of {when}.", when=self._when)
        self._chat.banner.show_notice(
            _("{words} The previous chats are kept in the file {aside}.", words=words, aside=aside)
            if aside
            else words,
            "warning",
            offer=(_("Show the file"), lambda: self._shower.show(self._backups.copies.path.with_name(aside)))
            if aside
            else None,
        )

    @Slot(str)
    def _on_trouble(self, sentence: str) -> None:
        self._show_notice(sentence, "warning")

    def _show_notice(self, sentence: str, level: str) -> None:
        if self.dialog is not None:
            self.dialog.show_notice(sentence)
        else:
            self._chat.show_notice(sentence, level)

    @Slot(str, str)
    def _offer(self, sentence: str, level: str) -> None:
        database = self._session.stores.database
        if sentence not in database.notices:
            return
        aside = database.set_aside
        offer: tuple[str, Callable[[], object]] = (_("Restore from a backup…"), self.open)
        if aside is not None:
            offer = (_("Show the file"), lambda: self._shower.show(aside))
        self._chat.banner.show_notice(sentence, level, offer=offer)
