"""Where a setting's value comes from: the built-in default, the saved default over it, the conversation's own over both.

A sampler preset puts its values into the conversation's layer; the layer remembers its name as long as the conversation goes
on from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from desktop.settings import CONVERSATION_SETTINGS
from desktop.store.preferences import Preferences, checked_values
from desktop.store.presets import Preset, find_preset
from engine.settings import SamplerSettings, Settings

__all__ = ["FROM_PRESET", "SOURCES", "SettingsLayers"]

SOURCES = ("default", "saved default", "conversation")
"""What `source_of` can be, besides `FROM_PRESET` with the name of a preset behind it."""
FROM_PRESET = "preset "
_PRESET_KEY = "preset"
S = TypeVar("S", bound=Settings)


class SettingsLayers:
    """The settings in force. Only the classes in `CONVERSATION_SETTINGS` have a conversation layer."""

    def __init__(self, preferences: Preferences) -> None:
        self._preferences = preferences
        self._own: dict[str, dict[str, Any]] = {}
        self._preset = ""
        self._preset_values: dict[str, Any] = {}

    @property
    def own(self) -> dict[str, dict[str, Any]]:
        """The conversation's layer, ready for JSON."""
        own = {name: dict(values) for name, values in self._own.items() if values}
        return {**own, _PRESET_KEY: {"name": self._preset}} if self._preset else own

    @property
    def preset(self) -> str:
        """The name of the preset that was chosen last in the conversation; empty when there was none."""
        return self._preset

    def enter(self, own: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
        """Take the layer of another conversation; returns a sentence for each value that is not usable."""
        problems: tuple[str, ...] = ()
        self._own = {}
        for cls in CONVERSATION_SETTINGS:
            self._own[cls.__name__], found = checked_values(cls, own.get(cls.__name__))
            problems += found
        chosen = own.get(_PRESET_KEY, {}).get("name")
        self._preset = chosen if isinstance(chosen, str) else ""
        self.look_up_preset()
        return problems

    def choose_preset(self, preset: Preset) -> None:
        """Put the values of a preset into the conversation's layer: those it names and those that differ below."""
        wanted = preset.over(self.settings(SamplerSettings)).to_json()
        below = self._preferences.settings(SamplerSettings).to_json()
        own = self._own.get(SamplerSettings.__name__, {})
        kept = {"seed"} & own.keys()
        self._own[SamplerSettings.__name__] = {
            name: value for name, value in wanted.items() if name in preset.settings or name in kept or value != below[name]
        }
        self._preset = preset.name
        self.look_up_preset()

    def rename_preset(self, old: str, new: str) -> None:
        """The preset the conversation took its values from has another name."""
        if self._preset == old:
            self._preset = new
        self.look_up_preset()

    def look_up_preset(self) -> None:
        """Read the chosen preset's values again; a preset that is gone has none."""
        found = find_preset(self._preferences, self._preset) if self._preset else None
        self._preset_values = {} if found is None else found.over(SamplerSettings()).to_json()
        if found is not None and "seed" not in found.settings:
            del self._preset_values["seed"]

    def settings(self, cls: type[S]) -> S:
        """The values in force."""
        saved = self._preferences.settings(cls)
        return cls(**{**saved.to_json(), **self._own.get(cls.__name__, {})})

    def source_of(self, cls: type[Settings], name: str) -> str:
        """One of `SOURCES`, or `FROM_PRESET` and a name."""
        own = self._own.get(cls.__name__, {})
        if name in own:
            from_preset = cls is SamplerSettings and own[name] == self._preset_values.get(name, _MISSING)
            return FROM_PRESET + self._preset if from_preset else "conversation"
        return "saved default" if name in self._preferences.saved_names(cls) else "default"

    def put(self, settings: Settings) -> None:
        """Put these in force: in the conversation's layer where there is one, else as saved defaults."""
        cls = type(settings)
        if cls not in CONVERSATION_SETTINGS:
            self._preferences.save_settings(settings)
            return
        below = self._preferences.settings(cls).to_json()
        before = self._own.get(cls.__name__, {})
        self._own[cls.__name__] = {
            name: value for name, value in settings.to_json().items() if value != below[name] or before.get(name, _MISSING) == value
        }

    def reset(self, cls: type[Settings], name: str) -> None:
        """Take the topmost layer off one value."""
        if self._own.get(cls.__name__, {}).pop(name, _MISSING) is _MISSING:
            self._preferences.forget_setting(cls, name)

    def save_as_defaults(self) -> None:
        """Make the conversation's values the saved defaults; its own layer is empty then."""
        for cls in CONVERSATION_SETTINGS:
            self._preferences.save_settings(self.settings(cls))
            self._own[cls.__name__] = {}


_MISSING = object()
