"""The fields of one persona: name, avatar, system prompt, preset and model."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QComboBox,
    QFormLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QSizePolicy,
    QWidget,
)

from desktop.items.models.local_models import ModelEntry, model_name
from desktop.store.conversations.personas import Persona
from desktop.store.database.database import StoreError
from desktop.views.dialogs.file_dialogs import ask_open
from desktop.views.layout.fill import fill
from desktop.views.personas.avatar import avatar, read_picture
from desktop.views.settings.system_prompt_field import DATE_HINT
from desktop.views.widgets.combo_box import ComboBox
from desktop.views.widgets.growing_text_edit import GrowingTextEdit
from engine.remote import split_address
from engine.words import N_, _, translate

__all__ = ["PersonaEditor"]

_PICTURES = N_("Pictures (*.png *.jpg *.jpeg *.webp *.gif *.bmp *.svg);;All files (*)")
_LONGEST_NAME, _LONGEST_FACE = 60, 8


class PersonaEditor(QWidget):
    """Shows a persona for editing.

    `edited()` at every change by the user; `trouble(sentence)`.
    """

    edited = Signal()
    trouble = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._shown = Persona(0, "")
        self._image, self._image_changed = b"", False
        self.name, self.face = QLineEdit(), QLineEdit()
        self.name.setAccessibleName(_("Name"))
        self.name.setMaxLength(_LONGEST_NAME)
        self.face.setAccessibleName(_("Emoji or initials"))
        self.face.setPlaceholderText(_("Emoji or initials"))
        self.face.setMaxLength(_LONGEST_FACE)
        self._portrait = QLabel()
        self.choose_picture, self.drop_picture = QPushButton(_("Picture…")), QPushButton(_("Remove"))
        self.choose_picture.setAccessibleName(_("Choose a picture"))
        self.drop_picture.setAccessibleName(_("Remove the picture"))
        self.choose_picture.clicked.connect(self._ask_picture)
        self.drop_picture.clicked.connect(lambda: self._set_picture(b""))
        self.prompt = GrowingTextEdit(_("System prompt"), least=5, most=14)
        self.prompt.setPlaceholderText(
            _("Describe the persona and its style, for example: You are Ada, a patient maths teacher.")
        )
        self.prompt.setToolTip(translate(DATE_HINT))
        self.preset, self.model = self._combo(_("Sampler preset")), self._combo(_("Model"))
        self._arrange()
        self.name.textEdited.connect(self._on_edit)
        self.face.textEdited.connect(self._on_edit)
        self.prompt.typed.connect(lambda _text: self._on_edit())
        self.preset.activated.connect(lambda _row: self._on_edit())
        self.model.activated.connect(lambda _row: self._on_edit())

    def _combo(self, name: str) -> QComboBox:
        combo = ComboBox()
        combo.setAccessibleName(name)
        combo.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        combo.setMinimumContentsLength(12)
        combo.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        combo.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        return combo

    def _arrange(self) -> None:
        line = fill(
            QHBoxLayout(), self._portrait, (self.face, 1), self.choose_picture, self.drop_picture, spacing=8
        )
        form = QFormLayout(self)
        form.setContentsMargins(0, 0, 0, 0)
        form.setHorizontalSpacing(14)
        form.setVerticalSpacing(10)
        form.setRowWrapPolicy(QFormLayout.RowWrapPolicy.WrapAllRows)
        form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.AllNonFixedFieldsGrow)
        for label, field in ((_("Name"), self.name), (_("Avatar"), line), (_("System prompt"), self.prompt),
            (_("Sampler preset"), self.preset),
                             (_("Model"), self.model)):  # fmt: skip
            form.addRow(label, field)

    def show_choices(self, presets: Iterable[str], models: Iterable[ModelEntry]) -> None:
        """Set the choices; the present choice stays."""
        preset, model = self.preset.currentData() or "", self.model.currentData() or ""
        self._fill(self.preset, _("Same as the chat"), [(name, name) for name in presets])
        self._fill(
            self.model,
            _("Any loaded model"),
            [(entry.name, entry.path) for entry in models if not entry.trouble],
        )
        self._pick_both(preset, model)

    def _fill(self, combo: QComboBox, nothing: str, choices: Iterable[tuple[str, str]]) -> None:
        combo.clear()
        combo.addItem(nothing, "")
        for words, value in choices:
            combo.addItem(words, value)
            combo.setItemData(combo.count() - 1, value, Qt.ItemDataRole.ToolTipRole)

    def _pick_both(self, preset: str, model: str) -> None:
        """Select these, even if they are not available at present."""
        found = (
            model_name(model)
            if split_address(model) or os.path.exists(model)
            else _("{model_name} (not found)", model_name=model_name(model))
        )
        for combo, value, words in (
            (self.preset, preset, _("{preset} (deleted)", preset=preset)),
            (self.model, model, found),
        ):
            if combo.findData(value) < 0:
                combo.addItem(words, value)
            combo.setCurrentIndex(combo.findData(value))

    def show_persona(self, persona: Persona, image: bytes) -> None:
        """Show this persona; nothing is emitted."""
        self._shown, self._image, self._image_changed = persona, image, False
        self.name.setText(persona.name)
        self.face.setText(persona.avatar)
        self.prompt.show_text(persona.system_prompt)
        self._pick_both(persona.preset, persona.model_path)
        self._draw()

    def persona(self) -> Persona:
        """The persona that the fields describe."""
        return replace(
            self._shown, name=" ".join(self.name.text().split()), avatar=self.face.text().strip(),
            system_prompt=self.prompt.text(), preset=self.preset.currentData() or "",
            model_path=self.model.currentData() or "",
        )  # fmt: skip

    def image(self) -> bytes | None:
        """The new picture, or None if it was not changed."""
        return self._image if self._image_changed else None

    def _on_edit(self) -> None:
        self._draw()
        self.edited.emit()

    def _ask_picture(self) -> None:
        ask_open(
            self.window(),
            _("Choose a picture"),
            lambda chosen: self.take_picture(chosen[0]),
            translate(_PICTURES),
        )

    def take_picture(self, path: Path) -> None:
        """Use the picture in a file as the avatar; emits `trouble` if it cannot be read."""
        try:
            data = read_picture(path)
        except StoreError as error:
            self.trouble.emit(str(error))
        else:
            self._set_picture(data)

    def _set_picture(self, data: bytes) -> None:
        self._image, self._image_changed = data, True
        self._on_edit()

    def _draw(self) -> None:
        side = round(self.fontMetrics().height() * 2.4)
        name, face = self.name.text() or "?", self.face.text().strip()
        self._portrait.setPixmap(
            avatar(name, face, self._image, side, self.devicePixelRatioF(), self.palette())
        )
        self._portrait.setAccessibleName(_("Picture") if self._image else "")
        self.drop_picture.setVisible(bool(self._image))
