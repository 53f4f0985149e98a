"""Connects the inspector with the session: values and their sources, presets, validation, memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject, QSettings, QTimer, Signal, Slot

from desktop.services.models.devices import DeviceService
from desktop.services.models.memory_forecast import MemoryForecast
from desktop.services.session.chat_session import ChatSession
from desktop.services.session.context import Prompt
from desktop.services.settings.presets import PresetService
from desktop.services.settings.validation import ValidationService
from desktop.settings import MODEL_SETTINGS, Appearance, Behaviour
from desktop.views.layout.panes import RIGHT, Panes
from desktop.views.settings.checked_fields import checked_fields
from desktop.views.settings.model.memory_bar import MemoryBar
from desktop.views.settings.model.memory_line import MemoryLine, ReloadStrip
from desktop.views.settings.preset_bar import PresetBar
from desktop.views.settings.settings_pane import Inspector
from desktop.views.widgets.listening import listen
from engine.core import ModelInfo
from engine.settings import CacheSettings, LoadSettings, SamplerSettings, Settings, setting_info
from engine.words import _

__all__ = ["SettingsController"]

_GROUPS = "groups"
_SLIDERS: dict[type[Settings], str] = {CacheSettings: "context_length", LoadSettings: "gpu_memory"}
"""The panes with a memory bar, and the setting that moves it."""


class SettingsController(QObject):
    """Shows the settings of `session` in `inspector`, and applies the user's changes.

    Signals:
        notice(str sentence, str level, bool undoable): a preset or the defaults changed.
        reload_requested(): the model is to be loaded again, with the present settings.
    """

    notice = Signal(str, str, bool)
    reload_requested = Signal()

    def __init__(
        self,
        session: ChatSession,
        inspector: Inspector,
        panes: Panes,
        validation: ValidationService,
        devices: DeviceService,
        forecast: MemoryForecast,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._session, self._inspector, self._panes = session, inspector, panes
        self._devices, self._forecast = devices, forecast
        self._conversation = session.conversation
        self._unfinished: dict[int, dict[type[Settings], dict[str, Any]]] = {}
        self.presets = PresetService(session, self)
        self.presets.notice.connect(self.notice)
        self.preset_bar = PresetBar(self.presets)
        self.memory = MemoryLine()
        self.reload_strips = {cls: ReloadStrip() for cls in MODEL_SETTINGS}
        inspector.set_extra(
            SamplerSettings, self.preset_bar, words="presets save rename delete import export"
        )
        inspector.set_extra(CacheSettings, self.memory, below=True)
        for cls, strip in self.reload_strips.items():
            inspector.set_extra(cls, strip, below=True)
            strip.requested.connect(self.reload_requested)
        self.memory_bars = {cls: MemoryBar(forecast) for cls in _SLIDERS}
        for cls, bar in self.memory_bars.items():
            inspector.set_extra(cls, bar, below=True, words="memory ram vram weights cache free")
            inspector.forms[cls].typed.connect(lambda name, value, cls=cls: self._preview(cls, name, value))
        forms = inspector.forms
        self._checked = checked_fields(forms, validation)
        self._unshown = set(forms)
        self._connect()
        # At the start a conversation is opened first, which shows most of them.
        QTimer.singleShot(0, self, self._show_unshown)

    def _connect(self) -> None:
        session, inspector = self._session, self._inspector
        session.settings_changed.connect(self.show_settings)
        session.model_changed.connect(self.show_model)
        listen(self, self._devices.found, lambda _usable: self.show_model())
        session.prompt_changed.connect(self.show_prompt)
        inspector.changed.connect(self._set)
        inspector.reset_requested.connect(session.reset_setting)
        inspector.system_prompt_changed.connect(session.set_system_prompt)
        inspector.advanced_changed.connect(lambda shown: self._set(Behaviour, "show_advanced", shown))
        inspector.save_requested.connect(self._save_defaults)

    def commands(self) -> dict[str, Callable[[], object]]:
        """The commands that go to the settings, and those of the text size."""
        return {
            "inspector": lambda: self._panes.toggle(RIGHT),
            "search_settings": self._begin_search,
            "larger": lambda: self.scale_text(10),
            "smaller": lambda: self.scale_text(-10),
            "normal": lambda: self.scale_text(0),
        }

    def _begin_search(self) -> None:
        self._panes.show_side(RIGHT)
        self._inspector.query.setFocus()
        self._inspector.query.selectAll()

    def show_setting(self, cls: type[Settings], name: str) -> None:
        """Scroll to a setting and focus its editor; without a name, to the system prompt."""
        self._panes.show_side(RIGHT)
        self._inspector.reveal(cls, name)

    def scale_text(self, step: int) -> None:
        """Make the text larger or smaller by `step` percent; 0 restores the normal size."""
        field = next(field for field in dataclasses.fields(Appearance) if field.name == "text_scale")
        info, now = setting_info(field), self._session.settings(Appearance)
        scale = max(int(info.low or 0), min(int(info.high or 0), now.text_scale + step)) if step else 100
        self._set(Appearance, "text_scale", scale)

    # -- what the session says

    def show_settings(self, cls: type[Settings]) -> None:
        """Show the effective values of a settings class."""
        if cls is Behaviour:
            self._inspector.show_advanced(self._session.settings(Behaviour).show_advanced)
        if cls not in self._inspector.forms:
            return
        self._follow_conversation()
        self._show_values(cls)
        if cls in MODEL_SETTINGS:
            self.show_model()

    @Slot()
    def _show_unshown(self) -> None:
        for cls in (*self._unshown, Behaviour):
            self.show_settings(cls)
        self.show_model()

    def _show_values(self, cls: type[Settings]) -> None:
        self._unshown.discard(cls)
        settings = self._session.layers
        layers = settings.source_layers(cls)
        sources = {name: said[-1][0] for name, said in layers.items()}
        self._inspector.show_values(settings.settings(cls), sources, settings.after_reset(cls), layers)

    def show_prompt(self, prompt: Prompt) -> None:
        """Show the system prompt of the open conversation, and its source."""
        self._inspector.show_system_prompt(prompt.own, prompt.inherited, prompt.source, prompt.inherits)

    def show_model(self, _model: ModelInfo | None = None) -> None:
        """Show the memory estimate, and whether the model must be loaded again."""
        session = self._session
        self._estimate(session.settings(CacheSettings))
        used = session.loaded_with if session.model is not None and not session.model.host else None
        for cls, strip in self.reload_strips.items():
            strip.show_needed(used is not None and session.settings(cls) not in used)

    def _estimate(self, settings: CacheSettings) -> None:
        self.memory.show_estimate(
            self._session.model, settings, self._session.settings(LoadSettings), self._devices.usable
        )

    def _preview(self, cls: type[Settings], name: str, value: Any) -> None:
        """Show what a slider would cost while it moves."""
        if name == _SLIDERS[cls]:
            now = self._session.settings(cls)
            moved = dataclasses.replace(now, **{name: value})  # type: ignore[type-var]
            self._forecast.preview(moved)
            if isinstance(moved, CacheSettings):
                self._estimate(moved)

    def _follow_conversation(self) -> None:
        """An invalid value that was typed for one conversation stays with it."""
        before, self._conversation = self._conversation, self._session.conversation
        if before != self._conversation:
            forms = self._inspector.forms
            if taken := {cls: open_ for cls, form in forms.items() if (open_ := form.take_proposals())}:
                self._unfinished[before] = taken
            for cls, proposals in self._unfinished.pop(self._conversation, {}).items():
                self._show_values(cls)
                forms[cls].put_proposals(proposals)

    # -- what the user does

    def _set(self, cls: type[Settings], name: str, value: Any) -> None:
        now = self._session.settings(cls)
        self._session.set_settings(dataclasses.replace(now, **{name: value}))  # type: ignore[type-var]

    def _save_defaults(self) -> None:
        if self._session.save_as_defaults():
            self.notice.emit(_("New chats will use these settings."), "info", False)

    # -- what is remembered

    def remember(self, places: QSettings) -> None:
        """Remember which groups are unfolded."""
        places.setValue(_GROUPS, "\n".join(self._inspector.opened_groups()))

    def recall(self, places: QSettings) -> None:
        """Unfold the groups of last time."""
        titles = places.value(_GROUPS)
        if isinstance(titles, str):
            self._inspector.open_groups(titles.split("\n"))
