"""Imports and exports chats, and shows the progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QWidget

from desktop.blocks import last_code
from desktop.services.session.chat_session import ChatSession
from desktop.services.system.reveal_file import FileShower
from desktop.services.transfer.transfer import TransferService
from desktop.store.database.database import StoreError
from desktop.views.chat.chat_pane import ChatPane
from desktop.views.dialogs.file_dialogs import ask_open
from desktop.views.widgets.flows import flow
from engine.words import _, ngettext

if TYPE_CHECKING:
    from desktop.services.transfer.transfer_report import Exported, ImportReport
    from desktop.views.transfer.export_dialog import ExportDialog
    from desktop.views.transfer.import_window import ImportWindow

__all__ = ["TransferController", "is_chats"]

REFRESH_S = 1.0
"""The list of chats follows an import at this interval: updating it takes some 20 ms for 10,000."""


class TransferController(QObject):
    """Opens the windows of export and import. `window` is the main window."""

    def __init__(
        self, session: ChatSession, transfer: TransferService, chat: ChatPane, window: QWidget
    ) -> None:
        super().__init__(window)
        self._session, self._transfer, self._chat, self._window = session, transfer, chat, window
        self._shower = FileShower(lambda sentence: chat.show_notice(sentence, "warning"), self)
        self.export_dialog: ExportDialog | None = None
        self.import_window: ImportWindow | None = None
        self._refreshed = 0.0
        self._changed: dict[int, bool] = {}
        transfer.exporting.connect(self._show_exporting)
        transfer.exported.connect(self._show_exported)
        transfer.importing.connect(self._show_importing)

    def commands(self) -> dict[str, Callable[[], object]]:
        """The commands that import and export chats."""
        return {
            "import_chats": self.ask_for_files,
            "export_chat": self.export_open,
            "export_all": self.export_all,
            "copy_chat": self.copy_chat,
            "copy_code": self.copy_code,
        }

    # -- out

    def export_open(self) -> None:
        """Export the open chat."""
        self.export([self._session.conversation])

    def export_all(self) -> None:
        """Export every chat of the list that has a title or a text."""
        kept = self._session.stores.kept
        self.export(
            [row.id for row in kept.list() if row.title or any(one.text for one in kept.path(row.id))]
        )

    def export(self, ids: Sequence[int]) -> None:
        """Ask for a format and a place for these chats."""
        if not ids:
            self._chat.show_notice(_("There are no chats to export yet."), "info")
            return
        if self._transfer.exporting_now:
            self._chat.show_notice(
                _("An export is still running. Wait for it or cancel it, then export again."), "warning"
            )
            return
        title = self._session.stores.of(ids[0]).get(ids[0]).title
        from desktop.views.transfer.export_dialog import ExportDialog  # Only when needed.

        self.export_dialog = dialog = ExportDialog(title, ids, self._window)
        dialog.export_requested.connect(self._export)
        dialog.cancelled.connect(self._transfer.cancel_export)
        dialog.finished.connect(self._forget_dialog)
        dialog.show()

    def copy_chat(self) -> None:
        """Copy the open chat to the clipboard, as Markdown."""
        try:
            QGuiApplication.clipboard().setText(self._transfer.markdown(self._session.conversation))
        except StoreError as error:
            self._chat.show_notice(str(error), "error")
        else:
            self._chat.show_notice(_("The chat was copied as Markdown."), "info")

    def copy_code(self) -> None:
        """Copy the last block of code in the open chat's replies to the clipboard."""
        tags = self._chat.transcript.messages.tags
        replies = (item for item in reversed(self._session.messages.items()) if item.role == "assistant")
        code = next(filter(None, (last_code(reply.text, tags, reply.language) for reply in replies)), "")
        if code:
            QGuiApplication.clipboard().setText(code)
        self._chat.show_notice(
            _("The last block of code was copied.")
            if code
            else _("The replies of this chat contain no code."),
            "info",
        )

    def _export(self, label: str, target: Path, thoughts: bool) -> None:
        dialog = self.export_dialog
        if dialog is None:
            return
        try:
            self._transfer.export(dialog.ids, label, target, thoughts)
        except StoreError as error:
            dialog.show_trouble(str(error))

    @Slot()
    def _forget_dialog(self) -> None:
        self.export_dialog = None

    @Slot(int, int)
    def _show_exporting(self, done: int, total: int) -> None:
        if self.export_dialog is not None:
            self.export_dialog.show_progress(done, total)

    @Slot(object)
    def _show_exported(self, result: Exported) -> None:
        dialog = self.export_dialog
        if result.cancelled:
            return
        if result.trouble and dialog is not None:
            dialog.show_trouble(result.trouble)
        elif result.trouble:
            self._chat.show_notice(result.trouble, "error")
        else:
            if dialog is not None:
                dialog.end()
            words = ngettext(
                "The chat was exported to {target}.",
                "{n} chats were exported to {target}.",
                result.count,
                target=result.target,
            )
            shown = (
                _("Show the file") if result.target.is_file() else _("Show the folder"),
                lambda: self._shower.show(result.target),
            )
            self._chat.banner.show_notice(words, "info", offer=shown)

    # -- in

    def ask_for_files(self) -> None:
        """Let the user choose files with chats."""
        from desktop.store.transfer.importers.sources import ENDINGS  # only when needed

        endings = " ".join(f"*{ending}" for ending in (*ENDINGS, ".png"))
        kinds = _("Exported chats ({endings});;All files (*)", endings=endings)
        ask_open(self._window, _("Import chats"), self.import_files, kinds, several=True).setObjectName(
            "importFrom"
        )

    @flow
    async def import_files(self, paths: Sequence[Path]) -> None:
        """Import these files, and show the progress and the result."""
        from desktop.event_loop import emitted
        from desktop.views.transfer.import_window import ImportWindow, summary

        if self._transfer.importing_now:
            self._chat.show_notice(
                _("An import is still running. Wait for it or cancel it, then import again."), "warning"
            )
            return
        count = len(paths)
        name = f"“{paths[0].name}”" if count == 1 else ngettext("{n} file", "{n} files", count)
        self.close_window()
        self.import_window = shown = ImportWindow(name, self._window)
        shown.cancel_requested.connect(self._transfer.cancel_import)
        shown.open_requested.connect(self._session.open_conversation)
        shown.show()
        self._transfer.import_files(paths)
        _unused, (report,) = await emitted(self._transfer.imported)
        self._changed.update(report.changed)
        self._refresh()
        if self.import_window is shown:
            shown.show_end(report)
        else:  # It was closed meanwhile.
            self._chat.show_notice(f"{summary(report)}.", "info")

    def close_window(self) -> None:
        """Close the window of an import."""
        if self.import_window is not None:
            self.import_window.hide()
            self.import_window.deleteLater()
            self.import_window = None

    @Slot(object)
    def _show_importing(self, report: ImportReport) -> None:
        self._changed.update(report.changed)
        if self.import_window is not None:
            self.import_window.show_report(report)
        if self._changed and time.monotonic() - self._refreshed >= REFRESH_S:
            self._refresh()

    def _refresh(self) -> None:
        changed, self._changed = self._changed, {}
        self._session.catch_up(changed)
        self._refreshed = time.monotonic()


def is_chats(path: Path) -> bool:
    """Whether this is a file of exported chats."""
    from desktop.store.transfer.importers.peek import is_chats  # Imports all formats: only when needed.

    return is_chats(path)
