"""Changing the settings of the open chat, of a model, or of the whole program."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from PySide6.QtCore import QObject, Signal, Slot

from desktop.services.session.signals import SessionSignals, reports_store_errors
from desktop.services.session.visible_chat import VisibleChat
from desktop.services.settings.layered_settings import LayeredSettings, ModelLayer
from desktop.services.system.debounce import debounce
from desktop.settings import CONVERSATION_SETTINGS, Behaviour
from desktop.store.conversations.personas import PersonaStore
from desktop.store.conversations.stores import ConversationStores
from desktop.store.settings.preferences import Preferences
from desktop.store.settings.presets import Preset
from engine.settings import SamplerSettings, Settings

__all__ = ["ChatSettings"]

SAVE_MS = 250
"""Preferences are written at most four times a second: writing waits for the disk, and a slider changes at
every step.
"""
S = TypeVar("S", bound=Settings)


class ChatSettings(QObject):
    """Saves what the user sets.

    Signals:
        was_set(object): a settings class that the user changed.
    """

    was_set = Signal(object)

    def __init__(
        self,
        signals: SessionSignals,
        stores: ConversationStores,
        preferences: Preferences,
        visible: VisibleChat,
    ) -> None:
        super().__init__(signals)
        self._signals, self._stores = signals, stores
        self._preferences, self._visible = preferences, visible
        self._timer = debounce(self, self.save_preferences, SAVE_MS)
        preferences.write_soon = self._save_soon

    @property
    def _layers(self) -> LayeredSettings:
        return self._visible.context.layers

    def settings_for(self, path: str, cls: type[S]) -> S:
        """The saved defaults with what is kept for the model at `path`."""
        return LayeredSettings(self._preferences, ModelLayer(self._preferences, path)).settings(cls)

    @reports_store_errors
    def keep_for_model(self, path: str, cls: type[Settings], values: Mapping[str, Any]) -> bool:
        """Keep these values of a class for the model at `path`; they apply at once if it is loaded."""
        self._preferences.keep(path, cls, values)
        if path == self._visible.model_layer.path:
            self.use_model(path)
        return True

    def use_model(self, path: str, recommended: Mapping[str, Any] | None = None) -> None:
        """Apply what is kept for the model at `path` ("" for none) and what its authors recommend."""
        for cls in self._visible.model_layer.enter(path, recommended):
            self._signals.settings_changed.emit(cls)

    @reports_store_errors
    def choose_preset(self, preset: Preset) -> bool:
        """Use the values of a sampler preset in the open chat."""
        self._layers.choose_preset(preset)
        self._was_set(SamplerSettings)
        return True

    @reports_store_errors
    def presets_edited(self, old: str = "", new: str = "") -> bool:
        """Presets came, went or were changed; one called `old` is now called `new`, also for its personas."""
        if old:
            personas = PersonaStore(self._stores.database)
            for persona in personas.list():
                if persona.preset == old:
                    personas.save(dataclasses.replace(persona, preset=new))
            self._layers.rename_preset(old, new)
        else:
            self._layers.read_preset()
        self._was_set(SamplerSettings)
        return self._visible.follow_place()

    @reports_store_errors
    def set_settings(self, settings: Settings) -> bool:
        """Use settings in the open chat, or in the whole program if they are not a chat's."""
        if settings != self._layers.settings(type(settings)):
            self._layers.put(settings)
            self._was_set(type(settings))
        return True

    @reports_store_errors
    def reset_setting(self, cls: type[Settings], name: str) -> bool:
        """Reset one value to that of the layer below."""
        self._layers.reset(cls, name)
        self._was_set(cls)
        return True

    @reports_store_errors
    def save_as_defaults(self) -> bool:
        """Make the open chat's values the defaults of all chats without their own."""
        self._layers.save_as_defaults()
        for cls in CONVERSATION_SETTINGS:
            self._was_set(cls)
        return True

    @Slot()
    @reports_store_errors
    def save_preferences(self) -> bool:
        """Write the preferences now."""
        self._timer.stop()
        self._preferences.save()
        return True

    def _save_soon(self) -> None:
        if not self._timer.isActive():
            self._timer.start()

    def _was_set(self, cls: type[Settings]) -> None:
        context = self._visible.context
        if cls in CONVERSATION_SETTINGS and context.id:
            context.store.set_settings(context.id, context.layers.own)
        self._signals.settings_changed.emit(cls)
        if cls is Behaviour and self._visible.model_layer.recommended:  # its switch turns them on or off
            self._signals.settings_changed.emit(SamplerSettings)
        self.was_set.emit(cls)
