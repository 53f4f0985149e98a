"""Saved defaults, recent models and other preferences, by their names and types.

Their file contains only values that the user changed, so that better defaults of a later version reach
everyone else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from desktop.settings import SAVED_SETTINGS
from desktop.store.settings.saved_object import SavedObject
from engine.errors import BadSetting
from engine.settings import Settings, check_value
from engine.words import _

__all__ = ["Preferences", "checked_values", "without_defaults"]

RECENT_MODELS = 10
RECENT_EMOJI = 24
RECENT_CHOICES = 20
S = TypeVar("S", bound=Settings)


class Preferences(SavedObject):
    """Saved defaults by settings class, settings of single models, recent models, folders, and so on."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        saved = self._data.get("settings")
        self._saved: dict[str, dict[str, Any]] = {}
        for cls in SAVED_SETTINGS:
            values, problems = checked_values(
                cls, saved.get(cls.__name__) if isinstance(saved, dict) else None
            )
            self._saved[cls.__name__] = values
            self.notices += tuple(
                _("A saved default was reset: {problem}", problem=problem) for problem in problems
            )
        saved_keys = self._data.get("shortcuts") or {}
        broken = (
            [name for name, its in saved_keys.items() if _keys(its) is None]
            if isinstance(saved_keys, dict)
            else ["all"]
        )
        self.notices += tuple(
            _("The saved keys for “{name}” cannot be read. The default keys are used.", name=name)
            for name in broken
        )

    def settings(self, cls: type[S]) -> S:
        """The saved defaults of a settings class, over the built-in ones."""
        return cls(**self._saved.get(cls.__name__, {}))

    def saved_names(self, cls: type[Settings]) -> frozenset[str]:
        """The fields whose defaults the user changed."""
        return frozenset(self._saved.get(cls.__name__, {}))

    def save_settings(self, settings: Settings) -> None:
        """Make these the defaults."""
        self._saved[type(settings).__name__] = without_defaults(settings)
        self._changed()

    def forget_setting(self, cls: type[Settings], name: str) -> None:
        """Restore the built-in default of one field."""
        if name in self._saved[cls.__name__]:
            del self._saved[cls.__name__][name]
            self._changed()

    @property
    def presets(self) -> dict[str, dict[str, Any]]:
        """The user's sampler presets: the values of each by name, ready for JSON."""
        saved = self._data.get("presets")
        return (
            {name: dict(values) for name, values in saved.items() if isinstance(values, dict)}
            if isinstance(saved, dict)
            else {}
        )

    def save_preset(self, name: str, values: Mapping[str, Any], instead_of: str = "") -> None:
        """Save a preset as `name`, replacing one of that name and the one called `instead_of`."""
        kept = {other: its for other, its in self.presets.items() if other not in (name, instead_of)}
        self._data["presets"] = {**kept, name: dict(values)}
        self._changed()

    def remove_preset(self, name: str) -> None:
        """Delete a preset; conversations keep the values they took from it."""
        self._data["presets"] = {other: values for other, values in self.presets.items() if other != name}
        self._changed()

    @property
    def shortcuts(self) -> dict[str, tuple[str, ...]]:
        """The keys that the user gave to commands, by the name of the command; anything but a list of texts
        is left out.
        """
        saved = self._data.get("shortcuts")
        read = {name: _keys(its) for name, its in saved.items()} if isinstance(saved, dict) else {}
        return {name: keys for name, keys in read.items() if keys is not None}

    def save_shortcuts(self, keys: Mapping[str, Sequence[str]]) -> None:
        """Replace all keys of commands."""
        self._data["shortcuts"] = {name: list(its) for name, its in keys.items()}
        self._changed()

    @property
    def recent_choices(self) -> tuple[str, ...]:
        """Recent choices in the command palette, latest first."""
        return self._texts("recent_choices")

    def remember_choice(self, key: str) -> None:
        """Record a choice in the command palette."""
        self._remember("recent_choices", key, RECENT_CHOICES)

    @property
    def last_model(self) -> str:
        """The path of the model that was loaded last; empty if there was none."""
        return self._text("last_model")

    @property
    def recent_models(self) -> tuple[str, ...]:
        """Paths of the models loaded before, latest first."""
        return self._texts("recent_models")

    @property
    def recent_emoji(self) -> tuple[str, ...]:
        """The emoji that were inserted last, latest first."""
        return self._texts("recent_emoji")

    def remember_emoji(self, text: str) -> None:
        """Record an emoji that was just inserted."""
        self._remember("recent_emoji", text, RECENT_EMOJI)

    @property
    def unread_files(self) -> dict[int, tuple[str, ...]]:
        """The paths of files that are being read for the next message of each chat."""
        saved = self._data.get("unread_files")
        read = {name: _keys(its) for name, its in saved.items()} if isinstance(saved, dict) else {}
        return {int(name): its for name, its in read.items() if its and name.isdecimal()}

    def note_unread_files(self, files: Mapping[int, Sequence[str]]) -> None:
        """Replace them."""
        self._data["unread_files"] = {str(number): list(paths) for number, paths in files.items()}
        self._changed()

    @property
    def model_folders(self) -> tuple[str, ...]:
        """Folders the user added to search for models."""
        return self._texts("model_folders")

    @property
    def last_conversation(self) -> int:
        """The conversation that was open last; 0 if there was none."""
        value = self._data.get("last_conversation")
        return value if isinstance(value, int) and not isinstance(value, bool) else 0

    def remember_model(self, path: str) -> None:
        """Record a model that was just loaded; it is no longer hidden."""
        if path in self.hidden_models:
            self._data["hidden_models"] = [each for each in self.hidden_models if each != path]
        self._data["last_model"] = path
        self._remember("recent_models", path, RECENT_MODELS)

    def forget_model(self, path: str) -> None:
        """Remove a model from the recent ones, for example because its file is gone."""
        self._data["recent_models"] = [recent for recent in self.recent_models if recent != path]
        if self.last_model == path:
            self._data["last_model"] = ""
        self._changed()

    def add_model_folder(self, path: str) -> None:
        """Search this folder for models too."""
        if path not in self.model_folders:
            self._data["model_folders"] = [*self.model_folders, path]
            self._changed()

    def remove_model_folder(self, path: str) -> None:
        """No longer search this folder; nothing on disk changes."""
        self._data["model_folders"] = [folder for folder in self.model_folders if folder != path]
        self._changed()

    @property
    def hidden_models(self) -> tuple[str, ...]:
        """Paths of models that the user removed from the library; their files stay."""
        return self._texts("hidden_models")

    def hide_model(self, path: str) -> None:
        """Remove a model from the library and from the recent ones."""
        self._data["hidden_models"] = [*(each for each in self.hidden_models if each != path), path]
        self.forget_model(path)

    def show_hidden_models(self) -> None:
        """Show all hidden models in the library again."""
        if self.hidden_models:
            self._data["hidden_models"] = []
            self._changed()

    @property
    def servers(self) -> object:
        """The servers that run models, as `save_servers` kept them."""
        return self._data.get("servers")

    def save_servers(self, servers: Sequence[Mapping[str, Any]]) -> None:
        """Replace all servers, ready for JSON; their keys are never among the values."""
        if (kept := [dict(server) for server in servers]) != self._data.get("servers", []):
            self._data["servers"] = kept
            self._changed()

    @property
    def updates_checked_at(self) -> float:
        """When the list of updates was last read, in seconds since 1970; 0 if it never was."""
        value = self._data.get("updates_checked_at")
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0

    def note_update_check(self, now: float) -> None:
        """Record that the list of updates has just been read."""
        self._data["updates_checked_at"] = now
        self._changed()

    @property
    def offline(self) -> bool:
        """Whether the user allows no connection to the model hub."""
        return self._data.get("offline") is True

    def set_offline(self, on: bool) -> None:
        """Allow or forbid connections to the model hub."""
        if on != self.offline:
            self._data["offline"] = on
            self._changed()

    @property
    def passage_model(self) -> str:
        """The path of the embedding model that finds passages of files; "words" for none, "" for any."""
        return self._text("passage_model")

    def set_passage_model(self, choice: str) -> None:
        """Choose the embedding model that finds passages of files."""
        if choice != self.passage_model:
            self._data["passage_model"] = choice
            self._changed()

    def kept(self, path: str, cls: type[Settings]) -> dict[str, Any]:
        """The valid values of a settings class that are saved for the model at `path`."""
        models = self._data.get("models")
        own = models.get(path) if isinstance(models, dict) else None
        return checked_values(cls, own.get(cls.__name__) if isinstance(own, dict) else None)[0]

    @property
    def models_with_settings(self) -> frozenset[str]:
        """The paths of the models that have settings of their own."""
        models = self._data.get("models")
        return frozenset(models) if isinstance(models, dict) else frozenset()

    def keep(self, path: str, cls: type[Settings], values: Mapping[str, Any]) -> None:
        """Replace the values of this class saved for the model at `path`; there they take precedence over the
        defaults.
        """
        models = self._data.get("models")
        models = dict(models) if isinstance(models, dict) else {}
        before = models.get(path)
        own = {**(before if isinstance(before, dict) else {}), cls.__name__: dict(values)}
        models[path] = {name: its for name, its in own.items() if its}
        self._data["models"] = {each: its for each, its in models.items() if its}
        self._changed()

    def remember_conversation(self, conversation_id: int) -> None:
        """Record which conversation is open."""
        if conversation_id != self.last_conversation:
            self._data["last_conversation"] = conversation_id
            self._changed()

    def _write(self) -> None:
        """The saved defaults, too, beside those of settings that this version does not know."""
        unknown = self._data.get("settings")
        kept: dict[str, Any] = dict(unknown) if isinstance(unknown, dict) else {}
        for cls in SAVED_SETTINGS:
            own = cls().to_json()
            before = kept.get(cls.__name__)
            foreign = (
                {key: value for key, value in before.items() if key not in own}
                if isinstance(before, dict)
                else {}
            )
            kept[cls.__name__] = {**foreign, **self._saved[cls.__name__]}
        self._data["settings"] = {name: values for name, values in kept.items() if values}
        super()._write()


def _keys(saved: object) -> tuple[str, ...] | None:
    """The saved keys of one command; None if that is not a list of texts."""
    return tuple(saved) if isinstance(saved, list) and all(isinstance(each, str) for each in saved) else None


def checked_values(cls: type[Settings], values: object) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The valid ones among saved `values` of a settings class, and a sentence for each invalid one.

    Unknown names are left out.
    """
    good: dict[str, Any] = {}
    problems: list[str] = []
    own = cls().to_json()
    for name, value in values.items() if isinstance(values, Mapping) else ():
        if name in own:
            try:
                good[name] = check_value(cls, name, value)
            except BadSetting as error:
                problems.append(str(error))
    return good, tuple(problems)


def without_defaults(settings: Settings) -> dict[str, Any]:
    """The values that differ from the defaults of the class, ready for JSON."""
    defaults = type(settings)().to_json()
    return {name: value for name, value in settings.to_json().items() if value != defaults[name]}
