"""The data folder was removed, moved or unmounted: the user is told at once, and asked where everything is
to be saved.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QDir, QObject, Slot
from PySide6.QtWidgets import QAbstractButton, QFileDialog, QMessageBox, QWidget

from desktop.services.session.chat_session import ChatSession
from desktop.services.system.data_folder import DataFolder
from desktop.views.chat.chat_pane import ChatPane

__all__ = ["DataFolderController"]


class DataFolderController(QObject):
    """Asks with a window of its own, which does not hold up what runs; `box` is None while nothing is
    asked.
    """

    def __init__(self, place: DataFolder, session: ChatSession, chat: ChatPane, window: QWidget) -> None:
        super().__init__(window)
        self._place, self._chat, self._window = place, chat, window
        self._leaving = False
        self.box: QMessageBox | None = None
        place.lost.connect(self._ask)
        place.back.connect(self._on_back)
        place.moved.connect(self._on_moved)
        session.notice.connect(self._on_notice)

    def may_close(self) -> bool:
        """Whether the file is in its place, or the user gave it up; else that is asked, and the answer
        closes the window.
        """
        self._place.look()
        if not self._place.gone or self._place.given_up:
            return True
        self._leaving = True
        self._ask("The file with your conversations is still missing. If you quit now, they may be lost.")
        return False

    @Slot(str)
    def _ask(self, sentence: str) -> None:
        self._end_box()
        self.box = box = QMessageBox(self._window)
        box.setObjectName("dataGone")
        box.setIcon(QMessageBox.Icon.Warning)
        box.setWindowTitle("Your chats cannot be saved")
        box.setText(sentence)
        box.setInformativeText("Everything is still in memory, and can be saved somewhere else.")
        role = QMessageBox.ButtonRole.ActionRole
        answers: dict[QAbstractButton, Callable[[], object]] = {}
        elsewhere = box.addButton("Save in another folder\u2026", QMessageBox.ButtonRole.AcceptRole)
        answers[elsewhere] = self._ask_where
        if self._place.is_free:
            answers[box.addButton("Save here again", role)] = lambda: self._save(self._place.folder)
        if self._leaving:
            answers[box.addButton("Quit anyway", QMessageBox.ButtonRole.DestructiveRole)] = self._give_up
        later = box.addButton("Stay" if self._leaving else "Later", QMessageBox.ButtonRole.RejectRole)
        answers[later] = self._put_off
        box.setDefaultButton(elsewhere)
        box.setEscapeButton(later)
        box.finished.connect(lambda: self._answered(answers.get(box.clickedButton())))
        box.open()

    def _answered(self, act: Callable[[], object] | None) -> None:
        self._end_box()
        if act is not None:
            act()

    def _end_box(self) -> None:
        if self.box is not None:
            self.box.finished.disconnect()
            self.box.close()
            self.box.deleteLater()
            self.box = None

    def _put_off(self) -> None:
        """The notice stays, with the question behind its button."""
        self._leaving = False
        if not self._place.gone:
            return
        words = f"Nothing is saved: the file with your conversations is no longer in {self._place.folder}."
        self._chat.banner.show_notice(words, "error", offer=("Save\u2026", lambda: self._ask(words)))

    @Slot()
    def _on_notice(self) -> None:
        """Whatever else is told, the way out stays on the screen."""
        if self._place.gone and self.box is None:
            self._put_off()

    def _give_up(self) -> None:
        self._place.given_up = True
        self._window.close()

    def _ask_where(self) -> None:
        dialog = QFileDialog(self._window, "Save the conversations in", QDir.homePath())
        dialog.setObjectName("dataTo")
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.setOption(QFileDialog.Option.ShowDirsOnly)
        dialog.fileSelected.connect(lambda chosen: self._save(Path(chosen)))
        dialog.rejected.connect(self._put_off)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def _save(self, folder: Path) -> None:
        if sentence := self._place.save_in(folder):
            self._ask(sentence)

    @Slot()
    def _on_back(self) -> None:
        self._end_box()
        self._leaving = False
        self._chat.show_notice("The data folder is there again, and everything is saved.", "info")

    @Slot(object)
    def _on_moved(self, folder: Path) -> None:
        self._end_box()
        words = f"Everything is saved in {folder} from now on."
        if folder != self._place.opened_in:
            words += (
                f" Next time, start Inglenook with --data {folder}, or it looks for your chats in "
                f"{self._place.opened_in}."
            )
        self._chat.banner.show_notice(words, "warning" if folder != self._place.opened_in else "info")
        if self._leaving:
            self._window.close()
