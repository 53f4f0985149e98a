"""Where models are looked for besides the usual places, and whether the hub may be used at all."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QListWidget, QPushButton, QVBoxLayout, QWidget

from desktop.views.layout.fill import fill
from desktop.views.widgets.empty_state import EmptyState
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.text_label import text_label
from desktop.views.widgets.wrapping_text import WrappingCheckBox
from engine.words import N_, _, translate

__all__ = ["ModelFolders"]

WORDS = "models folders directories search add remove hub work offline network download"
"""A search in the Preferences finds it by these."""
_ALWAYS = N_(
    "Downloaded models, and those of LM Studio, Ollama, GPT4All and other programs, are always found."
)
_OFFLINE = N_("Never connect to the Hugging Face Hub, neither to search nor to download.")
_LINES = 5


class ModelFolders(QWidget):
    """The user's folders with models, and the switch "Work offline".

    `add_requested()`, `remove_requested(folder)` and `offline_changed(on)` are what the user does; the owner
    answers with `show_folders` and `show_offline`.
    """

    add_requested = Signal()
    remove_requested = Signal(str)
    offline_changed = Signal(bool)

    def __init__(self) -> None:
        super().__init__()
        label = text_label(_("Folders with models"))
        self.list = QListWidget()
        self.list.setAccessibleName(_("Folders with models"))
        self.list.setProperty("tone", "order")
        self.list.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setFixedHeight(round(self.fontMetrics().height() * 1.5 * _LINES))
        label.setBuddy(self.list)
        EmptyState(self.list, _("You have not added any folders."))
        self.add, self.remove = QPushButton(_("Add a folder…")), QPushButton(_("Remove"))
        self.remove.setToolTip(_("Stop looking for models in this folder. Its files stay."))
        self.remove.setAccessibleName(_("Remove the selected folder"))
        for button in (self.add, self.remove):
            button.setAutoDefault(False)
        self.offline = WrappingCheckBox(_("Work offline"))
        self.offline.setToolTip(translate(_OFFLINE))
        fill(
            QVBoxLayout(self), label, self.list, fill(FlowLayout(), self.add, self.remove, 1),
            text_label(translate(_ALWAYS), "muted", wraps=True, plain=True), self.offline,
            text_label(translate(_OFFLINE), "muted", wraps=True, plain=True), margins=(0, 0, 0, 0), spacing=6,
        )  # fmt: skip
        self.add.clicked.connect(self.add_requested)
        self.remove.clicked.connect(self._remove)
        self.offline.clicked.connect(self.offline_changed)
        self.list.currentRowChanged.connect(lambda row: self.remove.setEnabled(row >= 0))
        self.remove.setEnabled(False)

    def show_folders(self, folders: Sequence[str]) -> None:
        """Show these folders; the selected row stays selected if there is one."""
        row = self.list.currentRow()
        self.list.clear()
        self.list.addItems(list(folders))
        for number, folder in enumerate(folders):
            self.list.item(number).setToolTip(folder)
        self.list.setCurrentRow(min(row, len(folders) - 1))

    def show_offline(self, on: bool) -> None:
        """Show whether the user works offline."""
        self.offline.setChecked(on)

    def _remove(self) -> None:
        item = self.list.currentItem()
        if item is not None:
            self.remove_requested.emit(item.text())
