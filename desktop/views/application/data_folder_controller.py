"""The data folder: moved when the user asks for it. When it was removed or unmounted, asks the user at once
where to save everything.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QDir, QObject, Slot
from PySide6.QtWidgets import QApplication, QFileDialog, QMessageBox, QWidget

from desktop.services.session.chat_session import ChatSession
from desktop.services.system.data_folder import DataFolder
from desktop.store.database.database import StoreError
from desktop.store.relocation import arrived, copy_before, delete_before
from desktop.views.chat.chat_pane import ChatPane
from desktop.views.dialogs.message_box import question_box
from desktop.views.widgets.flows import answer, chosen_path, flow
from engine.words import _, paragraph

if TYPE_CHECKING:
    from desktop.views.application.move_dialog import MoveDialog

__all__ = ["DataFolderController"]


class DataFolderController(QObject):
    """Asks in a dialog that leaves the window running; `box` is None while nothing is asked."""

    def __init__(self, place: DataFolder, session: ChatSession, chat: ChatPane, window: QWidget) -> None:
        super().__init__(window)
        self._place, self._chat, self._window = place, chat, window
        self._leaving = False
        self.box: QMessageBox | None = None
        self.move_dialog: MoveDialog | None = None
        place.lost.connect(self._ask)
        place.back.connect(self._on_back)
        place.moved.connect(self._on_moved)
        session.notice.connect(self._on_notice)

    def commands(self) -> dict[str, Callable[[], object]]:
        """The command that moves the data."""
        return {"move_data": self.open_move}

    def open_move(self) -> None:
        """Show where the data is, and offer to move it."""
        from desktop.views.application.move_dialog import MoveDialog  # only when needed

        self.move_dialog = dialog = MoveDialog(self._place.folder, self._window)
        dialog.move_requested.connect(self._move)
        dialog.delete_requested.connect(self._delete_before)
        dialog.finished.connect(self._forget_dialog)
        dialog.open()

    def move_if_asked(self, app: QApplication) -> int:
        """After the end of everything else: move the data and start again, if the user asked for that.

        Returns the exit code.
        """
        if self._place.next_place is None:
            return 0
        from desktop.views.application.move_progress import move_and_restart  # hardly any run needs it

        return move_and_restart(app, self._place.folder, self._place.next_place)

    def greet(self) -> None:
        """After the first paint: if the data has just been moved here, show that."""
        if arrived(self._place.folder):
            before = copy_before(self._place.folder)
            words = _("Your data is now in {folder}.", folder=self._place.folder)
            self._chat.banner.show_notice(
                _("{words} The old copy in {before} is still there.", words=words, before=before)
                if before
                else words,
                "info",
                offer=(_("Delete the old copy…"), self.open_move) if before else None,
            )

    @Slot()
    def _forget_dialog(self) -> None:
        self.move_dialog = None

    @Slot(object)
    def _move(self, target: Path) -> None:
        """Close the window; `desktop.app.run` moves the data then, and starts the program again."""
        self._place.next_place = target
        if not self._window.close():
            self._place.next_place = None  # something still has to be saved, or the user stays

    @Slot()
    def _delete_before(self) -> None:
        try:
            delete_before(self._place.folder)
        except StoreError as error:
            self._chat.show_notice(str(error), "error")
        else:
            self._chat.show_notice(_("The old copy of your data was deleted."), "info")

    def may_close(self) -> bool:
        """Whether the file is in its place, or the user gave it up; if not, the user is asked, and may close
        the window that way.
        """
        self._place.look()
        if not self._place.gone or self._place.given_up:
            return True
        self._leaving = True
        self._ask(_("The file with your chats is still missing. If you quit now, they may be lost."))
        return False

    @flow
    async def _ask(self, sentence: str) -> None:
        """Ask where to save everything until it is saved, or the user puts it off or quits."""
        while sentence:
            self._end_box()
            self.box = box = self._question(sentence)
            role = QMessageBox.ButtonRole.ActionRole
            elsewhere = box.addButton(_("Save in another folder…"), QMessageBox.ButtonRole.AcceptRole)
            here = box.addButton(_("Save here again"), role) if self._place.is_free else None
            leave = (
                box.addButton(_("Quit anyway"), QMessageBox.ButtonRole.DestructiveRole)
                if self._leaving
                else None
            )
            later = box.addButton(
                _("Stay") if self._leaving else _("Later"), QMessageBox.ButtonRole.RejectRole
            )
            box.setDefaultButton(elsewhere)
            box.setEscapeButton(later)
            button = await answer(box)
            if self.box is not box:
                return  # It was closed, or another question replaced it.
            self.box = None
            if button is not None and button is leave:
                self._place.given_up = True
                self._window.close()
                return
            folder = self._place.folder if button is not None and button is here else None
            if button is elsewhere:
                folder = await self._chosen_folder()
            if folder is None:
                self._put_off()
                return
            sentence = self._place.save_in(folder)

    def _question(self, sentence: str) -> QMessageBox:
        more = _("Everything is still in memory and can be saved in another folder.")
        title = _("Your chats cannot be saved")
        return question_box(self._window, sentence, more, "dataGone", title, warns=True)

    async def _chosen_folder(self) -> Path | None:
        dialog = QFileDialog(self._window, _("Save the chats in"), QDir.homePath())
        dialog.setObjectName("dataTo")
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.setOption(QFileDialog.Option.ShowDirsOnly)
        return await chosen_path(dialog)

    def _end_box(self) -> None:
        box, self.box = self.box, None
        if box is not None:
            box.close()

    def _put_off(self) -> None:
        """Show a notice with a button that asks again."""
        self._leaving = False
        if not self._place.gone:
            return
        words = _(
            "Nothing is being saved: the file with your chats is no longer in {folder}.",
            folder=self._place.folder,
        )
        self._chat.banner.show_notice(words, "error", offer=(_("Save…"), lambda: self._ask(words)))

    @Slot()
    def _on_notice(self) -> None:
        """Other notices do not replace this one."""
        if self._place.gone and self.box is None:
            self._put_off()

    @Slot()
    def _on_back(self) -> None:
        self._end_box()
        self._leaving = False
        self._chat.show_notice(_("The data folder is back, and everything is saved."), "info")

    @Slot(object)
    def _on_moved(self, folder: Path) -> None:
        self._end_box()
        words = _("Everything is saved in {folder} from now on.", folder=folder)
        if folder != self._place.opened_in:
            words = paragraph(
                words,
                _(
                    "Next time, start Inglenook with --data {folder}; otherwise it looks for your "
                    "chats in {opened_in}.",
                    folder=folder,
                    opened_in=self._place.opened_in,
                ),
            )
        self._chat.banner.show_notice(words, "warning" if folder != self._place.opened_in else "info")
        if self._leaving:
            self._window.close()
