"""The editor of a list of folders and files, one per line, with buttons that add one."""

from __future__ import annotations

from PySide6.QtCore import Slot
from PySide6.QtWidgets import QBoxLayout, QPushButton

from desktop.views.dialogs.file_dialogs import ask_folder, ask_open
from desktop.views.layout.fill import fill
from desktop.views.settings.text_editors import LinesEditor
from desktop.views.widgets.flow_layout import FlowLayout
from engine.settings import SettingInfo
from engine.words import _


class FolderListEditor(LinesEditor):
    """Lines that begin with a folder or a file; backslashes are part of a path, not escapes."""

    def __init__(self, info: SettingInfo) -> None:
        super().__init__(info)
        self._escaped = True
        self.box.setPlaceholderText(_("None. One per line, for example: /models/pirate = 0.8"))
        self.add = QPushButton(_("Add a folder…"))
        self.add.setAccessibleName(_("{label}: add a folder", label=info.label))
        self.add.clicked.connect(self._choose)
        self.add_file = QPushButton(_("Add a file…"))
        self.add_file.setAccessibleName(_("{label}: add a file", label=info.label))
        self.add_file.clicked.connect(self._choose_file)
        layout = self.layout()
        assert isinstance(layout, QBoxLayout)
        layout.addLayout(fill(FlowLayout(), self.add, self.add_file))  # one below the other in a narrow pane

    @Slot()
    def _choose(self) -> None:
        ask_folder(self, _("Choose an adapter's folder"), lambda chosen: self.add_path(str(chosen[0])))

    @Slot()
    def _choose_file(self) -> None:
        kinds = _("LoRA adapters (*.gguf);;All files (*)")
        ask_open(self, _("Choose an adapter's file"), lambda chosen: self.add_path(str(chosen[0])), kinds)

    def add_path(self, path: str) -> None:
        """Append a folder or a file to the list."""
        self.box.show_text("\n".join((*self.value(), path)))
        self._emit_edit()
