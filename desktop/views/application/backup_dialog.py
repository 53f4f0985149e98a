"""The list of backups, from which one can be restored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QDialog,
    QListWidget,
    QListWidgetItem,
    QMessageBox,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from desktop.services.system.backups import BackupRow
from desktop.services.system.language import when_text
from desktop.views.dialogs.message_box import question_box
from desktop.views.layout.fill import fill
from desktop.views.layout.fit import grow_dialog
from desktop.views.layout.spacing import dialog_margins
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.text_label import text_label
from engine.units import size_text
from engine.words import _, ngettext

__all__ = ["BackupDialog"]


class BackupDialog(QDialog):
    """`restore_requested(object path, str when)`: the user chose a backup and confirmed.

    `make_requested()`: make a backup now.
    """

    restore_requested = Signal(object, str)
    make_requested = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("backupDialog")
        self.setWindowTitle(_("Restore from a backup"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.words = text_label(_("Looking for backups…"), wraps=True, plain=True)
        self.words.setAlignment(Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeading)
        self.list = QListWidget()
        self.list.setProperty("tone", "order")
        self.list.setAccessibleName(_("Backups, newest first"))
        self.list.itemActivated.connect(self._ask)
        self.list.currentRowChanged.connect(self._show_choice)
        self._empty = QWidget()  # while there is no list, the buttons stay at the bottom
        self.make, self.restore, self.close_button = (
            QPushButton(_("Back up now")),
            QPushButton(_("Restore…")),
            QPushButton(_("Close")),
        )
        self.make.clicked.connect(self._make)
        self.restore.clicked.connect(self._ask)
        self.close_button.clicked.connect(self.reject)
        self.restore.setProperty("tone", "primary")
        line = fill(FlowLayout(), self.make, 1, self.restore, self.close_button)
        layout = fill(QVBoxLayout(self), self.words, (self.list, 1), (self._empty, 1), line)
        dialog_margins(layout)
        self._empty.hide()
        self._show_choice(-1)
        self.resize(min(500, max(320, parent.width() - 40)), min(420, max(300, parent.height() - 60)))

    def show_rows(self, rows: Sequence[BackupRow]) -> None:
        """Show the backups, latest first."""
        self.make.setEnabled(True)
        self.list.clear()
        for row in rows:
            count = _("unreadable") if row.chats < 0 else ngettext("{n} chat", "{n} chats", row.chats)
            item = QListWidgetItem(f"{when_text(row.backup.made_at)}\n{count} · {size_text(row.backup.size)}")
            item.setData(Qt.ItemDataRole.UserRole, (str(row.backup.path), when_text(row.backup.made_at)))
            if row.chats < 0:
                item.setFlags(item.flags() & ~Qt.ItemFlag.ItemIsEnabled)
            self.list.addItem(item)
        self.words.setText(
            _(
                "Inglenook backs up all chats automatically. When you restore a backup, the current "
                "chats are kept in a separate file."
            )
            if rows
            else (
                _(
                    "There are no backups yet. The first one is made a minute after the start, then at most "
                    "one every hour."
                )
            )
        )
        self.list.setVisible(bool(rows))
        self._empty.setVisible(not rows)
        grow_dialog(self)
        if rows:
            self.list.setCurrentRow(0)
            self.list.setFocus()

    def show_notice(self, sentence: str) -> None:
        """Show an error instead of the explanation."""
        self.words.setText(sentence)
        self.make.setEnabled(True)
        self._show_choice(self.list.currentRow())

    def show_restoring(self) -> None:
        """A backup is being restored."""
        self.words.setText(_("Checking and restoring the backup…"))
        self.restore.setEnabled(False)
        self.make.setEnabled(False)

    def _make(self) -> None:
        self.make.setEnabled(False)
        self.words.setText(_("Backing up…"))
        self.make_requested.emit()

    def _show_choice(self, row: int) -> None:
        item = self.list.item(row) if row >= 0 else None
        self.restore.setEnabled(item is not None and bool(item.flags() & Qt.ItemFlag.ItemIsEnabled))

    def _ask(self) -> None:
        item = self.list.currentItem()
        if item is None or not self.restore.isEnabled():
            return
        path, when = item.data(Qt.ItemDataRole.UserRole)
        question = _("Restore the chats from the backup of {when}?", when=when)
        more = _(
            "Changes made since then are not in the backup. The current chats are kept in a separate file. "
            "Any reply being written is stopped."
        )
        box = question_box(self, question, more, "restoreQuestion", _("Restore from a backup"))
        agree = box.addButton(_("Restore"), QMessageBox.ButtonRole.AcceptRole)
        box.addButton(QMessageBox.StandardButton.Cancel)
        agree.clicked.connect(lambda: self.restore_requested.emit(Path(path), when))
        box.finished.connect(box.deleteLater)
        box.open()
