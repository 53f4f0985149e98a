"""Asks before the window closes on replies whose end could not be saved, because the disk is full."""

from __future__ import annotations

from PySide6.QtCore import QDir, QObject
from PySide6.QtWidgets import QFileDialog, QMessageBox, QWidget

from desktop.services.session.chat_session import ChatSession
from desktop.views.application.data_folder_controller import DataFolderController
from desktop.views.dialogs.message_box import question_box
from desktop.views.widgets.flows import answer, chosen_path, flow
from engine.platform.whole_file import write_whole
from engine.words import _, ngettext

__all__ = ["CloseGuard"]


class CloseGuard(QObject):
    """Asks in a dialog that leaves the window running; with `sure` the window closes without a question."""

    def __init__(self, session: ChatSession, window: QWidget, data_folder: DataFolderController) -> None:
        super().__init__(window)
        self._session, self._window, self._data_folder = session, window, data_folder
        self.sure = False
        self.box: QMessageBox | None = None

    def may_close(self) -> bool:
        """Whether nothing would be lost; otherwise the user is asked, and may close the window that way."""
        if self.sure:
            return True
        if not self._data_folder.may_close():
            return False
        if not self._session.save_replies():
            return True
        self._session.stop_all()
        if self.box is None:
            self._ask()
        return False

    @flow
    async def _ask(self) -> None:
        while texts := self._session.save_replies():
            self.box = box = self._question(len(texts))
            again = box.addButton(_("Retry"), QMessageBox.ButtonRole.AcceptRole)
            to_file = box.addButton(_("Save the text to a file…"), QMessageBox.ButtonRole.ActionRole)
            leave = box.addButton(_("Quit anyway"), QMessageBox.ButtonRole.DestructiveRole)
            box.addButton(_("Stay"), QMessageBox.ButtonRole.RejectRole)
            box.setDefaultButton(again)
            button = await answer(box)
            self.box = None
            if button is leave or (button is to_file and await self._save_to_file()):
                break
            if button is not again:
                return
        self.sure = True
        self._window.close()

    def _question(self, count: int) -> QMessageBox:
        words = ngettext(
            "The end of a reply has not been saved yet.",
            "The ends of {n} replies have not been saved yet.",
            count,
        )
        more = _(
            "{save_trouble} If you quit now, unsaved text is lost.", save_trouble=self._session.save_trouble
        )
        return question_box(self._window, words, more, "unsavedReplies", _("Quit Inglenook"), warns=True)

    async def _save_to_file(self) -> bool:
        """Whether the texts are safe in a file now; a notice says why not."""
        from desktop.store.transfer.exporters.names import file_name  # only when it is needed

        dialog = QFileDialog(self._window, _("Save the text"), QDir.homePath())
        dialog.setObjectName("unsavedTo")
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setNameFilter(_("Markdown (*.md);;All files (*)"))
        dialog.setDefaultSuffix("md")
        dialog.selectFile(file_name(self._session.title or "Reply") + ".md")
        path = await chosen_path(dialog)
        if path is None:
            return False
        try:
            write_whole(path, "\n\n---\n\n".join(self._session.save_replies().values()) + "\n")
        except OSError as error:
            words = _(
                "The text cannot be saved as {path} ({strerror}). Choose another place, or "
                "free some disk space.",
                path=path,
                strerror=error.strerror or error,
            )
            self._session.notice.emit(words, "error")
            return False
        return True
