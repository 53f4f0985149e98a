"""Shows where the data is, and moves it to another folder."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QDialog, QMessageBox, QPushButton, QVBoxLayout, QWidget

from desktop.store.relocation import copy_before, data_bytes, fixed_place, new_place_trouble
from desktop.views.dialogs.file_dialogs import ask_folder
from desktop.views.dialogs.message_box import question_box
from desktop.views.layout.fill import fill
from desktop.views.layout.fit import fit_dialog
from desktop.views.layout.spacing import dialog_margins
from desktop.views.widgets.banner import announce
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.text_label import text_label
from engine.units import size_text
from engine.words import _

__all__ = ["MoveDialog"]

_CHARACTERS = 80


class MoveDialog(QDialog):
    """`move_requested(object folder)`: the user chose a folder that can be used, and confirmed.

    `delete_requested()`: the user confirmed that the copy from before the last move is deleted.
    """

    move_requested = Signal(object)
    delete_requested = Signal()

    def __init__(self, folder: Path, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("moveDialog")
        self.setWindowTitle(_("Move data"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._folder, self._size = folder, size_text(data_bytes(folder))
        self._before = copy_before(folder)
        fixed = fixed_place()
        words = text_label(
            _(
                "Your chats, settings, backups and downloaded models are in {folder} ({size}).",
                folder=folder,
                size=self._size,
            ),
            wraps=True,
            plain=True,
        )
        before = text_label(wraps=True, plain=True)
        self.trouble = text_label(fixed, "muted" if fixed else "danger", wraps=True, plain=True)
        self.trouble.setVisible(bool(fixed))
        self.choose = QPushButton(_("Choose a new folder…"))
        self.choose.setProperty("tone", "primary")
        self.choose.setEnabled(not fixed)
        self.choose.clicked.connect(self._choose)
        self.delete = QPushButton(_("Delete the old copy…"))
        self.delete.setAutoDefault(False)
        self.delete.clicked.connect(self._ask_delete)
        if self._before is None:
            before.hide()
            self.delete.hide()
        else:
            size = size_text(data_bytes(self._before))
            before.setText(
                _(
                    "The copy from before the last move is still in {before} ({size}).",
                    before=self._before,
                    size=size,
                )
            )
        self.shut = QPushButton(_("Close"))
        self.shut.setAutoDefault(False)
        self.shut.clicked.connect(self.reject)
        line = fill(FlowLayout(), self.delete, 1, self.choose, self.shut)
        layout = fill(QVBoxLayout(self), words, before, self.trouble, 1, line)
        dialog_margins(layout)
        fit_dialog(self, self.fontMetrics().averageCharWidth() * _CHARACTERS)

    def offer(self, target: Path) -> None:
        """Ask whether to move everything to `target`, or show why that cannot be."""
        sentence = new_place_trouble(self._folder, target)
        self.trouble.setText(sentence)
        self.trouble.setVisible(bool(sentence))
        fit_dialog(self, self.fontMetrics().averageCharWidth() * _CHARACTERS)
        if sentence:
            announce(self, sentence)
            return
        question = _("Move everything to {target}?", target=target)
        more = _(
            "Inglenook closes its window, copies {size}, checks the copy and starts again. The old folder "
            "stays as it is until you delete it. A reply that is being written is stopped and kept.",
            size=self._size,
        )
        box = question_box(self, question, more, "moveQuestion", _("Move data"))
        agree = box.addButton(_("Move and restart"), QMessageBox.ButtonRole.AcceptRole)
        box.addButton(QMessageBox.StandardButton.Cancel)
        agree.clicked.connect(lambda: self._end(target))
        box.finished.connect(box.deleteLater)
        box.open()

    def _end(self, target: Path) -> None:
        self.accept()
        self.move_requested.emit(target)

    def _choose(self) -> None:
        ask_folder(self, _("Move the data to"), lambda chosen: self.offer(chosen[0]), self._folder.parent)

    def _ask_delete(self) -> None:
        question = _("Delete the copy in {before}?", before=self._before)
        more = _(
            "Your data in {folder} is kept, and so are files there that do not belong to Inglenook.",
            folder=self._folder,
        )
        box = question_box(self, question, more, "deleteQuestion", _("Delete the old copy"), warns=True)
        agree = box.addButton(_("Delete"), QMessageBox.ButtonRole.DestructiveRole)
        box.setDefaultButton(box.addButton(QMessageBox.StandardButton.Cancel))
        agree.clicked.connect(self._end_delete)
        box.finished.connect(box.deleteLater)
        box.open()

    def _end_delete(self) -> None:
        self.accept()
        self.delete_requested.emit()
