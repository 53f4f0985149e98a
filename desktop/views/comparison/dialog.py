"""The dialog that asks how the replies of a comparison are to be written."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from PySide6.QtCore import QRegularExpression, Qt, Signal
from PySide6.QtGui import QRegularExpressionValidator
from PySide6.QtWidgets import (
    QComboBox,
    QDialog,
    QDoubleSpinBox,
    QFrame,
    QGridLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from desktop.services.session.several import ColumnSettings
from desktop.views.layout.fill import fill
from desktop.views.layout.spacing import dialog_margins
from desktop.views.widgets.combo_box import ComboBox
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.icons import IconButton
from desktop.views.widgets.text_label import text_label
from desktop.views.widgets.wheel_guard import guard_wheel
from engine.settings import SamplerSettings, SettingInfo, setting_info
from engine.words import N_, _, translate

__all__ = ["MOST_COLUMNS", "CompareDialog", "Offers", "label_of"]

MOST_COLUMNS = 4
_AS_IN_CHAT = N_("As in this chat")
_UNSET = -0.01
"""The value of the temperature's box that stands for none."""
_HEADS = ("", N_("Preset"), N_("Temperature"), N_("Seed"), N_("Persona"), N_("Model"), "")


class Offers(NamedTuple):
    """What can be chosen: names of presets, (number, name) of personas, (path, name) of models."""

    presets: Sequence[str]
    personas: Sequence[tuple[int, str]] = ()
    models: Sequence[tuple[str, str]] = ()


def label_of(settings: ColumnSettings, personas: Sequence[tuple[int, str]] = ()) -> str:
    """How a reply differs from the others in a few words, without its model."""
    parts = [
        dict(personas).get(settings.persona, ""),
        settings.preset,
        _("temperature {temperature:g}", temperature=settings.temperature)
        if settings.temperature is not None
        else "",
        _("seed {seed}", seed=settings.seed) if settings.seed is not None else "",
    ]
    found = ", ".join(part for part in parts if part)
    return found[:1].upper() + found[1:] if found else translate(_AS_IN_CHAT)


class _Row:
    """The fields of one reply."""

    def __init__(self, offers: Offers, settings: ColumnSettings) -> None:
        self.number = text_label()
        self.preset = _choice(
            [("", translate(_AS_IN_CHAT)), *((name, name) for name in offers.presets)], settings.preset
        )
        self.temperature = QDoubleSpinBox()
        guard_wheel(self.temperature, self.temperature)
        info = _info("temperature")
        self.temperature.setRange(_UNSET, info.high if info.high is not None else 100.0)
        self.temperature.setDecimals(2)
        self.temperature.setSingleStep(0.1)
        self.temperature.setSpecialValueText(_("Unchanged"))
        self.temperature.setValue(_UNSET if settings.temperature is None else settings.temperature)
        self.temperature.lineEdit().setTextMargins(6, 0, 0, 0)
        self.seed = QLineEdit("" if settings.seed is None else str(settings.seed))
        self.seed.setPlaceholderText(_("Unchanged"))
        self.seed.setValidator(QRegularExpressionValidator(QRegularExpression(r"\d{0,18}"), self.seed))
        self.persona = _choice([(0, translate(_AS_IN_CHAT)), *offers.personas], settings.persona)
        self.model = _choice([("", _("Loaded model")), *offers.models], settings.model)
        self.remove = IconButton("trash", _("Remove this reply"))
        for field in (self.preset, self.temperature, self.seed, self.persona, self.model):
            field.ensurePolished()
            field.setMinimumWidth(field.sizeHint().width())  # a narrow dialog scrolls

    def fields(self) -> tuple[QWidget, ...]:
        """All widgets of the row, from left to right."""
        return (self.number, self.preset, self.temperature, self.seed, self.persona, self.model, self.remove)

    def settings(self, personas: Sequence[tuple[int, str]]) -> ColumnSettings:
        """What the fields say."""
        warm, seed = self.temperature.value(), self.seed.text().strip()
        found = ColumnSettings(
            str(self.preset.currentData()),
            None if warm < 0 else round(warm, 2),
            int(seed) if seed else None,
            int(self.persona.currentData()),
            str(self.model.currentData()),
        )
        return ColumnSettings(
            found.preset, found.temperature, found.seed, found.persona, found.model, label_of(found, personas)
        )


