"""The line of sampler presets above the sampling form."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction
from PySide6.QtWidgets import (
    QComboBox,
    QHBoxLayout,
    QInputDialog,
    QLabel,
    QLineEdit,
    QMenu,
    QVBoxLayout,
    QWidget,
)

from desktop.services.settings.presets import PresetService
from desktop.views.dialogs.file_dialogs import ask_open, ask_save
from desktop.views.layout.fill import fill
from desktop.views.widgets.combo_box import ComboBox
from desktop.views.widgets.menu_button import IconMenuButton
from desktop.views.widgets.text_label import text_label
from engine.words import N_, _, translate

__all__ = ["PresetBar"]

_FILTER = N_("Presets (*.json);;All files (*)")


class PresetBar(QWidget):
    """Chooses among the presets of `service`, and saves, renames, deletes, imports and exports them."""

    def __init__(self, service: PresetService) -> None:
        super().__init__()
        self._service = service
        self.combo = ComboBox()
        self.combo.setAccessibleName(_("Preset"))
        self.combo.setPlaceholderText(_("Custom values"))
        self.combo.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.combo.setMinimumContentsLength(8)
        self.combo.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.combo.activated.connect(lambda: self._service.choose(self.combo.currentText()))
        self.state = text_label(tone="source")
        self.more = IconMenuButton("more", _("Save, rename, delete, import or export presets"))
        self.more.setObjectName("more")
        self.more.setMenu(self._make_menu())
        label = QLabel(_("Preset"))
        label.setBuddy(self.combo)
        head = fill(QHBoxLayout(), (label, 1), self.state)
        line = fill(QHBoxLayout(), (self.combo, 1), self.more, spacing=4)
        fill(QVBoxLayout(self), head, line, margins=(0, 0, 0, 2), spacing=3)
        service.changed.connect(self.show_presets)
        self.show_presets()

    def _make_menu(self) -> QMenu:
        menu = QMenu(self)
        self.update_action = self._action(menu, _("Save the changes"), self._save_changes)
        self._action(menu, _("Save as a new preset…"), self._save)
        self.rename_action = self._action(menu, _("Rename…"), self._rename)
        self.delete_action = self._action(
            menu, _("Delete"), lambda: self._service.delete(self.combo.currentText())
        )
        menu.addSeparator()
        self._action(menu, _("Import from a file…"), self._import)
        self._action(menu, _("Export to a file…"), self._export)
        return menu

    def _action(self, menu: QMenu, text: str, act: Callable[[], object]) -> QAction:
        action = menu.addAction(text)
        action.triggered.connect(lambda: act())
        return action

    def show_presets(self) -> None:
        """Update the list and the selected preset."""
        presets = self._service.presets()
        name, changed = self._service.current()
        names = [preset.name for preset in presets]
        if names != [
            self.combo.itemText(row) for row in range(self.combo.count()) if self.combo.itemText(row)
        ]:
            self.combo.clear()
            self.combo.addItems([preset.name for preset in presets if preset.built_in])
            own = [preset.name for preset in presets if not preset.built_in]
            if own:
                self.combo.insertSeparator(self.combo.count())
                self.combo.addItems(own)
        self.combo.setCurrentIndex(
            self.combo.findText(name, Qt.MatchFlag.MatchExactly | Qt.MatchFlag.MatchCaseSensitive)
            if name
            else -1
        )
        self.state.setText(_("changed") if changed else "")
        self.combo.setAccessibleDescription(
            _("{name}, changed since", name=name) if changed else name or _("No preset")
        )
        mine = any(preset.name == name and not preset.built_in for preset in presets)
        self.update_action.setText(
            _("Save the changes to “{name}”", name=name) if mine else _("Save the changes")
        )
        self.update_action.setEnabled(mine and changed)
        self.rename_action.setEnabled(mine)
        self.delete_action.setEnabled(mine)

    # -- what the user does

    def _save_changes(self) -> None:
        self._service.save(self.combo.currentText())

    def _save(self) -> None:
        self._ask_name(_("Save as a preset"), "", self._service.save)

    def _rename(self) -> None:
        old = self.combo.currentText()
        self._ask_name(_("Rename the preset"), old, lambda new: self._service.rename(old, new))

    def _ask_name(self, title: str, name: str, then: Callable[[str], object]) -> None:
        """A dialog that leaves the window running: the answer comes as a signal."""
        dialog = QInputDialog(self.window())
        dialog.setWindowTitle(title)
        dialog.setLabelText(_("Name:"))
        dialog.setTextValue(name)
        for line in dialog.findChildren(QLineEdit):
            line.setAccessibleName(_("Name of the preset"))
            line.setMaxLength(60)
        dialog.textValueSelected.connect(then)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def _import(self) -> None:
        ask_open(
            self.window(),
            _("Import a preset"),
            lambda chosen: self._service.import_file(chosen[0]),
            translate(_FILTER),
        )

    def _export(self) -> None:
        name = self.combo.currentText() or _("My preset")
        name = "".join(c for c in name if c.isalnum() or c in " -_").strip() + ".json"
        ask_save(
            self.window(),
            _("Export the preset"),
            name,
            lambda chosen: self._service.export_file(self._exported(), chosen[0]),
            translate(_FILTER),
        )

    def _exported(self) -> str:
        """The selected preset as it is saved; "" if the effective values match none."""
        name, changed = self._service.current()
        return "" if changed else name
