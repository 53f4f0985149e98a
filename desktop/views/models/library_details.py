"""The details beside the table: the selected model, and what can be done with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QLabel, QPushButton, QVBoxLayout, QWidget

from desktop.items.models.library import speed_text
from desktop.items.models.local_models import ModelEntry, count_text, template_text
from desktop.services.session.chat_session import ChatSession
from desktop.views.layout.breakable import breakable
from desktop.views.layout.fill import fill
from desktop.views.models.model_defaults import ModelDefaults
from desktop.views.widgets.facts_grid import FactsGrid
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.listening import listen
from desktop.views.widgets.scroll_area import VerticalScrollArea
from desktop.views.widgets.text_label import set_styled, text_label
from engine.core import ModelInfo
from engine.printable import one_line
from engine.settings import LoadSettings, Settings
from engine.units import size_text
from engine.weights.gguf.ollama import is_blob
from engine.words import N_, _, translate

if TYPE_CHECKING:
    from engine.models.memory.fit import Fit

__all__ = ["LibraryDetails"]

NOTHING = N_("Select a model to see its details, whether it fits in memory, and the settings saved for it.")


def _label(tone: str = "", wrap: bool = True) -> QLabel:
    label = text_label(plain=True)
    label.setWordWrap(wrap)
    label.setProperty("tone", tone)
    label.setTextInteractionFlags(
        Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
    )
    return label


class LibraryDetails(VerticalScrollArea):
    """`load_requested(path)`, `unload_requested()`, `show_requested(path)` (in the file manager),
    `remove_requested(path)`.
    """

    load_requested = Signal(str)
    unload_requested = Signal()
    show_requested = Signal(str)
    remove_requested = Signal(str)

    def __init__(self, session: ChatSession, parent: QWidget | None = None) -> None:
        super().__init__(parent=parent)
        self._session = session
        self._entry: ModelEntry | None = None
        self.setObjectName("libraryDetails")
        self.setAccessibleName(_("About the selected model"))
        self.name, self.trouble, self.memory, self.speed = (
            _label("heading"),
            _label("danger"),
            _label(),
            _label("muted"),
        )
        self.load = QPushButton(_("Load"))
        self.load.setProperty("tone", "primary")
        self.load.clicked.connect(self._load)
        self.show_file = QPushButton(_("Show in folder"))
        self.show_file.clicked.connect(lambda: self.show_requested.emit(self._path()))
        self.remove = QPushButton(_("Remove from list"))
        self.remove.setToolTip(_("Remove the model from this list. Its files are not deleted."))
        self.remove.clicked.connect(lambda: self.remove_requested.emit(self._path()))
        self.kept = ModelDefaults(session)
        self.kept.changed.connect(self._show_facts)
        self.facts = FactsGrid()
        self._fill()
        listen(self, session.model_changed, lambda _info: self._show_loaded())
        listen(self, session.state_changed, lambda _state: self._show_loaded())
        session.settings_changed.connect(self._settings_changed)
        self.kept.show_entry(None)
        self.show_entry(None, None)

    def _fill(self) -> None:
        body = QWidget()
        body.setObjectName("libraryDetailsBody")
        layout = QVBoxLayout(body)
        layout.setContentsMargins(14, 10, 14, 14)
        layout.setSpacing(8)
        head = FlowLayout()  # The button beside the name, so that it is visible in the smallest window.
        fill(head, (self.name, 1), self.load)
        for part in (self.name, self.load):
            head.setAlignment(part, Qt.AlignmentFlag.AlignTop)
        layout.addLayout(head)
        for label in (self.trouble, self.memory, self.speed):
            layout.addWidget(label)
        layout.addWidget(self.facts)
        others = fill(FlowLayout(), self.show_file, self.remove, 1)
        layout.addLayout(others)
        layout.addWidget(self.kept)
        layout.addStretch(1)
        self.setWidget(body)

    def show_entry(self, entry: ModelEntry | None, fit: Fit | None) -> None:
        """Show a model with what is known about it; None shows what to do."""
        changed = entry != self._entry
        self._entry = entry
        self.name.setText(breakable(entry.name) if entry is not None else translate(NOTHING))
        self.name.setProperty("tone", "heading" if entry is not None else "muted")
        self.name.style().polish(self.name)
        self.trouble.setText(entry.trouble if entry is not None else "")
        self.trouble.setVisible(bool(entry is not None and entry.trouble))
        self._show_fit(fit if entry is not None else None)
        for button in (self.show_file, self.remove):
            button.setVisible(entry is not None)
        self.load.setVisible(entry is not None and not entry.trouble)
        self._show_loaded()
        if changed:
            self._show_facts()
            self.kept.show_entry(entry)

    def _show_fit(self, fit: Fit | None) -> None:
        self.memory.setText(fit.sentence if fit is not None else "")
        self.memory.setProperty("tone", "danger" if fit is not None and fit.verdict == "too large" else "")
        self.memory.style().polish(self.memory)
        self.memory.setVisible(fit is not None)
        info = None if self._entry is None else self._entry.info
        writes = info is None or not (info.embedding or info.assistant)
        speed = speed_text(fit) if writes else ""
        measured = fit is not None and fit.measured
        self.speed.setText(
            _("Speed in recent replies: {speed}.", speed=speed)
            if measured
            else _(
                "Estimated speed: {removeprefix}, from this computer's memory bandwidth.",
                removeprefix=speed.removeprefix("≈ "),
            )
            if speed
            else ""
        )
        self.speed.setVisible(bool(speed))

    def _show_loaded(self) -> None:
        loaded = self._is_loaded()
        self.load.setText(_("Unload") if loaded else _("Load"))
        set_styled(self.load, "tone", "" if loaded else "primary")
        self.load.setEnabled(
            self._entry is not None and not self._entry.trouble and self._session.state != "loading"
        )

    def _settings_changed(self, cls: type[Settings]) -> None:
        if cls is LoadSettings:  # Which chat template is used.
            self._show_facts()

    def _show_facts(self) -> None:
        self.facts.clear()
        for what, value in self._facts_of(self._entry):
            name, text = _label("muted", wrap=False), _label()
            name.setText(what)
            text.setText(breakable(value))
            text.setAccessibleName(f"{what}: {value}")
            self.facts.add(name, text)

    def _facts_of(self, entry: ModelEntry | None) -> list[tuple[str, str]]:
        if entry is None:
            return []
        info, facts = entry.info, []
        if info is not None:
            bits = _("{bits_per_weight:.3g} bits", bits_per_weight=info.bits_per_weight)
            given = bool(self._session.settings_for(entry.path, LoadSettings).chat_template.strip())
            facts = (
                [(_("Use"), _("embedding model, for passages of files and the local server"))]
                if info.embedding
                else []
            )
            facts = [(_("Use"), _("assistant for drafting"))] if info.assistant else facts
            facts += [
                (
                    _("Architecture"),
                    _(
                        "{architecture}, {count} parameters, {layers} layers",
                        architecture=info.architecture,
                        count=count_text(info.parameters),
                        layers=info.layers,
                    ),
                ),
                (_("Format"), info.format),
                (_("Quantisation"), f"{info.quantisation} ({bits})" if info.quantisation else bits),
                (_("Size"), size_text(info.size)),
                *([] if info.why_no_text else [(_("Pictures"), _pictures(info))]),
                (_("Context"), _("{context_length:,} tokens", context_length=info.context_length)),
                (_("Chat template"), template_text(info, given)),
                (_("Licence"), info.licence or _("not stated")),
            ]
        return [
            *facts,
            (_("Found in"), entry.source or _("recently opened")),
            (_("Path"), one_line(entry.path)),
        ]

    def _path(self) -> str:
        return self._entry.path if self._entry is not None else ""

    def _is_loaded(self) -> bool:
        return (
            self._entry is not None
            and self._session.model is not None
            and self._session.model.path == self._entry.path
        )

    def _load(self) -> None:
        if self._is_loaded():
            self.unload_requested.emit()
        elif self._entry is not None:
            self.load_requested.emit(self._entry.path)


def _pictures(info: ModelInfo) -> str:
    """Whether the model reads pictures, and by what."""
    if info.vision_file and not is_blob(Path(info.vision_file)):
        return _(
            "read by the vision encoder in {file} ({size})",
            file=one_line(Path(info.vision_file).name),
            size=size_text(info.vision_file_bytes),
        )
    if info.reads_pictures:
        return _("read by the model's own vision encoder")
    if info.lacks_vision_file:
        return _("not read: its vision encoder, an mmproj file, is missing")
    return _("not read")
