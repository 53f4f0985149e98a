"""The editor of a list of folders, one per line, with a button that adds one."""

from __future__ import annotations

from PySide6.QtCore import Slot
from PySide6.QtWidgets import QPushButton

from desktop.views.settings.text_editors import LinesEditor
from desktop.views.widgets.file_dialogs import ask_folder
from engine.settings import SettingInfo
from engine.words import _


class FolderListEditor(LinesEditor):
    """Lines that begin with a folder; backslashes are part of a path, not escapes."""

    def __init__(self, info: SettingInfo) -> None:
        super().__init__(info)
        self._escaped = True
        self.box.setPlaceholderText(_("None. One per line, for example: /models/pirate = 0.8"))
        self.add = QPushButton(_("Add a folder…"))
        self.add.setAccessibleName(_("{label}: add a folder", label=info.label))
        self.add.clicked.connect(self._choose)
        layout = self.layout()
        assert layout is not None
        layout.addWidget(self.add)

    @Slot()
    def _choose(self) -> None:
        ask_folder(self, _("Choose an adapter's folder"), lambda chosen: self.add_folder(str(chosen[0])))

    def add_folder(self, folder: str) -> None:
        """Append a folder to the list."""
        self.box.show_text("\n".join((*self.value(), folder)))
        self._emit_edit()
