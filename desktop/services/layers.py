"""Where a setting's value comes from: the built-in default, the saved default over it, the conversation's own over both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from desktop.settings import CONVERSATION_SETTINGS
from desktop.store.preferences import Preferences, checked_values
from engine.settings import Settings

__all__ = ["SOURCES", "SettingsLayers"]

SOURCES = ("default", "saved default", "conversation")
"""Every value `source_of` can have."""
S = TypeVar("S", bound=Settings)


class SettingsLayers:
    """The settings in force. Only the classes in `CONVERSATION_SETTINGS` have a conversation layer."""

    def __init__(self, preferences: Preferences) -> None:
        self._preferences = preferences
        self._own: dict[str, dict[str, Any]] = {}

    @property
    def own(self) -> dict[str, dict[str, Any]]:
        """The conversation's layer, ready for JSON."""
        return {name: dict(values) for name, values in self._own.items() if values}

    def enter(self, own: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
        """Take the layer of another conversation; returns a sentence for each value that is not usable."""
        problems: tuple[str, ...] = ()
        self._own = {}
        for cls in CONVERSATION_SETTINGS:
            self._own[cls.__name__], found = checked_values(cls, own.get(cls.__name__))
            problems += found
        return problems

    def settings(self, cls: type[S]) -> S:
        """The values in force."""
        saved = self._preferences.settings(cls)
        return cls(**{**saved.to_json(), **self._own.get(cls.__name__, {})})

    def source_of(self, cls: type[Settings], name: str) -> str:
        """One of `SOURCES`."""
        if name in self._own.get(cls.__name__, {}):
            return "conversation"
        return "saved default" if name in self._preferences.saved_names(cls) else "default"

    def put(self, settings: Settings) -> None:
        """Put these in force: in the conversation's layer where there is one, else as saved defaults."""
        cls = type(settings)
        if cls not in CONVERSATION_SETTINGS:
            self._preferences.save_settings(settings)
            return
        below = self._preferences.settings(cls).to_json()
        self._own[cls.__name__] = {name: value for name, value in settings.to_json().items() if value != below[name]}

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