class CompareDialog(QDialog):
    """Begins with `settings`, two to `MOST_COLUMNS` replies.

    Signals:
        chosen(object): the `ColumnSettings` of all replies, when they are to be written.
    """

    chosen = Signal(object)

    def __init__(
        self, offers: Offers, settings: Sequence[ColumnSettings], prompt: str, parent: QWidget
    ) -> None:
        super().__init__(parent)
        self._offers = offers
        self.rows: list[_Row] = []
        self.setObjectName("compareDialog")
        self.setWindowTitle(_("Compare replies"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        about = text_label(_("Replies to “{prompt}”", prompt=prompt), "muted", wraps=True, plain=True)
        self._body = QWidget()
        self._grid = QGridLayout(self._body)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(8)
        self._heads = [text_label(translate(head), "muted") for head in _HEADS]
        for place, head in enumerate(self._heads):
            self._grid.addWidget(head, 0, place)
        area = QScrollArea()
        area.setFrameShape(QFrame.Shape.NoFrame)
        area.setWidgetResizable(True)
        area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        area.setWidget(self._body)
        self.add = QPushButton(_("Add a reply"))
        self.add.setAutoDefault(False)
        self.add.clicked.connect(lambda: self.add_row(ColumnSettings()))
        hint = text_label(
            _("Replies from the loaded model are written at the same time. Then the next model is loaded."),
            "muted", wraps=True,
        )  # fmt: skip
        hint.setVisible(bool(offers.models))
        self.write, cancel = QPushButton(_("Generate replies")), QPushButton(_("Cancel"))
        self.write.setProperty("tone", "primary")
        self.write.setDefault(True)
        self.write.clicked.connect(self._accept)
        cancel.clicked.connect(self.reject)
        buttons = fill(FlowLayout(), self.add, 1, self.write, cancel)
        dialog_margins(fill(QVBoxLayout(self), about, (area, 1), hint, buttons))
        for each in settings:
            self.add_row(each)
        line = self.fontMetrics().height()
        wide = self._body.sizeHint().width() + 3 * line
        self.resize(min(wide, parent.width() - 24), min(20 * line, parent.height() - 24))

    def add_row(self, settings: ColumnSettings) -> None:
        """Add the fields of another reply."""
        if len(self.rows) >= MOST_COLUMNS:
            return
        row = _Row(self._offers, settings)
        row.remove.clicked.connect(partial(self._remove, row))
        self.rows.append(row)
        self._arrange()
        row.preset.setFocus()

    def _remove(self, row: _Row) -> None:
        self.rows.remove(row)
        for field in row.fields():
            self._grid.removeWidget(field)
            field.hide()
            field.deleteLater()
        self._arrange()
        self.rows[-1].preset.setFocus()

    def _arrange(self) -> None:
        offered = (("Persona", self._offers.personas), ("Model", self._offers.models))
        hidden = {name for name, given in offered if not given}
        for place, head in enumerate(self._heads):
            head.setVisible(_HEADS[place] not in hidden)
        for number, row in enumerate(self.rows, 1):
            row.number.setText(f"{number}.")
            for place, field in enumerate(row.fields()):
                self._grid.addWidget(field, number, place)
                field.setVisible(_HEADS[place] not in hidden)
                if not isinstance(field, QLabel | IconButton):
                    field.setAccessibleName(
                        _("{heading} of reply {number}", heading=translate(_HEADS[place]), number=number)
                    )
            row.remove.set_face("trash", _("Remove reply {number}", number=number))
            row.remove.setEnabled(len(self.rows) > 2)
            self._grid.setRowStretch(number, 0)
        self._grid.setRowStretch(len(self.rows) + 1, 1)
        self.add.setEnabled(len(self.rows) < MOST_COLUMNS)

    def _accept(self) -> None:
        found = [row.settings(self._offers.personas) for row in self.rows]
        self.accept()
        self.chosen.emit(found)


def _choice(entries: Sequence[tuple[object, str]], current: object) -> QComboBox:
    box = ComboBox()
    for value, words in entries:
        box.addItem(words, value)
    box.setCurrentIndex(max(0, box.findData(current)))
    box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
    box.setMinimumContentsLength(14)
    return box


def _info(name: str) -> SettingInfo:
    return next(setting_info(field) for field in dataclasses.fields(SamplerSettings) if field.name == name)
