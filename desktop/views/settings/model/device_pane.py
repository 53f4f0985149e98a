"""The Model pane's choice of a device: automatic, the processor, a GPU by name, or all GPUs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from PySide6.QtCore import Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QComboBox, QVBoxLayout, QWidget

from desktop.items.models.devices import device_choices, device_note, device_value
from desktop.views.layout.fill import fill
from desktop.views.settings.form_row import Row
from desktop.views.widgets.combo_box import ComboBox
from engine.settings import LoadSettings, setting_info

if TYPE_CHECKING:
    from engine.backends.choice import Usable

__all__ = ["REPLACED", "DevicePane"]

REPLACED = ("backend", "gpus")
"""The settings that this pane shows instead of the form."""


class DevicePane(QWidget):
    """Shows the device of `LoadSettings`. `chosen(value)` as `items.devices.device_value` returns it;
    `reset_requested()`; `devices_requested()` before it becomes visible.
    """

    devices_requested = Signal()
    chosen = Signal(str)
    reset_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        info = next(
            setting_info(field) for field in dataclasses.fields(LoadSettings) if field.name == "backend"
        )
        self._settings = LoadSettings()
        self._usable: Usable | None = None
        self.row = Row(info, str)
        self.row.editor.hide()  # Its choices are fixed.
        self.row.reset.clicked.connect(self.reset_requested)
        self.combo = ComboBox()
        self.combo.setAccessibleName(info.label)
        self.combo.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.combo.setMinimumContentsLength(8)
        self.combo.activated.connect(lambda: self.chosen.emit(str(self.combo.currentData())))
        self.row.body.insertWidget(self.row.body.indexOf(self.row.note), self.combo)
        fill(QVBoxLayout(self), self.row, margins=(0, 0, 0, 0))
        self._fill()

    def show_values(self, settings: LoadSettings, sources: dict[str, str]) -> None:
        """Show the effective settings and their sources."""
        self._settings = settings
        own = next((sources[name] for name in REPLACED if sources[name] != "default"), "default")
        self.row.show_source(own, own not in ("default", "makers"))
        self.combo.setAccessibleDescription(self.row.editor.accessibleDescription())
        self._fill()

    def show_usable(self, usable: Usable | None) -> None:
        """Show the GPUs that were found, or why there are none."""
        self._usable = usable
        self._fill()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.devices_requested.emit()

    def _fill(self) -> None:
        current = device_value(self._settings)
        choices = device_choices(self._usable, current)
        if choices != [
            (self.combo.itemData(row), self.combo.itemText(row)) for row in range(self.combo.count())
        ]:
            self.combo.clear()
            for value, words in choices:
                self.combo.addItem(words, value)
        self.combo.setCurrentIndex(self.combo.findData(current))
        note, trouble = device_note(self._usable, current)
        self.row.show_note(note, "danger" if trouble else "muted")
