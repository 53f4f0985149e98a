"""The part of a session that knows the open conversation and the settings in force there."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar

from PySide6.QtCore import QObject, QTimer, Signal, SignalInstance, Slot

from desktop.services.settings.layered_settings import SettingsLayers
from desktop.settings import CONVERSATION_SETTINGS, Behaviour
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.conversations.stores import ConversationStores
from desktop.store.database.database import StoreError
from desktop.store.settings.preferences import Preferences
from desktop.store.settings.presets import Preset
from engine.settings import SamplerSettings, Settings

__all__ = ["SettingsSession", "Standing", "told"]

SAVE_MS = 250
"""Preferences are written at most four times a second: writing waits for the disk, and a slider changes at
every step.
"""
P = ParamSpec("P")
Q = TypeVar("Q", bound="SettingsSession")
Standing = tuple[dict[str, Any], tuple[Any, ...]]
"""What is known of the open conversation: attributes by name, and its layers of settings."""
Held = tuple[SignalInstance, tuple[object, ...]]
S = TypeVar("S", bound=Settings)


def told(method: Callable[Concatenate[Q, P], bool]) -> Callable[Concatenate[Q, P], bool]:
    """Trouble of the store becomes a notice, and the method returns False."""

    @functools.wraps(method)
    def wrapper(self: Q, /, *args: P.args, **kwargs: P.kwargs) -> bool:
        try:
            return method(self, *args, **kwargs)
        except StoreError as error:
            self._say(self.notice, str(error), "error")
            return False

    return wrapper


class SettingsSession(QObject):
    """Settings of the open conversation, and the saved defaults under them.

    Signals:
        notice(str sentence, str level): "info", "warning" or "error".
        settings_changed(object): the settings class whose values changed.
    """

    notice = Signal(str, str)
    settings_changed = Signal(object)
    _PLACE: ClassVar[tuple[str, ...]] = ("_conversation",)
    """What is known of the open conversation: the names of these attributes, each set as a whole."""

    def __init__(
        self, stores: ConversationStores, preferences: Preferences, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self.preferences = preferences
        self.stores = stores
        self._layers = SettingsLayers(preferences)
        self._conversation = 0
        self._held: list[Held] | None = None
        self._save_timer = QTimer(self)
        self._save_timer.setSingleShot(True)
        self._save_timer.setInterval(SAVE_MS)
        self._save_timer.timeout.connect(self._save_preferences)
        preferences.write_soon = self._save_soon

    @property
    def conversation(self) -> int:
        """The open conversation's id; 0 before there is one."""
        return self._conversation

    @property
    def _of_open(self) -> ConversationStore:
        """The store that the open conversation, with its messages, is in."""
        return self.stores.of(self._conversation)

    @property
    def title(self) -> str:
        """The open conversation's title; empty before its first message."""
        return self._of_open.get(self._conversation).title if self._conversation else ""

    def settings(self, cls: type[S]) -> S:
        """The values in force."""
        return self._layers.settings(cls)

    def source_of(self, cls: type[Settings], name: str) -> str:
        """Where a value comes from: "default", "saved default", "makers", "model", "folder NAME", "persona
        NAME", "preset NAME" or "conversation".
        """
        return self._layers.source_of(cls, name)

    def origins(self, cls: type[Settings]) -> dict[str, tuple[tuple[str, Any], ...]]:
        """For each value, all that is said about it, lowest first: each source as `source_of` names it,
        and what it says.
        """
        return self._layers.origins(cls)

    def below(self, cls: type[S]) -> S:
        """What each value would go back to."""
        return self._layers.below(cls)

    def settings_for(self, path: str, cls: type[S]) -> S:
        """The saved defaults with what is kept for the model at `path`."""
        return cls(**{**self.preferences.settings(cls).to_json(), **self.preferences.kept(path, cls)})

    @told
    def keep_for_model(self, path: str, cls: type[Settings], values: Mapping[str, Any]) -> bool:
        """Keep these values of a settings class for the model at `path`; at once in force where that is
        the loaded one.
        """
        self.preferences.keep(path, cls, values)
        if path == self._layers.model:
            self._use_model(path)
        return True

    def _use_model(self, path: str, advised: Mapping[str, Any] | None = None) -> None:
        """Put what is kept for the model at `path`, and what its makers advise, in force and tell; "" for
        no model.
        """
        for cls in self._layers.enter_model(path, advised):
            self.settings_changed.emit(cls)

    @property
    def preset(self) -> str:
        """The name of the sampler preset that was chosen last in the open conversation; empty when there
        was none.
        """
        return self._layers.preset

    @told
    def choose_preset(self, preset: Preset) -> bool:
        """Put the values of a sampler preset in force for the open conversation."""
        self._layers.choose_preset(preset)
        self._settings_put(SamplerSettings)
        return True

    @told
    def presets_edited(self, old: str = "", new: str = "") -> bool:
        """Presets came, went or were changed; one called `old` is now called `new`."""
        self._layers.rename_preset(old, new) if old else self._layers.look_up_preset()
        self._settings_put(SamplerSettings)
        return True

    @told
    def set_settings(self, settings: Settings) -> bool:
        """Put settings in force: for the open conversation, or for the whole program where they are not a
        conversation's.
        """
        if settings != self.settings(type(settings)):
            self._layers.put(settings)
            self._settings_put(type(settings))
        return True

    @told
    def reset_setting(self, cls: type[Settings], name: str) -> bool:
        """Bring one value back to the layer below."""
        self._layers.reset(cls, name)
        self._settings_put(cls)
        return True

    @told
    def save_as_defaults(self) -> bool:
        """Make the open conversation's values the defaults of all conversations without their own."""
        self._layers.save_as_defaults()
        for cls in CONVERSATION_SETTINGS:
            self._settings_put(cls)
        return True

    def _save_soon(self) -> None:
        if not self._save_timer.isActive():
            self._save_timer.start()

    @Slot()
    @told
    def _save_preferences(self) -> bool:
        self._save_timer.stop()
        self.preferences.save()
        return True

    def _say(self, signal: SignalInstance, *values: object) -> None:
        """Tell the user something now, or, while another conversation is acted in, as soon as that is
        over: no signal gets out then.
        """
        if self._held is None:
            signal.emit(*values)
        else:
            self._held.append((signal, values))

    def _hold(self) -> list[Held]:
        """Hold back what is said from now on; returns where it is kept."""
        self._held = []
        return self._held

    def _standing(self) -> Standing:
        """What is known of the open conversation, for `_stand`."""
        return {name: getattr(self, name) for name in self._PLACE}, self._layers.standing()

    def _stand(self, standing: Standing) -> None:
        """Go back to the conversation that was open before.

        Nothing is read for that, so that it cannot fail, and nothing is told.
        """
        for name, value in standing[0].items():
            setattr(self, name, value)
        self._layers.stand(standing[1])

    def _enter(self, conversation_id: int) -> None:
        """Take over the settings of another conversation.

        Raises `StoreError` when there is none; what is known may be of both then.
        """
        problems = self._layers.enter(self.stores.of(conversation_id).get(conversation_id).settings)
        self._conversation = conversation_id
        self._look_around(entering=True)
        for problem in problems:
            self._say(
                self.notice,
                f"A setting of this conversation was replaced by its default: {problem}",
                "warning",
            )
        for cls in CONVERSATION_SETTINGS:
            self.settings_changed.emit(cls)

    def _look_around(self, entering: bool = False) -> None:
        """Take over what is said around the open conversation; while `entering`, all settings are told
        afterwards anyway.
        """

    def _settings_put(self, cls: type[Settings]) -> None:
        """Save the conversation's layer and tell."""
        if cls in CONVERSATION_SETTINGS and self._conversation:
            self._of_open.set_settings(self._conversation, self._layers.own)
        self.settings_changed.emit(cls)
        if cls is Behaviour and self._layers.advised:  # its switch may have put the advice in or out of force
            self.settings_changed.emit(SamplerSettings)
