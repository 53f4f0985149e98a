"""A settings dataclass as a form: one row a field, each telling where its value comes from and how to go back."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSizePolicy, QVBoxLayout, QWidget

from desktop.views.editors import Editor, make_editor
from desktop.views.icons import IconButton
from engine.settings import SettingInfo, Settings, setting_info

__all__ = ["SettingsForm"]

SOURCES = {"conversation": "Set in this conversation", "saved default": "Your saved default", "default": "The program's default"}
"""Where a value can come from, in the words of the form."""


class _Row(QWidget):
    """Label, unit, reset button and editor of one field."""

    def __init__(self, info: SettingInfo, kind: Any) -> None:
        super().__init__()
        self._info = info
        self.editor: Editor = make_editor(info, kind)
        self.editor.setAccessibleName(info.label)
        self.reset = IconButton("reset", f"Reset {info.label.lower()}")
        self.reset.setVisible(False)
        keep = self.reset.sizePolicy()
        keep.setRetainSizeWhenHidden(True)  # nothing moves when it comes and goes
        self.reset.setSizePolicy(keep)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(3)
        layout.addLayout(self._head())
        if not self.editor.labelled:
            layout.addWidget(self.editor)

    def _head(self) -> QHBoxLayout:
        head = QHBoxLayout()
        head.setSpacing(6)
        if self.editor.labelled:
            head.addWidget(self.editor, 1)
        else:
            unit = self._info.unit
            unit_told = not unit or unit in self._info.label.lower()
            label = QLabel(self._info.label if unit_told else f"{self._info.label} ({unit})")
            label.setTextFormat(Qt.TextFormat.PlainText)
            label.setWordWrap(True)
            head.addWidget(label, 1)
        head.addWidget(self.reset)
        if self.editor.beside is not None:
            head.addWidget(self.editor.beside)
        return head

    def tell_source(self, source: str) -> None:
        where = SOURCES.get(source, source)
        self.reset.setVisible(source != "default")
        below = "the saved default" if source == "conversation" else "the program's default"
        name = f"Reset {self._info.label.lower()} to {below}"
        self.reset.set_face("reset", name, f"{where}. Click to go back to {below}.")
        tip = f"<p>{self._info.help}</p><p><i>{where}.</i></p>"
        self.setToolTip(tip)
        self.editor.setAccessibleDescription(f"{self._info.help} {where}.")


class SettingsForm(QWidget):
    """The rows of settings class `cls`.

    `changed(name, value)` is emitted when the user changed a value and `reset_requested(name)` when a reset button was
    pressed; the owner answers with `show_values`.
    """

    changed = Signal(str, object)
    reset_requested = Signal(str)

    def __init__(self, cls: type[Settings], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.cls = cls
        self._rows: dict[str, _Row] = {}
        layout = self._layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(12)
        kinds = typing.get_type_hints(cls)
        for field in dataclasses.fields(cls):  # type: ignore[arg-type]
            row = _Row(setting_info(field), kinds[field.name])
            row.editor.edited.connect(lambda value, name=field.name: self.changed.emit(name, value))
            row.reset.clicked.connect(lambda _checked=False, name=field.name: self.reset_requested.emit(name))
            self._rows[field.name] = row
            layout.addWidget(row)

    def show_values(self, settings: Settings, sources: dict[str, str]) -> None:
        """Show the fields of `settings`; `sources` gives for each field "conversation", "saved default" or "default"."""
        for name, row in self._rows.items():
            row.editor.set_value(getattr(settings, name))
            row.tell_source(sources[name])

    def values(self) -> Settings:
        """What the form shows. Raises `BadSetting` when the engine refuses a value."""
        return self.cls(**{name: row.editor.value() for name, row in self._rows.items()})

    def hide_fields(self, names: Sequence[str]) -> None:
        """Leave these fields to another widget: their rows are not shown, their values stay as `show_values` gave them."""
        for name in names:
            self._rows[name].hide()

    def add_extra(self, widget: QWidget, below: bool) -> None:
        """Put a widget before the first row, or after the last one."""
        self._layout.insertWidget(self._layout.count() if below else 0, widget)

    def editor(self, name: str) -> Editor:
        """The editor of the field `name`."""
        return self._rows[name].editor

    def reset_button(self, name: str) -> IconButton:
        """The reset button of the field `name`."""
        return self._rows[name].reset
