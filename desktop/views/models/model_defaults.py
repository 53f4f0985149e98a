"""The settings kept for one model: context, cache type, chat template, recommended sampling."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_type_hints

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QPushButton, QVBoxLayout, QWidget

from desktop.items.models.local_models import ModelEntry, template_text
from desktop.services.session.chat_session import ChatSession
from desktop.settings import Behaviour
from desktop.views.dialogs.file_dialogs import ask_open
from desktop.views.layout.fill import fill
from desktop.views.settings.form_row import Row
from desktop.views.settings.text_editors import TextEditor
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.listening import listen
from desktop.views.widgets.text_label import text_label
from desktop.views.widgets.wrapping_text import WrappingButton
from engine.platform.regular_file import regular_file
from engine.settings import CacheSettings, LoadSettings, SamplerSettings, Settings, setting_info
from engine.units import number_text, size_text
from engine.words import _

__all__ = ["ModelDefaults", "advice_text"]

FIELDS: tuple[tuple[type[Settings], str], ...] = (
    (CacheSettings, "context_length"), (CacheSettings, "dtype"), (LoadSettings, "chat_template"),
)  # fmt: skip
MAX_TEMPLATE_BYTES = 1 << 20


def advice_text(values: Sequence[tuple[str, Any]]) -> str:
    """Sampler values in words: "temperature 0.6, top K 20"."""
    labels = {field.name: setting_info(field).label for field in dataclasses.fields(SamplerSettings)}
    return ", ".join(
        f"{labels[name][:1].lower()}{labels[name][1:]} {_value_text(value)}"
        for name, value in values
        if name in labels
    )


def _value_text(value: Any) -> str:
    if isinstance(value, float):
        return number_text(value, "g")
    return ", ".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)


class ModelDefaults(QWidget):
    """Shows and keeps the settings of one model, which apply whenever it is loaded. `trouble(sentence)`: a
    file could not be used; `changed()`: the settings changed.
    """

    trouble = Signal(str)
    changed = Signal()

    def __init__(self, session: ChatSession, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self._entry: ModelEntry | None = None
        heading = text_label(_("Saved for this model"), "subheading", wraps=True)
        heading.setIndent(0)
        self.rows: dict[str, Row] = {}
        layout = fill(QVBoxLayout(self), heading, margins=(0, 0, 0, 0), spacing=8)
        for cls, name in FIELDS:
            fields = dataclasses.fields(cls)  # type: ignore[arg-type]
            field = next(field for field in fields if field.name == name)
            row = self.rows[name] = Row(setting_info(field), get_type_hints(cls)[name])
            row.editor.edited.connect(lambda value, cls=cls, name=name: self._keep(cls, name, value))
            row.reset.clicked.connect(lambda _checked=False, cls=cls, name=name: self._forget(cls, name))
            layout.addWidget(row)
        self.template_file = WrappingButton(_("Template from a file…"))
        self.template_file.clicked.connect(self._ask_for_template)
        layout.addWidget(self.template_file)
        self.advice = text_label(tone="muted", wraps=True)
        self.use_advice = QPushButton(_("Save for this model"))
        self.use_advice.clicked.connect(self._use_advice)
        self.forget_advice = QPushButton(_("Delete"))
        self.forget_advice.setAccessibleName(_("Delete the sampling settings saved for this model"))
        self.forget_advice.clicked.connect(lambda: self._keep_all(SamplerSettings, {}))
        layout.addWidget(self.advice)
        buttons = fill(FlowLayout(), self.use_advice, self.forget_advice, 1)
        layout.addLayout(buttons)
        listen(self, session.settings_changed, lambda _cls: self.refresh())

    def show_entry(self, entry: ModelEntry | None) -> None:
        """Show what is kept for a model; pending changes of the previous one are saved first."""
        for row in self.rows.values():
            row.editor.finish()
        self._entry = entry if entry is not None and entry.info is not None else None
        self.setVisible(self._entry is not None)
        self.refresh()

    def refresh(self) -> None:
        """Update the values."""
        if self._entry is None or self._entry.info is None:
            return
        path = self._entry.path
        for cls, name in FIELDS:
            row, settings = self.rows[name], self._session.settings_for(path, cls)
            own = name in self._session.preferences.kept(path, cls)
            saved = name in self._session.preferences.saved_names(cls)
            row.editor.set_value(getattr(settings, name))
            if isinstance(row.editor, TextEditor):
                row.editor.box.setPlaceholderText(template_text(self._entry.info))
            row.show_source("model" if own else "saved default" if saved else "default", own)
        advised = self._entry.info.defaults
        kept = self._session.preferences.kept(path, SamplerSettings)
        used = self._session.settings(Behaviour).makers_advice
        sentences = [
            _("The model author recommends: {advice}.", advice=advice_text(advised))
            if advised
            else _("The model author recommends no sampling settings.")
        ]
        if advised:
            sentences.append(
                _("These settings are used when the model is loaded.")
                if used
                else (
                    _(
                        "These settings are not used, because “Use recommended sampling” is off in "
                        "Preferences."
                    )
                )
            )
        if kept:
            sentences.append(
                _(
                    "Saved sampling for this model, which takes precedence: {advice}.",
                    advice=advice_text(list(kept.items())),
                )
            )
        self.advice.setText(" ".join(sentences))
        self.use_advice.setVisible(bool(advised) and not used and kept != dict(advised))
        self.forget_advice.setVisible(bool(kept))

    def _keep(self, cls: type[Settings], name: str, value: Any) -> None:
        if self._entry is not None:
            self._keep_all(cls, {**self._session.preferences.kept(self._entry.path, cls), name: value})

    def _forget(self, cls: type[Settings], name: str) -> None:
        if self._entry is not None:
            kept = self._session.preferences.kept(self._entry.path, cls)
            kept.pop(name, None)
            self._keep_all(cls, kept)

    def _use_advice(self) -> None:
        if self._entry is not None and self._entry.info is not None:
            self._keep_all(SamplerSettings, dict(self._entry.info.defaults))

    def _keep_all(self, cls: type[Settings], values: dict[str, Any]) -> None:
        if self._entry is not None:
            self._session.keep_for_model(self._entry.path, cls, values)
            self.refresh()
            self.changed.emit()

    def _ask_for_template(self) -> None:
        kinds = _("Templates (*.jinja *.jinja2 *.j2 *.txt);;All files (*)")
        ask_open(self, _("Choose a chat template file"), lambda chosen: self.take_template(chosen[0]), kinds)

    def take_template(self, path: Path) -> None:
        """Use the text of a file as the model's chat template."""
        try:
            if regular_file(path).st_size > MAX_TEMPLATE_BYTES:
                self.trouble.emit(
                    _(
                        "{path} is too large for a chat template (over {size}). Choose another file.",
                        path=path.name,
                        size=size_text(MAX_TEMPLATE_BYTES),
                    )
                )
                return
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            self.trouble.emit(_("{path} is not a text file. Choose another file.", path=path.name))
            return
        self._keep(LoadSettings, "chat_template", text)
