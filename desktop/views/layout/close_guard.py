"""Before the window closes: replies whose end is only on screen, because the disk is full, are not lost
without a question.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QDir, QObject
from PySide6.QtWidgets import QAbstractButton, QFileDialog, QMessageBox, QWidget

from desktop.services.session.chat_session import ChatSession
from desktop.store.transfer.exporters.names import file_name
from desktop.views.application.data_folder_controller import DataFolderController
from engine.platform.whole_file import write_whole

__all__ = ["CloseGuard"]


class CloseGuard(QObject):
    """Asks with a window of its own, which does not hold up what runs; `sure` closes without a question."""

    def __init__(self, session: ChatSession, window: QWidget, place: DataFolderController) -> None:
        super().__init__(window)
        self._session, self._window, self._place = session, window, place
        self.sure = False
        self.box: QMessageBox | None = None

    def may_close(self) -> bool:
        """Whether nothing would be lost; otherwise the user is asked, and the window closes with the
        answer.
        """
        if self.sure:
            return True
        if not self._place.may_close():
            return False
        texts = self._session.save_replies()
        if not texts:
            return True
        self._session.stop()
        if self.box is None:
            self._ask(texts)
        return False

    def _ask(self, texts: dict[int, str]) -> None:
        self.box = box = QMessageBox(self._window)
        box.setObjectName("unsavedReplies")
        box.setIcon(QMessageBox.Icon.Warning)
        box.setWindowTitle("Quit Inglenook")
        box.setText(
            "The end of a reply is not saved yet."
            if len(texts) == 1
            else f"The ends of {len(texts)} replies are not saved yet."
        )
        lost = "what it has" if len(texts) == 1 else "what they have"
        box.setInformativeText(f"{self._session.save_trouble} If you quit now, {lost} on screen is lost.")
        again = box.addButton("Save again", QMessageBox.ButtonRole.AcceptRole)
        to_file = box.addButton("Save the text to a file…", QMessageBox.ButtonRole.ActionRole)
        leave = box.addButton("Quit anyway", QMessageBox.ButtonRole.DestructiveRole)
        box.addButton("Stay", QMessageBox.ButtonRole.RejectRole)
        box.setDefaultButton(again)
        answers: dict[QAbstractButton, Callable[[], object]] = {
            again: self._window.close,
            to_file: self._ask_where,
            leave: self._leave,
        }
        box.finished.connect(lambda: self._answered(answers.get(box.clickedButton())))
        box.open()

    def _answered(self, act: Callable[[], object] | None) -> None:
        """The box has gone when the answer is acted on: closing may ask once more."""
        if self.box is not None:
            self.box.deleteLater()
            self.box = None
        if act is not None:
            act()

    def _leave(self) -> None:
        self.sure = True
        self._window.close()

    def _ask_where(self) -> None:
        dialog = QFileDialog(self._window, "Save the text", QDir.homePath())
        dialog.setObjectName("unsavedTo")
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setNameFilter("Markdown (*.md);;All files (*)")
        dialog.setDefaultSuffix("md")
        dialog.selectFile(file_name(self._session.title or "Reply") + ".md")
        dialog.fileSelected.connect(lambda chosen: self._write(Path(chosen)))
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def _write(self, path: Path) -> None:
        """Written, the texts are safe and the window closes; otherwise it stays, and says why."""
        texts = self._session.save_replies()
        try:
            write_whole(path, "\n\n---\n\n".join(texts.values()) + "\n")
        except OSError as error:
            words = (
                f"The text cannot be saved as {path} ({error.strerror or error}): choose another place or "
                "make room there."
            )
            self._session.notice.emit(words, "error")
        else:
            self._leave()
