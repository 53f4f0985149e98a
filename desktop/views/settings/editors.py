"""One editor for each type a setting can have: `make_editor` chooses it."""

from __future__ import annotations

import types
import typing
from typing import Any

from PySide6.QtWidgets import QComboBox, QHBoxLayout

from desktop.views.layout.bidi import isolated
from desktop.views.layout.fill import fill
from desktop.views.settings.editor import Editor
from desktop.views.settings.folder_list_editor import FolderListEditor
from desktop.views.settings.number_editor import NumberEditor
from desktop.views.settings.order_editor import OrderEditor
from desktop.views.settings.text_editors import (
    IdsEditor,
    LineEditor,
    LinesEditor,
    OptionalNumberEditor,
    TextEditor,
    escape,
    unescape,
)
from desktop.views.widgets.combo_box import ComboBox
from desktop.views.widgets.wrapping_text import WrappingCheckBox
from engine.settings import SettingInfo
from engine.words import _

__all__ = ["Editor", "escape", "make_editor", "unescape"]


class BoolEditor(Editor):
    """A check box."""

    labelled = True

    def __init__(self, info: SettingInfo) -> None:
        super().__init__()
        self._check = WrappingCheckBox(info.label)
        fill(QHBoxLayout(self), self._check, margins=(0, 0, 0, 0))
        self._check.clicked.connect(lambda checked: self.edited.emit(checked))

    def value(self) -> bool:
        return self._check.isChecked()

    def set_value(self, value: Any) -> None:
        self._check.setChecked(bool(value))


class ChoiceEditor(Editor):
    """A combo box over (value, label) pairs."""

    def __init__(self, info: SettingInfo) -> None:
        super().__init__()
        self._choices = info.choices
        self._combo = ComboBox()
        self._combo.setAccessibleName(info.label)
        self._combo.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self._combo.setMinimumContentsLength(8)
        for value, label in info.choices:
            self._combo.addItem(isolated(label), value)
        fill(QHBoxLayout(self), self._combo, margins=(0, 0, 0, 0))
        self._guard(self._combo)
        self._combo.activated.connect(lambda: self.edited.emit(self.value()))

    def value(self) -> str:
        return str(self._combo.currentData())

    def set_value(self, value: Any) -> None:
        if value in dict(self._choices):
            self.offer(value, True)
        self._combo.setCurrentIndex(self._combo.findData(value))

    def offer(self, value: str, offered: bool) -> None:
        """Whether a value can be chosen; one that cannot is left out, unless it is the present one."""
        place, label = self._combo.findData(value), isolated(dict(self._choices)[value])
        if offered and place < 0:
            later = [each for each, _label in self._choices][
                [each for each, _label in self._choices].index(value) + 1 :
            ]
            places = [at for each in later if (at := self._combo.findData(each)) >= 0]
            self._combo.insertItem(min(places, default=self._combo.count()), label, value)
        elif not offered and place >= 0 and place != self._combo.currentIndex():
            self._combo.removeItem(place)


def make_editor(info: SettingInfo, kind: Any) -> Editor:
    """The editor for a setting of type `kind`. Raises TypeError for a type no setting has yet."""
    many = typing.get_origin(kind) is tuple
    if info.choices:
        return OrderEditor(info) if many else ChoiceEditor(info)
    if kind is bool:
        return BoolEditor(info)
    if kind in (int, float):
        return NumberEditor(info, kind)
    if kind is str:
        return TextEditor(info) if info.multiline else LineEditor(info, "", _("none"))
    if isinstance(kind, types.UnionType) and set(typing.get_args(kind)) == {int, types.NoneType}:
        return OptionalNumberEditor(info)
    if many:
        lines = FolderListEditor if info.folders else LinesEditor
        return lines(info) if typing.get_args(kind)[0] is str else IdsEditor(info)
    raise TypeError(f"{info.label} has the type {kind}, which has no editor.")
