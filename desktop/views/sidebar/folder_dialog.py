"""The window of one folder: its name, its system prompt, and the settings for its chats; changes are saved at
once.
"""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLineEdit, QVBoxLayout, QWidget

from desktop.services.settings.folder_settings import FolderSettings
from desktop.services.settings.validation import ValidationService
from desktop.services.system.debounce import debounce
from desktop.settings import CONVERSATION_SETTINGS, PANES
from desktop.store.conversations.folders import Folder
from desktop.views.dialogs.saving_dialog import SavingDialog
from desktop.views.layout.fill import fill
from desktop.views.layout.tab_order import TabOrder
from desktop.views.settings.checked_fields import checked_fields
from desktop.views.settings.form import SettingsForm
from desktop.views.settings.system_prompt_field import SystemPromptField
from desktop.views.widgets.collapsible import Group
from desktop.views.widgets.scroll_area import VerticalScrollArea
from desktop.views.widgets.text_label import text_label
from engine.settings import Settings
from engine.words import N_, _, translate

__all__ = ["FolderDialog"]

_PAUSE_MS = 600
_WORDS = N_(
    "These settings apply to every chat in this folder and its subfolders. Settings of a persona or "
    "of the chat itself take precedence."
)


class FolderDialog(SavingDialog):
    """Edits `settings`; `validation` checks patterns before they take effect."""

    def __init__(self, settings: FolderSettings, validation: ValidationService, parent: QWidget) -> None:
        super().__init__(self.finish, parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.settings = settings
        settings.setParent(self)
        self.name = QLineEdit(settings.folder.name)
        self.name.setAccessibleName(_("Name of the folder"))
        self.name.setMaxLength(120)
        self.prompt = SystemPromptField("folder", can_refuse=False)
        self.forms: dict[type[Settings], SettingsForm] = {}
        self.groups: dict[type[Settings], Group] = {}
        self._tabs = TabOrder(self)
        self._pause = debounce(self, lambda: settings.rename(self.name.text()), _PAUSE_MS)
        self.arrange(VerticalScrollArea(self._body()), 72, 42)
        self._checked = checked_fields(self.forms, validation)
        self.name.textEdited.connect(lambda _text: self._pause.start())
        self.name.editingFinished.connect(lambda: settings.rename(self.name.text()))
        self.prompt.changed.connect(lambda text, _inherits: settings.set_system_prompt(text))
        settings.saved.connect(self._saved)
        settings.failed.connect(self._failed)
        settings.settings_changed.connect(self.show_values)
        self._saved(settings.folder)
        self.prompt.show_prompt(settings.folder.system_prompt, *settings.inherited_prompt)
        for cls in self.forms:
            self.show_values(cls)

    def _body(self) -> QWidget:
        label = text_label(_("Name"), "heading")
        label.setBuddy(self.name)
        words = text_label(translate(_WORDS), "muted", wraps=True)
        body = QWidget()
        column = QVBoxLayout(body)
        column.setContentsMargins(0, 0, 0, 8)
        column.setSpacing(6)
        head = fill(QVBoxLayout(), label, self.name, words, margins=(8, 0, 6, 6))
        column.addLayout(head)
        column.addWidget(self.prompt)
        for title, cls in PANES:
            if cls in CONVERSATION_SETTINGS:
                column.addWidget(self._group(translate(title), cls))
        column.addStretch(1)
        return body

    def _group(self, title: str, cls: type[Settings]) -> Group:
        form = self.forms[cls] = SettingsForm(cls)
        form.changed.connect(lambda name, value: self.settings.set(cls, name, value))
        form.reset_requested.connect(lambda name: self.settings.reset(cls, name))
        form.row_made.connect(self._tabs.renew)
        group = self.groups[cls] = Group(title, form, opened=False)
        return group

    def show_values(self, cls: type[Settings]) -> None:
        """Show the values of a settings class, and the source of each."""
        settings, form = self.settings.layers, self.forms[cls]
        layers = settings.source_layers(cls)
        sources = {name: said[-1][0] for name, said in layers.items()}
        form.show_values(settings.settings(cls), sources, settings.after_reset(cls), layers)
        own = sum(source == "folder" for source in sources.values())
        self.groups[cls].show_note(_("{own} set here", own=own) if own else "")

    def finish(self) -> bool:
        """Commit and save pending changes; False if they cannot be saved."""
        self._pause.stop()
        self.settings.rename(self.name.text())
        self.prompt.box.commit()
        for form in self.forms.values():
            form.finish()
        return self.settings.save()

    def _saved(self, folder: Folder) -> None:
        self.setWindowTitle(_("Folder “{folder}”", folder=folder.name))
        self.banner.hide()

    def _failed(self, sentence: str) -> None:
        self.banner.show_notice(
            _("{sentence} Your changes are still here.", sentence=sentence),
            "error",
            offer=(_("Retry"), self.settings.save),
        )
